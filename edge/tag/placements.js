// Placements: the page's attributes, and the content that is shown.

import { verdict } from "./consent.js";
import { explainEmpty } from "./debug.js";
import { fits, NAME_BYTES, safe, settings, SHOWN, SIZES } from "./settings.js";
import { countWhenSeen, stopWatching } from "./viewability.js";

export const SELECTOR = '[data-causeway]:not([data-causeway=""])';

/** The page's own renderer, as the page sets it. */
export const page = { render: undefined };

/**
 * For each placement that shows an ad: the node watched for its impression, whether the ad is still in place, and its
 * removal.
 */
export const placed = new Map();

/** Largest side of a size in pixels, and largest floor in micros, that the edge accepts. */
const SIDE = 65_535;
const FLOOR = 1e15;

/** A placement in the edge's form. Values over the edge's bounds are left out. */
export const readPlacement = ({ dataset: { causeway: id, sizes = "", viewType, floorMicros: floor } }) => ({
  id,
  view_type: fits(viewType, NAME_BYTES) ? viewType : undefined,
  sizes: [...sizes.matchAll(/(\d+)\s*[x×]\s*(\d+)/gi)]
    .map(([, width, height]) => [+width, +height])
    .filter((size) => Math.max(...size) <= SIDE)
    .slice(0, SIZES),
  floor_micros: floor >= 0 && floor <= FLOOR ? Math.round(floor) : undefined,
});

/** Removes the ad of a placement, so that the house content shows again, and stops counting it. */
export const restoreHouse = safe((element) => {
  const ad = placed.get(element);
  if (!ad) return;
  placed.delete(element);
  stopWatching(ad.watched);
  ad.remove();
});

/** The insertions of the ads that the page shows, without the placements that are requested again. */
export const listShown = (asked) =>
  [...placed]
    .filter(([element, { insertion }]) => insertion && element.isConnected && !asked.includes(element))
    .map(([, { insertion }]) => insertion)
    .slice(-SHOWN);

/** Removes the ads of elements that are no longer placements, and ads that the page has removed itself. */
export const tidyPlacements = () =>
  placed.forEach(({ stands }, element) => (element.matches(SELECTOR) && stands()) || restoreHouse(element));

/** Shows the decision for a placement. */
export function fillPlacement(element, decision) {
  restoreHouse(element);
  // In the meantime, the element may have stopped being a placement.
  if (!decision?.ad || !element.matches(SELECTOR)) return;
  decision.impression_url &&= settings.edge + decision.impression_url;
  decision.click_url &&= settings.edge + decision.click_url;
  decision.verdict = verdict;
  try {
    if (!renderByPage(element, decision)) renderCreative(element, decision);
    const ad = placed.get(element);
    if (ad) ad.insertion = decision.insertion;
  } catch (error) {
    // A renderer that failed half-way leaves nothing behind.
    restoreHouse(element);
    explainEmpty(element, error);
  }
}

/** Whether the page's own renderer has shown the ad, in a box of the tag that the page's styles reach. */
function renderByPage(element, decision) {
  if (!page.render) return false;
  const box = document.createElement("div");
  const ad = standIn(element, box, true);
  if (page.render(box, decision) === false) {
    restoreHouse(element);
    return false;
  }
  countWhenSeen(ad.watched, decision);
  return true;
}

/** Shows HTML in a frame, or an image in a link. */
function renderCreative(element, decision) {
  const [[wide, high] = []] = readPlacement(element).sizes;
  const { html, image, alt = "", width = wide, height = high } = decision.ad.creative ?? {};
  const click = decision.click_url ?? "";
  let node;
  let outer;
  if (html) {
    outer = node = document.createElement("iframe");
    // Without `allow-same-origin`, with which the frame could act as the page.
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
  } else return explainEmpty(element, "no renderer has shown the creative, which has neither html nor image");
  if (width) node.width = width;
  if (height) node.height = height;
  node.style.border = 0;
  const ad = standIn(element, outer);
  ad.watched = node;
  // Only once, because a frame that navigates loads again.
  node.onload = () => (node.onload = placed.get(element) === ad && countWhenSeen(node, decision));
  node.onerror = () => {
    if (placed.get(element) !== ad) return;
    restoreHouse(element);
    explainEmpty(element, "the image did not load");
  };
}

/* ---- standing in for the house content ---- */

/** The tag's shadow roots. A root without an ad shows the placement's own content. */
const roots = new WeakMap();

/**
 * Shows a node of the tag instead of a placement's content. The page's nodes are neither moved nor removed, because a
 * framework fails if its nodes are not as it left them. The ad is in a shadow root of the placement, which does not
 * slot the content. With `isStyled` the node is a further child of the placement, so that the page's styles reach it.
 */
function standIn(element, node, isStyled) {
  const root = attachRoot(element);
  let ad;
  if (!root) ad = standBeside(element, node);
  else if (isStyled) {
    node.slot = "causeway";
    element.append(node);
    root.replaceChildren(createSlot(node.slot));
    ad = { watched: element, stands: () => node.parentNode === element };
  } else {
    root.replaceChildren(node);
    ad = { watched: element, stands: () => true };
  }
  ad.remove ??= () => {
    node.remove();
    root.replaceChildren(createSlot(""));
  };
  placed.set(element, ad);
  return ad;
}

/**
 * Hides an element that cannot have a shadow root of the tag (the page has its own or may attach one), and puts the ad
 * after it.
 */
function standBeside(element, node) {
  const { style } = element;
  const own = [style.getPropertyValue("display"), style.getPropertyPriority("display")];
  style.setProperty("display", "none", "important");
  element.after(node);
  return {
    watched: node,
    stands: () => node.parentNode === element.parentNode,
    remove() {
      node.remove();
      style.setProperty("display", ...own);
    },
  };
}

function attachRoot(element) {
  if (!roots.has(element)) {
    let root;
    try {
      // A custom element that is defined later fails if it finds another's root.
      const isPages = element.shadowRoot || element.localName.includes("-");
      root = isPages ? undefined : element.attachShadow({ mode: "open" });
    } catch {}
    roots.set(element, root);
  }
  return roots.get(element);
}

function createSlot(name) {
  const slot = document.createElement("slot");
  slot.name = name;
  return slot;
}
