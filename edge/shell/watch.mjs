// The time that waits may take: one timer for all requests of an isolate. To set one for each takes a twentieth of a request.

/**
 * So often it is looked who is late. Counted in ticks, not by the clock: after a pause of the isolate (its garbage collector's
 * may take 100 ms) timers run before anybody looks at what arrived meanwhile, and such a pause is one tick.
 */
const TICK_MS = 10;
/** So long a watch takes newcomers: its ticks count as its request's CPU, and the platform ends what outlives a request by 30 s. */
const TAKES_MS = 1_000;
/** A watch that has not ticked for so long is taken for ended, with its request. */
const SILENT_MS = 500;

/** Those who wait. Their timer is of the request that began it, and outlives it for as long as anybody waits here. */
class Watch {
  waiting = new Set();
  #until;
  #ticked;

  constructor(ctx, now) {
    this.#until = now + TAKES_MS;
    this.#ticked = now;
    ctx.waitUntil(new Promise((done) => this.#wait(done)));
  }

  takes(now) {
    return now < this.#until && now < this.#ticked + SILENT_MS;
  }

  #wait(done) {
    setTimeout(() => this.#tick(done), TICK_MS);
  }

  #tick(done) {
    this.#ticked = Date.now();
    for (const waiter of this.waiting) {
      waiter.ticks -= 1;
      if (waiter.ticks < 0) this.#late(waiter);
    }
    if (this.waiting.size > 0) return this.#wait(done);
    if (current === this) current = undefined;
    done();
  }

  #late(waiter) {
    this.waiting.delete(waiter);
    waiter.resolve(waiter.late);
  }
}

/** The watch that newcomers join. */
let current;

function watch(ctx) {
  const now = Date.now();
  if (!current?.takes(now)) current = new Watch(ctx, now);
  return current;
}

/**
 * The promise's value, or `late` when that takes longer than so many milliseconds, and up to a tick more. The promise must not
 * reject; `ctx` is the request's.
 */
export function within(ctx, ms, promise, late) {
  return new Promise((resolve) => {
    const { waiting } = watch(ctx);
    const waiter = { ticks: Math.ceil(ms / TICK_MS), resolve, late };
    waiting.add(waiter);
    promise.then((value) => {
      waiting.delete(waiter);
      resolve(value);
    });
  });
}
