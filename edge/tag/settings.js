// What all parts of the tag share: the page's settings, the edge's bounds, and how a fault stays inside the tag.

/** The edge's bounds (`shared/src/limits.rs`): a call over one of them is refused as a whole. */
export const PLACEMENTS = 32;
export const SIZES = 16;
export const NAME_CHARS = 128;
export const URL_CHARS = 2_048;
export const CONSENT_CHARS = 4_096;
/** Keywords of a page; one has 128 bytes at most, and a character takes up to three. */
export const KEYWORDS = 64;
export const KEYWORD_CHARS = 42;

/** Set once by `start`: the edge's origin, how long an ad is waited for in milliseconds, and when impressions count. */
export const settings = { edge: undefined, timeout: 1_000, countsRender: false };

/** Makes a function one that does nothing where it would throw. */
export const safe = (work) => (...args) => {
  try {
    return work(...args);
  } catch {}
};
