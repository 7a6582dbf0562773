// What a page sees of the tag. docs/TAG.md explains how it is used.

/** How the tag begins. */
export interface Options {
  /** Origin of the edge, such as `https://ads.pub.example`. Default: the page's own. */
  edge?: string;
  /** How long the house content waits for an ad, and a decision for the consent manager, in milliseconds. Default 1,000. */
  timeout?: number;
  /** When an impression counts: once it was viewable (the default), or as soon as the ad was rendered. */
  count?: "viewable" | "render";
  /** Whether the console warns of what goes wrong, as with `?causeway_debug` in the page's address. Default false. */
  debug?: boolean;
}

/** An ad, as the catalogue has it. A house ad may have its `id` and `creative` alone. */
export interface Ad {
  id: string;
  ad_group?: string;
  campaign?: string;
  advertiser?: string;
  /** What the catalogue says is to be shown: any JSON. */
  creative?: unknown;
  /** The number that nobody else has, of a campaign with only so many recipients. */
  unit?: number;
  /** The arm of an experiment that this visitor is in. */
  experiment?: { id: string; arm: string };
}

/** What was decided for one placement. */
export interface Decision {
  placement: string;
  ad: Ad;
  /** What a thousand impressions were taken to be worth, in micros of the catalogue's currency. */
  price_micros?: number;
  /** The placing's name, for actions sent to `/v1/events`. */
  insertion?: string;
  /** Asked for by the tag when the impression counts. Where nobody was recognised it counts for the campaign alone. */
  impression_url?: string;
  /** Where a click goes: the edge counts it, and leads to the ad's landing address. */
  click_url?: string;
}

/**
 * Shows an ad in a box of the tag's own, which is within the placement and shown instead of its house content. Returning
 * `false` leaves the ad to the tag's own renderers. The ad counts as viewed by the placement's pixels, so that it needs a size.
 */
export type Renderer = (box: HTMLElement, decision: Decision) => unknown;

/** What a page calls. No call throws or waits. */
export interface Causeway {
  /** The page's own renderer; without one the tag shows `{html}` and `{image, alt}`. */
  render: Renderer | undefined;
  /**
   * Sends an event, such as `track("purchase", { value_micros: 49_900_000, order_id: "order-7" })`. Of one visitor's events of
   * one name that have the same id the first counts; without one each has its own. An order counts once per person.
   */
  track(name: string, properties?: Record<string, unknown>, id?: string | number): void;
  /** Counts a page view that changed no address; the others count by themselves. */
  page(): void;
  /**
   * Names the visitor for the calls that follow: ids by kind, and the publisher's proofs. Without arguments: nobody. An id
   * that is null or empty is left out, and so is what is neither a text nor a finite number, such as a promise.
   */
  identify(ids?: Record<string, string | number | null | undefined>, proofs?: Record<string, string | null | undefined>): void;
}

/** The tag of this page. */
export declare const causeway: Causeway;

/** Begins, once a page; a second call does nothing. */
export declare function start(options?: Options): void;

declare global {
  interface Window {
    /** There with the script `/causeway.js`; before it has loaded, an array of functions that it is to call. */
    causeway?: (Causeway & { push(work: (causeway: Causeway) => void): void }) | ((causeway: Causeway) => void)[];
  }
}
