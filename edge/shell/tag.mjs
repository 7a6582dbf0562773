// The page tag, `GET /causeway.js`: what the build made of edge/tag/, as it is.

import script from "../build/causeway.mjs";

let etag;

/** Answers with the tag, or with 304 where the browser has this very one; `cors` are the headers for its page. */
export async function tag(request, cors = []) {
  etag ??= await named(script);
  const headers = new Headers({ "content-type": "text/javascript; charset=utf-8", "cache-control": "public, max-age=3600", etag });
  // A browser keeps one copy for pages that ask with their origin and for those that do not.
  headers.set("vary", "Origin");
  for (const [name, value] of cors) headers.set(name, value);
  // A cache between may have made it a weak one, or ask for several.
  if (request.headers.get("if-none-match")?.includes(etag)) return new Response(null, { status: 304, headers });
  return new Response(script, { headers });
}

/** An ETag of the content's own: the first 16 bytes of its SHA-256. */
async function named(text) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  const hex = [...new Uint8Array(digest, 0, 16)].map((byte) => byte.toString(16).padStart(2, "0"));
  return `"${hex.join("")}"`;
}
