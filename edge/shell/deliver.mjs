// Delivering facts: to the queue, or straight to the origin when the queue refuses, or refused, or counted as lost.

import { inTime } from "./deadline.mjs";
import { arrive, leave, log, lose } from "./state.mjs";
import { SEND_MS, sync } from "./sync.mjs";

/** So much a call of a queue takes: 256 KB. */
const BYTES = 250_000;
/** So many calls one request makes, for others too: the platform allows each some fifty in all. */
const CALLS = 10;
/** So many wait for a call's end: who comes then does not. */
const WAITING = 200;

/**
 * Hands a batch of `count` facts over that an answer waits for. True once the queue or the origin has them for good; a queue that
 * says nothing is taken for one that refuses.
 */
export async function deliver(env, module, batch, count) {
  const [done] = await taken(env, module, [batch.slice()], count, (sending) => inTime(SEND_MS, sending));
  // They are asked for again, and lost only with who does not send them.
  if (!done) log("facts_refused", { facts: count });
  return done;
}

/** The request that sends, for itself and for all who come before its call has ended: their batches leave together in the next. */
let current;

class Sender {
  #env;
  #module;
  #began;
  #next;

  constructor(env, module, first) {
    this.#env = env;
    this.#module = module;
    this.#next = first;
  }

  /** Whether its call does not end: the platform may have ended its request. */
  silent(now) {
    return now >= this.#began + SEND_MS;
  }

  takes(env, now) {
    return this.#env.FACTS === env.FACTS && !this.silent(now) && this.#next.length < WAITING;
  }

  add(one) {
    this.#next.push(one);
  }

  /** What it has not begun to send, which is another's then. */
  rest() {
    return this.#next.splice(0);
  }

  async run() {
    for (let calls = 1; this.#next.length > 0; calls += 1) {
      if (calls === CALLS && current === this) current = undefined;
      this.#began = Date.now();
      const some = this.#next.splice(0, together(this.#next, this.#module.told.sync_messages));
      const count = some.reduce((sum, { facts }) => sum + facts, 0);
      const done = await taken(this.#env, this.#module, some.map(({ batch }) => batch), count, (sending) => sending);
      some.forEach((one, i) => (done[i] ? arrive(one) : lose(one)));
    }
    if (current === this) current = undefined;
  }
}

/** How many of these one call takes, and of the origin where the queue refuses it. */
function together(waiting, most) {
  let bytes = 0;
  const over = waiting.findIndex(({ batch }, i) => i === most || ((bytes += batch.length) > BYTES && i > 0));
  return over < 0 ? waiting.length : over;
}

/**
 * Hands a batch of `count` facts over that no answer waits for: at once, or with what else comes before the call that is under way
 * has ended. `ctx` is the request's.
 */
export function handOver(env, module, batch, count, ctx) {
  const now = Date.now();
  const one = leave(count, now);
  one.batch = batch.slice();
  if (current?.takes(env, now)) return current.add(one);
  const left = current?.silent(now) ? current.rest() : [];
  current = new Sender(env, module, [...left, one]);
  ctx.waitUntil(current.run());
}

/** Whether the queue, or else the origin, has each of these messages for good. */
async function taken(env, module, messages, count, wait) {
  try {
    const contentType = "bytes";
    // The platform takes over what it is given: the origin may be asked next.
    const [first, ...others] = messages.map((message) => ({ body: message.slice(), contentType }));
    await wait(others.length === 0 ? env.FACTS.send(first.body, { contentType }) : env.FACTS.sendBatch([first, ...others]));
    return messages.map(() => true);
  } catch (error) {
    log("queue_refused", { facts: count, message: String(error?.message) });
  }
  const answer = await sync(env, module, { messages });
  return messages.map((_, number) => answer?.kept.includes(number) === false);
}
