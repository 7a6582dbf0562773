// The time that a wait may take. One timer looks after all waits of an isolate: to set one for each takes a twenty-fifth of a
// request, though next to none is ever late.
//
// What a tick wakes belongs to other requests. The platform lets a promise go on in the request that it was made in, however it
// is settled (its flag `handle_cross_request_promise_resolution`), if its own code made it: not if V8's compiler did, which
// takes up `new Promise` and `then` where they are hot, but not `Promise.withResolvers`.

/**
 * So often it is looked who is late: who was about to be at the tick before, too. After a pause of the isolate (its garbage
 * collector's may take 100 ms) timers run before anybody looks at what arrived meanwhile, which has until the next tick.
 */
const TICK_MS = 10;
/** After so long the next who waits begins a watch: ticks are CPU of its request, and the platform ends what outlives one by 30 s. */
const LASTS_MS = 1_000;
/** A watch that has not ticked for so long is taken for ended, with its request: who waited by it waits until somebody else does. */
const SILENT_MS = 50;

/** All who wait, whoever's timer looks after them, and until the next tick those who did. */
let waiting = [];
/** The one watch that ticks. */
let current;
/** The request whose tick it is, until what it woke would have gone on in it. */
let ticking;
/** Whether each wait has a timer of its own, as what a tick wakes does not go on where it should. */
let apart = false;

/** A timer of the request that began it. It outlives that for as long as anybody waits and no other watch takes its place. */
class Watch {
  #ctx;
  #until;
  #ticked;

  constructor(ctx, now) {
    this.#ctx = ctx;
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
    ticking = this.#ctx;
    waiting = waiting.filter((wait) => {
      if (wait.warned) wait.over(wait.late);
      wait.warned = nextTick >= wait.until;
      return wait.resolve !== undefined;
    });
    queueMicrotask(() => (ticking = undefined));
    if (waiting.length > 0) return this.#wait(done);
    current = undefined;
    done();
  }
}

class Wait {
  warned = false;

  constructor(resolve, until, late) {
    this.resolve = resolve;
    this.until = until;
    this.late = late;
  }

  over(value) {
    const { resolve } = this;
    // It is looked at until the next tick; what was read need not live as long.
    this.resolve = undefined;
    this.late = undefined;
    resolve?.(value);
  }
}

/**
 * What `made` makes of the promise's value, `failed` when it rejects or nothing can be made of it, or `late` when that takes
 * longer than so many milliseconds and a tick; `ctx` is the request's. What is given for `late` may be taken to be of another
 * request, and is no promise.
 */
export function within(ctx, ms, promise, late, made = (value) => value, failed = late) {
  const { promise: waited, resolve } = Promise.withResolvers();
  const now = Date.now();
  const wait = new Wait(resolve, now + ms, late);
  if (apart) {
    setTimeout(() => setTimeout(() => wait.over(wait.late), TICK_MS), Math.max(0, ms - TICK_MS));
  } else {
    waiting.push(wait);
    if (!current?.lasts(now)) current = new Watch(ctx, now);
  }
  const over = (value) => {
    if (wait.resolve === undefined) return;
    try {
      wait.over(made(value));
    } catch {
      wait.over(failed);
    }
  };
  promise.then(over, () => wait.over(failed));
  return waited;
}

/**
 * Whether it is found out that who waited goes on in another request, whose tick woke it: it has no right to its own answer there.
 * It is asked when a wait is over, and found out once; no wait that begins then is looked after by another request.
 */
export function astray(ctx) {
  if (apart || ticking === undefined || ticking === ctx) return false;
  apart = true;
  return true;
}

/** So long the platform lets what goes on behind an answer. */
export const BEHIND_MS = 30_000;

/** What took longer than it may. */
export class Late extends Error {}

/** The promise's value, or its rejection; `Late` is thrown when that takes longer than so many milliseconds. */
export async function inTime(ms, promise) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Late(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
