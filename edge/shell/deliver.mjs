// Delivering facts: to the queue, or straight to the origin when the queue refuses, or refused, or counted as lost.

import { inTime } from "./deadline.mjs";
import { arrive, leave, log, lose } from "./state.mjs";
import { SEND_MS, sync } from "./sync.mjs";

/**
 * Hands a batch of `count` facts over. True once the queue or the origin has them for good; where an `answer` waits for that, a
 * queue that says nothing is taken for one that refuses.
 */
export async function deliver(env, module, batch, count, answer = false) {
  if (answer) {
    const done = await taken(env, module, batch, count, (sending) => inTime(SEND_MS, sending));
    // They are asked for again, and lost only with who does not send them.
    if (!done) log("facts_refused", { facts: count });
    return done;
  }
  const one = leave(count, Date.now());
  const done = await taken(env, module, batch, count, (sending) => sending);
  if (done) arrive(one);
  else lose(one);
  return done;
}

async function taken(env, module, batch, count, wait) {
  // For the origin, where the queue refuses: the batch lies in the module's memory, of which the queue takes a copy at once.
  const kept = batch.slice();
  try {
    await wait(env.FACTS.send(batch, { contentType: "bytes" }));
    return true;
  } catch (error) {
    log("queue_refused", { facts: count, message: String(error?.message) });
  }
  return (await sync(env, module, { messages: [kept] }))?.kept.length === 0;
}
