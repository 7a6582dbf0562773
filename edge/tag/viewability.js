// Impressions: an ad counts once it was viewable, or as soon as it was rendered.

import { isServed, unanswered, verdict } from "./consent.js";
import { safe, settings } from "./settings.js";

/** MRC's viewable impression: half of the pixels for a second, three tenths where an ad is as large as 970 × 250. */
const SEEN_MS = 1_000;
const LARGE_PIXELS = 242_500;
const LARGE_SHARE = 0.3;
const SHARE = 0.5;
/** How often within the second a browser that does not track visibility is asked what covers the ad. */
const CHECKS = 5;
/** Points of the ad's width, and of its height, at which it is asked. */
const POINTS = 5;
/** An ad that is more transparent than this is not seen. */
const OPACITY = 0.5;

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
  // Where the browser tracks visibility, it says of each ad whether nothing covers, hides or fades it:
  // IntersectionObserver v2.
  const options = { threshold: [LARGE_SHARE, SHARE], trackVisibility: true, delay: 100 };
  observer ??= new IntersectionObserver(safe((entries) => entries.forEach(readEntry)), options);
  observer.observe(node);
}

export function stopWatching(node) {
  clearTimeout(watched.get(node)?.timer);
  watched.delete(node);
  observer?.unobserve(node);
}

const shareOf = (pixels) => (pixels < LARGE_PIXELS ? SHARE : LARGE_SHARE);

function readEntry({ target, intersectionRatio: ratio, isVisible, boundingClientRect: { width, height } }) {
  const watch = watched.get(target);
  if (!watch) return;
  const pixels = width * height;
  const isEnough = pixels > 0 && ratio >= shareOf(pixels) && (isVisible || !observer.trackVisibility);
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
  let seen = 0;
  const check = safe(() => {
    seen = observer.trackVisibility || isShown(node) ? seen + 1 : 0;
    if (seen <= CHECKS) {
      watch.timer = setTimeout(check, SEEN_MS / CHECKS);
      return;
    }
    stopWatching(node);
    watch.count();
  });
  check();
}

/** Whether enough of an ad is neither hidden nor faded nor covered, for browsers that do not track visibility. */
function isShown(node) {
  if (getComputedStyle(node).visibility !== "visible") return false;
  let opacity = 1;
  for (let at = node; at; at = at.parentNode ?? at.host) {
    if (at instanceof Element) opacity *= getComputedStyle(at).opacity;
  }
  if (opacity < OPACITY) return false;
  const { left, top, right, bottom, width, height } = node.getBoundingClientRect();
  const [x, y] = [Math.max(left, 0), Math.max(top, 0)];
  const [wide, high] = [Math.min(right, innerWidth) - x, Math.min(bottom, innerHeight) - y];
  // A point in the placement's shadow root is told as one of the placement.
  const outer = node.getRootNode().host ?? node;
  let hits = 0;
  for (let i = 0; i < POINTS * POINTS; i += 1) {
    const column = (i % POINTS) + 0.5;
    const row = Math.floor(i / POINTS) + 0.5;
    if (outer.contains(document.elementFromPoint(x + (wide * column) / POINTS, y + (high * row) / POINTS))) hits += 1;
  }
  const shown = (wide * high * hits) / (POINTS * POINTS);
  return shown >= width * height * shareOf(width * height);
}

/** The page was hidden or is shown again: each second begins again. */
export const timeAllViews = () => watched.forEach(timeView);
