// Restarts of the WebAssembly instance: the outcome of the event that trapped, of events that waited in the same
// instance, and of later events.
//
// A getter that throws where Rust expects no error ends a call of the module like a trap: halfway, without unwinding.

import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";

import {
  Browser,
  Kv,
  STRICT,
  advance,
  batchOf,
  bindObjects,
  bindings,
  decide,
  freshWorker,
  fullQueue,
  health,
  mockTimers,
  never,
  playOrigin,
  takeLog,
  turn,
  until,
} from "./world.mjs";
import { readOfferNumber, writeOfferCall } from "./wire.mjs";
import { EventContext } from "./worker.mjs";

let classes;
let worker;
beforeEach(async () => {
  classes = await freshWorker();
  worker = classes.default;
  takeLog();
});

const unreachable = () => new WebAssembly.RuntimeError("unreachable");

/** Bindings of which one traps the instance when the worker reads it. */
const trapping = (name, { error = unreachable, ...further } = {}) =>
  Object.defineProperty(bindings(further), name, {
    get() {
      throw error();
    },
  });

/** Traps the instance with a separate page, and waits for its answer. */
async function trap(error) {
  const page = await decide(worker, trapping("PROFILES", { error }));
  assert.equal(page.json.reason, "restarted");
}

/** A request that traps the instance when the worker reads its method. */
function trappingRequest(path, init) {
  const request = new Request(`http://localhost${path}`, init);
  const { method } = request;
  let reads = 0;
  return Object.defineProperty(request, "method", {
    get() {
      reads += 1;
      if (reads === 1) throw unreachable();
      return method;
    },
  });
}

/** The status of an answer, and its reason or its error's code. */
const outcomeOf = ({ status, json }) => [status, json.reason ?? json.error?.code];

describe("a request that traps", () => {
  test("gets its answer at once: no ads, a retry, a picture, the same click again", async () => {
    const origin = "https://pub.example";
    const answered = async (method, path, body) => {
      const response = await worker.fetch(trappingRequest(path, { method, body, headers: { origin } }), bindings(), new EventContext());
      const { status, headers } = response;
      const isJson = headers.get("content-type")?.startsWith("application/json");
      return [status, isJson ? await response.json() : headers.get("location") ?? headers.get("content-type"), headers.get("access-control-allow-origin")];
    };
    const nothing = { visitor: null, person: null, decisions: [], catalogue: null, kv_reads: 0, consent: "none", reason: "restarted" };
    assert.deepEqual(await answered("POST", "/v1/decide", "{}"), [200, nothing, origin]);
    for (const [method, path, body] of [["POST", "/v1/events", "[]"], ["GET", "/v1/me"], ["DELETE", "/v1/me"]]) {
      const [status, json, readable] = await answered(method, path, body);
      assert.deepEqual([status, json.error.code, readable], [503, "retry", origin]);
    }
    assert.deepEqual(await answered("GET", "/v1/i/token"), [200, "image/gif", null]);
    assert.deepEqual(await answered("GET", "/v1/c/token"), [302, "/v1/c/token?again", null]);
    assert.deepEqual(takeLog(), [1, 2, 3, 4, 5, 6].map((restarts) => ({ event: "restarted", restarts })));
    assert.equal((await health(worker, bindings())).module_restarts, 6);
  });

  test("in the middle, after its waits, gets its answer too", async () => {
    const env = bindings();
    const browser = new Browser(worker, env);
    await browser.decide();
    browser.env = trapping("FACTS");
    const event = await browser.track("signup");
    assert.deepEqual(outcomeOf(event), [503, "retry"]);
    browser.env = env;
    assert.deepEqual([(await browser.track("signup")).json.accepted, (await health(worker, env)).module_restarts], [1, 1]);
  });

  test("in the call of the handler itself gets its answer too", async (t) => {
    const [request, env] = [new Request("http://localhost/v1/me"), bindings()];
    const schedule = () => {
      throw unreachable();
    };
    t.mock.method(globalThis, "queueMicrotask", schedule, { times: 1 });
    const response = await worker.fetch(request, env, new EventContext());
    assert.equal(response.status, 503);
    assert.equal((await decide(worker, env)).json.decisions.length, 1);
    assert.equal((await health(worker, env)).module_restarts, 1);
  });

  test("by any error that nothing catches gets its answer", async () => {
    await trap(() => new RangeError("Maximum call stack size exceeded"));
    await trap(() => new TypeError("found.get is not a function"));
    assert.equal((await health(worker, bindings())).module_restarts, 2);
  });
});

describe("requests that wait in an instance that traps", () => {
  test("get answers within their own deadlines, and later ones a fresh instance", async (t) => {
    mockTimers(t);
    // One returning visitor's event waits for the queue; another visitor's snapshot is being read.
    const [sender, reader] = [new Browser(worker, bindings()), new Browser(worker, bindings())];
    await sender.decide();
    await reader.decide();
    t.mock.timers.tick(3_600_000);
    const silent = { get: () => ((reads += 1), never()), sendBatch: () => ((sends += 1), never()), limit: () => ((limits += 1), never()) };
    let [reads, sends, limits] = [0, 0, 0];
    reader.env = bindings({ PROFILES: silent });
    sender.env = bindings({ FACTS: silent });
    const answers = {};
    const ends = (name, answer) => answer.then((value) => (answers[name] = outcomeOf(value)));
    ends("page", reader.decide());
    ends("events", sender.track("signup"));
    ends("mint", decide(worker, bindings({ MINT_LIMIT: silent })));
    await until(() => reads === 1 && sends === 1 && limits === 1);
    advance(t, 30);
    await trap();
    // A fresh instance serves other requests meanwhile.
    assert.equal((await decide(worker, bindings())).json.decisions.length, 1);
    assert.deepEqual(answers, {});
    advance(t, 70);
    await until(() => Object.keys(answers).length === 2);
    assert.deepEqual(answers, { page: [200, "restarted"], mint: [200, "restarted"] });
    advance(t, 5_000 - 101);
    await turn();
    assert.equal(answers.events, undefined);
    advance(t, 1);
    await until(() => answers.events !== undefined);
    assert.deepEqual(answers.events, [503, "retry"]);
    const { module_restarts } = await health(worker, bindings());
    assert.equal(module_restarts, 1);
    // Each restarted request was logged once.
    assert.equal(takeLog().filter(({ event }) => event === "restarted").length, 4);
  });

  test("get the answer when their value comes, and it reaches no other request", async () => {
    const open = Promise.withResolvers();
    const env = bindings({ PROFILES: { get: () => open.promise } });
    const waiting = decide(worker, env);
    await turn();
    await trap();
    const fresh = await decide(worker, bindings());
    open.resolve(new Map(Object.entries(STRICT)));
    assert.deepEqual(outcomeOf(await waiting), [200, "restarted"]);
    assert.deepEqual([fresh.json.catalogue, env.FACTS.sent], [null, []]);
  });

  test("and in several instances one after the other get one answer each", async () => {
    const open = Promise.withResolvers();
    const waiting = [];
    for (let instance = 0; instance < 3; instance += 1) {
      waiting.push(decide(worker, bindings({ PROFILES: { get: () => open.promise } })));
      await turn();
      await trap();
    }
    open.resolve(new Map());
    for (const answer of waiting) assert.deepEqual(outcomeOf(await answer), [200, "restarted"]);
    assert.equal((await health(worker, bindings())).module_restarts, 3);
    assert.equal(takeLog().filter(({ event }) => event === "restarted").length, 6);
  });

  test("and were woken but have not run yet get their answer at once", async () => {
    const open = Promise.withResolvers();
    const waiting = decide(worker, bindings({ PROFILES: { get: () => open.promise } }));
    await turn();
    // In one turn, the value arrives, and the request that runs before it traps.
    const trapped = decide(worker, trapping("PROFILES"));
    open.resolve(new Map());
    assert.equal((await trapped).json.reason, "restarted");
    const { json } = await waiting;
    assert.ok(json.reason === "restarted" || json.decisions.length === 1);
    assert.equal((await decide(worker, bindings())).json.decisions.length, 1);
  });

  test("of losses, dead letters and notes survive a restart, and are reported once", async (t) => {
    const syncs = playOrigin(t, [503, 503, {}, {}]);
    const full = bindings({ FACTS: fullQueue(), MINT_LIMIT: undefined });
    await (await decide(worker, full)).context.settle();
    await worker.queue(batchOf("causeway-facts", [{ attempts: 101 }]).batch, full, new EventContext());
    const before = await health(worker, bindings());
    assert.deepEqual([before.facts_lost, before.dead_letters, before.notes], [1, 1, { limit_unbound: 1 }]);
    await trap();
    const after = await health(worker, bindings());
    assert.deepEqual([after.facts_lost, after.dead_letters, after.notes, after.module_restarts], [1, 1, { limit_unbound: 1 }, 1]);
    for (let batch = 0; batch < 2; batch += 1) await worker.queue(batchOf("causeway-facts", [{}]).batch, bindings(), new EventContext());
    // Two syncs failed before the restart; the next one reports all counts.
    const reported = syncs.map(({ lost, dead }) => [lost, dead]);
    assert.deepEqual(reported.slice(0, 3), [[0, 0], [1, 0], [1, 1]]);
    assert.ok(reported.length > 3 && reported.slice(3).flat().every((count) => count === 0), `${reported}`);
  });

  test("of losses whose report was under way are reported again", async (t) => {
    const open = Promise.withResolvers();
    const syncs = playOrigin(t, [503, open.promise, {}]);
    await (await decide(worker, bindings({ FACTS: fullQueue() }))).context.settle();
    await decide(worker, bindings());
    await until(() => syncs.length === 2);
    await trap();
    open.resolve(503);
    await turn();
    await worker.queue(batchOf("causeway-facts", [{}]).batch, bindings(), new EventContext());
    assert.deepEqual(syncs.map(({ lost }) => lost), [0, 1, 1]);
  });
});

describe("a batch of a queue", () => {
  const batch = (queue, messages = [{}]) => batchOf(queue, messages);

  test("that traps is rejected, so that the platform delivers it again", async (t) => {
    playOrigin(t, [{ verify: [{ entry: 1, key: "a" }] }]);
    for (const [queue, env] of [["causeway-facts-dead", trapping("FACTS")], ["causeway-publish", trapping("PROFILES")]]) {
      const { batch: messages, outcomes } = batch(queue);
      await assert.rejects(worker.queue(messages, env, new EventContext()), /the instance was restarted/);
      assert.deepEqual(outcomes, [undefined]);
    }
    const again = batch("causeway-facts-dead");
    await worker.queue(again.batch, bindings(), new EventContext());
    assert.deepEqual(again.outcomes, ["ack"]);
  });

  test("that waits in an instance that traps is rejected when its wait ends, and acknowledges nothing", async (t) => {
    const open = Promise.withResolvers();
    const syncs = playOrigin(t, [open.promise]);
    const { batch: messages, outcomes } = batch("causeway-facts", [{}, {}]);
    const consumed = worker.queue(messages, bindings(), new EventContext());
    await until(() => syncs.length === 1);
    await trap();
    open.resolve({});
    await assert.rejects(consumed, /the instance was restarted/);
    assert.deepEqual(outcomes, [undefined, undefined]);
  });
});

test("a cron that traps is rejected, and the next one wakes the publisher", async () => {
  await assert.rejects(worker.scheduled({}, trapping("PUBLISH"), new EventContext()), /the instance was restarted/);
  const env = bindings();
  await worker.scheduled({}, env, new EventContext());
  assert.deepEqual(env.PUBLISH.sent, ["wake"]);
});

describe("a Durable Object", () => {
  const offer = (visitor, limit = 5) => writeOfferCall({ tenant: "demo", campaign: 7, limit, range: 3, visitor });
  const post = (body) => new Request("http://object/", { method: "POST", body });
  const ask = async (env, visitor) => readOfferNumber(await (await env.OFFERS.get("demo:7:3").fetch(post(offer(visitor)))).bytes());

  test("loads its state from its storage in a fresh instance", async () => {
    const env = bindObjects(classes, { PROFILES: new Kv(STRICT) });
    const browser = new Browser(worker, env);
    assert.equal((await browser.decide()).json.decisions[0].ad.id, "red");
    assert.deepEqual([await ask(env, 1), await ask(env, 2)], [3, 4]);
    const objects = [...env.STRICT_CAPS.made.values(), ...env.OFFERS.made.values()].map(({ object }) => object);
    await trap();
    browser.cookies.delete("cw_recent");
    assert.equal((await browser.decide()).json.decisions[0].ad.id, "house", "the limit of one is used up");
    assert.deepEqual([await ask(env, 1), await ask(env, 3)], [3, 0]);
    const [{ object }] = env.STRICT_CAPS.made.values();
    await object.alarm();
    assert.ok(objects.includes(object), "the platform's object is the same one");
  });

  test("whose call traps rejects it, and has stored all or nothing of it", async () => {
    const env = bindObjects(classes);
    const { storage } = env.OFFERS.named("demo:7:3");
    const { sql } = storage;
    let left = 2;
    Object.defineProperty(storage, "sql", {
      get() {
        left -= 1;
        if (left === 0) throw unreachable();
        return sql;
      },
    });
    await assert.rejects(ask(env, 1), /the instance was restarted/);
    assert.equal(await ask(env, 1), 3);
    assert.equal((await health(worker, env)).module_restarts, 1);
  });

  test("whose call waits in an instance that traps rejects it at once", async () => {
    const env = bindObjects(classes);
    const { storage } = env.OFFERS.named("demo:7:3");
    const open = Promise.withResolvers();
    storage.getAlarm = () => open.promise;
    const asked = ask(env, 1);
    await until(() => storage.rows("SELECT name FROM sqlite_schema").length > 0);
    await turn();
    await trap();
    await assert.rejects(asked, /the instance was restarted/);
    delete storage.getAlarm;
    // The row stored before the restart stays, so the visitor has its code.
    assert.equal(await ask(env, 1), 3);
  });
});

test("after 200 restarts the worker answers as before", async () => {
  for (let count = 0; count < 200; count += 1) await trap();
  assert.equal((await decide(worker, bindings())).json.decisions.length, 1);
  assert.equal((await health(worker, bindings())).module_restarts, 200);
});
