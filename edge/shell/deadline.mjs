// The time that a wait may take: each has a timer of its own request. One timer for all of an isolate costs 3 % less of a
// request, but what it wakes may go on in the request of the timer, which has no right to the other's answer.

/**
 * The last of the time is waited for by itself: after a pause of the isolate (its garbage collector's may take 100 ms) timers run
 * before anybody looks at what arrived meanwhile.
 */
const LAST_MS = 10;

/**
 * What `made` makes of the promise's value, what `failed` gives when it rejects or nothing can be made of it, or `late` when that
 * takes longer than so many milliseconds, of which it has `LAST_MS` at least. Its timer is not cleared, which takes as long as to
 * begin it: it ends with the request.
 */
export function within(ms, promise, late, made = (value) => value, failed = late) {
  return new Promise((resolve) => {
    let waits = true;
    const over = (of, value) => {
      if (!waits) return;
      waits = false;
      try {
        resolve(of(value));
      } catch {
        resolve(failed());
      }
    };
    setTimeout(() => waits && setTimeout(over, LAST_MS, late), Math.max(0, ms - LAST_MS));
    promise.then((value) => over(made, value), () => over(failed));
  });
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
