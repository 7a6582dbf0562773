// Requests from outside: bodies, headers, KV values, rate limits, parallel requests, and requests that cannot be
// served.

import assert from "node:assert/strict";
import { before, describe, test } from "node:test";

import {
  Browser,
  Kv,
  Queue,
  STRICT,
  admitting,
  advance,
  bindings,
  configOf,
  decide,
  freshWorker,
  fullQueue,
  health,
  jsonOf,
  mockTimers,
  playOrigin,
  send,
  takeLog,
  turn,
  until,
} from "./world.mjs";
import { EventContext } from "./worker.mjs";

/** Bytes of the longest body: `limits::BODY_BYTES`. */
const BODY_BYTES = 65_536;

let worker;
before(async () => {
  ({ default: worker } = await freshWorker());
});

describe("a body", () => {
  const post = (body, headers) => send(worker, bindings(), "/v1/decide", { method: "POST", body, headers });
  const padded = (length) => '{"placements":[{"id":"top"}]}'.padEnd(length, " ");
  const streamed = (text) => new Blob([text]).stream();

  test("of the longest length is read, declared or not", async () => {
    const declared = await post(padded(BODY_BYTES), { "content-length": String(BODY_BYTES) });
    assert.deepEqual([declared.status, jsonOf(declared).decisions.length], [200, 1]);
    const chunked = await post(streamed(padded(BODY_BYTES)));
    assert.deepEqual([chunked.status, jsonOf(chunked).decisions.length], [200, 1]);
  });

  test("one byte longer is refused", async () => {
    for (const answer of [await post(padded(BODY_BYTES + 1), { "content-length": String(BODY_BYTES + 1) }), await post(streamed(padded(BODY_BYTES + 1)))]) {
      assert.deepEqual([answer.status, jsonOf(answer).error.code], [413, "too_large"]);
    }
  });

  test("without an end is not read to its end", async () => {
    let pulled = 0;
    const endless = new ReadableStream({
      pull(controller) {
        pulled += 1;
        controller.enqueue(new Uint8Array(10_000));
      },
    });
    assert.equal((await post(endless)).status, 413);
    assert.ok(pulled < 20, `${pulled} chunks were read`);
  });

  test("declared as too long is not read at all", async () => {
    let pulled = 0;
    const source = { pull: () => (pulled += 1) };
    const unread = new ReadableStream(source, { highWaterMark: 0 });
    assert.equal((await post(unread, { "content-length": "65537" })).status, 413);
    assert.equal((await post(new ReadableStream(source, { highWaterMark: 0 }), { "content-length": "many" })).status, 413);
    assert.equal(pulled, 0);
  });
});

describe("a KV value", () => {
  const POINTER = "c:demo:current";
  /** The catalogue and the notes of a fresh isolate whose reads return these values. */
  const notesOf = async (read) => {
    const { default: worker } = await freshWorker();
    const { json } = await decide(worker, bindings({ PROFILES: { get: read } }));
    assert.equal(json.decisions[0]?.ad.id, "house");
    return [json.catalogue, json.degraded];
  };

  test("of a bulk read that is not of its form, empty or too long is invalid, and an absent one is not", async () => {
    const pointer = (value) => notesOf(async (keys) => new Map([[POINTER, value], ...keys.slice(1).map((key) => [key, null])]));
    for (const value of ["bad", "two\nlines", "", "x".repeat(4 * 1024 * 1024 + 1)]) {
      assert.deepEqual(await pointer(value), [null, ["catalogue_bad"]], value.slice(0, 10));
    }
    assert.deepEqual(await pointer(null), [null, undefined]);
    assert.deepEqual(await notesOf(async () => new Map()), [null, undefined]);
  });

  test("of a read of one key that is not of its form, empty or too long is invalid", async () => {
    const version = (value) => notesOf(async (keys) => (Array.isArray(keys) ? new Map(Object.entries(STRICT)) : value));
    for (const bytes of [Buffer.from("bad"), Buffer.from(""), Buffer.alloc(4 * 1024 * 1024 + 1, "x")]) {
      assert.deepEqual(await version(Uint8Array.from(bytes).buffer), [null, ["catalogue_bad"]]);
    }
    assert.deepEqual(await version(undefined), [null, ["catalogue_bad"]]);
    assert.deepEqual(await version(null), [null, ["catalogue_missing"]]);
  });

  test("that cannot be read leaves an answer that says so", async () => {
    const refused = () => Promise.reject(new Error("KV GET failed: 503"));
    const broken = () => {
      throw new Error("no such binding");
    };
    for (const read of [refused, broken]) assert.deepEqual(await notesOf(read), [null, ["kv_failed"]]);
  });

  test("of a bulk read that is no map counts as a failed read", async () => {
    for (const found of [undefined, {}]) {
      let outcome;
      notesOf(async () => found).then((notes) => (outcome = notes), (error) => (outcome = error));
      await until(() => outcome !== undefined);
      assert.deepEqual(outcome, [null, ["kv_failed"]]);
    }
  });
});

describe("a rate limit", () => {
  const address = "192.0.2.77";

  test("of minted visitors is asked with the tenant and the client's network, and refuses an identity alone", async () => {
    const asked = [];
    const MINT_LIMIT = admitting((key) => (asked.push(key), key !== "demo 203.0.113"));
    const from = (ip) => decide(worker, bindings({ MINT_LIMIT }), { headers: { "cf-connecting-ip": ip, "x-forwarded-for": "198.51.100.1" } });
    const admitted = await from(address);
    assert.deepEqual([admitted.json.reason, admitted.json.decisions.length], [undefined, 1]);
    const refused = await from("203.0.113.9");
    assert.deepEqual([refused.json.reason, refused.json.visitor, refused.headers.getSetCookie()], ["mint_limited", null, []]);
    assert.deepEqual(asked, ["demo 192.0.2", "demo 203.0.113"]);
  });

  test("counts by the address that the platform gives, and by no header of the client", async () => {
    const keys = [];
    const env = bindings({ MINT_LIMIT: admitting((key) => keys.push(key)) });
    for (const ip of ["2001:db8:7:ffff::1", "2001:db8::1", "::1"]) await decide(worker, env, { headers: { "cf-connecting-ip": ip } });
    await decide(worker, env, { headers: { "x-forwarded-for": address, "x-real-ip": address } });
    assert.deepEqual(keys, ["demo 2001:db8:7", "demo 2001:db8:0", "demo 0:0:0", "demo "]);
  });

  test("that is not bound or fails admits every visitor and is counted", async () => {
    const before = (await health(worker, bindings())).notes;
    const rejecting = { limit: () => Promise.reject(new Error("no answer")) };
    const throwing = {
      limit() {
        throw new Error("no answer");
      },
    };
    for (const MINT_LIMIT of [undefined, rejecting, throwing]) {
      assert.notEqual((await decide(worker, bindings({ MINT_LIMIT }))).json.visitor, null);
    }
    const { notes } = await health(worker, bindings());
    const more = (name) => (notes[name] ?? 0) - (before[name] ?? 0);
    assert.deepEqual([more("limit_unbound"), more("limit_failed")], [1, 2]);
  });

  test("of events answers 429, and the facts go nowhere", async () => {
    const env = bindings();
    const browser = new Browser(worker, env);
    const { json } = await browser.decide();
    const asked = [];
    env.EVENTS_LIMIT = admitting((key) => (asked.push(key), false));
    const sent = env.FACTS.sent.length;
    const answer = await browser.track("signup", { headers: { origin: "http://localhost" } });
    assert.deepEqual([answer.status, answer.json.error.code, answer.headers.get("retry-after")], [429, "rate_limited", "10"]);
    assert.equal(answer.headers.get("access-control-allow-origin"), "http://localhost");
    assert.deepEqual([env.FACTS.sent.length - sent, asked.length], [0, 1]);
    assert.ok(asked[0].includes(json.visitor), asked[0]);
  });
});

test("only the headers that the engine asks for are read", async (t) => {
  const read = new Set();
  const { get } = Headers.prototype;
  t.mock.method(Headers.prototype, "get", function (name) {
    read.add(name);
    return get.call(this, name);
  });
  await decide(worker, bindings(), { headers: { "x-other": "no", "user-agent": "Firefox/1" } });
  const wanted = ["cookie", "origin", "sec-gpc", "sec-purpose", "user-agent", "purpose", "sec-fetch-mode", "sec-fetch-dest", "content-length", "cf-connecting-ip"];
  // The head is read before the answer; a mint also reads the address for the rate limit.
  assert.deepEqual([...read].filter((name) => name.toLowerCase() !== "content-type").sort(), wanted.sort());
});

test("each decide call has its location, whichever catalogue is known when it comes", async () => {
  const { default: worker } = await freshWorker();
  const env = bindings({ PROFILES: new Kv(STRICT) });
  let read = 0;
  const answer = async () => {
    const request = new Request("http://localhost/v1/decide", { method: "POST", body: '{"placements":[{"id":"top"}]}' });
    const cf = { get: () => ((read += 1), { country: "DE", regionCode: "BE" }) };
    const context = new EventContext();
    const response = await worker.fetch(Object.defineProperty(request, "cf", cf), env, context);
    await context.settle();
    return (await response.json()).catalogue;
  };
  // The second call may read a catalogue that filters by location, and is decided with it.
  for (const calls of [1, 2]) assert.deepEqual([await answer(), read], ["c-1", calls]);
});

test("no two requests get the same random bytes, and the platform is not asked for each", async (t) => {
  const draw = t.mock.method(crypto, "getRandomValues");
  const drawn = new Set();
  for (let i = 0; i < 1_000; i += 1) {
    const { json } = await decide(worker, bindings());
    drawn.add(json.visitor).add(json.decisions[0].insertion);
  }
  assert.equal(drawn.size, 2_000);
  const calls = draw.mock.callCount();
  assert.ok(calls >= 7 && calls <= 9, `${calls} draws of 4,096 bytes`);
});

test("of 1,025 requests that wait the last one is refused at once, and the next is served", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { default: worker } = await freshWorker();
  const { promise: admission, resolve } = Promise.withResolvers();
  let asked = 0;
  const env = bindings({ MINT_LIMIT: { limit: () => ((asked += 1), admission) } });
  const waiting = Array.from({ length: 1_024 }, () => decide(worker, env));
  await until(() => asked === 1_024);
  const refused = await decide(worker, env);
  assert.deepEqual([refused.status, refused.json.reason, refused.json.decisions], [200, "overloaded", []]);
  assert.equal((await health(worker, env)).notes.overloaded, 1);
  resolve({ success: true });
  assert.ok((await Promise.all(waiting)).every(({ json }) => json.decisions.length === 1));
  assert.equal((await decide(worker, env)).json.decisions.length, 1);
});

describe("10,000 interleaved requests", () => {
  const BROWSERS = 2_500;
  /** Browsers under way at once. */
  const WINDOW = 500;

  test("get their own answers, cookies and facts while reads end in any order, some of them late", async (t) => {
    mockTimers(t);
    const { default: worker } = await freshWorker();
    // A linear congruential generator (Numerical Recipes), so that each run has the same order.
    let state = 1;
    const random = (below) => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) % below;
    /** Functions that end a read: of reads within their deadline, and of late ones. */
    const [open, late] = [[], []];
    const faults = [];
    const check = (holds, ...what) => holds || faults.push(what);

    const FACTS = new Queue();
    /** Each browser has its own bindings, so that a call that reaches another browser's is noticed. */
    const browsers = Array.from({ length: BROWSERS }, (_, number) => {
      const mark = `mark${number}`;
      const waiting = (value) => new Promise((resolve) => open.push(() => resolve(value)));
      const get = (keys) => {
        const isOwn = [keys].flat().some((key) => key === `v:demo:${browser.visitor}`);
        check(isOwn || browser.visitor === undefined, mark, "read", keys);
        return waiting(Array.isArray(keys) ? new Map() : null);
      };
      const env = bindings({ FACTS, PROFILES: { get }, MINT_LIMIT: { limit: () => waiting({ success: true }) } });
      const browser = Object.assign(new Browser(worker, env), { mark, visitor: undefined, late: 0 });
      return browser;
    });

    async function decideOwn(browser, placement) {
      const { json } = await browser.decide({ placement });
      browser.visitor ??= json.visitor;
      check(json.visitor === browser.visitor && json.decisions[0]?.placement === placement, browser.mark, "got", json);
      browser.late += json.degraded?.includes("kv_late") ? 1 : 0;
    }

    async function returnToSite(browser) {
      await decideOwn(browser, `${browser.mark}-returned`);
      const { json } = await browser.track(`name-of-${browser.mark}`);
      check(json.accepted === 1, browser.mark, "got", json);
      const me = jsonOf(await browser.send("/v1/me"));
      check(me.visitor === browser.visitor, browser.mark, "got", me);
    }

    /** Checks that each browser sent its two pages and its event, under its own visitor. */
    function checkFacts() {
      const all = FACTS.sent.map((message) => Buffer.from(message));
      for (const { mark, visitor } of browsers) {
        const id = Buffer.from(visitor.replaceAll("-", ""), "hex");
        const sent = all.filter((message) => message.includes(id));
        const named = sent.filter((message) => message.includes(`name-of-${mark}`)).length;
        check(sent.length === 3 && named === 1, mark, "sent", sent);
      }
    }

    /** Runs a part for each browser, and ends their reads in any order. */
    async function play(part) {
      let [begun, ended] = [0, 0];
      while (ended < BROWSERS) {
        for (; begun < BROWSERS && begun - ended < WINDOW; begun += 1) {
          part(browsers[begun]).catch((error) => check(false, error)).then(() => (ended += 1));
        }
        await turn();
        for (let some = open.length; some > 0; some -= 1) {
          const [end] = open.splice(random(open.length), 1);
          if (random(10) === 0) late.push(end);
          else end();
          if (random(8) === 0) await turn();
        }
        if (random(4) > 0) continue;
        advance(t, 100);
        await turn();
        // The values of late reads arrive while other requests use the instance.
        late.splice(0).forEach((end) => end());
      }
    }

    await play((browser) => decideOwn(browser, browser.mark));
    // The snapshot of a returning visitor is read.
    t.mock.timers.tick(3_600_000);
    await play(returnToSite);
    advance(t, 20);
    await until(() => FACTS.sent.length === 3 * BROWSERS);
    checkFacts();
    assert.deepEqual(faults.slice(0, 3), []);
    assert.equal(new Set(browsers.map(({ visitor }) => visitor)).size, BROWSERS);
    const lateReads = browsers.reduce((sum, browser) => sum + browser.late, 0);
    assert.ok(lateReads > BROWSERS / 20, `${lateReads} reads were late`);
    const { facts_lost, module_restarts } = await health(worker, bindings());
    assert.deepEqual([facts_lost, module_restarts], [0, 0]);
  });
});

test("an event runs to its end although its client leaves", async () => {
  for (const [method, path, status] of [["GET", "/v1/i/x", 200], ["GET", "/v1/c/x", 404], ["POST", "/v1/events", 202]]) {
    const context = new EventContext();
    const init = { method, ...(method === "POST" && { body: '[{"type":"page"}]' }) };
    const response = await worker.fetch(new Request(`http://localhost${path}`, init), bindings(), context);
    assert.equal(response.status, status);
    assert.ok((await Promise.all(context.after)).includes(response), path);
  }
});

test("a withdrawal that neither queue nor origin accepts leaves the cookies for the next request", async (t) => {
  const env = bindings();
  const browser = new Browser(worker, env);
  await browser.decide();
  const cookies = new Map(browser.cookies);
  assert.equal(cookies.size, 2);
  const headers = { "sec-gpc": "1" };
  const { FACTS } = env;
  env.FACTS = fullQueue();
  playOrigin(t, [503, 503, 503]);
  const page = await browser.decide({ headers });
  assert.deepEqual([page.status, page.json.decisions, page.json.reason], [200, [], "retry"]);
  assert.equal((await browser.send("/v1/me", { headers })).status, 503);
  assert.equal((await browser.track("x", { headers })).status, 503);
  assert.deepEqual(browser.cookies, cookies);
  env.FACTS = FACTS;
  const sent = FACTS.sent.length;
  const accepted = await browser.decide({ headers });
  assert.deepEqual([accepted.json.consent, browser.cookies.size, FACTS.sent.length - sent], ["none", 0, 1]);
  takeLog();
});

describe("a configuration that cannot be used", () => {
  test("is logged with its reason and without a secret", async () => {
    const weak = Buffer.alloc(32, 7).toString("base64");
    const messageOf = async (CAUSEWAY_CONFIG, CAUSEWAY_KEYS) => {
      const { default: worker } = await freshWorker();
      takeLog();
      await send(worker, bindings({ CAUSEWAY_CONFIG, CAUSEWAY_KEYS }), "/healthz");
      const [{ event, message }] = takeLog();
      assert.equal(event, "request_failed");
      return message;
    };
    assert.match(await messageOf("{", bindings().CAUSEWAY_KEYS), /CAUSEWAY_CONFIG cannot be parsed: line 1/);
    assert.match(await messageOf(undefined, undefined), /CAUSEWAY_CONFIG/);
    const keys = JSON.stringify({ sync: [{ id: 1, stage: "active", secret: weak }], tenants: {} });
    const message = await messageOf(configOf(), keys);
    assert.match(message, /sync: key 1 is weak/);
    assert.match(message, /tenants\.demo: this tenant has no keys/);
    assert.ok(!message.includes(weak));
  });

  test("gives every request an answer that its page may read, and is read again by the next", async () => {
    const { default: worker } = await freshWorker();
    const env = bindings({ CAUSEWAY_CONFIG: "{" });
    const page = "https://pub.example";
    const answered = async (method, path) => {
      const { status, headers, body } = await send(worker, env, path, { method, headers: { origin: page } });
      const { reason, error } = headers.get("content-type")?.startsWith("application/json") ? JSON.parse(new TextDecoder().decode(body)) : {};
      return [status, reason ?? error?.code, headers.get("access-control-allow-origin") ?? headers.get("location")];
    };
    assert.deepEqual(await answered("POST", "/v1/decide"), [200, "internal", page]);
    assert.deepEqual(await answered("GET", "/v1/me"), [503, "retry", page]);
    assert.deepEqual(await answered("DELETE", "/v1/me"), [503, "retry", page]);
    assert.deepEqual(await answered("POST", "/v1/events"), [503, "retry", page]);
    assert.deepEqual(await answered("GET", "/v1/c/token"), [302, undefined, "/v1/c/token?again"]);
    assert.deepEqual(await answered("GET", "/v1/c/token?utm=x"), [302, undefined, "/v1/c/token?utm=x&again"]);
    for (const query of ["?again", "?utm=x&again"]) assert.deepEqual(await answered("GET", `/v1/c/token${query}`), [200, "internal", page]);
    assert.deepEqual(await answered("OPTIONS", "/v1/decide"), [204, undefined, page]);
    assert.deepEqual(await answered("GET", "/healthz"), [503, "misconfigured", null]);
    assert.deepEqual(await answered("GET", "/causeway.js"), [503, undefined, null]);
    const picture = await send(worker, env, "/v1/i/token");
    assert.deepEqual([picture.headers.get("content-type"), picture.body.subarray(0, 3)], ["image/gif", new TextEncoder().encode("GIF")]);
    takeLog();
    assert.equal((await decide(worker, bindings())).json.decisions.length, 1);
  });
});
