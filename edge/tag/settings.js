// The shared parts of the tag: the page's settings, the edge's bounds, and the containment of errors.

/** The edge's bounds, by their names in `shared/src/base/limits.rs`. A call over one of them is refused as a whole. */
export const PLACEMENTS = 32;
export const SIZES = 16;
export const SHOWN = 200;
export const NAME_BYTES = 128;
/** A page's address is ASCII, so its characters are bytes. */
export const URL_BYTES = 2_048;
export const CONSENT_BYTES = 4_096;
export const KEYWORDS = 64;
/** Most kinds of ids in one call, and the longest id and proof. */
export const KINDS = 8;
export const ALTERNATE_ID_BYTES = 256;
export const PROOF_BYTES = 2_048;

/**
 * Set once by `start`: the edge's origin, the time to wait for an ad in milliseconds, whether an impression counts when
 * it is rendered, and whether the console shows warnings.
 */
export const settings = { edge: undefined, timeout: 1_000, countsRender: false, debug: false };

/** Warns the page's author, in debug mode. */
export function warn(...parts) {
  settings.debug ||= /[?&]causeway_debug\b/.test(location.search);
  if (settings.debug) console.warn("causeway:", ...parts);
}

/** Wraps a function so that an error is reported and never thrown. */
export const safe = (work) => (...args) => {
  try {
    return work(...args);
  } catch (error) {
    warn(error);
  }
};

/** Whether a text is not empty and is within a bound of the edge, in bytes of UTF-8. */
export const fits = (text, bytes) => text && new TextEncoder().encode(text).length <= bytes;
