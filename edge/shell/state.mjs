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

export function note(names) {
  for (const name of names) state.notes[name] = (state.notes[name] ?? 0) + 1;
}

/** One line of JSON; never an id. */
export function log(event, fields) {
  console.log(JSON.stringify({ event, ...fields }));
}
