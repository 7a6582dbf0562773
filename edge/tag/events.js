// Events: gathered, sent in batches, and sent again until the edge has accepted them.

import { isServed, verdict } from "./consent.js";
import { retryCall } from "./decide.js";
import { explainEvents } from "./debug.js";
import { safe, settings, warn } from "./settings.js";

/** Most events of one call, the edge's bound. */
const EVENTS = 200;
/** Most events that wait. Further ones are lost. */
const WAITING = 1_000;
/** Most characters of a batch of events, so that its bytes stay under the 64 KB that browsers and the edge accept. */
const BATCH_CHARS = 20_000;
/** Events within this time share one call. */
const GATHER_MS = 1_000;
/** Pause before events that were not accepted are sent again. */
const RETRY_MS = 5_000;

/** Most bytes that a visitor token adds to an event. */
const TOKEN_CHARS = 120;

/**
 * Events that the browser has not accepted yet: the text of each, the user at that time (`said`), and the token of the
 * visitor that the event happened to, once an answer has named it.
 */
let outbox = [];
let timer;
/** The token of the page's visitor; empty if no visitor is recognised, undefined before the edge has answered. */
let token;
/** The page's latest user. `user` is the number of user changes; before the first, the page may have named no user. */
export let said = { user: 0 };
/** The user that the edge has answered for last. */
let answered;

/** The page names its user, or the same one with other proofs. The next answer names the visitor. */
export function changeUser(isSame) {
  said = { user: said.user + !isSame, isNamed: true };
  token = undefined;
}

/** Whether the edge has not answered for the page's user yet. */
export const isUserDue = () => answered !== said;

/**
 * An answer has named the visitor for the user `asked`. Events of that user get the visitor's token. Events are dropped
 * if no visitor is recognised, if the visitor has withdrawn its consent, or if they belong to an earlier user that no
 * answer named: they never count for another user.
 */
export function nameVisitor(asked, named = "") {
  answered = asked;
  if (asked === said) token = named;
  const isLost = (event) => {
    if (event.said.user === asked.user) event.visitor ??= named;
    return event.visitor === undefined ? event.said.user < asked.user : !named;
  };
  const kept = outbox.filter((event) => !isLost(event));
  const lost = outbox.length - kept.length;
  if (lost) warn(`${lost} events are lost:`, named ? "the edge did not answer before the user changed" : "no visitor is recognised");
  outbox = kept;
}

export const hasEvents = () => outbox.length > 0;

/**
 * An id of the page: a text that is not empty, or the digits of a number. Any other value is ignored, such as a
 * promise: as a text it would be the same for every visitor.
 */
export function readId(id, what) {
  if (typeof id === "string" || Number.isFinite(id)) return `${id}` || undefined;
  if (id !== undefined && id !== null) warn(`${what} is left out: it is neither a text nor a number, but`, id);
  return undefined;
}

export function addEvent({ id, properties, ...event }) {
  const value_micros = properties?.value_micros;
  // 8.2 * 1e6 is 8199999.999999999, and micros are whole.
  if (typeof value_micros === "number") properties = { ...properties, value_micros: Math.round(value_micros) };
  id = readId(id, "the id of an event") ?? crypto.randomUUID?.() ?? `${Math.random()}`;
  const text = JSON.stringify({ ...event, properties, id });
  if (text.length > BATCH_CHARS || outbox.length >= WAITING) {
    return warn("an event is lost: it is too long, or too many wait", event);
  }
  if (token === "") return warn("an event is lost: no visitor is recognised", event);
  outbox.push({ text, said, visitor: token });
  timer ??= setTimeout(flushEvents, GATHER_MS);
  return undefined;
}

/**
 * Sends the events, batch by batch. Before the edge has answered, events are only sent when the page goes `away`, and
 * only if they happened before the page named its first user: they belong to the browser's own visitor. No event is
 * sent before the edge has served the visitor's latest consent.
 */
export const flushEvents = safe((away) => {
  clearTimeout(timer);
  timer = undefined;
  if (!isServed() || (!verdict && !away)) return retryCall();
  const isDue = (event) => event.visitor || (away && !said.user && !event.said.isNamed);
  const due = outbox.filter(isDue);
  outbox = outbox.filter((event) => !isDue(event));
  while (due.length) {
    let chars = 0;
    const isOver = ({ text }, i) => ((chars += text.length + TOKEN_CHARS) > BATCH_CHARS && i > 0) || i >= EVENTS;
    const cut = due.findIndex(isOver);
    const batch = due.splice(0, cut < 0 ? EVENTS : cut);
    if (!sendBatch(batch, away)) return keepBatch([...batch, ...due]);
  }
  return undefined;
});

const nameOwner = ({ text, visitor }) => (visitor ? `{"visitor_token":"${visitor}",${text.slice(1)}` : text);

/** Whether the browser has accepted a batch. A beacon reports no outcome, and is used when the page is left. */
function sendBatch(batch, away) {
  const to = settings.edge + "/v1/events";
  const body = `[${batch.map(nameOwner)}]`;
  if (away && navigator.sendBeacon) return navigator.sendBeacon(to, body);
  fetch(to, { method: "POST", body, credentials: "include", keepalive: true }).then(
    (response) => {
      if (/429|^5/.test(response.status)) keepBatch(batch);
      return explainEvents(response, batch);
    },
    () => keepBatch(batch),
  ).catch(warn);
  return true;
}

/** Schedules another attempt. The events have ids, so an event that had arrived counts once. */
function keepBatch(batch) {
  outbox = [...batch, ...outbox];
  timer ??= setTimeout(flushEvents, RETRY_MS);
}
