// Events: gathered, sent in batches, and sent again until the edge has taken them.

import { isServed, verdict } from "./consent.js";
import { retryCall } from "./decide.js";
import { safe, settings } from "./settings.js";

/** Events of one call, the edge's bound. */
const EVENTS = 200;
/** Events that wait at most; further ones are lost. */
const WAITING = 1_000;
/** Characters of one batch of events, so that its bytes stay under the 64 KB that browsers and the edge take. */
const BATCH_CHARS = 20_000;
/** Events within this time go in one call. */
const GATHER_MS = 1_000;
/** When events that were not taken are tried again. */
const RETRY_MS = 5_000;

/** Events, as JSON texts, that the browser has not taken yet. */
let outbox = [];
let timer;

export const hasEvents = () => outbox.length > 0;

/** A page's id: a number is its digits, and what is empty is none. */
export const readId = (id) => (id || id === 0 ? `${id}` : undefined);

export function addEvent(event) {
  const text = JSON.stringify({ ...event, id: readId(event.id) ?? crypto.randomUUID?.() ?? `${Math.random()}` });
  if (text.length > BATCH_CHARS || outbox.length >= WAITING) return;
  outbox.push(text);
  timer ??= setTimeout(flushEvents, GATHER_MS);
}

/**
 * Hands the events over, batch by batch; before the edge has answered only when the page goes `away`, and never before it
 * has answered to what the visitor said last.
 */
export const flushEvents = safe((away) => {
  clearTimeout(timer);
  timer = undefined;
  if (!isServed() || (!verdict && !away)) return retryCall();
  while (outbox.length) {
    let chars = 0;
    const cut = outbox.findIndex((text, i) => ((chars += text.length + 1) > BATCH_CHARS && i > 0) || i >= EVENTS);
    const batch = outbox.splice(0, cut < 0 ? EVENTS : cut);
    if (!sendBatch(batch, away)) return keepBatch(batch);
  }
});

/** Whether the browser has taken a batch. What comes of a beacon nobody hears: it is for a page that is left. */
function sendBatch(batch, away) {
  const to = settings.edge + "/v1/events";
  const body = `[${batch}]`;
  if (away && navigator.sendBeacon) return navigator.sendBeacon(to, body);
  fetch(to, { method: "POST", body, credentials: "include", keepalive: true }).then(
    ({ status }) => /429|^5/.test(status) && keepBatch(batch),
    () => keepBatch(batch),
  );
  return true;
}

/** For another try: the events have their ids, so that one which arrived after all counts once. */
function keepBatch(batch) {
  outbox = [...batch, ...outbox];
  timer ??= setTimeout(flushEvents, RETRY_MS);
}
