// Gathering: what of a request crosses into the module.

const EMPTY = new Uint8Array(0);
const encoder = new TextEncoder();

/** Method with country and region, where the platform knows them, address and the asked-for headers, one a line. */
export function head(request, names) {
  const { headers, cf } = request;
  const place = cf?.country ? ` ${cf.country} ${cf.regionCode ?? ""}` : "";
  let text = `${request.method}${place}\n${request.url}`;
  for (const name of names) text += `\n${headers.get(name) ?? ""}`;
  return text;
}

/**
 * The body, of at most `limit` bytes. A longer one is not read to its end: what is given then is one byte over
 * the limit, which the module refuses.
 */
export async function body(request, limit) {
  if (request.method !== "POST") return EMPTY;
  const declared = request.headers.get("content-length");
  if (declared !== null) {
    return Number(declared) <= limit ? new Uint8Array(await request.arrayBuffer()) : new Uint8Array(limit + 1);
  }
  // Asked for last: the platform makes a stream for it.
  if (request.body === null) return EMPTY;
  const chunks = [];
  let size = 0;
  for await (const chunk of request.body) {
    size += chunk.byteLength;
    if (size > limit) return new Uint8Array(limit + 1);
    chunks.push(chunk);
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.byteLength;
  }
  return all;
}

/** A deadline over all reads of a request: it begins with the first one. */
export class Deadline {
  #ms;
  #passed = false;
  #late = [];

  constructor(ms) {
    this.#ms = ms;
  }

  /** The promise's value, or `late` when the deadline comes first. The promise must not reject. */
  race(promise, late) {
    if (this.#late.length === 0) this.#begin();
    if (this.#passed) return Promise.resolve(late);
    return new Promise((resolve) => {
      this.#late.push(() => resolve(late));
      promise.then(resolve);
    });
  }

  // Never cleared: the platform drops a request's timers once it is answered, and clearing costs as much as setting.
  #begin() {
    setTimeout(() => {
      this.#passed = true;
      for (const pass of this.#late) pass();
    }, this.#ms);
  }
}

/** The values of the keys in one bulk read, as bytes, one a line; `fault` says why there are none. */
export function read(kv, keys, deadline, limit) {
  // One key's bytes go straight through; many come as text, as the platform's bulk read has no other form.
  const reading = keys.length === 1
    ? kv.get(keys[0], "arrayBuffer").then((found) => (found === null ? EMPTY : line(found, limit)))
    : kv.get(keys).then((found) => encoder.encode(keys.map((key) => text(found.get(key), limit)).join("\n")));
  const values = reading.then((values) => ({ values, fault: "" }), () => FAILED);
  return deadline.race(values, LATE);
}

/** What a request brings on that reads nothing. */
export const NOTHING = { values: EMPTY, fault: "" };
const FAILED = { values: EMPTY, fault: "kv_failed" };
const LATE = { values: EMPTY, fault: "kv_late" };
// A value of ours is not empty, has no line break and is not longer than the limit; this never decodes. Where one
// value is all there is to read, a line break in it needs no care here: the module takes the first line of it alone.
const BAD = "bad";

function line(found, limit) {
  const fits = found.byteLength > 0 && found.byteLength <= limit;
  return fits ? new Uint8Array(found) : encoder.encode(BAD);
}

function text(value, limit) {
  if (value === null || value === undefined) return "";
  return value.length <= limit && value.length > 0 && !value.includes("\n") ? value : BAD;
}

/** The network that a client's address belongs to (an IPv4 /24 or an IPv6 /48), as the platform gives the address. */
export function network(request) {
  const address = request.headers.get("cf-connecting-ip") ?? "";
  if (address.includes(":")) return address.split(":").slice(0, 3).join(":");
  return address.split(".").slice(0, 3).join(".");
}
