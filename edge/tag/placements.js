// Placements: what the page says about them, and what is shown in them.

import { verdict } from "./consent.js";
import { safe, settings, SIZES } from "./settings.js";
import { countWhenSeen, stopWatching } from "./viewability.js";

export const SELECTOR = '[data-causeway]:not([data-causeway=""])';

/** The page's own renderer, as the page sets it. */
export const page = { render: undefined };

/** Of each placement that shows an ad: what shows, and the house content in whose stead it does. */
export const placed = new Map();

/** A placement as the edge reads it. */
export const readPlacement = ({ dataset: { causeway: id, sizes = "", viewType: view_type, floorMicros: floor } }) => ({
  id,
  view_type,
  sizes: [...sizes.matchAll(/(\d+)x(\d+)/g)].slice(0, SIZES).map(([, width, height]) => [+width, +height]),
  floor_micros: /^\d{1,15}$/.test(floor) ? +floor : undefined,
});

/** Puts the house content back where the ad still stands in a placement, and counts nothing more of it. */
export const restoreHouse = safe((element) => {
  const kept = placed.get(element);
  if (!kept) return;
  stopWatching(kept.shown);
  placed.delete(element);
  if (kept.shown.closest(SELECTOR) === element) element.replaceChildren(...kept.house);
});

/** Shows what was decided for a placement. */
export function fillPlacement(element, decision) {
  restoreHouse(element);
  // Meanwhile it may have become the page's own.
  if (!decision?.ad || !element.matches(SELECTOR)) return;
  decision.impression_url &&= settings.edge + decision.impression_url;
  decision.click_url &&= settings.edge + decision.click_url;
  decision.verdict = verdict;
  placed.set(element, { shown: element, house: [...element.childNodes] });
  try {
    showAd(element, decision);
  } catch {
    // Of a renderer that failed half-way nothing stays.
    restoreHouse(element);
  }
}

/** By the page's own renderer, unless there is none or it gives `false`; else HTML in a frame or an image in a link. */
function showAd(element, decision) {
  const kept = placed.get(element);
  if (page.render && page.render(element, decision) !== false) return countWhenSeen(element, decision);
  const [[wide, high] = []] = readPlacement(element).sizes;
  const { html, image, alt = "", width = wide, height = high } = decision.ad.creative ?? {};
  const click = decision.click_url ?? "";
  let node;
  let outer;
  if (html) {
    outer = node = document.createElement("iframe");
    // Never `allow-same-origin`: the frame would be the page.
    node.sandbox = "allow-scripts allow-popups allow-popups-to-escape-sandbox";
    node.marginWidth = node.marginHeight = 0;
    node.scrolling = "no";
    node.srcdoc = html.replaceAll("{click_url}", click);
  } else if (image) {
    node = document.createElement("img");
    node.src = image;
    node.alt = alt;
    outer = document.createElement("a");
    if (click) outer.href = click;
    outer.target = "_blank";
    outer.rel = "noopener";
    outer.append(node);
  } else return placed.delete(element);
  if (width) node.width = width;
  if (height) node.height = height;
  node.style.border = 0;
  // Once: a frame that goes elsewhere loads again.
  node.onload = () => (node.onload = placed.get(element) === kept && countWhenSeen(node, decision));
  node.onerror = () => placed.get(element) === kept && restoreHouse(element);
  kept.shown = node;
  element.replaceChildren(outer);
}
