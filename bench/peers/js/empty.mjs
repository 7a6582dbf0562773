// The least work of a JavaScript worker: it answers. With bindings it also reads the KV value or sends to the queue.

export default {
  async fetch(_request, env, ctx) {
    if (env.FACTS) ctx.waitUntil(env.FACTS.send(new Uint8Array(Number(env.MESSAGE_BYTES)), { contentType: "bytes" }));
    if (!env.PROFILES) return new Response("empty");
    const value = await env.PROFILES.get(env.KEY);
    return new Response(String(value.length));
  },
};
