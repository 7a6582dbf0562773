// The time that waits may take: one timer for all requests of an isolate. To set one for each takes a twentieth of a request.

/**
 * So often it is looked who is late: who was about to be at the tick before, too. After a pause of the isolate (its garbage
 * collector's may take 100 ms) timers run before anybody looks at what arrived meanwhile, which has until the next tick.
 */
const TICK_MS = 10;
/** After so long the next who waits begins a watch: ticks are CPU of its request, and the platform ends what outlives one by 30 s. */
const LASTS_MS = 1_000;
/** A watch that has not ticked for so long is taken for ended, with its request. */
const SILENT_MS = 500;

/** All who wait, whoever's timer looks after them. */
const waiting = new Set();
/** The one watch that ticks. */
let current;

/** A timer of the request that began it. It outlives that for as long as anybody waits and no other watch takes its place. */
class Watch {
  #until;
  #ticked;

  constructor(ctx, now) {
    this.#until = now + LASTS_MS;
    this.#ticked = now;
    ctx.waitUntil(new Promise((done) => this.#wait(done)));
  }

  lasts(now) {
    return now < this.#until && now < this.#ticked + SILENT_MS;
  }

  #wait(done) {
    setTimeout(() => this.#tick(done), TICK_MS);
  }

  #tick(done) {
    if (current !== this) return done();
    this.#ticked = Date.now();
    const nextTick = this.#ticked + TICK_MS;
    for (const waiter of waiting) {
      if (waiter.warned) {
        waiting.delete(waiter);
        waiter.resolve(waiter.late);
      }
      waiter.warned = nextTick >= waiter.until;
    }
    if (waiting.size > 0) return this.#wait(done);
    current = undefined;
    done();
  }
}

function watch(ctx, now) {
  if (!current?.lasts(now)) current = new Watch(ctx, now);
}

/**
 * What `made` makes of the promise's value, `failed` when it rejects, or `late` when that takes longer than so many
 * milliseconds and a tick; `ctx` is the request's.
 */
export function within(ctx, ms, promise, late, made = (value) => value, failed = late) {
  return new Promise((resolve) => {
    const now = Date.now();
    const waiter = { until: now + ms, warned: false, resolve, late };
    waiting.add(waiter);
    watch(ctx, now);
    const over = (value) => {
      waiting.delete(waiter);
      resolve(value);
    };
    promise.then((value) => over(made(value)), () => over(failed));
  });
}
