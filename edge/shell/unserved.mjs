// Answers to requests that were not served: the module cannot be used, trapped, gave the request's place to a newer one, or nobody took its facts.

import { json } from "./json.mjs";

/** A transparent GIF of one pixel. */
const PICTURE = Uint8Array.from(atob("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"), (char) => char.charCodeAt(0));

/**
 * The publisher's page never breaks: it gets an answer without ads, with the reason. What is to be sent again is a 503: nobody
 * is to believe that something was taken, that somebody is being erased, or that nothing is held of anybody. A click comes
 * again, once, rather than end on an answer that no page reads.
 */
export function unserved(request, reason) {
  const { pathname, search, searchParams } = new URL(request.url);
  if (request.method === "OPTIONS") return preflight(request);
  if (pathname === "/healthz") return json({ error: { code: "misconfigured", message: "see the worker's log" } }, 503);
  // No script is better than one that is none.
  if (pathname === "/causeway.js") return new Response(null, { status: 503, headers: { "cache-control": "no-store" } });
  if (pathname === "/v1/events" || pathname === "/v1/me") return retry(request);
  if (pathname.startsWith("/v1/i/")) return new Response(PICTURE, { headers: { "content-type": "image/gif", "cache-control": "no-store" } });
  if (pathname.startsWith("/v1/c/") && !searchParams.has("again")) {
    const location = `${pathname}${search === "" ? "?" : `${search}&`}again`;
    return new Response(null, { status: 302, headers: { location, "cache-control": "no-store" } });
  }
  const nothing = { visitor: null, person: null, decisions: [], catalogue: null, kv_reads: 0, consent: "none", reason };
  return json(nothing, 200, readable(request));
}

export function retry(request) {
  const error = { code: "retry", message: "it was not served: send it again, events with the same ids" };
  return json({ error }, 503, [...readable(request), ["retry-after", "1"]]);
}

/** A visitor who sends more than its rate limit lets through, of which there are some of a minute and some of ten seconds. */
export function tooMany(request) {
  const error = { code: "rate_limited", message: "too many calls of this visitor: send it again later, events with the same ids" };
  return json({ error }, 429, [...readable(request), ["retry-after", "10"]]);
}

function preflight(request) {
  const headers = new Headers([...readable(request), ["access-control-allow-methods", "GET, POST, DELETE"]]);
  headers.set("access-control-allow-headers", request.headers.get("access-control-request-headers") ?? "");
  return new Response(null, { status: 204, headers });
}

/** What lets a page read the answer, of whatever origin: it says nothing of anybody. */
function readable(request) {
  const origin = request.headers.get("origin");
  if (origin === null) return [];
  return [["access-control-allow-origin", origin], ["access-control-allow-credentials", "true"], ["vary", "Origin"]];
}
