// A thin shim over raw WebAssembly: passes the KV value unchanged to the module, which reads it once.

import wasm from "./shim.wasm";

const { exports } = new WebAssembly.Instance(wasm, {});
const room = new Uint8Array(exports.memory.buffer, exports.room(), 128 * 1024);
const encoder = new TextEncoder();

export default {
  async fetch(_request, env, ctx) {
    if (env.FACTS) ctx.waitUntil(env.FACTS.send(new Uint8Array(Number(env.MESSAGE_BYTES)), { contentType: "bytes" }));
    const value = env.PROFILES ? await env.PROFILES.get(env.KEY) : "";
    const { written } = encoder.encodeInto(value, room);
    return new Response(String(exports.answer(written) & 0xffff_ffffn));
  },
};
