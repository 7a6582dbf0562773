// Decisions: one call to the edge for all placements of a page, and one call at a time.

import { askManagers, consent, consentText, isServed, noteServed, settled, unanswered, verdict } from "./consent.js";
import { explainAnswer, explainPlacement } from "./debug.js";
import { changeUser, flushEvents, hasEvents, isUserDue, nameVisitor, said } from "./events.js";
import { fillPlacement, listShown, placed, readPlacement, restoreHouse, SELECTOR, tidyPlacements } from "./placements.js";
import { fits, KEYWORDS, NAME_BYTES, PLACEMENTS, safe, settings, URL_BYTES, warn } from "./settings.js";

/** Placements that are added within this time share one call. */
const GATHER_MS = 50;
/** Pause before an unserved call is repeated; it doubles after each attempt. */
const RETRY_MS = 5_000;
/**
 * After this time an answer is abandoned, so that the next call may go. Two concurrent calls would mint two visitors.
 */
const GIVE_UP_MS = 10_000;

let user;
let url;
let referrer;
/** Placements that were requested since the page came to this address. */
let decided = new WeakSet();
/** Whether this page view must still be counted. */
let isPageDue = true;
let planned;
let retrying;
let pause = RETRY_MS;
let queue = Promise.resolve();

/** Sets the ids and proofs of later calls, and calls the edge if they changed. */
export function setUser(ids, proofs) {
  const named = { ids, proofs };
  if (JSON.stringify(named) === JSON.stringify(user)) return;
  const isSame = !user || JSON.stringify(ids) === JSON.stringify(user.ids);
  user = named;
  changeUser(isSame);
  if (url) planCall();
}

/** Calls the edge soon, after the previous call has ended. */
export function planCall() {
  planned ??= setTimeout(() => {
    planned = undefined;
    queue = queue.then(callEdge).catch(() => {});
  }, GATHER_MS);
}

/** Calls the edge later, if something is left to send. */
export function retryCall() {
  if (unanswered || !(hasEvents() || isUserDue() || !isServed())) return;
  retrying ??= setTimeout(() => {
    retrying = undefined;
    pause *= 2;
    planCall();
  }, pause);
}

/** Begins with the page: its consent managers, its address, its placements. */
export function beginPage() {
  if (url) return false;
  askManagers(planCall);
  url = readAddress();
  referrer = document.referrer.slice(0, URL_BYTES);
  planCall();
  return true;
}

/**
 * Placements to request with the next call. One outside the document is requested when it comes back. One whose id is
 * too long is left out, because the edge would refuse the whole call.
 */
const findDue = () =>
  [...document.querySelectorAll(SELECTOR)].filter((element) => !decided.has(element) && isAskable(element));

function isAskable(element) {
  const isNamed = fits(element.dataset.causeway, NAME_BYTES);
  if (!isNamed) markDecided(element);
  return isNamed;
}

/** Notes that a placement was handled, and reports its mistakes. */
function markDecided(element) {
  decided.add(element);
  explainPlacement(element);
}

/** Finds placements that were not requested yet, and restores elements that are no longer placements. */
export const scanPage = safe(() => {
  tidyPlacements();
  if (findDue()[0]) planCall();
});

/** The page has a new address: a page view, and new decisions for all placements. */
export const followAddress = safe(() => {
  const now = readAddress();
  if (now !== url) viewPage(now);
});

/** The page came back from the browser's memory: it is viewed again, and the visitor's consent may have changed. */
export const returnToPage = safe(() => {
  askManagers(planCall);
  url = "";
  viewPage(readAddress());
});

function viewPage(address) {
  referrer = url.slice(0, URL_BYTES);
  url = address;
  isPageDue = true;
  placed.forEach((_, element) => element.isConnected || restoreHouse(element));
  decided = new WeakSet();
  planCall();
}

/** One character more than the edge reads tells it that the address is longer, so that it uses no part of it. */
const readAddress = () => location.href.split("#")[0].slice(0, URL_BYTES + 1);

async function callEdge() {
  await settled;
  const elements = findDue().slice(0, PLACEMENTS);
  const saying = consentText;
  const asked = said;
  if (!elements[0] && (unanswered || (!isPageDue && !isUserDue() && verdict && isServed()))) return;
  elements.forEach(markDecided);
  warn("consent as read:", unanswered ? "a consent manager has not answered, no visitor is recognised" : consent);
  // Without consent yet, no cookie and no id is sent, so that the edge neither mints a visitor nor records a
  // withdrawal.
  const call = unanswered ? { consent: { tcf: "" } } : { consent, user, page_view: isPageDue };
  const credentials = unanswered ? "omit" : "include";
  const isRecognised = !unanswered;
  if (isRecognised) isPageDue = false;
  const placements = elements.map(readPlacement);
  const page = { url, referrer, keywords: readKeywords() };
  const body = JSON.stringify({ placements, page, shown: listShown(elements), ...call });
  let isLate;
  const timer = setTimeout(() => {
    isLate = true;
    elements.forEach(restoreHouse);
  }, settings.timeout);
  let answer;
  try {
    const signal = AbortSignal.timeout?.(GIVE_UP_MS);
    answer = await (await fetch(settings.edge + "/v1/decide", { method: "POST", body, credentials, signal })).json();
  } catch {}
  clearTimeout(timer);
  // `internal`, `overloaded`, `mint_limited`, `forgotten`, `retry`: the call was not served for a visitor, and nothing
  // was counted; a later call may have a visitor. Or the withdrawal of the present visitor was not accepted.
  const isUnserved = /^[fimor]/.test(answer?.reason);
  const isAnswered = isRecognised && answer?.decisions && !isUnserved;
  if (isAnswered) {
    noteServed(saying, answer.consent);
    nameVisitor(asked, answer.visitor_token);
    pause = RETRY_MS;
  }
  explainAnswer(elements, answer, isLate, isRecognised && user);
  // An ad that was chosen for the previous address does not fit this one, for which the next call asks.
  if (!isLate) elements.forEach((element, i) => decided.has(element) && fillPlacement(element, answer?.decisions?.[i]));
  if (isAnswered) flushEvents();
  else if (isRecognised) {
    isPageDue ||= isUnserved;
    retryCall();
  }
  scanPage();
}

/** One keyword more, and one character more, than the edge reads, so that the edge warns of the further ones. */
const readKeywords = () =>
  (document.querySelector("meta[name=keywords]")?.content ?? "")
    .split(",")
    .map((word) => word.trim().slice(0, NAME_BYTES + 1))
    .filter(Boolean)
    .slice(0, KEYWORDS + 1);
