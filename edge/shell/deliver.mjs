// Delivering facts: to the queue, or straight to the origin when the queue refuses, or refused, or counted as lost.

import { inTime } from "./deadline.mjs";
import { leaving, log, state } from "./state.mjs";
import { SEND_MS, sync } from "./sync.mjs";

/**
 * Hands a batch of `count` facts over. True once the queue or the origin has them for good; where an `answer` waits for that, a
 * queue that says nothing is taken for one that refuses.
 */
export async function deliver(env, module, batch, count, answer = false) {
  // For the origin, where the queue refuses: the batch lies in the module's memory, of which the queue takes a copy at once.
  const kept = batch.slice();
  const one = { began: Date.now(), facts: count };
  try {
    const taken = env.FACTS.send(batch, { contentType: "bytes" });
    if (!answer) leaving.add(one);
    await (answer ? inTime(SEND_MS, taken) : taken);
    return true;
  } catch (error) {
    log("queue_refused", { facts: count, message: String(error?.message) });
  } finally {
    leaving.delete(one);
  }
  const synced = await sync(env, module, { messages: [kept] });
  if (synced?.kept.length === 0) return true;
  if (answer) {
    // They are asked for again, and lost only with who does not send them.
    log("facts_refused", { facts: count });
  } else {
    state.lost += count;
    log("facts_lost", { facts: count, lost_total: state.lost });
  }
  return false;
}
