// Waits: each ends within its own deadline, whatever the platform does, and no wait ends another one.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import {
  Browser,
  Kv,
  STRICT,
  advance,
  bindObjects,
  bindings,
  decide,
  freshWorker,
  jsonOf,
  mockTimers,
  never,
  playOrigin,
  send,
  settle,
  takeLog,
  turn,
  until,
} from "./world.mjs";

let classes;
let worker;
beforeEach(async () => {
  classes = await freshWorker();
  worker = classes.default;
  takeLog();
});

/** Watches an answer; `isHere` is true after it came. */
function watch(answer) {
  const watched = { isHere: false, answer };
  answer.then(() => (watched.isHere = true));
  return watched;
}

/** A KV whose reads end when the test ends them. */
function openKv() {
  const reads = [];
  const get = (keys) => {
    const { promise, resolve, reject } = Promise.withResolvers();
    reads.push({ keys, resolve, reject, promise });
    return promise;
  };
  return { reads, get };
}

/** Number of promises that run after an answer whose late read continues: the answer, its facts, and the read. */
const READ_AFTER_ANSWER = 3;

test("a KV that answers after 10 s degrades the answer, which comes after 100 ms", async (t) => {
  mockTimers(t);
  const kv = openKv();
  const env = bindings({ PROFILES: kv });
  const page = watch(decide(worker, env));
  await until(() => kv.reads.length === 1);
  advance(t, 99);
  await turn();
  assert.equal(page.isHere, false);
  advance(t, 1);
  await turn();
  assert.equal(page.isHere, true);
  const { status, json, context } = await page.answer;
  assert.deepEqual([status, json.degraded, json.kv_reads, json.decisions[0].ad.id], [200, ["kv_late"], 1, "house"]);
  // The read continues, so that the location has the value for the next request; this request ignores it.
  assert.equal(context.after.length, READ_AFTER_ANSWER);
  advance(t, 10_000 - 100);
  kv.reads[0].resolve(new Map(Object.entries(STRICT)));
  await settle(t, context);
  assert.equal(env.FACTS.sent.length, 1);
  const health = jsonOf(await send(worker, env, "/healthz"));
  assert.deepEqual([health.catalogue.version, health.notes.kv_late], [null, 1]);
});

test("eight late reads continue at once, for 30 s", async (t) => {
  mockTimers(t);
  const kv = openKv();
  const env = bindings({ PROFILES: kv });
  const browsers = Array.from({ length: 12 }, () => new Browser(worker, bindings()));
  for (const browser of browsers) {
    await browser.decide();
    browser.env = env;
  }
  t.mock.timers.tick(3_600_000);
  /** Whether the late read of a returning visitor continues. */
  const continues = async (browser) => {
    const at = kv.reads.length;
    const page = browser.decide();
    await until(() => kv.reads.length > at);
    advance(t, 100);
    const { json, context } = await page;
    assert.deepEqual(json.degraded, ["kv_late"]);
    return context.after.length === READ_AFTER_ANSWER;
  };
  const first = [];
  for (const browser of browsers.slice(0, 9)) first.push(await continues(browser));
  assert.deepEqual(first, [...Array(8).fill(true), false]);
  advance(t, 30_000 - 900);
  assert.equal(await continues(browsers[9]), true, "the first one has ended");
  assert.equal(await continues(browsers[10]), true, "and the second");
});

test("a late read that fails does not fail its request", async (t) => {
  mockTimers(t);
  const kv = openKv();
  const page = decide(worker, bindings({ PROFILES: kv }));
  await until(() => kv.reads.length === 1);
  advance(t, 100);
  const { context } = await page;
  kv.reads[0].reject(new Error("KV GET failed: 503"));
  await settle(t, context);
});

test("one deadline covers all reads of a request", async (t) => {
  mockTimers(t);
  const kv = openKv();
  const page = watch(decide(worker, bindings({ PROFILES: kv })));
  await until(() => kv.reads.length === 1);
  advance(t, 60);
  kv.reads[0].resolve(new Map(Object.entries(STRICT)));
  await until(() => kv.reads.length === 2);
  advance(t, 39);
  await turn();
  assert.equal(page.isHere, false);
  advance(t, 1);
  const { json } = await page.answer;
  assert.deepEqual([json.kv_reads, json.degraded], [2, ["kv_late"]]);
});

test("a deadline ends its own request and no other", async (t) => {
  mockTimers(t);
  const kv = openKv();
  const env = bindings({ PROFILES: kv });
  const pages = [];
  for (let count = 1; count <= 3; count += 1) {
    pages.push(watch(decide(worker, env)));
    await until(() => kv.reads.length === count);
    advance(t, 30);
  }
  const here = () => pages.map(({ isHere }) => isHere);
  advance(t, 10);
  await turn();
  assert.deepEqual(here(), [true, false, false]);
  // A value ends only its own request too.
  kv.reads[2].resolve(new Map());
  await turn();
  assert.deepEqual(here(), [true, false, true]);
  advance(t, 30);
  await turn();
  assert.deepEqual(here(), [true, true, true]);
  const degraded = await Promise.all(pages.map(async ({ answer }) => (await answer).json.degraded));
  assert.deepEqual(degraded, [["kv_late"], ["kv_late"], undefined]);
});

test("a request leaves no timer, and what came in time is not late afterwards", async (t) => {
  mockTimers(t);
  const set = t.mock.method(globalThis, "setTimeout");
  const cleared = t.mock.method(globalThis, "clearTimeout");
  playOrigin(t);
  // A bot's request reads the catalogue too, and has no facts.
  const headers = { "user-agent": "Googlebot" };
  const { json, context } = await decide(worker, bindings({ PROFILES: new Kv(STRICT) }), { headers });
  await settle(t, context);
  assert.equal(json.degraded?.includes("kv_late") ?? false, false);
  const timers = set.mock.calls.map(({ result }) => result);
  assert.ok(timers.length > 0);
  assert.deepEqual(new Set(cleared.mock.calls.map(({ arguments: [timer] }) => timer)), new Set(timers));
});

test("what arrives while the isolate stands still is not late", async () => {
  // The platform runs timers first, and delivers the value after them.
  const standStill = (resolve) => {
    setImmediate(resolve, new Map());
    const end = performance.now() + 150;
    while (performance.now() < end);
  };
  let reads = 0;
  const get = () => ((reads += 1), new Promise((resolve) => setImmediate(standStill, resolve)));
  const { json } = await decide(worker, bindings({ PROFILES: { get } }));
  assert.deepEqual([reads, json.degraded], [1, undefined]);
});

test("a rate limit that does not answer admits after 100 ms", async (t) => {
  mockTimers(t);
  let asked = 0;
  const silent = { limit: () => ((asked += 1), never()) };
  const env = bindings({ MINT_LIMIT: silent, EVENTS_LIMIT: silent });
  const browser = new Browser(worker, env);
  const page = browser.decide();
  await until(() => asked === 1);
  advance(t, 100);
  assert.notEqual((await page).json.visitor, null);
  const event = watch(browser.track("signup"));
  await until(() => asked === 2);
  advance(t, 99);
  await turn();
  assert.equal(event.isHere, false);
  advance(t, 1);
  assert.equal((await event.answer).json.accepted, 1);
});

test("all waits of a decision together take 180 ms", async (t) => {
  mockTimers(t);
  const kv = openKv();
  const env = bindObjects(classes, { PROFILES: kv });
  let asked = 0;
  env.STRICT_CAPS.get = () => ({ fetch: () => ((asked += 1), never()) });
  const page = watch(decide(worker, env));
  await until(() => kv.reads.length === 1);
  advance(t, 50);
  kv.reads[0].resolve(new Map(Object.entries(STRICT)));
  await until(() => kv.reads.length === 2);
  advance(t, 45);
  kv.reads[1].resolve(new TextEncoder().encode(STRICT["c:demo:1"]).buffer);
  await until(() => asked === 1);
  // The object has 85 ms instead of its usual 100 ms.
  advance(t, 84);
  await turn();
  assert.equal(page.isHere, false);
  advance(t, 1);
  const { json } = await page.answer;
  assert.deepEqual([json.kv_reads, json.degraded, json.decisions[0].ad.id], [2, ["strict_unanswered"], "house"]);
});

test("an object has 100 ms for a decision, and 2 s for an impression", async (t) => {
  mockTimers(t);
  const env = bindObjects(classes, { PROFILES: new Kv(STRICT) });
  const browser = new Browser(worker, env);
  const page = await browser.decide();
  await settle(t, page.context);
  const { impression_url } = page.json.decisions[0];
  const near = env.STRICT_CAPS.get.bind(env.STRICT_CAPS);
  let asked = 0;
  const far = (ms) => (name) => ({
    async fetch(request) {
      asked += 1;
      await new Promise((resolve) => setTimeout(resolve, ms));
      return near(name).fetch(request);
    },
  });
  env.STRICT_CAPS.get = far(1_999);
  const sent = env.FACTS.sent.length;
  const picture = browser.send(impression_url);
  await until(() => asked === 1);
  advance(t, 1_999);
  const { headers, context } = await picture;
  await settle(t, context);
  assert.equal(headers.get("content-type"), "image/gif");
  assert.equal(env.FACTS.sent.length - sent, 1, "the impression counts");
  const later = watch(decide(worker, env));
  await until(() => asked === 2);
  advance(t, 99);
  await turn();
  assert.equal(later.isHere, false);
  advance(t, 1);
  assert.deepEqual((await later.answer).json.degraded, ["strict_unanswered"]);
});

test("a body that a client does not send is given up after 30 s", async (t) => {
  mockTimers(t);
  const page = watch(send(worker, bindings(), "/v1/decide", { method: "POST", body: new ReadableStream() }));
  await turn();
  await turn();
  advance(t, 29_999);
  await turn();
  assert.equal(page.isHere, false);
  advance(t, 1);
  const answer = await page.answer;
  assert.deepEqual([answer.status, jsonOf(answer).reason], [200, "internal"]);
  assert.deepEqual(takeLog().map(({ event }) => event), ["body_failed"]);
});
