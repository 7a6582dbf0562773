// What the page's consent managers say, and what the edge has served of it.

import { safe, settings } from "./settings.js";

/** What the managers say, in the form of the edge's `consent`. */
export let consent = {};
/** The same as text, to compare. */
export let consentText = "{}";
/** Managers that have not answered yet, and one more until all of them were asked. While there is one, nobody is recognised. */
export let unanswered = 1;
/** Resolves once all managers have answered, or after the page's timeout. */
export let settled;
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

/** Asks every consent manager of the page; `changed` is called for each answer. */
export function askManagers(changed) {
  settled = new Promise((resolve) => {
    setTimeout(resolve, settings.timeout);
    // Where the GDPR does not apply there is no string, and the tenant's policy decides.
    listen("__tcfapi", [2], ({ gdprApplies, eventStatus, tcString }) =>
      gdprApplies === false ? { tcf: undefined } : /^tcloaded|^useraction/.test(eventStatus) && { tcf: tcString }, resolve, changed);
    listen("__gpp", [], ({ pingData: ping }) =>
      ping?.signalStatus === "ready" && { gpp: ping.gppString, gpp_sid: ping.applicableSections }, resolve, changed);
    // A manager that answers at once is not the last before all were asked.
    if (!--unanswered) resolve();
  });
}

/** Listens to a manager. `read` gives what an answer says for the edge; nothing while the manager does not know yet. */
const listen = safe((name, version, read, resolve, changed) => {
  if (typeof window[name] !== "function") return;
  let first = 1;
  unanswered += 1;
  window[name]("addEventListener", ...version, safe((data, success) => {
    const said = success && data && read(data);
    if (!said) return;
    unanswered -= first;
    first = 0;
    if (!unanswered) resolve();
    consent = { ...consent, ...said };
    consentText = JSON.stringify(consent);
    changed();
  }));
});
