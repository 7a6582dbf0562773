// The time that waits may take: one timer for all requests of an isolate. To set one for each takes a twentieth of a request.

/**
 * So often it is looked who is late. Counted in ticks, not by the clock: after a pause of the isolate (its garbage collector's
 * may take 100 ms) timers run before anybody looks at what arrived meanwhile, and such a pause is one tick.
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
    for (const waiter of waiting) {
      waiter.ticks -= 1;
      if (waiter.ticks >= 0) continue;
      waiting.delete(waiter);
      waiter.resolve(waiter.late);
    }
    if (waiting.size > 0) return this.#wait(done);
    current = undefined;
    done();
  }
}

function watch(ctx) {
  const now = Date.now();
  if (!current?.lasts(now)) current = new Watch(ctx, now);
}

/**
 * The promise's value, or `late` when that takes longer than so many milliseconds and a tick or two. The promise must not
 * reject; `ctx` is the request's.
 */
export function within(ctx, ms, promise, late) {
  return new Promise((resolve) => {
    const waiter = { ticks: Math.ceil(ms / TICK_MS), resolve, late };
    waiting.add(waiter);
    watch(ctx);
    promise.then((value) => {
      waiting.delete(waiter);
      resolve(value);
    });
  });
}
