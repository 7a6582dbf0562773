// Delivering facts: to the queue, or straight to the origin when the queue refuses, or refused, or counted as lost.

import { inTime } from "./deadline.mjs";
import { arrive, leave, log, lose } from "./state.mjs";
import { SEND_MS, sync } from "./sync.mjs";

/** So much a call of a queue takes: 256 KB. */
const BYTES = 250_000;
/** So many calls, and for so long, one request makes one behind the other, for others too. */
const [CALLS, LASTS_MS] = [10, 10_000];
/** So many wait for a call's end: who comes then does not. */
const WAITING = 100;
/** A call that has not ended after so long was given up with its request, by the platform. */
const SILENT_MS = 2 * SEND_MS;

/**
 * Hands a batch of `count` facts over that an answer waits for. True once the queue or the origin has them for good; a queue that
 * says nothing is taken for one that refuses.
 */
export async function deliver(env, module, batch, count) {
  const [done] = await taken(env, module, [batch.slice()], (sending) => inTime(SEND_MS, sending));
  // They are asked for again, and lost only with who does not send them.
  if (!done) log("facts_refused", { facts: count });
  return done;
}

/** The request that sends, for itself and for all who come before its call has ended: their batches leave together in the next. */
let current;

class Sender {
  #ctx;
  #env;
  #module;
  #began;
  #next;

  constructor(ctx, env, module, first) {
    this.#ctx = ctx;
    this.#env = env;
    this.#module = module;
    this.#next = first;
  }

  takes(env, now) {
    return this.#env.FACTS === env.FACTS && now < this.#began + SILENT_MS && this.#next.length < WAITING;
  }

  add(one) {
    this.#next.push(one);
  }

  /** What it has not begun to send, which is another's then. */
  rest() {
    return this.#next.splice(0);
  }

  async run() {
    const until = Date.now() + LASTS_MS;
    for (let calls = 1; this.#next.length > 0 && calls < CALLS && Date.now() < until; calls += 1) {
      this.#began = Date.now();
      if (!(await inTime(SEND_MS, this.#send()).then(() => true, () => false))) break;
    }
    if (current === this) current = undefined;
    // Whoever comes now sends for those who follow. What is left waits for nothing: the platform ends a request in time.
    while (this.#next.length > 0) this.#send();
  }

  /** What one call takes, and of the origin where the queue refuses it. */
  #send() {
    const [env, module, now] = [this.#env, this.#module, Date.now()];
    const some = this.#next.splice(0, together(this.#next, module.told.sync_messages));
    const leaving = some.map(({ count }) => leave(count, now));
    const sending = taken(env, module, some.map(({ batch }) => batch)).then((done) => {
      leaving.forEach((one, i) => (done[i] ? arrive(one) : lose(one)));
    });
    this.#ctx.waitUntil(sending);
    return sending;
  }
}

/** How many of these go together. */
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
  const one = { count, batch: batch.slice() };
  if (current?.takes(env, Date.now())) return current.add(one);
  // With those who wait for a call that does not end.
  current = new Sender(ctx, env, module, [...(current?.rest() ?? []), one]);
  ctx.waitUntil(current.run());
}

/** Whether the queue, or else the origin, has each of these messages for good; `wait` says how long a call of the queue may take. */
async function taken(env, module, messages, wait = (sending) => sending) {
  try {
    const contentType = "bytes";
    // The platform takes over what it is given: the origin may be asked next.
    const [first, ...others] = messages.map((message) => ({ body: message.slice(), contentType }));
    await wait(others.length === 0 ? env.FACTS.send(first.body, { contentType }) : env.FACTS.sendBatch([first, ...others]));
    return messages.map(() => true);
  } catch (error) {
    log("queue_refused", { messages: messages.length, message: String(error?.message) });
  }
  const answer = await sync(env, module, { messages });
  return messages.map((_, number) => answer?.kept?.includes(number) === false);
}
