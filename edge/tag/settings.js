// What all parts of the tag share: the page's settings, the edge's bounds, and how a fault stays inside the tag.

/** The edge's bounds, by their names in `shared/src/limits.rs`: a call over one of them is refused as a whole. */
export const PLACEMENTS = 32;
export const SIZES = 16;
export const SHOWN = 200;
export const NAME_BYTES = 128;
/** A page's address is ASCII: its characters are bytes. */
export const URL_BYTES = 2_048;
export const CONSENT_BYTES = 4_096;
export const KEYWORDS = 64;
/** Kinds of ids in one call, and the longest id and proof. */
export const KINDS = 8;
export const ALTERNATE_ID_BYTES = 256;
export const PROOF_BYTES = 2_048;

/**
 * Set once by `start`: the edge's origin, how long an ad is waited for in milliseconds, when impressions count, and
 * whether the console tells what goes wrong.
 */
export const settings = { edge: undefined, timeout: 1_000, countsRender: false, debug: false };

/** Tells the page's author something, in debug mode. */
export function warn(...parts) {
  settings.debug ||= /[?&]causeway_debug\b/.test(location.search);
  if (settings.debug) console.warn("causeway:", ...parts);
}

/** Makes a function one that does nothing where it would throw. */
export const safe = (work) => (...args) => {
  try {
    return work(...args);
  } catch (error) {
    warn(error);
  }
};

/** Whether a text is not empty and fits a bound of the edge, in bytes of UTF-8. */
export const fits = (text, bytes) => text && new TextEncoder().encode(text).length <= bytes;
