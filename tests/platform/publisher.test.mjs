// The publish consumer: it drains the origin's outbox and reads back the keys that the
// origin verifies.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { beforeEach, describe, test } from "node:test";

import { advance, batchOf, bindings, freshWorker, fullQueue, never, playOrigin, takeLog, turn, until } from "./world.mjs";
import { EventContext } from "./worker.mjs";

let worker;
beforeEach(async () => {
  ({ default: worker } = await freshWorker());
  takeLog();
});

const mockTimers = (t) => t.mock.timers.enable({ apis: ["setTimeout"] });

/** Lets the worker consume one wake-up. */
const drain = (env) => worker.queue(batchOf("causeway-publish", [{ body: "wake" }]).batch, env, new EventContext());

const entries = (from, count) => Array.from({ length: count }, (_, index) => ({ entry: from + index, key: `k${from + index}`, value: "v" }));

/** Bindings with a KV that logs its calls. `get` and `write` may be replaced. */
function publishing({ write = async () => {}, get = async (keys) => new Map(keys.map((key) => [key, null])) } = {}) {
  const writes = [];
  const put = (key, value) => (writes.push([key, value]), write(key));
  const remove = (key) => (writes.push([key]), write(key));
  return Object.assign(bindings({ PROFILES: { put, delete: remove, get } }), { writes });
}

test("a cron wakes the publisher, and a queue that refuses or does not answer ends it in 5 s", async (t) => {
  mockTimers(t);
  const wake = (env) => worker.scheduled({}, env, new EventContext());
  const options = [];
  const PUBLISH = { send: async (message, how) => options.push([message, how]) };
  await wake(bindings({ PUBLISH }));
  assert.deepEqual(options, [["wake", { contentType: "text" }]]);
  await wake(bindings({ PUBLISH: fullQueue() }));
  let asked = 0;
  const silent = wake(bindings({ PUBLISH: { send: () => ((asked += 1), never()) } }));
  await until(() => asked === 1);
  advance(t, 5_000);
  await silent;
  assert.deepEqual(takeLog().map(({ event }) => event), ["wake_failed", "wake_failed"]);
});

describe("a drain", () => {
  test("writes values, deletes keys and acknowledges both", async (t) => {
    const syncs = playOrigin(t, [{ publish: [{ entry: 4, key: "a", value: "1" }, { entry: 9, key: "b", value: null }] }, {}]);
    const env = publishing();
    await drain(env);
    assert.deepEqual(env.writes, [["a", "1"], ["b"]]);
    assert.deepEqual(syncs.map(({ drain, applied }) => [drain, applied]), [[100, []], [100, [4, 9]]]);
  });

  test("writes six keys at once at most", async (t) => {
    playOrigin(t, [{ publish: entries(0, 13) }]);
    const open = [];
    const env = publishing({ write: () => new Promise((resolve) => open.push(resolve)) });
    const draining = drain(env);
    for (const count of [6, 6, 1]) {
      await until(() => open.length === count);
      await turn();
      assert.equal(open.length, count);
      open.splice(0).forEach((resolve) => resolve());
    }
    await draining;
  });

  test("asks for no more after 800 operations, and acknowledges its last writes", async (t) => {
    const batches = Array.from({ length: 8 }, (_, index) => ({ publish: entries(100 * index, 100), pending: 300 - index }));
    const syncs = playOrigin(t, [...batches, { pending: 9 }]);
    const env = publishing();
    await drain(env);
    assert.deepEqual(syncs.map(({ drain }) => drain), [...Array(8).fill(100), 0]);
    assert.deepEqual(syncs.map(({ applied }) => applied.length), [0, ...Array(8).fill(100)]);
    assert.deepEqual(env.PUBLISH.sent, ["wake"]);
  });

  test("counts a sync and a bulk read as operations", async (t) => {
    const few = playOrigin(t, [...Array.from({ length: 500 }, (_, index) => ({ publish: entries(index, 1), pending: 1 })), { pending: 1 }]);
    await drain(publishing());
    // 400 writes and 400 syncs, and one sync that asks for no entries.
    assert.equal(few.findIndex(({ drain }) => drain === 0), 400);
    t.mock.restoreAll();
    const syncs = playOrigin(t, [...Array(400).fill({ verify: [{ entry: 7, key: "a" }], pending: 1 }), { pending: 1 }]);
    const env = publishing();
    await drain(env);
    assert.deepEqual([syncs.length, syncs.findIndex(({ drain }) => drain === 0)], [401, 400]);
    assert.deepEqual([syncs[400].read, env.PUBLISH.sent], [[{ entry: 7, sha256: null }], ["wake"]]);
  });

  test("asks for no more after 20 s", async (t) => {
    t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
    const syncs = playOrigin(t, [{ publish: entries(0, 1), pending: 5 }, { pending: 5 }]);
    const env = publishing({ write: async () => t.mock.timers.tick(20_000) });
    await drain(env);
    assert.deepEqual(syncs.map(({ drain, applied }) => [drain, applied]), [[100, []], [0, [0]]]);
    assert.deepEqual(env.PUBLISH.sent, ["wake"]);
  });

  test("wakes the publisher again for entries that are due and were not handed out", async (t) => {
    const ends = async (answers, write) => {
      const syncs = playOrigin(t, answers);
      const env = publishing({ write });
      await drain(env);
      t.mock.restoreAll();
      return [syncs.length, env.PUBLISH.sent.length];
    };
    assert.deepEqual(await ends([{ pending: 0 }]), [1, 0]);
    assert.deepEqual(await ends([{ pending: 1 }]), [1, 1]);
    assert.deepEqual(await ends([503]), [1, 0]);
    // After a batch that the KV refused completely, the publisher is not triggered again.
    const refuse = async () => Promise.reject(new Error("KV PUT failed: 429 Too Many Requests"));
    assert.deepEqual(await ends([{ publish: entries(0, 3), pending: 7 }], refuse), [1, 0]);
    const throws = () => {
      throw new Error("KV PUT failed: the key is too long");
    };
    assert.deepEqual(await ends([{ publish: entries(0, 3), pending: 7 }], throws), [1, 0]);
  });

  test("acknowledges only the writes that the KV accepted", async (t) => {
    const syncs = playOrigin(t, [{ publish: entries(0, 8) }, {}]);
    await drain(publishing({ write: async (key) => (key === "k3" ? Promise.reject(new Error("429")) : undefined) }));
    assert.deepEqual(syncs[1].applied, [0, 1, 2, 4, 5, 6, 7]);
  });

  test("begins no write after a late one, and waits 30 s for it", async (t) => {
    mockTimers(t);
    const syncs = playOrigin(t, [{ publish: entries(0, 13), verify: [{ entry: 7, key: "a" }], pending: 7 }, { pending: 7 }]);
    let readBack = 0;
    const env = publishing({
      write: (key) => (key === "k7" ? never() : Promise.resolve()),
      get: () => ((readBack += 1), never()),
    });
    const draining = drain(env);
    await until(() => env.writes.length === 12);
    await turn();
    advance(t, 29_999);
    await turn();
    assert.deepEqual([env.writes.length, readBack], [12, 0]);
    advance(t, 1);
    await until(() => readBack === 1);
    advance(t, 30_000);
    await draining;
    assert.equal(env.writes.length, 12);
    assert.deepEqual(syncs.map(({ applied, read }) => [applied, read]), [[[], []], [[0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11], []]]);
  });

  test("reads keys back in one bulk read, and reports the digests with its next sync", async (t) => {
    const verify = [{ entry: 7, key: "v:a" }, { entry: 8, key: "v:gone" }];
    const syncs = playOrigin(t, [{ publish: entries(0, 1), verify }, { verify: [{ entry: 9, key: "v:a" }] }, {}]);
    const asked = [];
    const get = async (keys) => (asked.push(keys), new Map(keys.map((key) => [key, key === "v:gone" ? null : "grüße"])));
    await drain(publishing({ get }));
    const sha256 = Uint8Array.from(createHash("sha256").update("grüße").digest());
    const read = [[], [{ entry: 7, sha256 }, { entry: 8, sha256: null }], [{ entry: 9, sha256 }]];
    assert.deepEqual(syncs.map((sync) => sync.read), read);
    assert.deepEqual(syncs.map(({ applied }) => applied), [[], [0], []]);
    assert.deepEqual(asked, [["v:a", "v:gone"], ["v:a"]]);
  });

  test("reports nothing of a KV that cannot be read back, and leaves it alone", async (t) => {
    const throws = () => {
      throw new Error("KV GET failed: 503");
    };
    for (const get of [async () => throws(), throws]) {
      const syncs = playOrigin(t, [{ verify: [{ entry: 7, key: "v:a" }], pending: 5 }]);
      const env = publishing({ get });
      await drain(env);
      assert.deepEqual([syncs.length, env.PUBLISH.sent], [1, []]);
      t.mock.restoreAll();
    }
  });
});

test("a wake-up without a usable configuration is delivered again", async () => {
  const { batch, outcomes } = batchOf("causeway-publish", [{ body: "wake" }]);
  await worker.queue(batch, bindings({ CAUSEWAY_KEYS: "" }), new EventContext());
  assert.deepEqual(outcomes, [300]);
});
