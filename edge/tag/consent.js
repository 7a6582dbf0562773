// The answers of the page's consent managers, and the consent that the edge has served.

import { CONSENT_BYTES, fits, safe, settings, warn } from "./settings.js";

/** The managers' answers, in the form of the edge's `consent`. */
export let consent = {};
/** The same as text, for comparison. */
export let consentText = "{}";
/**
 * Number of managers that have not answered yet, plus one until all of them were asked. While it is not zero, no
 * visitor is recognised.
 */
export let unanswered = 1;
/** Resolves once all managers have answered, or after the page's timeout. */
export let settled;
/** Number of times that the managers were asked. An answer to an earlier round is ignored. */
let round = 0;
/** The consent that the edge has served last. A page without a manager has the empty one. */
let servedText = "{}";
/** The edge's verdict on it, `full` or `none`; undefined before the first. */
export let verdict;

/** Whether the edge has served the visitor's latest consent. */
export const isServed = () => !unanswered && servedText === consentText;

/** Notes that the edge has served a call that carried this consent. */
export function noteServed(text, answer) {
  servedText = text;
  verdict = answer;
}

/** A manager's string, for the edge. A missing or too long one becomes empty, which the edge treats as a refusal. */
const readString = (text) => (typeof text === "string" && fits(text, CONSENT_BYTES) ? text : "");

/**
 * The managers that the tag knows: the call of each, and its answer in the form of the edge; falsy while the manager
 * does not know yet. If the GDPR does not apply there is no string, and the tenant's policy decides.
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
    // A section that is not a number becomes 0, which refuses.
    read: ({ pingData: ping }) =>
      ping?.signalStatus === "ready" && {
        gpp: readString(ping.gppString),
        gpp_sid: [ping.applicableSections ?? []].flat().map((section) => +section | 0),
      },
  },
];

/** Forgets the managers' answers. No visitor is recognised until they are asked again. */
export function forgetAnswers() {
  round += 1;
  unanswered = 1;
  consent = {};
  consentText = "{}";
}

/** Asks every consent manager of the page. `changed` is called for each answer. */
export function askManagers(changed) {
  forgetAnswers();
  settled = new Promise((resolve) => {
    setTimeout(resolve, settings.timeout);
    const settle = () => unanswered || resolve();
    MANAGERS.forEach((manager) => ask(manager, settle, changed));
    // The extra count prevents a manager that answers at once from counting as the last one.
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
 * The manager's function; undefined if the page has no such manager. In a frame, it is called as the IAB's
 * specifications describe: by a message to the nearest window that has the locator frame.
 */
function reachManager(name, version) {
  const hasFunction = (at) => typeof at[name] === "function";
  const located = !hasFunction(window) && findWindow((at) => at.frames[name + "Locator"]);
  if (located) return (command, ...rest) => postCall(located, name, version, command, rest.pop());
  const direct = findWindow(hasFunction);
  return direct && direct[name].bind(direct);
}

/** The nearest window, from this one outwards, that `has` accepts. A window of another origin throws on most reads. */
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
    // No other frame may answer for the manager.
    if (source !== to) return;
    const answer = (typeof data === "string" ? JSON.parse(data) : data)[name + "Return"];
    if (answer?.callId === callId) listener(answer.returnValue, answer.success);
  }));
  to.postMessage({ [name + "Call"]: { command, version, callId } }, "*");
}
