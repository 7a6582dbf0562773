// The worker: every line of I/O there is. It gathers, lets the module decide, and does what it says.

import * as glue from "../build/engine.js";
import wasm from "../build/engine_bg.wasm";
import { astray, within } from "./deadline.mjs";
import { deliver, handOver } from "./deliver.mjs";
import { demo } from "./demo.mjs";
import * as gather from "./gather.mjs";
import { JSON_HEADERS, json } from "./json.mjs";
import { Module } from "./module.mjs";
import * as objects from "./person.mjs";
import { countLeft, log, note, state } from "./state.mjs";
import { consumeFacts, drainOutbox, redrive, sync, wake } from "./sync.mjs";
import { tag } from "./tag.mjs";
import * as units from "./units.mjs";
import { retry, tooMany, unserved } from "./unserved.mjs";

/** The call of an object, for strict caps and for a limited offer one a request at most, may take this long. */
const OBJECT_DEADLINE_MS = 100;
/** All that a decision waits for together: an answer comes within 200 ms. */
const DECISION_DEADLINE_MS = 180;
/** Nobody waits for an impression's picture: an object that is far away counts it all the same. */
const IMPRESSION_DEADLINE_MS = 2_000;
/** The pause of a message that no module can be asked about: `delivery::RETRY_MOST_S`. */
const RETRY_S = 300;

/** Losses are told to the origin so often at most. */
const LOSSES_MS = 60_000;

/** What answers have that set one cookie, as most do: it is set anew for each, and an answer keeps a copy. */
const WITH_COOKIE = { headers: new Headers(JSON_HEADERS) };

glue.initSync({ module: wasm });
let ready;

function moduleOf(env) {
  ready ??= new Module(glue, env.CAUSEWAY_CONFIG, env.CAUSEWAY_KEYS);
  return ready;
}

/** The class that wrangler.toml binds as PERSONS. */
export class Person extends objects.Person {
  constructor(ctx, env) {
    super(ctx, env, moduleOf(env));
  }
}

/** The class that wrangler.toml binds as UNITS. */
export class Units extends units.Units {
  constructor(ctx, env) {
    super(ctx, env, moduleOf(env));
  }
}

export default {
  fetch(request, env, ctx) {
    const answered = answer(request, env, ctx);
    // The platform ends a request whose client goes away, and who clicks or scrolls on leaves pictures behind. A page that was
    // left before its ads came counts as little as it shows; events come again.
    if (request.method === "GET") ctx.waitUntil(answered);
    return answered;
  },

  async queue(batch, env) {
    if (batch.queue.endsWith("dead")) return redrive(batch, env);
    let module;
    try {
      module = moduleOf(env);
    } catch (error) {
      log("queue_failed", { message: String(error?.message) });
      // Facts wait for a configuration that can be used as long as they wait for an origin that is down.
      return batch.retryAll({ delaySeconds: RETRY_S });
    }
    if (batch.queue.endsWith("publish")) await drainOutbox(env, module);
    else await consumeFacts(batch, env, module);
  },

  async scheduled(_event, env) {
    await wake(env);
  },
};

/** Whether requests are to say from where they are: as the module said last. */
let place = true;

async function answer(request, env, ctx) {
  try {
    const module = moduleOf(env);
    const { headers, body_bytes, kv_deadline_ms } = module.told;
    const body = new Uint8Array(await gather.body(request, body_bytes));
    const now = Date.now();
    let step = module.step("begin", gather.head(request, headers, place), body, now, gather.seed());
    // Over all reads of the request: it begins with the first one.
    const until = { read: now + kv_deadline_ms, all: now + DECISION_DEADLINE_MS };
    while (step.turn !== undefined) {
      const found = await find(step, until, request, env, ctx, module);
      checkPlace(ctx);
      if (found.reading !== undefined) gather.readOn(ctx, found.reading);
      step = found === REFUSED ? module.next("refuse_mint", step) : module.next("resume", step, found.values, found.fault);
    }
    place = step.place;
    const answered = finish(step, request, env, ctx, module);
    // Behind it: what the step says lies in the module's memory, which another call may move.
    tellLosses(env, ctx, module);
    return await answered;
  } catch (error) {
    log("request_failed", { message: String(error?.message) });
    return unserved(request, "internal");
  }
}

/** Behind each wait: it is to go on in its own request. */
function checkPlace(ctx) {
  if (astray(ctx)) log("waits_apart", {});
}

/** An isolate that answers pages syncs for no other reason: its losses would be told of in its log alone. */
function tellLosses(env, ctx, module) {
  if (state.lost === state.lostTold) return;
  const now = Date.now();
  if (now < state.lostTried + LOSSES_MS) return;
  state.lostTried = now;
  ctx.waitUntil(sync(env, module, {}));
}

const REFUSED = { values: gather.NOTHING.values, fault: "" };

/** Reads what the module asks for, or calls an object: two reads and two calls a request at most. */
function find(step, until, request, env, ctx, module) {
  if (step.hop !== undefined) {
    const ms = Math.min(OBJECT_DEADLINE_MS, gather.left(until.all));
    return ask(env, step, ctx, request.method === "GET" ? IMPRESSION_DEADLINE_MS : ms);
  }
  const ms = gather.left(until.read);
  const reading = step.read ? gather.read(ctx, env.PROFILES, step.read, ms, module.told.value_chars) : gather.NOTHING;
  if (step.limit === undefined) return reading;
  const { binding, key } = step.limit;
  const admitted = gather.admits(env, binding, `${key} ${gather.network(request)}`);
  return within(ctx, ms, admitted, true).then((may) => (checkPlace(ctx), may ? reading : REFUSED));
}

/** What the platform is to do for an answer, and the answer. */
function finish(step, request, env, ctx, module) {
  if (step.gone) {
    // Nothing else tells of it: the page has its answer, and what it asked for is lost.
    note(["overloaded"]);
    return unserved(request, "overloaded");
  }
  if (step.health) return health(module, step.body);
  if (step.demo) return demo(request, env, module, new TextDecoder().decode(step.body));
  if (step.tag) return tag(request, step.headers);
  if (step.notes) note(step.notes);
  // Before anything waits: its body lies where the module's next answer will.
  const response = respond(step);
  if (step.limit) return limited(step, response, request, env, ctx, module);
  if (step.facts > 0) {
    if (step.ack) return deliver(env, module, step.batch, step.facts).then((done) => (done ? response : unserved(request, "retry")));
    handOver(env, module, step.batch, step.facts, ctx);
  }
  return response;
}

/** Facts that a rate limit is asked of: what it does not let through nobody takes. */
async function limited({ limit: { binding, key }, batch, facts }, response, request, env, ctx, module) {
  // It lies where the module's next answer will.
  const kept = batch.slice();
  const may = await within(ctx, module.told.kv_deadline_ms, gather.admits(env, binding, key), true);
  checkPlace(ctx);
  if (!may) return tooMany(request);
  return (await deliver(env, module, kept, facts)) ? response : retry(request);
}

function respond({ body, status, json: isJson, headers = [] }) {
  if (status === 200 && isJson && headers.length === 1 && headers[0][0] === "set-cookie") {
    WITH_COOKIE.headers.set(...headers[0]);
    return new Response(body, WITH_COOKIE);
  }
  const response = new Response(body, { status, headers: isJson ? JSON_HEADERS : undefined });
  for (const [name, value] of headers) response.headers.append(name, value);
  return response;
}

/** An object's answer; no bytes when it fails, is late, or there are no objects. */
function ask(env, step, ctx, ms) {
  // It lies where the module's next answer will.
  const calling = objects.callObject(env, { ...step, body: step.body.slice() }).catch((error) => {
    log("object_failed", { message: String(error?.message) });
    return gather.NOTHING.values;
  });
  return within(ctx, ms, calling, gather.NOTHING, (values) => ({ values, fault: "" }));
}

function health(module, held) {
  countLeft(Date.now());
  const { lost, dead, lastSync, catalogue, notes } = state;
  return json({
    build: module.told.build,
    // What this isolate decides by, and what the origin said is in force.
    catalogue: { ...(held.length > 0 ? JSON.parse(new TextDecoder().decode(held)) : {}), origin: catalogue },
    last_sync_age_ms: lastSync === 0 ? null : Date.now() - lastSync,
    facts_lost: lost,
    dead_letters: dead,
    module_restarts: module.restarts,
    notes,
  });
}
