// Impressions: an ad counts once it was viewable or, if so configured, when it was rendered.

import { isServed, unanswered, verdict } from "./consent.js";
import { safe, settings } from "./settings.js";

/** MRC's viewable impression: half of the pixels for a second, or 30 % for an ad of at least 970 × 250 pixels. */
const SEEN_MS = 1_000;
const LARGE_PIXELS = 242_500;
const LARGE_SHARE = 0.3;
const SHARE = 0.5;
/** Number of checks within the second, in a browser that does not track visibility. */
const CHECKS = 5;
/** Number of checked points across the ad's width, and across its height. */
const POINTS = 5;
/** Least opacity of a visible ad. */
const OPACITY = 0.5;

/**
 * For each ad that is not counted yet: its counting function, whether enough of it shows, and the timer of its second.
 */
const watched = new Map();
let observer;

/** Counts an ad by its `impression_url`, once. */
export function countWhenSeen(node, { impression_url: url, verdict: decidedFor }) {
  if (!url) return;
  // An ad that was decided for a visitor who has, or may have, withdrawn its consent is not counted.
  const count = () =>
    (decidedFor === "full" && (verdict !== decidedFor || !isServed())) ||
    fetch(url, { mode: "no-cors", credentials: unanswered ? "omit" : "include", keepalive: true }).catch(() => {});
  if (settings.countsRender) return count();
  watched.set(node, { count });
  // A browser that tracks visibility (IntersectionObserver v2) reports for each ad whether anything covers, hides or
  // fades it.
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
  // An element without size is fully visible, and no event follows when it grows: it is observed again.
  if (ratio && !pixels) {
    setTimeout(() => {
      observer.unobserve(target);
      if (watched.get(target)) observer.observe(target);
    }, SEEN_MS);
  }
}

/** Begins the second, if the ad is visible; ends a running one. */
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
  // A point in the placement's shadow root is reported as one of the placement.
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

/** The page was hidden or is shown again: each second starts again. */
export const timeAllViews = () => watched.forEach(timeView);
