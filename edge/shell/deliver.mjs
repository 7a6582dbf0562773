// Delivering facts: to the queue, or straight to the origin when the queue refuses, or counted as lost.

import { log, state } from "./state.mjs";
import { sync } from "./sync.mjs";

/** Hands a batch of `count` facts over. True once the queue or the origin has them for good. */
export async function deliver(env, module, batch, count) {
  // For the origin, where the queue refuses: the batch lies in the module's memory, of which the queue takes a copy at once.
  const kept = batch.slice();
  try {
    await env.FACTS.send(batch, { contentType: "bytes" });
    return true;
  } catch (error) {
    log("queue_refused", { facts: count, message: String(error?.message) });
  }
  const answer = await sync(env, module, { messages: [kept] });
  if (answer?.kept.length === 0) return true;
  state.lost += count;
  log("facts_lost", { facts: count, lost_total: state.lost });
  return false;
}
