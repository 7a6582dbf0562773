// @ts-check
// The worker's entry. It starts the WebAssembly instance, replaces it after a trap, and holds what outlives an instance.
// Rust does everything else (mod.rs), with the functions at the end.

import pageTag from "../../build/causeway.mjs";
import * as rust from "../../build/engine.js";
import module from "../../build/engine_bg.wasm";
import demoPage from "../../demo/demo.html";

rust.initSync({ module });

/** Replaced instances. */
let restarts = 0;
/** Events that run in the present instance. @type {Set<EventScope>} */
let underway = new Set();
/** Counters by name. @type {Record<string, number>} */
const counters = {};
let headerNames = /** @type {string[]} */ ([]);

/** A trap leaves the instance's memory in an unknown state, and its executor stops: a new instance takes its place. */
function restart() {
  const events = underway;
  [restarts, underway] = [restarts + 1, new Set()];
  rust.__wbg_reset_state();
  // The event that trapped waits for nothing. The others learn of the restart when their own wait ends.
  for (const event of events) if (event.waits.size === 0) event.abandon();
}

const restartAfter = (/** @type {unknown} */ error) => error instanceof WebAssembly.RuntimeError && restart();
// Rust alone runs where nothing catches an error. A callback of a replaced instance does nothing but throw this one.
const STALE = "Cannot invoke closure from previous WASM instance";
addEventListener("error", ({ error }) => error?.message !== STALE && restart());
addEventListener("unhandledrejection", ({ reason }) => restartAfter(reason));

/** One event (a request, a batch of messages, a cron, a call of an object). Rust gets it in place of the platform's context. */
class EventScope {
  waits = new Set();
  instance = restarts;
  abandon = () => {};

  constructor(/** @type {{ waitUntil(promise: Promise<unknown>): void }} */ context) {
    this.waitUntil = (/** @type {Promise<unknown>} */ promise) => context.waitUntil(promise);
  }

  /** The promise's outcome, or a rejection with "late" after `ms` milliseconds. Each wait has timers of its own. */
  within(/** @type {Promise<unknown>} */ promise, /** @type {number} */ ms) {
    return new Promise((resolve, reject) => {
      const end = (/** @type {Function} */ settle, /** @type {unknown} */ value) => {
        if (!this.waits.delete(timer)) return;
        clearTimeout(timer);
        if (this.instance === restarts) settle(value);
        else this.abandon();
      };
      // After a pause of the isolate, timers run before what arrived meanwhile: the last 10 ms are a second timer.
      const timer = setTimeout(() => setTimeout(end, Math.min(ms, 10), reject, "late"), ms - 10);
      this.waits.add(timer);
      promise.then((value) => end(resolve, value), (error) => end(reject, error));
    });
  }

  /** Runs a handler of the instance; `answerRestarted` gives the result where the instance was replaced meanwhile. */
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

/** The platform delivers an event again that was rejected, and a caller of an object gets the error. */
const rejectRestarted = () => Promise.reject(new Error("the instance was restarted"));

export default {
  fetch(request, env, context) {
    const answer = new EventScope(context).run((scope) => rust.fetch(request, env, scope), () => rust.answer_restarted(request));
    // The platform ends a request whose client leaves. With this it runs to its end, which its deadlines bring.
    context.waitUntil(answer);
    return answer;
  },
  queue: (batch, env, context) => new EventScope(context).run((scope) => rust.queue(batch, env, scope), rejectRestarted),
  scheduled: (event, env, context) => new EventScope(context).run((scope) => rust.scheduled(event, env, scope), rejectRestarted),
};

/** A Durable Object class. Its Rust part is made again in each instance, from what the object stored. */
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
/** Method, location, address and headers as one text: one crossing. Filters that ask for the location are read later. */
export function readHead(/** @type {Request & { cf?: any }} */ request) {
  const cf = request.method === "POST" ? request.cf : undefined;
  const location = cf?.country ? ` ${cf.country} ${cf.regionCode ?? ""}` : "";
  return `${request.method}${location}\n${request.url}\n${headerNames.map((name) => request.headers.get(name) ?? "").join("\n")}`;
}
/** A response, its `ResponseInit` as JSON: one crossing in place of one for each header. */
export const makeResponse = (/** @type {string} */ init, /** @type {Uint8Array | undefined} */ body) => new Response(body?.slice(), JSON.parse(init));
/** @param {{ sendBatch(messages: object[]): Promise<void> }} queue @param {Uint8Array[]} bodies */
export const sendMessages = (queue, bodies) => queue.sendBatch(bodies.map((body) => ({ body, contentType: "bytes" })));
export const readCount = (/** @type {string} */ name) => (name === "module_restarts" ? restarts : counters[name] ?? 0);
export const addCount = (/** @type {string} */ name, /** @type {number} */ by) => void (counters[name] = readCount(name) + by);
export const listCounts = () => JSON.stringify(counters);
export const readPageTag = () => pageTag;
export const readDemoPage = () => demoPage;
