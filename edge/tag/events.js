// Events: gathered, sent in batches, and sent again until the edge has taken them.

import { isServed, verdict } from "./consent.js";
import { retryCall } from "./decide.js";
import { explainEvents } from "./debug.js";
import { safe, settings, warn } from "./settings.js";

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

/** Bytes that a visitor token adds to an event, at most. */
const TOKEN_CHARS = 120;

/**
 * Events that the browser has not taken yet: the text of each, what the page had said of its user, and the token of the
 * visitor that the event happened to, once an answer has named that one.
 */
let outbox = [];
let timer;
/** The token of the page's visitor; empty where nobody is recognised, and undefined while the edge has not said it. */
let token;
/** What the page has said of its user last: `user` counts the different users, of whom the first may come without a name. */
export let said = { user: 0 };
/** What the edge has answered to last. */
let answered;

/** The page names its user, or the same one with other proofs: the next answer says which visitor that is. */
export function changeUser(isSame) {
  said = { user: said.user + !isSame, isNamed: true };
  token = undefined;
}

/** Whether the edge has not said yet who the page's user is. */
export const isUserDue = () => answered !== said;

/**
 * An answer has named the visitor of the user that a call `asked` about. Events of that user get the visitor's token. Events
 * are dropped where nobody is recognised, or the visitor has withdrawn its consent, and where they belong to an earlier user
 * that no answer named: they never count for another one.
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
  if (lost) warn(`${lost} events are lost:`, named ? "the edge did not answer before the user changed" : "nobody is recognised");
  outbox = kept;
}

export const hasEvents = () => outbox.length > 0;

/**
 * A page's id: a text that is not empty, or the digits of a number. Anything else is none, such as the promise of an
 * id: as a text it would be the same for everybody.
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
  if (token === "") return warn("an event is lost: nobody is recognised", event);
  outbox.push({ text, said, visitor: token });
  timer ??= setTimeout(flushEvents, GATHER_MS);
  return undefined;
}

/**
 * Hands the events over, batch by batch. Before the edge has answered it does so only when the page goes `away`, and only
 * events that happened before the page named its first user: they are for the browser's own visitor. Nothing goes before
 * the edge has answered to what the visitor said last.
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

/** Whether the browser has taken a batch. What comes of a beacon nobody hears: it is for a page that is left. */
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

/** For another try: the events have their ids, so that one which arrived after all counts once. */
function keepBatch(batch) {
  outbox = [...batch, ...outbox];
  timer ??= setTimeout(flushEvents, RETRY_MS);
}
