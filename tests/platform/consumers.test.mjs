// The consumers of the facts queues and of their dead letters.

import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";

import {
  Queue,
  advance,
  batchOf,
  bindings,
  freshWorker,
  fullQueue,
  queueOf,
  health,
  never,
  playOrigin,
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

const FACTS = "causeway-facts";
const DEAD = "causeway-facts-dead";

/** Consumes a batch. Returns the outcome of each message: "ack", or the delay of its next delivery in seconds. */
async function consume(env, queue, messages) {
  const { batch, outcomes } = batchOf(queue, messages);
  await worker.queue(batch, env, new EventContext());
  return outcomes;
}

const mockTimers = (t) => t.mock.timers.enable({ apis: ["setTimeout"] });

describe("facts", () => {
  test("go to the origin 25 messages a sync, and what failed is delivered again after a growing pause", async (t) => {
    const syncs = playOrigin(t, [{ pending: 2 }, 503]);
    const env = bindings();
    const attempts = [...Array(25).fill(1), 1, 2, 9, 101];
    const bodies = attempts.map((_, index) => Uint8Array.of(index));
    const outcomes = await consume(env, FACTS, attempts.map((attempts, index) => ({ attempts, body: bodies[index] })));
    assert.deepEqual(outcomes, [...Array(25).fill("ack"), 2, 4, 300, 300]);
    assert.deepEqual(syncs.map(({ facts, drain }) => [facts, drain]), [[bodies.slice(0, 25), 0], [bodies.slice(25), 0]]);
    // The origin has outbox entries, so the publisher is triggered.
    assert.deepEqual(env.PUBLISH.sent, ["wake"]);
    assert.equal((await health(worker, env)).dead_letters, 1);
    assert.deepEqual(takeLog().at(-1), { event: "dead_letter", attempts: 101, dead_total: 1 });
  });

  test("arrive as bytes, whether the platform gives an ArrayBuffer or a typed array", async (t) => {
    const syncs = playOrigin(t);
    const whole = Uint8Array.of(9, 1, 2, 3, 9);
    assert.deepEqual(await consume(bindings(), FACTS, [{ body: whole.slice().buffer }, { body: whole.subarray(1, 4) }]), ["ack", "ack"]);
    assert.deepEqual(syncs[0].facts, [whole, Uint8Array.of(1, 2, 3)]);
  });

  test("wake no publisher where the origin has nothing to publish", async (t) => {
    playOrigin(t, [{ pending: 0 }]);
    const env = bindings();
    await consume(env, FACTS, [{}]);
    assert.deepEqual(env.PUBLISH.sent, []);
  });

  test("that the origin refuses for good are acknowledged, and those of an unknown tenant or a later form come again", async (t) => {
    const rejected = [
      { batch: 0, index: 0, code: "too_old" },
      { batch: 1, code: "unknown_tenant" },
      { batch: 2, code: "malformed" },
      { batch: 3, index: 1, code: "unknown_form" },
    ];
    playOrigin(t, [{ rejected }]);
    assert.deepEqual(await consume(bindings(), FACTS, [{}, {}, {}, {}, {}]), ["ack", 2, "ack", 2, "ack"]);
  });

  test("come again where the origin does not answer within 10 s, or answers something else", async (t) => {
    mockTimers(t);
    const syncs = playOrigin(t, [never()]);
    const consumed = consume(bindings(), FACTS, [{}]);
    await until(() => syncs.length === 1);
    advance(t, 10_000);
    assert.deepEqual(await consumed, [2]);
    t.mock.method(globalThis, "fetch", async () => new Response("<html>"));
    assert.deepEqual(await consume(bindings(), FACTS, [{}]), [2]);
  });

  test("wait 300 s for a configuration that can be used", async () => {
    assert.deepEqual(await consume(bindings({ CAUSEWAY_CONFIG: "{" }), FACTS, [{}, { attempts: 101 }]), [300, 300]);
    assert.match(takeLog()[0].message, /CAUSEWAY_CONFIG cannot be parsed/);
  });
});

test("losses and dead letters are reported to the origin with the next sync, once", async (t) => {
  const syncs = playOrigin(t, [503, 503, {}, {}]);
  const env = bindings();
  for (let sync = 0; sync < 4; sync += 1) await consume(env, FACTS, [{ attempts: 101 }]);
  // The second dead letter comes before the first one was reported.
  assert.deepEqual(syncs.map(({ dead }) => dead), [0, 1, 2, 0]);
});

describe("a dead letter", () => {
  test("goes to the facts queue again, as bytes", async () => {
    const options = [];
    const env = bindings();
    env.FACTS = Object.assign(new Queue(), {
      async send(message, how) {
        this.sent.push(message);
        options.push(how);
      },
    });
    assert.deepEqual(await consume(env, DEAD, [{ body: Uint8Array.of(7) }, { body: Uint8Array.of(8) }]), ["ack", "ack"]);
    assert.deepEqual(env.FACTS.sent, [Uint8Array.of(7), Uint8Array.of(8)]);
    assert.deepEqual(options, Array(2).fill({ contentType: "bytes" }));
  });

  test("is tried for the 14 days for which its queue stores it", async () => {
    const env = bindings({ FACTS: fullQueue() });
    const pauses = await consume(env, DEAD, Array.from({ length: 100 }, (_, tried) => ({ attempts: tried + 1 })));
    assert.deepEqual([pauses[0], pauses[11], pauses[12], pauses[99]], [300, 300, 14_400, 14_400]);
    assert.ok(pauses.reduce((sum, pause) => sum + pause) > 14 * 86_400);
    assert.ok(takeLog().every(({ event }) => event === "redrive_failed"));
  });

  test("needs no configuration", async () => {
    const env = bindings({ CAUSEWAY_CONFIG: "{" });
    assert.deepEqual(await consume(env, DEAD, [{}]), ["ack"]);
  });

  test("waits 5 s for a queue that does not answer", async (t) => {
    mockTimers(t);
    let asked = 0;
    const env = bindings({ FACTS: queueOf(() => ((asked += 1), never())) });
    let outcomes;
    consume(env, DEAD, [{}]).then((value) => (outcomes = value));
    await until(() => asked === 1);
    advance(t, 4_999);
    await turn();
    assert.equal(outcomes, undefined);
    advance(t, 1);
    await until(() => outcomes !== undefined);
    assert.deepEqual(outcomes, [300]);
  });
});
