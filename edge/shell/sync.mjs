// The edge's side of /v1/sync: facts from the queue to the origin, KV writes from the origin to the KV.

import { Late, inTime } from "./deadline.mjs";
import { countLeft, log, state } from "./state.mjs";

/** KV writes in flight at once; the platform allows six connections. */
const WRITES = 6;
/** What the KV has not answered after so long is not waited for: there is one consumer, and the origin hands it out again. */
const KV_MS = 30_000;
/** What a queue has not taken after so long it is not waited for to take: it may take it yet, and once more does no harm. */
export const SEND_MS = 5_000;
/** The pause of a dead letter that the facts queue refuses: 100 tries are over in no less than the 14 days that it is kept. */
const DEAD_S = 4 * 3_600;
/** And for an hour, in which most refusals end. */
const [DEAD_FIRST_S, DEAD_FIRST] = [300, 12];

/** One call of /v1/sync. Gives the origin's answer once everything in it is durable, but for the messages that are to be `kept`; or null. */
export async function sync(env, module, { messages = [], applied = [], read = [], drain = 0 }) {
  countLeft(Date.now());
  // Told from now on, unless this fails: another sync may be under way at the same time, and is not to tell it again.
  const [lost, dead] = [state.lost - state.lostTold, state.dead - state.deadTold];
  state.lostTold += lost;
  state.deadTold += dead;
  const call = { edge: env.EDGE_NAME ?? "edge", batch: crypto.randomUUID(), applied, read, drain, lost, dead };
  try {
    const request = module.call("sync_request", JSON.stringify(call), frame(messages), Date.now());
    const end = request.indexOf(0);
    if (end < 0) throw new Error("no sync key");
    const headers = JSON.parse(new TextDecoder().decode(request.subarray(0, end)));
    headers["content-type"] = "application/cbor";
    const url = new URL("/v1/sync", env.ORIGIN_URL);
    const body = request.subarray(end + 1);
    const response = await fetch(url, { method: "POST", headers, body, signal: AbortSignal.timeout(module.told.origin_timeout_ms) });
    if (response.status !== 200) throw new Error(`the origin answered ${response.status}`);
    const answer = JSON.parse(module.call("sync_response", new Uint8Array(await response.arrayBuffer())));
    if (answer.error) throw new Error(answer.error);
    state.lastSync = Date.now();
    state.catalogue = answer.catalogue;
    if (answer.rejected.length > 0) log("facts_rejected", { facts: answer.rejected.length, codes: [...new Set(answer.rejected)] });
    return answer;
  } catch (error) {
    state.lostTold -= lost;
    state.deadTold -= dead;
    log("sync_failed", { messages: messages.length, message: String(error?.message) });
    return null;
  }
}

/** Consumes the facts queue: a message is acknowledged once the origin has it or will never take it, else tried again later. */
export async function consumeFacts(batch, env, module) {
  const { messages } = batch;
  const { sync_messages } = module.told;
  let pending = 0;
  for (let at = 0; at < messages.length; at += sync_messages) {
    const some = messages.slice(at, at + sync_messages);
    const answer = await sync(env, module, { messages: some.map((message) => bytes(message.body)) });
    for (const [number, message] of some.entries()) {
      if (answer === null || answer.kept.includes(number)) retry(message, module);
      else message.ack();
    }
    pending += answer?.pending ?? 0;
  }
  if (module.call("wakes", pending)) await wake(env);
}

function retry(message, module) {
  const { attempts } = message;
  if (module.call("is_dead", attempts)) {
    state.dead += 1;
    log("dead_letter", { attempts, dead_total: state.dead });
  }
  message.retry({ delaySeconds: module.call("retry_delay_s", attempts) });
}

/** Consumes the dead letters: each goes back to the facts queue, with all its tries before it. The origin refuses what is too old. */
export async function redrive({ messages }, env) {
  const again = async (message) => {
    try {
      await inTime(SEND_MS, env.FACTS.send(bytes(message.body), { contentType: "bytes" }));
      message.ack();
    } catch (error) {
      log("redrive_failed", { attempts: message.attempts, message: String(error?.message) });
      message.retry({ delaySeconds: message.attempts <= DEAD_FIRST ? DEAD_FIRST_S : DEAD_S });
    }
  };
  await Promise.all(messages.map(again));
}

/** Wakes the one consumer that writes the KV. A wake-up that is lost is made good by the next cron. */
export async function wake(env) {
  try {
    await inTime(SEND_MS, env.PUBLISH.send("wake", { contentType: "text" }));
  } catch (error) {
    log("wake_failed", { message: String(error?.message) });
  }
}

/** Consumes the publish queue: drains the origin's outbox into the KV, and reads back what the origin asks for. */
export async function drainOutbox(env, module) {
  const began = Date.now();
  let applied = [];
  let read = [];
  let operations = 0;
  for (;;) {
    const drain = module.call("drain_wanted", began, operations, Date.now());
    const answer = await sync(env, module, { applied, read, drain });
    if (answer === null) return;
    const { publish, verify } = answer;
    const next = module.call("drain_next", publish.length + verify.length, answer.pending);
    if (next === "wake_again") await wake(env);
    if (next !== "write") return;
    applied = await write(env, publish);
    read = verify.length > 0 ? await readBack(env, verify) : [];
    // A sync is one operation, and so is a bulk read.
    operations += publish.length + (verify.length > 0 ? 1 : 0) + 1;
    if (!module.call("drain_goes_on", applied.length + read.length)) return;
  }
}

/** What the KV has of some keys: the values' digests, none where there is no value. What cannot be read is asked for again. */
async function readBack(env, verify) {
  try {
    const found = await inTime(KV_MS, env.PROFILES.get(verify.map(([, key]) => key)));
    return await Promise.all(verify.map(async ([entry, key]) => [entry, await digest(found.get(key) ?? null)]));
  } catch (error) {
    log("kv_read_failed", { message: String(error?.message) });
    return [];
  }
}

async function digest(value) {
  if (value === null) return null;
  return [...new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(value)))];
}

/** Writes entries to the KV and gives those whose write was acknowledged. Behind one that is late it begins no more. */
async function write(env, entries) {
  const applied = [];
  let late = false;
  for (let at = 0; at < entries.length && !late; at += WRITES) {
    const put = async ({ entry, key, value }) => {
      try {
        await inTime(KV_MS, value === null ? env.PROFILES.delete(key) : env.PROFILES.put(key, value));
        applied.push(entry);
      } catch (error) {
        late ||= error instanceof Late;
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
