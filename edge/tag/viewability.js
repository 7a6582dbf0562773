// Impressions: an ad counts once it was viewable, or as soon as it was rendered.

import { isServed, unanswered, verdict } from "./consent.js";
import { safe, settings } from "./settings.js";

/** MRC's viewable impression: half of the pixels for a second, three tenths where an ad is as large as 970 × 250. */
const SEEN_MS = 1_000;
const LARGE_PIXELS = 242_500;

/** Of each ad that is to be seen: what counts it, whether enough of it shows now, and the timer of its second. */
const watched = new Map();
let observer;

/** Counts an ad by its `impression_url`, once. */
export function countWhenSeen(node, { impression_url: url, verdict: decidedFor }) {
  if (!url) return;
  // An ad that was decided for a visitor who has withdrawn since, or may have, names nobody.
  const count = () =>
    (decidedFor === "full" && (verdict !== decidedFor || !isServed())) ||
    fetch(url, { mode: "no-cors", credentials: unanswered ? "omit" : "include", keepalive: true }).catch(() => {});
  if (settings.countsRender) return count();
  watched.set(node, { count });
  observer ??= new IntersectionObserver(safe((entries) => entries.forEach(readEntry)), { threshold: [0.3, 0.5] });
  observer.observe(node);
}

export function stopWatching(node) {
  clearTimeout(watched.get(node)?.timer);
  watched.delete(node);
  observer?.unobserve(node);
}

function readEntry({ target, intersectionRatio: ratio, boundingClientRect: { width, height } }) {
  const watch = watched.get(target);
  if (!watch) return;
  const pixels = width * height;
  const isEnough = pixels > 0 && ratio >= (pixels < LARGE_PIXELS ? 0.5 : 0.3);
  if (isEnough !== watch.isEnough) {
    watch.isEnough = isEnough;
    timeView(watch, target);
  }
  // An element of no size is all there, and would stay so without a word when it grows: look at it again.
  if (ratio && !pixels) {
    setTimeout(() => {
      observer.unobserve(target);
      if (watched.get(target)) observer.observe(target);
    }, SEEN_MS);
  }
}

/** Begins the second, if the ad can be seen; ends the one that was under way. */
function timeView(watch, node) {
  clearTimeout(watch.timer);
  if (!watch.isEnough || document.hidden) return;
  watch.timer = setTimeout(() => {
    stopWatching(node);
    watch.count();
  }, SEEN_MS);
}

/** The page was hidden or is shown again: each second begins again. */
export const timeAllViews = () => watched.forEach(timeView);
