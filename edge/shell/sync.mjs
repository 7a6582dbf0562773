// The edge's side of /v1/sync: facts from the queue to the origin, KV writes from the origin to the KV.

import { log, state } from "./state.mjs";

const ORIGIN_TIMEOUT_MS = 10_000;
/** Messages in one sync; with at most 200 facts each they stay under the origin's bound. */
const SYNC_MESSAGES = 25;
/** The consumer's `max_retries` in wrangler.toml: after that many the platform dead-letters a message. */
const MAX_RETRIES = 100;
const DRAIN = 100;
/** KV writes in flight at once; the platform allows six connections. */
const WRITES = 6;
/** KV writes in one drain: an invocation may do 1,000 operations, its syncs among them. */
const DRAIN_WRITES = 800;
/** How long one drain may go on; what is left comes with the next wake-up. */
const DRAIN_MS = 20_000;

/** One call of /v1/sync. Gives the origin's answer once everything in it is durable, or null. */
export async function sync(env, module, { messages = [], applied = [], drain = 0 }) {
  const [lost, dead] = [state.lost - state.lostTold, state.dead - state.deadTold];
  const call = { edge: env.EDGE_NAME ?? "edge", batch: crypto.randomUUID(), applied, drain, lost, dead };
  try {
    const request = module.call("sync_request", JSON.stringify(call), frame(messages), Date.now());
    const end = request.indexOf(0);
    if (end < 0) throw new Error("no sync key");
    const headers = JSON.parse(new TextDecoder().decode(request.subarray(0, end)));
    headers["content-type"] = "application/cbor";
    const url = new URL("/v1/sync", env.ORIGIN_URL);
    const body = request.slice(end + 1);
    const response = await fetch(url, { method: "POST", headers, body, signal: AbortSignal.timeout(ORIGIN_TIMEOUT_MS) });
    if (response.status !== 200) throw new Error(`the origin answered ${response.status}`);
    const answer = JSON.parse(module.call("sync_response", new Uint8Array(await response.arrayBuffer())));
    if (answer.error) throw new Error(answer.error);
    state.lostTold += lost;
    state.deadTold += dead;
    state.lastSync = Date.now();
    state.catalogue = answer.catalogue;
    if (answer.rejected.length > 0) log("facts_rejected", { facts: answer.rejected.length, codes: [...new Set(answer.rejected)] });
    return answer;
  } catch (error) {
    log("sync_failed", { messages: messages.length, message: String(error?.message) });
    return null;
  }
}

/** Consumes the facts queue: a message is acknowledged once the origin has it, else tried again later. */
export async function consumeFacts(batch, env, module) {
  const { messages } = batch;
  let pending = 0;
  for (let at = 0; at < messages.length; at += SYNC_MESSAGES) {
    const some = messages.slice(at, at + SYNC_MESSAGES);
    const answer = await sync(env, module, { messages: some.map((message) => bytes(message.body)) });
    for (const message of some) {
      if (answer !== null) message.ack();
      else retry(message);
    }
    pending += answer?.pending ?? 0;
  }
  if (pending > 0) await wake(env);
}

function retry(message) {
  if (message.attempts > MAX_RETRIES) {
    state.dead += 1;
    log("dead_letter", { attempts: message.attempts, dead_total: state.dead });
  }
  message.retry({ delaySeconds: Math.min(2 ** Math.min(message.attempts, 9), 300) });
}

/** Wakes the one consumer that writes the KV. A wake-up that is lost is made good by the next cron. */
export async function wake(env) {
  try {
    await env.PUBLISH.send("wake", { contentType: "text" });
  } catch (error) {
    log("wake_failed", { message: String(error?.message) });
  }
}

/** Consumes the publish queue: drains the origin's outbox into the KV. */
export async function drainOutbox(env, module) {
  const end = Date.now() + DRAIN_MS;
  let applied = [];
  let written = 0;
  for (;;) {
    const more = Date.now() < end && written < DRAIN_WRITES;
    const answer = await sync(env, module, { applied, drain: more ? DRAIN : 0 });
    if (answer === null) return;
    if (answer.publish.length === 0) {
      if (!more && answer.pending > 0) await wake(env);
      return;
    }
    applied = await write(env, answer.publish);
    written += answer.publish.length;
    if (applied.length === 0) return;
  }
}

/** Writes entries to the KV and gives those whose write was acknowledged. */
async function write(env, entries) {
  const applied = [];
  for (let at = 0; at < entries.length; at += WRITES) {
    const put = async ({ entry, key, value }) => {
      try {
        await (value === null ? env.PROFILES.delete(key) : env.PROFILES.put(key, value));
        applied.push(entry);
      } catch (error) {
        log("kv_write_failed", { message: String(error?.message) });
      }
    };
    await Promise.all(entries.slice(at, at + WRITES).map(put));
  }
  return applied;
}

/** Messages one behind the other, each behind its length. */
function frame(messages) {
  const size = messages.reduce((sum, message) => sum + 4 + message.byteLength, 0);
  const all = new Uint8Array(size);
  const view = new DataView(all.buffer);
  let at = 0;
  for (const message of messages) {
    view.setUint32(at, message.byteLength, true);
    all.set(message, at + 4);
    at += 4 + message.byteLength;
  }
  return all;
}

function bytes(body) {
  return body instanceof Uint8Array ? body : new Uint8Array(body);
}
