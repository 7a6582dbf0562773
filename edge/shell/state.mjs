// What this isolate counts. It is told in /healthz and in the log, and to the origin with the next sync; losses within minutes.

import { BEHIND_MS } from "./deadline.mjs";

export const state = {
  /** Facts that queue and origin both refused, or that the queue never answered, and how many of them the origin was told of. */
  lost: 0,
  lostTold: 0,
  /** When a request last had them told. */
  lostTried: 0,
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

/** Facts whose answer has left, on their way to the queue, and since when: the oldest first. */
const leaving = new Set();

/** Facts set out; to be taken out again by `arrive` or `lose`. */
export function leave(facts, now) {
  countLeft(now);
  const one = { facts, began: now };
  leaving.add(one);
  return one;
}

export function arrive(one) {
  leaving.delete(one);
}

/** Counts facts as lost, once. */
export function lose(one) {
  if (!leaving.delete(one)) return;
  state.lost += one.facts;
  log("facts_lost", { facts: one.facts, lost_total: state.lost });
}

/** Counts what a queue that says nothing has let go of: the platform has ended who waited for it. */
export function countLeft(now) {
  for (const one of leaving) {
    if (now - one.began < BEHIND_MS) break;
    lose(one);
  }
}

export function note(names) {
  for (const name of names) state.notes[name] = (state.notes[name] ?? 0) + 1;
}

/** One line of JSON; never an id. */
export function log(event, fields) {
  console.log(JSON.stringify({ event, ...fields }));
}
