// Debug mode: console warnings about a page's mistakes and the edge's answers. Nothing in this file changes the tag's
// behaviour.

import { readPlacement } from "./placements.js";
import { fits, NAME_BYTES, settings, SIZES, warn } from "./settings.js";

const ATTRIBUTES = ["causeway", "sizes", "viewType", "floorMicros"];

/** Warns of attributes of a placement that the tag does not know or cannot parse. */
export function explainPlacement(element) {
  if (!settings.debug) return;
  const { causeway: id, sizes = "", viewType, floorMicros } = element.dataset;
  const say = (...parts) => warn(`placement ${id}:`, ...parts);
  for (const name of Object.keys(element.dataset)) {
    const written = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    if (!ATTRIBUTES.includes(name)) say(`unknown attribute data-${written}`);
  }
  const read = readPlacement(element);
  const words = sizes.split(",").filter((word) => word.trim());
  if (read.sizes.length !== words.length) {
    say(`data-sizes="${sizes}" is read as`, read.sizes, `(${SIZES} sizes at most, such as 728x90)`);
  }
  if (viewType && !read.view_type) say(`data-view-type has more than ${NAME_BYTES} bytes`);
  if (floorMicros && read.floor_micros === undefined) say(`data-floor-micros="${floorMicros}" is not a valid amount`);
  if (!fits(id, NAME_BYTES)) say(`not requested: the name has more than ${NAME_BYTES} bytes`);
}

/** Warns of problems in an answer to a decide call, and of the reasons for house content. */
export function explainAnswer(elements, answer, isLate, user) {
  if (!settings.debug) return;
  const { consent, reason, error, warnings, degraded, attributes, decisions } = answer ?? {};
  if (error) warn("the edge refused the call:", error.message ?? error);
  else warn("the edge's answer: consent", consent, reason ? `, no visitor recognised: ${reason}` : "");
  for (const part of [warnings, degraded, attributes]) if (part) warn("the edge's answer:", part);
  for (const kind of Object.keys(user?.ids ?? {})) {
    if (typeof answer?.[kind] === "string") warn(`the id ${kind} was refused:`, answer[kind]);
  }
  elements.forEach((element, i) => {
    const decision = decisions?.[i];
    if (decision?.warnings) warn(`placement ${element.dataset.causeway}:`, decision.warnings);
    let why;
    if (!answer) why = "the edge did not answer";
    else if (isLate) why = `the answer came after ${settings.timeout} ms`;
    else if (!decision?.ad) why = decision?.reason ?? reason ?? "the answer has no ad";
    if (why) explainEmpty(element, why);
  });
}

export const explainEmpty = (element, ...why) => warn(`placement ${element.dataset.causeway} is empty:`, ...why);

/** Warns of events that the edge has rejected. */
export async function explainEvents(response, batch) {
  if (!settings.debug) return;
  const { rejected = [], error, warnings, adjusted } = await response.json();
  for (const { index, code, message } of rejected) warn("an event was rejected:", code, message, batch[index]?.text);
  for (const part of [error?.message ?? error, warnings, adjusted]) {
    if (part) warn("the edge's answer to events:", part);
  }
}
