// Answers of the worker itself: health, the page tag and the demonstration; and the size of the module.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, test } from "node:test";
import { gzipSync } from "node:zlib";

import { BUNDLE, Kv, STRICT, bindings, configOf, decide, freshWorker, health, jsonOf, send } from "./world.mjs";

let worker;
beforeEach(async () => {
  ({ default: worker } = await freshWorker());
});

const text = ({ body }) => new TextDecoder().decode(body);

test("the module has 1.01 MB gzipped at most", (t) => {
  const file = readdirSync(BUNDLE).find((name) => name.endsWith("engine_bg.wasm"));
  const size = gzipSync(readFileSync(join(BUNDLE, file)), { level: 9 }).length;
  t.diagnostic(`the module has ${size} bytes gzipped`);
  assert.ok(size <= 1_010_000, `${size} bytes`);
});

describe("the page tag", () => {
  const ask = (headers = {}) => send(worker, bindings(), "/causeway.js", { headers });

  test("is a script that every page may use and a browser stores for an hour", async () => {
    const { status, headers } = await ask({ origin: "http://localhost" });
    assert.deepEqual([status, headers.get("content-type")], [200, "text/javascript; charset=utf-8"]);
    assert.deepEqual([headers.get("cache-control"), headers.get("vary")], ["public, max-age=3600", "Origin"]);
    assert.equal(headers.get("access-control-allow-origin"), "http://localhost");
  });

  test("is not sent again to a browser that has it", async () => {
    const etag = (await ask()).headers.get("etag");
    assert.match(etag, /^"[^"]+"$/);
    for (const known of [etag, `W/${etag}`, `"other", ${etag}`]) {
      const { status, headers, body } = await ask({ "if-none-match": known });
      assert.deepEqual([status, headers.get("etag"), body.length], [304, etag, 0]);
    }
    assert.equal((await ask({ "if-none-match": '"other"' })).status, 200);
  });

  test("has 6 KB gzipped at most and evaluates nothing", async () => {
    const script = text(await ask());
    const size = gzipSync(script, { level: 9 }).length;
    assert.ok(size <= 6_144, `${size} bytes`);
    for (const word of ["eval(", "Function(", "innerHTML", "allow-same-origin", "document.write"]) assert.ok(!script.includes(word), word);
  });

  test("exports what its types declare", async () => {
    const folder = new URL("../../edge/tag/", import.meta.url);
    const types = readFileSync(new URL("causeway.d.ts", folder), "utf8");
    const declared = [...types.matchAll(/^export declare (?:const|function) (\w+)/gm)].map(([, name]) => name);
    const tag = await import(new URL("causeway.js", folder));
    assert.deepEqual(declared.sort(), Object.keys(tag).sort());
    const { exports, types: file } = JSON.parse(readFileSync(new URL("package.json", folder), "utf8"));
    assert.deepEqual(exports["."], { types: file, default: "./causeway.js" });
    for (const name of Object.keys(tag.causeway)) assert.match(types, new RegExp(`^  ${name}[:(]`, "m"));
  });
});

test("the health check shows the catalogue in use, the counters and the notes", async () => {
  const env = bindings({ PROFILES: new Kv(STRICT) });
  const before = await health(worker, env);
  assert.deepEqual([before.catalogue.version, before.last_sync_age_ms, before.module_restarts], [null, null, 0]);
  await decide(worker, env);
  const { catalogue, facts_lost, dead_letters, notes } = await health(worker, env);
  assert.deepEqual([catalogue.version, facts_lost, dead_letters, notes], ["c-1", 0, 0, { strict_unanswered: 1 }]);
});

describe("the demonstration", () => {
  const demo = (path, further = {}) =>
    send(worker, bindings({ CAUSEWAY_CONFIG: configOf({ dev: true }), CAUSEWAY_ADMIN_TOKEN: "t", ...further }), path);

  test("is a page that no cache stores", async () => {
    const page = await demo("/demo");
    assert.deepEqual([page.status, page.headers.get("content-type"), page.headers.get("cache-control")], [200, "text/html; charset=utf-8", "no-store"]);
    assert.ok(text(page).includes("<html"));
    assert.deepEqual(jsonOf(await demo("/demo/proof?member=ann")), { proof: "" }, "this tenant has no proof key");
    assert.equal((await demo("/demo/else")).status, 404);
  });

  test("is there for tenants marked dev alone", async () => {
    for (const path of ["/demo", "/demo/proof", "/demo/state"]) assert.equal((await send(worker, bindings(), path)).status, 404, path);
  });

  test("shows what the origin has stored of its own tenant alone, of eight visitors at most", async (t) => {
    const asked = [];
    t.mock.method(globalThis, "fetch", async (url, { headers, method }) => {
      asked.push(String(url));
      assert.deepEqual([new Headers(headers).get("authorization"), method ?? "GET"], ["Bearer t", "GET"]);
      return asked.length === 2 ? new Response("", { status: 404 }) : new Response('{"x":1}');
    });
    const visitors = Array.from({ length: 10 }, (_, index) => `v${index}`);
    const answer = await demo(`/demo/state?tenant=other&member=ann%20b&visitors=${visitors.join(",")}`, { ORIGIN_URL: "http://origin/" });
    const first = "http://origin/admin/v1/lookups/member/ann%20b?tenant=demo";
    assert.deepEqual(asked, [first, ...visitors.slice(0, 8).map((visitor) => `http://origin/admin/v1/visitors/${visitor}?tenant=demo`)]);
    const { lookup, visitors: stored } = jsonOf(answer);
    assert.deepEqual([lookup, stored.v0, stored.v1, Object.keys(stored).length], [{ x: 1 }, null, { x: 1 }, 8]);
  });

  test("says that the origin does not answer", async (t) => {
    for (const fetched of [async () => Promise.reject(new Error("refused")), async () => new Response("", { status: 502 })]) {
      const mock = t.mock.method(globalThis, "fetch", fetched);
      for (const query of ["member=ann", "visitors=v"]) {
        const answer = await demo(`/demo/state?${query}`);
        assert.deepEqual([answer.status, jsonOf(answer).error.code], [503, "origin_unreachable"], query);
      }
      mock.mock.restore();
    }
  });
});
