// The tag's interface for pages. docs/TAG.md explains its use.

/** Options of the tag. */
export interface Options {
  /** Origin of the edge, such as `https://ads.pub.example`. Default: the page's own. */
  edge?: string;
  /** Time to wait for an ad, and for the consent manager before a decision, in milliseconds. Default 1,000. */
  timeout?: number;
  /** When an impression counts: once it was viewable (the default), or as soon as the ad was rendered. */
  count?: "viewable" | "render";
  /** Whether the console shows warnings, as with `?causeway_debug` in the page's address. Default false. */
  debug?: boolean;
}

/** An ad of the catalogue. A house ad may have only `id` and `creative`. */
export interface Ad {
  id: string;
  ad_group?: string;
  campaign?: string;
  advertiser?: string;
  /** The creative from the catalogue: any JSON. */
  creative?: unknown;
  /** The person's own offer code, if the campaign is a limited offer. */
  offer_code?: number;
  /** The visitor's arm of an experiment. */
  experiment?: { id: string; arm: string };
}

/** The decision for one placement. */
export interface Decision {
  placement: string;
  ad: Ad;
  /** Estimated value of a thousand impressions, in micros of the catalogue's currency. */
  price_micros?: number;
  /** The signed insertion, for actions sent to `/v1/events`. */
  insertion?: string;
  /** Requested by the tag when the impression counts. Without a recognised visitor, it counts only for the campaign. */
  impression_url?: string;
  /** The address of a click: the edge counts it and redirects to the ad's landing address. */
  click_url?: string;
}

/**
 * Shows an ad in a box of the tag, which is inside the placement and replaces its house content. If it returns `false`,
 * the tag's own renderers show the ad. The viewability of the ad is measured on the placement, which therefore needs a
 * size.
 */
export type Renderer = (box: HTMLElement, decision: Decision) => unknown;

/** The functions for pages. No call throws or waits. */
export interface Causeway {
  /** The page's own renderer. Without one, the tag shows `{html}` and `{image, alt}`. */
  render: Renderer | undefined;
  /**
   * Sends an event, such as `track("purchase", { value_micros: 49_900_000, order_id: "order-7" })`. Of a visitor's
   * events with the same name and id, the first counts; without an id, each counts. An order counts once per person.
   */
  track(name: string, properties?: Record<string, unknown>, id?: string | number): void;
  /** Counts a page view without a change of address. Other page views are counted automatically. */
  page(): void;
  /**
   * Sets the ids by kind, and the publisher's proofs, for the following calls. Without arguments, it clears them. An id
   * that is null or empty is left out, and so is a value that is neither a text nor a finite number, such as a promise.
   */
  identify(ids?: Record<string, string | number | null | undefined>, proofs?: Record<string, string | null | undefined>): void;
}

/** The tag of this page. */
export declare const causeway: Causeway;

/** Begins, once per page. A second call does nothing. */
export declare function start(options?: Options): void;

declare global {
  interface Window {
    /** Defined by the script `/causeway.js`. Before it has loaded, an array of functions that the script will call. */
    causeway?: (Causeway & { push(work: (causeway: Causeway) => void): void }) | ((causeway: Causeway) => void)[];
  }
}
