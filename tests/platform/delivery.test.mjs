// Delivery of facts: to a facts queue, otherwise to the origin, otherwise counted as lost.

import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";

import {
  Browser,
  Queue,
  advance,
  batchOf,
  bindings,
  configOf,
  decide,
  freshWorker,
  fullQueue,
  health,
  mockTimers,
  never,
  playOrigin,
  queueOf,
  settle,
  takeLog,
  turn,
  until,
} from "./world.mjs";
import { EventContext } from "./worker.mjs";

let worker;
beforeEach(async () => {
  ({ default: worker } = await freshWorker());
  takeLog();
});

/** Time after which the facts of a page are sent. */
const GATHERED_MS = 20;

/** A queue whose sends end when the test ends them; like the platform's queue, it takes over the bytes. */
function openQueue() {
  const sends = [];
  const send = (message, options) => {
    const { promise, resolve, reject } = Promise.withResolvers();
    sends.push({ bytes: new Uint8Array(message.buffer.transfer()), options, resolve, reject });
    return promise;
  };
  return { sends, ...queueOf(send) };
}

/** The lines of the worker's log about facts. */
const factsLog = () => takeLog().filter(({ event }) => event.startsWith("facts_"));

/** A browser that has a visitor. */
async function known(env, settled = (context) => context.settle()) {
  const browser = new Browser(worker, env);
  const { FACTS } = env;
  env.FACTS = queueOf(async () => {});
  await settled((await browser.decide()).context);
  env.FACTS = FACTS;
  return browser;
}

describe("facts of a page", () => {
  test("leave as one message of bytes, and the answer does not wait for them", async () => {
    const FACTS = openQueue();
    const { json, context } = await decide(worker, bindings({ FACTS }));
    assert.equal(json.decisions.length, 1);
    await until(() => FACTS.sends.length === 1);
    const [{ bytes, options, resolve }] = FACTS.sends;
    assert.deepEqual(options, { contentType: "bytes" });
    assert.ok(Buffer.from(bytes).includes(Buffer.from(json.visitor.replaceAll("-", ""), "hex")));
    let isSettled = false;
    context.settle().then(() => (isSettled = true));
    await turn();
    assert.equal(isSettled, false, "the platform waits for them");
    resolve();
    await until(() => isSettled);
    assert.equal(FACTS.sends.length, 1);
  });

  test("leave in one call with those of requests that are answered at the same time, each as its own message", async () => {
    const env = bindings();
    const calls = [];
    env.FACTS = { sendBatch: async (messages) => void calls.push(messages.map(({ body }) => Buffer.from(body))) };
    const pages = await Promise.all(Array.from({ length: 150 }, () => decide(worker, env)));
    await Promise.all(pages.map(({ context }) => context.settle()));
    await until(() => calls.flat().length === 150);
    assert.ok(calls.length < 10 && calls.every((call) => call.length <= 100), `${calls.map((call) => call.length)}`);
    const holds = (message, { json }) => message.includes(Buffer.from(json.visitor.replaceAll("-", ""), "hex"));
    for (const page of pages) assert.equal(calls.flat().filter((message) => holds(message, page)).length, 1);
  });

  test("are sent by a later request where the platform has ended the one that was to send them", async (t) => {
    mockTimers(t);
    const env = bindings();
    await decide(worker, env);
    // Its timer never fires.
    t.mock.timers.reset();
    t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.now() + 1_000 });
    const { context } = await decide(worker, env);
    await settle(t, context);
    assert.equal(env.FACTS.sent.length, 2);
  });

  test("that the queue refuses go to the origin as they were", async (t) => {
    const FACTS = openQueue();
    const syncs = playOrigin(t, [{ catalogue: "c-9" }]);
    const env = bindings({ FACTS, EDGE_NAME: "fra" });
    const { context } = await decide(worker, env);
    await until(() => FACTS.sends.length === 1);
    // Others are answered meanwhile.
    await Promise.all([decide(worker, bindings()), decide(worker, bindings())]);
    FACTS.sends[0].reject(new Error("full"));
    await context.settle();
    assert.deepEqual([syncs.length, syncs[0].edge, syncs[0].facts], [1, "fra", [FACTS.sends[0].bytes]]);
    const { facts_lost, last_sync_age_ms, catalogue } = await health(worker, env);
    assert.deepEqual([facts_lost, catalogue.origin], [0, "c-9"]);
    assert.ok(last_sync_age_ms >= 0);
  });

  test("go to the origin after 5 s where the queue does not answer", async (t) => {
    mockTimers(t);
    const syncs = playOrigin(t);
    const FACTS = openQueue();
    const env = bindings({ FACTS });
    const { context } = await decide(worker, env);
    advance(t, GATHERED_MS);
    await until(() => FACTS.sends.length === 1);
    advance(t, 4_999);
    await turn();
    assert.equal(syncs.length, 0);
    advance(t, 1);
    await settle(t, context);
    assert.deepEqual(syncs[0].facts, [FACTS.sends[0].bytes]);
    assert.equal((await health(worker, env)).facts_lost, 0);
  });

  test("are counted as lost after 15 s where neither queue nor origin answers", async (t) => {
    mockTimers(t);
    const syncs = playOrigin(t, [never()]);
    const env = bindings({ FACTS: openQueue() });
    const { context } = await decide(worker, env);
    advance(t, GATHERED_MS);
    await until(() => env.FACTS.sends.length === 1);
    advance(t, 5_000);
    await until(() => syncs.length === 1);
    advance(t, 9_999);
    await turn();
    assert.equal((await health(worker, env)).facts_lost, 0);
    advance(t, 1);
    await context.settle();
    assert.equal((await health(worker, env)).facts_lost, 1);
    // A queue that answers afterwards changes no count.
    env.FACTS.sends[0].resolve();
    await turn();
    assert.equal((await health(worker, env)).facts_lost, 1);
    assert.deepEqual(factsLog(), [{ event: "facts_lost", facts: 1 }]);
  });

  test("of which the origin refuses some are lost only if the origin may accept them later", async (t) => {
    playOrigin(t, [
      { rejected: [{ batch: 0, index: 0, code: "too_old" }] },
      { rejected: [{ batch: 0, code: "unknown_tenant" }] },
      // The report of the loss, then the facts.
      {},
      { rejected: [{ batch: 0, index: 0, code: "unknown_form" }] },
    ]);
    const env = bindings({ FACTS: fullQueue() });
    const lost = [];
    for (let page = 0; page < 3; page += 1) {
      await (await decide(worker, env)).context.settle();
      lost.push((await health(worker, env)).facts_lost);
    }
    assert.deepEqual(lost, [0, 1, 2]);
    assert.deepEqual(factsLog().filter(({ event }) => event === "facts_rejected")[0], { event: "facts_rejected", facts: 1, codes: ["too_old"] });
  });
});

describe("with three facts queues", () => {
  const NAMES = ["FACTS", "FACTS_2", "FACTS_3"];
  const CAUSEWAY_CONFIG = JSON.stringify({ facts_queues: 3, ...JSON.parse(configOf()) });
  const threeQueues = (further = {}) =>
    bindings({ CAUSEWAY_CONFIG, ...Object.fromEntries(NAMES.map((name) => [name, new Queue()])), ...further });
  /** The messages of each queue. */
  const sentTo = (env) => NAMES.map((name) => (env[name]?.sent ?? []).map((message) => Buffer.from(message)));
  const holds = (message, visitor) => message.includes(Buffer.from(visitor.replaceAll("-", ""), "hex"));

  /** The visitors of pages that are answered at the same time, after their facts left. */
  async function viewPages(env, pages) {
    const answers = await Promise.all(Array.from({ length: pages }, () => decide(worker, env)));
    await Promise.all(answers.map(({ context }) => context.settle()));
    return answers.map(({ json }) => json.visitor);
  }

  test("every message arrives once, and those of requests of the same time leave in one call of each queue", async () => {
    const env = threeQueues();
    const calls = [];
    for (const name of NAMES) {
      const queue = env[name];
      const { sendBatch } = queue;
      queue.sendBatch = (messages) => (calls.push(messages.length), sendBatch.call(queue, messages));
    }
    const visitors = await viewPages(env, 150);
    await until(() => sentTo(env).flat().length === 150);
    for (const visitor of visitors) assert.equal(sentTo(env).flat().filter((message) => holds(message, visitor)).length, 1);
    const counts = sentTo(env).map((sent) => sent.length);
    assert.ok(counts.every((count) => count > 20), `${counts}`);
    assert.ok(calls.length < 30 && calls.every((count) => count <= 100), `${calls}`);
  });

  test("all facts of a visitor are in one queue", async () => {
    const env = threeQueues();
    for (let visitor = 0; visitor < 8; visitor += 1) {
      const browser = new Browser(worker, env);
      const { json, context } = await browser.decide();
      await context.settle();
      for (const name of ["first", "second"]) assert.equal((await browser.track(name)).status, 202);
      await (await browser.decide()).context.settle();
      const own = sentTo(env).map((sent) => sent.filter((message) => holds(message, json.visitor)).length);
      assert.deepEqual(own.toSorted(), [0, 0, 4]);
    }
  });

  test("the messages of a queue that refuses go to the origin, and those of the others do not", async (t) => {
    const syncs = playOrigin(t);
    const env = threeQueues({ FACTS_2: fullQueue() });
    const visitors = await viewPages(env, 60);
    const accepted = sentTo(env).flat();
    const synced = syncs.flatMap(({ facts }) => facts.map((message) => Buffer.from(message)));
    assert.ok(synced.length > 0 && accepted.length > 0);
    for (const visitor of visitors) assert.equal([...accepted, ...synced].filter((message) => holds(message, visitor)).length, 1);
    assert.equal(accepted.length + synced.length, 60);
    assert.equal((await health(worker, env)).facts_lost, 0);
  });

  test("the first queue takes the facts of a queue without a binding, which is noted once", async () => {
    const env = threeQueues({ FACTS_3: undefined });
    for (let round = 0; round < 3; round += 1) await viewPages(env, 20);
    const [first, second] = sentTo(env);
    assert.equal(first.length + second.length, 60);
    assert.ok(second.length > 0 && first.length > second.length);
    assert.deepEqual(takeLog().filter(({ event }) => event === "queue_unbound"), [{ event: "queue_unbound", binding: "FACTS_3" }]);
  });

  test("a dead letter goes to the first queue again", async () => {
    const env = threeQueues();
    await viewPages(env, 20);
    const before = sentTo(env);
    const { batch, outcomes } = batchOf("causeway-facts-dead", before.flat().map((body) => ({ body: Uint8Array.from(body) })));
    for (const name of NAMES) env[name] = new Queue();
    await worker.queue(batch, env, new EventContext());
    assert.deepEqual(outcomes, Array(20).fill("ack"));
    const sorted = (sent) => sent.map((message) => message.toString("hex")).toSorted();
    assert.deepEqual(sentTo(env).map(sorted), [sorted(before.flat()), [], []]);
  });

  test("messages of every queue are handed to the origin, also of one that no longer takes facts", async (t) => {
    const syncs = playOrigin(t);
    for (const queue of ["causeway-facts", "causeway-facts-2", "causeway-facts-7"]) {
      const { batch, outcomes } = batchOf(queue, [{}]);
      await worker.queue(batch, threeQueues(), new EventContext());
      assert.deepEqual(outcomes, ["ack"]);
    }
    assert.equal(syncs.length, 3);
  });
});

describe("facts that an answer waits for", () => {
  test("are acknowledged once the queue has accepted them", async () => {
    const env = bindings();
    const browser = await known(env);
    env.FACTS = openQueue();
    let answer;
    browser.track("signup").then((value) => (answer = value));
    await until(() => env.FACTS.sends.length === 1);
    await turn();
    assert.equal(answer, undefined);
    env.FACTS.sends[0].resolve();
    await until(() => answer !== undefined);
    assert.deepEqual([answer.status, answer.json.accepted], [202, 1]);
  });

  test("are asked for again where neither queue nor origin accepts them, and are not lost", async (t) => {
    const env = bindings();
    const browser = await known(env);
    env.FACTS = fullQueue();
    const syncs = playOrigin(t, [503, { rejected: [{ batch: 0, code: "unknown_tenant" }] }, {}]);
    for (let refusal = 0; refusal < 2; refusal += 1) {
      const { status, json, headers } = await browser.track("signup");
      assert.deepEqual([status, json.error.code, headers.get("retry-after")], [503, "retry", "1"]);
    }
    assert.deepEqual([(await browser.track("signup")).json.accepted, syncs.length], [1, 3]);
    assert.equal((await health(worker, env)).facts_lost, 0);
    assert.deepEqual(factsLog().filter(({ event }) => event !== "facts_rejected"), Array(2).fill({ event: "facts_refused", facts: 1 }));
  });

  test("wait 5 s for a queue that does not answer, and then for the origin", async (t) => {
    mockTimers(t);
    const env = bindings();
    const browser = await known(env, (context) => settle(t, context));
    env.FACTS = openQueue();
    const syncs = playOrigin(t, [{}, never()]);
    const answers = [];
    for (const name of ["first", "second"]) browser.track(name).then((answer) => answers.push(answer.status));
    await until(() => env.FACTS.sends.length === 2);
    advance(t, 5_000);
    await until(() => syncs.length === 2 && answers.length === 1);
    advance(t, 9_999);
    await turn();
    assert.deepEqual(answers, [202]);
    advance(t, 1);
    await until(() => answers.length === 2);
    assert.deepEqual(answers, [202, 503]);
  });
});

describe("losses", () => {
  /** Loses the facts of one page. */
  async function lose(env, settled = (context) => context.settle()) {
    env.FACTS = fullQueue();
    await settled((await decide(worker, env)).context);
    env.FACTS = new Queue();
  }

  test("are reported to the origin by a request, once a minute at most, until the origin has answered", async (t) => {
    mockTimers(t);
    const env = bindings();
    // The facts themselves, then the reports.
    const syncs = playOrigin(t, [503, 503, {}]);
    const view = async () => {
      await settle(t, (await decide(worker, env)).context);
      return syncs.length;
    };
    await lose(env, (context) => settle(t, context));
    assert.deepEqual([syncs.length, (await health(worker, env)).facts_lost], [1, 1]);
    assert.deepEqual([await view(), await view()], [2, 2]);
    advance(t, 59_900);
    assert.equal(await view(), 2);
    advance(t, 100);
    assert.deepEqual([await view(), await view()], [3, 3]);
    advance(t, 60_000);
    assert.equal(await view(), 3);
    assert.deepEqual(syncs.map(({ lost, facts }) => [lost, facts.length]), [[0, 1], [1, 0], [1, 0]]);
  });

  test("are reported once by concurrent syncs, and again after a failed one", async (t) => {
    const env = bindings();
    const open = Promise.withResolvers();
    const syncs = playOrigin(t, [503, open.promise, {}, {}]);
    await lose(env);
    // The first report is in progress while other syncs bring facts to the origin.
    const reporting = await decide(worker, env);
    await until(() => syncs.length === 2 && env.FACTS.sent.length === 1);
    env.FACTS = fullQueue();
    await (await decide(worker, env)).context.settle();
    open.resolve(503);
    await reporting.context.settle();
    await (await decide(worker, env)).context.settle();
    assert.deepEqual(syncs.map(({ lost }) => lost), [0, 1, 0, 1]);
  });
});

describe("requests that are not counted", () => {
  test("are reported to the origin by reason, every five minutes at most, until the origin has answered", async (t) => {
    mockTimers(t);
    const env = bindings();
    const syncs = playOrigin(t, [{}, 503]);
    const view = async (headers) => {
      await settle(t, (await decide(worker, env, { headers })).context);
      return syncs.length;
    };
    assert.equal(await view({}), 0, "a person's page reports nothing");
    assert.equal(await view({ "user-agent": "Googlebot" }), 1);
    assert.equal(await view({ "sec-purpose": "prefetch" }), 1);
    advance(t, 299_000);
    assert.equal(await view({ "user-agent": "Googlebot" }), 1);
    advance(t, 1_000);
    assert.deepEqual([await view({}), await view({})], [2, 2], "the page of a person reports them too");
    advance(t, 300_000);
    assert.equal(await view({}), 3);
    advance(t, 300_000);
    assert.equal(await view({}), 3, "the origin knows of all");
    assert.deepEqual(syncs.map(({ filtered }) => filtered), [{ b: 1 }, { b: 1, p: 1 }, { b: 1, p: 1 }]);
    const { bot, prefetch } = (await health(worker, env)).notes;
    assert.deepEqual([bot, prefetch], [2, 1]);
  });

  test("are reported by a sync that brings facts", async (t) => {
    const env = bindings();
    const syncs = playOrigin(t, [503, {}]);
    await (await decide(worker, env, { headers: { "user-agent": "Googlebot" } })).context.settle();
    env.FACTS = fullQueue();
    await (await decide(worker, env)).context.settle();
    assert.deepEqual(syncs.map(({ facts, filtered }) => [facts.length, filtered]), [[0, { b: 1 }], [1, { b: 1 }]]);
  });
});
