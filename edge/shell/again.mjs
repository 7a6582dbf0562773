// A click whose request was not served: it comes again, once, rather than end on an answer that no page reads.

/** Sends a click back to its address, unless it came from there; `undefined` for every other request. */
export function again(request) {
  const { pathname, search } = new URL(request.url);
  if (!pathname.startsWith("/v1/c/") || search !== "") return undefined;
  return new Response(null, { status: 302, headers: { location: `${pathname}?again`, "cache-control": "no-store" } });
}
