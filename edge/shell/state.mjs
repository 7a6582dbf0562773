// What this isolate counts. It is told in /healthz and in the log, and to the origin with the next sync.

export const state = {
  /** Facts that queue and origin both refused, and how many of them the origin was told of. */
  lost: 0,
  lostTold: 0,
  /** Queue messages given up on, and how many of them the origin was told of. */
  dead: 0,
  deadTold: 0,
  /** When the origin last answered a sync, in milliseconds since the epoch; 0 for never in this isolate. */
  lastSync: 0,
  /** The catalogue the origin last named. */
  catalogue: null,
  /** What went less than well, by name. */
  notes: {},
};

/** Facts whose answer has left, on their way to the queue, and since when. */
export const leaving = new Set();
/** So long the platform lets them. */
const LEAVE_MS = 30_000;

/** Counts what a queue that says nothing has let go of: who waited for it was ended. To be called before losses are told. */
export function countLeft(now) {
  for (const one of leaving) {
    if (now - one.began < LEAVE_MS) break;
    leaving.delete(one);
    state.lost += one.facts;
    log("facts_lost", { facts: one.facts, lost_total: state.lost });
  }
}

export function note(names) {
  for (const name of names) state.notes[name] = (state.notes[name] ?? 0) + 1;
}

/** One line of JSON; never an id. */
export function log(event, fields) {
  console.log(JSON.stringify({ event, ...fields }));
}
