// Helpers of the tests of the bundled worker: a configuration, bindings, an origin, requests. `CAUSEWAY_EDGE_BUNDLE`
// names the folder of the bundle (`cargo xtask test` sets it).

import { readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";

import { EventContext, loadWorker } from "./worker.mjs";
import { readSync, writeSyncAnswer } from "./wire.mjs";

export const BUNDLE = process.env.CAUSEWAY_EDGE_BUNDLE;
if (BUNDLE === undefined) throw new Error("CAUSEWAY_EDGE_BUNDLE is not set: it names the folder of the worker's bundle");

const secret = (seed) => Buffer.from(Uint8Array.from({ length: 32 }, (_, i) => (i * 7) ^ seed)).toString("base64");
const ring = (seed) => [{ id: 1, stage: "active", secret: secret(seed) }];

/** The configuration of one tenant, `demo` at `localhost`, with further fields. */
export const configOf = (fields = {}) =>
  JSON.stringify({ tenant: [{ name: "demo", hosts: ["localhost"], no_signal: "allow", house_ad: { id: "house" }, ...fields }] });
export const KEYS = JSON.stringify({ sync: ring(1), tenants: { demo: { cookie: ring(2), alternate: ring(3) } } });

/** The lines that the worker logs. Standard output belongs to the test runner. */
const lines = [];
console.log = (line) => lines.push(JSON.parse(line));
/** Takes the lines that were logged since the last call. */
export const takeLog = () => lines.splice(0);

/** A fresh isolate of the worker. */
export const freshWorker = () => loadWorker(BUNDLE);

/** Runs all work that does not wait for a timer. */
export const turn = () => new Promise(setImmediate);

/** Waits for a condition that does not depend on a timer. */
export async function until(condition) {
  for (let turns = 0; !condition(); turns += 1) {
    if (turns > 10_000) throw new Error(`this never held: ${condition}`);
    await turn();
  }
}

/** Mocks the clock and its timers for the duration of a test. */
export const mockTimers = (t) => t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.now() });

/** Lets mocked time pass by the millisecond, so that a timer set by another timer fires in order. */
export function advance(t, ms) {
  for (let passed = 0; passed < ms; passed += 1) t.mock.timers.tick(1);
}

/** Waits for all work after an answer, on a mocked clock: the facts of pages are gathered for some milliseconds. */
export async function settle(t, context) {
  let isSettled = false;
  context.settle().then(() => (isSettled = true));
  for (let turns = 0; !isSettled; turns += 1) {
    if (turns > 10_000) throw new Error("the work after the answer does not end");
    advance(t, 1);
    await turn();
  }
}

export const never = () => new Promise(() => {});

const ENCODER = new TextEncoder();

/** A KV namespace of texts, which answers reads of one key and bulk reads like the platform. */
export class Kv {
  /** The keys of each read. */
  reads = [];

  constructor(values = {}) {
    this.values = values;
  }

  async get(keys, form) {
    this.reads.push([keys].flat());
    if (Array.isArray(keys)) return new Map(keys.map((key) => [key, this.values[key] ?? null]));
    if (form !== "arrayBuffer") throw new Error(`a value of the form ${form}`);
    return this.values[keys] === undefined ? null : ENCODER.encode(this.values[keys]).buffer;
  }
}

/** A queue that accepts every message. */
export class Queue {
  sent = [];

  async send(message) {
    this.sent.push(message);
  }

  async sendBatch(messages) {
    for (const { body, ...options } of messages) await this.send(body, options);
  }
}

/** A queue with this `send`, which a batch calls for each of its messages. */
export const queueOf = (send) => ({
  send,
  sendBatch: (messages) => Promise.all(messages.map(({ body, ...options }) => send(body, options))),
});

/** A queue that refuses every message. */
export const fullQueue = () =>
  queueOf(async () => {
    throw new Error("Queue send failed: 429");
  });

/** The worker's bindings and variables, with further ones. */
export function bindings(further = {}) {
  return {
    CAUSEWAY_CONFIG: configOf(),
    CAUSEWAY_KEYS: KEYS,
    ORIGIN_URL: "http://origin.invalid",
    PROFILES: new Kv(),
    FACTS: new Queue(),
    PUBLISH: new Queue(),
    MINT_LIMIT: admitting(() => true),
    EVENTS_LIMIT: admitting(() => true),
    ...further,
  };
}

/** A rate limit that admits keys by a rule. */
export const admitting = (rule) => ({
  async limit({ key }) {
    return { success: rule(key) };
  },
});

/**
 * Replaces `fetch` by an origin for the duration of a test. Each sync takes the next answer: an argument of
 * `writeSyncAnswer`, a status, or a promise of either; after the last one, an empty answer. Returns the syncs as the
 * origin read them.
 */
export function playOrigin(t, answers = []) {
  const syncs = [];
  t.mock.method(globalThis, "fetch", async (url, { method, headers, body }) => {
    if (String(url) !== "http://origin.invalid/v1/sync" || method !== "POST") throw new Error(`${method} ${url}`);
    if (new Headers(headers).get("content-type") !== "application/cbor") throw new Error("a sync without its content type");
    syncs.push(readSync(body));
    const answer = await (answers.shift() ?? {});
    return typeof answer === "number" ? new Response("", { status: answer }) : new Response(writeSyncAnswer(answer));
  });
  return syncs;
}

/** Sends a request and waits for its answer; `context.after` holds the work after the answer. */
export async function send(worker, env, path, { method = "GET", headers, body, context = new EventContext(), cf } = {}) {
  const request = new Request(`http://localhost${path}`, { method, headers, body, duplex: "half" });
  if (cf !== undefined) Object.defineProperty(request, "cf", { value: cf });
  const response = await worker.fetch(request, env, context);
  return { status: response.status, headers: response.headers, body: await response.bytes(), context };
}

/** The JSON body of an answer. */
export const jsonOf = (answer) => JSON.parse(new TextDecoder().decode(answer.body));

/** A browser: it sends the cookies that it received. */
export class Browser {
  cookies = new Map();

  constructor(worker, env) {
    this.worker = worker;
    this.env = env;
  }

  async send(path, { headers, ...options } = {}) {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const answer = await send(this.worker, this.env, path, { ...options, headers: { ...headers, ...(cookie && { cookie }) } });
    for (const set of answer.headers.getSetCookie()) {
      const [, name, value] = set.match(/^([^=]*)=([^;]*)/);
      if (set.includes("Max-Age=0;")) this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    return answer;
  }

  /** Asks for the ads of a page. */
  async decide({ placement = "top", ...options } = {}) {
    const body = JSON.stringify({ placements: [{ id: placement }] });
    const answer = await this.send("/v1/decide", { method: "POST", body, ...options });
    return { ...answer, json: jsonOf(answer) };
  }

  /** Sends one event. */
  async track(name, options = {}) {
    const body = JSON.stringify([{ type: "track", name }]);
    const answer = await this.send("/v1/events", { method: "POST", body, ...options });
    return { ...answer, json: jsonOf(answer) };
  }
}

/** The answer for the page of a browser without cookies. */
export const decide = (worker, env, options) => new Browser(worker, env).decide(options);

/** The health check's counters. */
export const health = async (worker, env) => jsonOf(await send(worker, env, "/healthz"));

/** A batch of a queue, and the outcome of each message: "ack", or the delay of its next delivery in seconds. */
export function batchOf(queue, all) {
  const outcomes = all.map(() => undefined);
  const messages = all.map(({ body = Uint8Array.of(1), attempts = 1 }, index) => ({
    body,
    attempts,
    ack: () => (outcomes[index] = "ack"),
    retry: ({ delaySeconds }) => (outcomes[index] = delaySeconds),
  }));
  const retryAll = (options) => messages.forEach((message, index) => (outcomes[index] ??= message.retry(options)));
  return { outcomes, batch: { queue, messages, retryAll } };
}

/** The storage of a Durable Object: SQLite, and one alarm. */
export class ObjectStorage {
  alarm = null;
  database = new DatabaseSync(":memory:");
  sql = {
    exec: (text, ...values) => {
      const statement = this.database.prepare(text);
      statement.setReturnArrays(true);
      // The platform returns a BLOB as an ArrayBuffer.
      const value = (of) => (of instanceof Uint8Array ? of.slice().buffer : of);
      const rows = statement.all(...values).map((row) => row.map(value));
      return { raw: () => rows.values() };
    },
  };

  async getAlarm() {
    return this.alarm;
  }

  async setAlarm(at) {
    this.alarm = Number(at);
  }

  async deleteAlarm() {
    this.alarm = null;
  }

  async deleteAll() {
    this.database.close();
    this.database = new DatabaseSync(":memory:");
  }

  rows(query) {
    return this.database.prepare(query).all();
  }
}

/** The platform's namespace of the objects of one class; the first call of an object creates it. */
export class DurableObjectNamespace {
  /** Storage and object by name. */
  made = new Map();

  constructor(type, env) {
    this.type = type;
    this.env = env;
  }

  idFromName(name) {
    return name;
  }

  /** The object of a name with its storage. */
  named(name) {
    if (!this.made.has(name)) {
      const storage = new ObjectStorage();
      this.made.set(name, { storage, object: new this.type({ storage }, this.env) });
    }
    return this.made.get(name);
  }

  get(name) {
    return { fetch: (request) => this.named(name).object.fetch(request) };
  }
}

/** Bindings with the Durable Objects of an isolate. */
export function bindObjects({ StrictCapObject, OfferObject }, further = {}) {
  const env = bindings(further);
  env.STRICT_CAPS = new DurableObjectNamespace(StrictCapObject, env);
  env.OFFERS = new DurableObjectNamespace(OfferObject, env);
  return env;
}

/** KV values of a catalogue whose only ad, `red`, has a strict cap of one. `edge/tests/catalogue.rs` writes the file. */
export const STRICT = JSON.parse(readFileSync(new URL("../../edge/tests/strict.json", import.meta.url), "utf8"));
