// What the page's consent managers say, and what the edge has served of it.

import { CONSENT_BYTES, fits, safe, settings, warn } from "./settings.js";

/** What the managers say, in the form of the edge's `consent`. */
export let consent = {};
/** The same as text, to compare. */
export let consentText = "{}";
/**
 * Managers that have not answered yet, and one more until all of them were asked. While there is one, nobody is
 * recognised.
 */
export let unanswered = 1;
/** Resolves once all managers have answered, or after the page's timeout. */
export let settled;
/** Counts how often the managers were asked: an answer to an earlier time is none. */
let round = 0;
/** The consent that the edge has served last; a page without a manager has nothing to tell. */
let servedText = "{}";
/** The edge's verdict on it, `full` or `none`; nothing before the first. */
export let verdict;

/** Whether the edge knows what the visitor said last. */
export const isServed = () => !unanswered && servedText === consentText;

/** Notes that the edge has served a call that carried this consent. */
export function noteServed(text, answer) {
  servedText = text;
  verdict = answer;
}

/**
 * A string of a manager, for the edge: one that is missing or too long is empty, which the edge takes for a refusal.
 */
const readString = (text) => (typeof text === "string" && fits(text, CONSENT_BYTES) ? text : "");

/**
 * The managers that the tag knows: how each is called, and what an answer says for the edge; nothing while the manager
 * does not know yet. Where the GDPR does not apply there is no string, and the tenant's policy decides.
 */
const MANAGERS = [
  {
    name: "__tcfapi",
    version: 2,
    listen: (api, listener) => api("addEventListener", 2, listener),
    read: ({ gdprApplies, eventStatus, tcString }) =>
      gdprApplies === false
        ? { tcf: undefined }
        : /^tcloaded|^useraction/.test(eventStatus) && { tcf: readString(tcString) },
  },
  {
    name: "__gpp",
    version: "1.1",
    listen: (api, listener) => api("addEventListener", listener),
    // A section that is no number becomes 0, which refuses.
    read: ({ pingData: ping }) =>
      ping?.signalStatus === "ready" && {
        gpp: readString(ping.gppString),
        gpp_sid: [ping.applicableSections ?? []].flat().map((section) => +section | 0),
      },
  },
];

/** Forgets what the managers said: nobody is recognised until they were asked again. */
export function forgetAnswers() {
  round += 1;
  unanswered = 1;
  consent = {};
  consentText = "{}";
}

/** Asks every consent manager of the page; `changed` is called for each answer. */
export function askManagers(changed) {
  forgetAnswers();
  settled = new Promise((resolve) => {
    setTimeout(resolve, settings.timeout);
    const settle = () => unanswered || resolve();
    MANAGERS.forEach((manager) => ask(manager, settle, changed));
    // A manager that answers at once is not the last before all were asked.
    unanswered -= 1;
    settle();
  });
}

const ask = safe(({ name, version, listen, read }, settle, changed) => {
  const api = reachManager(name, version);
  if (!api) return;
  const asked = round;
  let first = 1;
  unanswered += 1;
  listen(api, safe((data, success) => {
    const said = success && data && read(data);
    if (!said || asked !== round) return;
    warn(`${name} says`, said);
    unanswered -= first;
    first = 0;
    consent = { ...consent, ...said };
    consentText = JSON.stringify(consent);
    settle();
    changed();
  }));
});

/**
 * The manager's function; nothing where the page has no such manager. In a frame it is reached as the IAB's
 * specifications say: by a message to the nearest window that has the locator frame.
 */
function reachManager(name, version) {
  const hasFunction = (at) => typeof at[name] === "function";
  const located = !hasFunction(window) && findWindow((at) => at.frames[name + "Locator"]);
  if (located) return (command, ...rest) => postCall(located, name, version, command, rest.pop());
  const direct = findWindow(hasFunction);
  return direct && direct[name].bind(direct);
}

/** The nearest window, from this one outwards, that has something; one of another origin throws at most questions. */
function findWindow(has) {
  for (let at = window; ; at = at.parent) {
    try {
      if (has(at)) return at;
    } catch {}
    if (at === at.parent) return undefined;
  }
}

function postCall(to, name, version, command, listener) {
  const callId = `causeway-${round}`;
  addEventListener("message", safe(({ source, data }) => {
    // No other frame may answer in the manager's stead.
    if (source !== to) return;
    const answer = (typeof data === "string" ? JSON.parse(data) : data)[name + "Return"];
    if (answer?.callId === callId) listener(answer.returnValue, answer.success);
  }));
  to.postMessage({ [name + "Call"]: { command, version, callId } }, "*");
}
