// The worker: every line of I/O there is. It gathers, lets the module decide, and does what it says.

import * as glue from "../build/engine.js";
import wasm from "../build/engine_bg.wasm";
import { deliver } from "./deliver.mjs";
import { demo } from "./demo.mjs";
import * as gather from "./gather.mjs";
import { Module } from "./module.mjs";
import * as objects from "./person.mjs";
import { log, note, state } from "./state.mjs";
import { consumeFacts, drainOutbox, redrive, wake } from "./sync.mjs";
import { tag } from "./tag.mjs";
import * as units from "./units.mjs";

/** The call of an object, for strict caps and for a limited offer one a request at most, may take this long. */
const OBJECT_DEADLINE_MS = 100;

/** What all JSON answers have: no cache keeps one visitor's answer. */
const JSON_HEADERS = new Headers({ "content-type": "application/json; charset=utf-8", "cache-control": "no-store" });

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
  async fetch(request, env, ctx) {
    try {
      return await answer(request, env, ctx, moduleOf(env));
    } catch (error) {
      log("request_failed", { message: String(error?.message) });
      return fallback(request);
    }
  },

  async queue(batch, env) {
    const module = moduleOf(env);
    if (batch.queue.endsWith("publish")) await drainOutbox(env, module);
    else if (batch.queue.endsWith("dead")) await redrive(batch, env);
    else await consumeFacts(batch, env, module);
  },

  async scheduled(_event, env) {
    await wake(env);
  },
};

async function answer(request, env, ctx, module) {
  const { headers, body_bytes } = module.told;
  const body = await gather.body(request, body_bytes);
  const seed = crypto.getRandomValues(new Uint8Array(32));
  let step = module.step("begin", gather.head(request, headers), body, Date.now(), seed);
  if (step.turn !== undefined) step = await resume(step, request, env, module);
  // Events whose place went to newer requests were not taken: the page is to send them again.
  if (step.gone && new URL(request.url).pathname === "/v1/events") return retry();
  if (step.health) return health(module, step.body);
  if (step.demo) return demo(request, env, module);
  if (step.tag) return tag(request, step.headers);
  if (step.notes) note(step.notes);
  if (step.facts > 0) {
    const delivered = deliver(env, module, step.batch, step.facts);
    if (!step.ack) ctx.waitUntil(delivered);
    else if (!(await delivered)) return retry(step.headers);
  }
  // Headers made once are copied by the platform, which costs less than making them of texts for each answer.
  const response = new Response(step.body, { status: step.status, headers: step.json ? JSON_HEADERS : undefined });
  for (const [name, value] of step.headers ?? []) response.headers.append(name, value);
  return response;
}

/** Reads what the module asks for, or calls an object, until it has its answer: two reads and two calls at most. */
async function resume(first, request, env, module) {
  const deadline = new gather.Deadline(module.told.kv_deadline_ms);
  let step = first;
  while (step.turn !== undefined) {
    if (step.hop !== undefined) {
      step = module.next("resume", step, await ask(env, step), "");
      continue;
    }
    const minting = step.mint ? deadline.race(mayMint(request, env), true) : undefined;
    const reading = step.read ? gather.read(env.PROFILES, step.read, deadline, module.told.value_chars) : gather.NOTHING;
    if (minting !== undefined && !(await minting)) return module.next("refuse_mint", step);
    const { values, fault } = await reading;
    step = module.next("resume", step, values, fault);
  }
  return step;
}

/** An object's answer; no bytes when it fails, is late, or there are no objects. */
async function ask(env, step) {
  const nothing = gather.NOTHING.values;
  const calling = objects.callObject(env, step).catch((error) => {
    log("object_failed", { message: String(error?.message) });
    return nothing;
  });
  return new gather.Deadline(OBJECT_DEADLINE_MS).race(calling, nothing);
}

async function mayMint(request, env) {
  if (env.MINT_LIMIT === undefined) return true;
  try {
    return (await env.MINT_LIMIT.limit({ key: gather.network(request) })).success;
  } catch {
    note(["mint_limit_failed"]);
    return true;
  }
}

function retry(headers = []) {
  const error = { code: "retry", message: "neither the queue nor the origin took it: send it again, events with the same ids" };
  const all = [...headers.filter(([name]) => name.startsWith("access-control") || name === "vary"), ["retry-after", "1"]];
  return json({ error }, 503, all);
}

/** The publisher's page never breaks: whatever went wrong here, it gets an answer without ads. */
function fallback(request) {
  const { pathname } = new URL(request.url);
  // Nobody is to believe that something was taken, or somebody is being erased.
  if (pathname === "/v1/events" || (pathname === "/v1/me" && request.method === "DELETE")) return retry();
  if (pathname === "/healthz") return json({ error: { code: "misconfigured", message: "see the worker's log" } }, 503);
  return json({ visitor: null, person: null, decisions: [], catalogue: null, kv_reads: 0, consent: "none", reason: "internal" });
}

function health(module, held) {
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

function json(value, status = 200, headers = []) {
  return new Response(JSON.stringify(value), { status, headers: [...JSON_HEADERS, ...headers] });
}
