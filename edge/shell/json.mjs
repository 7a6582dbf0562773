// Answers that are JSON.

/** What all of them have: no cache keeps one visitor's answer. The platform copies it faster than texts. */
export const JSON_HEADERS = new Headers({ "content-type": "application/json; charset=utf-8", "cache-control": "no-store" });

export function json(value, status = 200, headers = []) {
  return new Response(JSON.stringify(value), { status, headers: [...JSON_HEADERS, ...headers] });
}
