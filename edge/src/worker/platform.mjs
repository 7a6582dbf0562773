// @ts-check
// The worker's entry. It starts the WebAssembly instance, replaces it after a trap, and holds the state that outlives
// an instance. Rust does everything else (mod.rs), with the functions at the end of this file.

import pageTag from "../../build/causeway.mjs";
import * as rust from "../../build/engine.js";
import module from "../../build/engine_bg.wasm";
import demoPage from "../../demo/demo.html";

rust.initSync({ module });

/** Number of replaced instances. */
let restarts = 0;
/** Events that run in the present instance. @type {Set<EventScope>} */
let underway = new Set();
/** Counters by name. @type {Record<string, number>} */
const counters = {};
let headerNames = /** @type {string[]} */ ([]);

/** Replaces the instance. A trap leaves its memory in an unknown state, and its executor stops. */
function restart() {
  const events = underway;
  [restarts, underway] = [restarts + 1, new Set()];
  rust.__wbg_reset_state();
  // The event that trapped has no wait and is abandoned. The others learn of the restart when their own wait ends.
  for (const event of events) if (event.waits.size === 0) event.abandon();
}

const restartAfter = (/** @type {unknown} */ error) => error instanceof WebAssembly.RuntimeError && restart();
// Only Rust runs where nothing catches an error. A callback of a replaced instance only throws this error.
const STALE = "Cannot invoke closure from previous WASM instance";
addEventListener("error", ({ error }) => error?.message !== STALE && restart());
addEventListener("unhandledrejection", ({ reason }) => restartAfter(reason));

/** One event: a request, a batch of messages, a cron or a call of an object. It stands in for the platform's context. */
class EventScope {
  waits = new Set();
  instance = restarts;
  abandon = () => {};

  constructor(/** @type {{ waitUntil(promise: Promise<unknown>): void }} */ context) {
    this.waitUntil = (/** @type {Promise<unknown>} */ promise) => context.waitUntil(promise);
  }

  /** The promise's outcome, or a rejection with "late" after `ms` milliseconds. Each wait has its own timers. */
  within(/** @type {Promise<unknown>} */ promise, /** @type {number} */ ms) {
    return new Promise((resolve, reject) => {
      const end = (/** @type {Function} */ settle, /** @type {unknown} */ value) => {
        if (!this.waits.delete(timer)) return;
        clearTimeout(timer);
        if (this.instance === restarts) settle(value);
        else this.abandon();
      };
      // After a pause of the isolate, timers run before values that arrived. So the last 10 ms are a second timer.
      const timer = setTimeout(() => setTimeout(end, Math.min(ms, 10), reject, "late"), ms - 10);
      this.waits.add(timer);
      promise.then((value) => end(resolve, value), (error) => end(reject, error));
    });
  }

  /** Runs a handler of the instance. `answerRestarted` gives the result if the instance is replaced in the meantime. */
  run(/** @type {(scope: EventScope) => Promise<any>} */ handler, /** @type {() => unknown} */ answerRestarted) {
    const { promise, resolve, reject } = Promise.withResolvers();
    const finish = (/** @type {Function} */ settle, /** @type {unknown} */ outcome) => {
      underway.delete(this);
      this.abandon = () => {};
      settle(outcome);
    };
    const fail = (/** @type {unknown} */ error) => (restartAfter(error), finish(reject, error));
    underway.add(this);
    this.abandon = () => finish(resolve, Promise.resolve().then(answerRestarted));
    handler(this).then((value) => finish(resolve, value), fail);
    return promise;
  }
}

/** The platform delivers a rejected event again, and a caller of an object gets the error. */
const rejectRestarted = () => Promise.reject(new Error("the instance was restarted"));

export default {
  fetch(request, env, context) {
    const answer = new EventScope(context).run((scope) => rust.fetch(request, env, scope), () => rust.answer_restarted(request));
    // The platform ends a request whose client leaves. `waitUntil` lets it run to its end, which its deadlines bound.
    context.waitUntil(answer);
    return answer;
  },
  queue: (batch, env, context) => new EventScope(context).run((scope) => rust.queue(batch, env, scope), rejectRestarted),
  scheduled: (event, env, context) => new EventScope(context).run((scope) => rust.scheduled(event, env, scope), rejectRestarted),
};

/** A Durable Object class. Each instance creates its Rust part again, from the object's stored state. */
const durableObject = (/** @type {"StrictCapObject" | "OfferObject"} */ name) =>
  class {
    constructor(state, env) {
      this.run = (call) => {
        if (this.instance !== restarts) [this.instance, this.object] = [restarts, new rust[name](state, env)];
        return new EventScope(state).run(() => call(this.object), rejectRestarted);
      };
    }
    fetch(request) { return this.run((object) => object.fetch(request)); }
    alarm() { return this.run((object) => object.alarm()); }
  };
export const [StrictCapObject, OfferObject] = [durableObject("StrictCapObject"), durableObject("OfferObject")];

export const setHeaderNames = (/** @type {string} */ names) => void (headerNames = names.split("\n"));
/** Method, location, address and headers as one text, for one call from Rust. Only decide calls need the location. */
export function readHead(/** @type {Request & { cf?: any }} */ request) {
  const cf = request.method === "POST" ? request.cf : undefined;
  const location = cf?.country ? ` ${cf.country} ${cf.regionCode ?? ""}` : "";
  return `${request.method}${location}\n${request.url}\n${headerNames.map((name) => request.headers.get(name) ?? "").join("\n")}`;
}
/** A response from its `ResponseInit` as JSON: one call from Rust instead of one for each header. */
export const makeResponse = (/** @type {string} */ init, /** @type {Uint8Array | undefined} */ body) => new Response(body?.slice(), JSON.parse(init));
/** @param {{ sendBatch(messages: object[]): Promise<void> }} queue @param {Uint8Array[]} bodies */
export const sendMessages = (queue, bodies) => queue.sendBatch(bodies.map((body) => ({ body, contentType: "bytes" })));
export const readCount = (/** @type {string} */ name) => (name === "module_restarts" ? restarts : counters[name] ?? 0);
export const addCount = (/** @type {string} */ name, /** @type {number} */ by) => void (counters[name] = readCount(name) + by);
export const listCounts = () => JSON.stringify(counters);
export const readPageTag = () => pageTag;
export const readDemoPage = () => demoPage;
