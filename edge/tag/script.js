// The script of `<script async src="/causeway.js">`: the tag, with the settings of the script's attributes, under one
// global name.

import { causeway, start } from "./causeway.js";
import { warn } from "./settings.js";

const { dataset = {}, src } = document.currentScript ?? {};
const early = window.causeway;

// A page that loads the script twice gets one tag.
if (!early?.track) {
  window.causeway = causeway;
  // Functions that the page queued before the script was loaded: `(window.causeway ||= []).push((causeway) => …)`.
  causeway.push = (work) => {
    try {
      work(causeway);
    } catch {}
  };
  const { timeout, count, debug, ...unknown } = dataset;
  const edge = new URL(src || location.href).origin;
  start({ edge, timeout: +timeout || undefined, count, debug: debug !== undefined });
  for (const name of Object.keys(unknown)) warn(`unknown attribute of the script: ${name}`);
  if (Array.isArray(early)) early.forEach(causeway.push);
}
