// The demonstration page, for tenants marked `dev`: the module lets a request come here for no other.

import page from "./demo.html";
import { json } from "./json.mjs";

/** Answers /demo, /demo/proof and /demo/state, of the tenant that the host belongs to. */
export async function demo(request, env, module, tenant) {
  const url = new URL(request.url);
  switch (url.pathname) {
    case "/demo":
      return new Response(page, { headers: { "content-type": "text/html; charset=utf-8", "cache-control": "no-store" } });
    case "/demo/proof": {
      const member = url.searchParams.get("member") ?? "";
      const proof = module.call("dev_proof", url.hostname, member, Date.now());
      return json({ proof });
    }
    case "/demo/state":
      return json(await held(url, env, tenant));
    default:
      return json({ error: { code: "not_found", message: "the demonstration has /demo, /demo/proof and /demo/state" } }, 404);
  }
}

/** What the origin holds: the lookup of a member, and the visitors asked for. */
async function held(url, env, tenant) {
  const ask = async (path) => {
    const address = new URL(`/admin/v1/${path}?tenant=${encodeURIComponent(tenant)}`, env.ORIGIN_URL);
    const headers = { authorization: `Bearer ${env.CAUSEWAY_ADMIN_TOKEN}` };
    const response = await fetch(address, { headers, signal: AbortSignal.timeout(5_000) });
    return response.status === 200 ? response.json() : null;
  };
  const member = url.searchParams.get("member");
  const visitors = (url.searchParams.get("visitors") ?? "").split(",").filter(Boolean).slice(0, 8);
  const [lookup, ...profiles] = await Promise.all([
    member ? ask(`lookups/member/${encodeURIComponent(member)}`) : null,
    ...visitors.map((visitor) => ask(`visitors/${encodeURIComponent(visitor)}`)),
  ]);
  return { lookup, visitors: Object.fromEntries(visitors.map((visitor, i) => [visitor, profiles[i]])) };
}
