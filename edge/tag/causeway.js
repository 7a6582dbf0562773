// The page tag: asks the edge once for all placements of a page, fills them, counts viewable ads, and sends events.
//
// It never throws into the page and never blocks it: after any failure, the house content stays in place. It evaluates
// no text as code, and an ad's HTML runs in a sandboxed frame with an opaque origin. docs/TAG.md explains its use.

import { forgetAnswers } from "./consent.js";
import { beginPage, followAddress, returnToPage, scanPage, setUser } from "./decide.js";
import { addEvent, flushEvents, readId } from "./events.js";
import { page } from "./placements.js";
import { ALTERNATE_ID_BYTES, fits, KINDS, NAME_BYTES, PROOF_BYTES, safe, settings, warn } from "./settings.js";
import { timeAllViews } from "./viewability.js";

/** Texts by kind, within the edge's bounds: the edge refuses a call with a text that is too long, or with too many. */
const readKinds = (texts, bytes) =>
  Object.fromEntries(
    Object.entries(texts ?? {})
      .map(([kind, text]) => [kind, readId(text, kind)])
      .filter(([kind, text]) => {
        const isTaken = fits(kind, NAME_BYTES) && fits(text, bytes);
        if (text && !isTaken) warn(`${kind} is left out: it has more than ${bytes} bytes`);
        return isTaken;
      })
      .slice(0, KINDS),
  );

/** The functions for pages. None of them throws. */
export const causeway = Object.assign(page, {
  track: safe((name, properties, id) => addEvent({ type: "track", name, properties, id })),
  page: safe(() => addEvent({ type: "page" })),
  identify: safe((ids, proofs) => setUser(readKinds(ids, ALTERNATE_ID_BYTES), readKinds(proofs, PROOF_BYTES))),
});

/** Begins, once per page: finds the placements, and follows the page's changes. */
export const start = safe(({ edge = location.origin, timeout = 1_000, count, debug = false } = {}) => {
  if (settings.edge !== undefined) return;
  Object.assign(settings, { edge, timeout, countsRender: count === "render", debug });
  warn("debug mode, with the edge", edge);
  const begin = safe(() => {
    if (document.readyState === "loading" || document.prerendering) return;
    if (beginPage()) followPage();
  });
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("prerenderingchange", begin);
  begin();
});

/** Follows the page's changes: new elements, new addresses, leaving and returning. */
function followPage() {
  const changes = { childList: true, subtree: true, attributeFilter: ["data-causeway"] };
  new MutationObserver(scanPage).observe(document, changes);
  followVisibility();
  // A page may have an element or a variable of its own named `navigation`.
  const { navigation, Navigation } = window;
  if (Navigation && navigation instanceof Navigation) {
    navigation.addEventListener("currententrychange", followAddress);
  } else {
    for (const name of ["pushState", "replaceState"]) {
      const own = history[name];
      history[name] = function (...args) {
        own.apply(this, args);
        followAddress();
      };
    }
    addEventListener("popstate", followAddress);
  }
}

function followVisibility() {
  addEventListener("pagehide", ({ persisted }) => {
    flushEvents(true);
    if (persisted) forgetAnswers();
  });
  addEventListener("pageshow", ({ persisted }) => persisted && returnToPage());
  document.addEventListener("visibilitychange", () => {
    timeAllViews();
    if (document.hidden) flushEvents(true);
  });
}
