// Gathering: what of a request crosses into the module.

import { BEHIND_MS, within } from "./deadline.mjs";
import { note } from "./state.mjs";

const EMPTY = new Uint8Array(0);
const encoder = new TextEncoder();

/**
 * Method with country and region, where they are asked for and the platform knows them, address and the asked-for headers,
 * one a line.
 */
export function head(request, names, place) {
  const { headers } = request;
  // The platform parses what it knows of a connection when it is looked at, which takes as long as all headers.
  const cf = place ? request.cf : undefined;
  const from = cf?.country ? ` ${cf.country} ${cf.regionCode ?? ""}` : "";
  let text = `${request.method}${from}\n${request.url}`;
  for (const name of names) text += `\n${headers.get(name) ?? ""}`;
  return text;
}

/**
 * The body, of at most `limit` bytes, or the promise of it: an `ArrayBuffer`. A longer one is not read to its end: what is
 * given then is one byte over the limit, which the module refuses.
 */
export function body(request, limit) {
  if (request.method !== "POST") return EMPTY.buffer;
  const declared = request.headers.get("content-length");
  if (declared === null) return streamed(request, limit);
  return Number(declared) <= limit ? request.arrayBuffer() : new ArrayBuffer(limit + 1);
}

async function streamed(request, limit) {
  // Asked for last: the platform makes a stream for it.
  if (request.body === null) return EMPTY.buffer;
  const chunks = [];
  let size = 0;
  for await (const chunk of request.body) {
    size += chunk.byteLength;
    if (size > limit) return new ArrayBuffer(limit + 1);
    chunks.push(chunk);
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.byteLength;
  }
  return all.buffer;
}

/** So many random bytes are drawn at once: a request takes 32 of them. */
const DRAWN = 4_096;
const drawn = new Uint8Array(DRAWN);
let used = DRAWN;

/** 32 random bytes that no other request gets; to be read before the next are asked for. */
export function seed() {
  if (used === DRAWN) {
    crypto.getRandomValues(drawn);
    used = 0;
  }
  used += 32;
  return drawn.subarray(used - 32, used);
}

/** So many late reads go on, for as long as the platform lets them: each may bring 4 MB, and an isolate has 128. */
const LINGERING = 8;
/** When they began to. */
let lingering = [];

/** The milliseconds that are left until a time. */
export function left(until) {
  return Math.max(0, until - Date.now());
}

/**
 * The values of the keys in one bulk read, as bytes, one a line; `fault` says why there are none. What takes longer than so
 * many milliseconds is late, and given as `reading`.
 */
export function read(ctx, kv, keys, ms, limit) {
  let reading;
  try {
    // One key's bytes go straight through; many come as text, as the platform's bulk read has no other form.
    reading = keys.length === 1 ? kv.get(keys[0], "arrayBuffer") : kv.get(keys);
  } catch {
    return FAILED;
  }
  const late = { values: EMPTY, fault: "kv_late", reading };
  return within(ctx, ms, reading, late, (found) => given(keys, found, limit), FAILED);
}

/**
 * Reads on though nobody waits any more, so that the location has it for the next: the platform would end the read, and a place
 * that few come to would never have what takes long to get there.
 */
export function readOn(ctx, reading) {
  const now = Date.now();
  lingering = lingering.filter((began) => now < began + BEHIND_MS);
  if (lingering.length >= LINGERING) return;
  lingering.push(now);
  ctx.waitUntil(reading.catch(() => {}));
}

function given(keys, found, limit) {
  return { values: keys.length === 1 ? line(found, limit) : lines(keys, found, limit), fault: "" };
}

/** What a request brings on that reads nothing. */
export const NOTHING = { values: EMPTY, fault: "" };
const FAILED = { values: EMPTY, fault: "kv_failed" };
// A value of ours is not empty, has no line break and is not longer than the limit; this never decodes. Where one
// value is all there is to read, a line break in it needs no care here: the module takes the first line of it alone.
const BAD = "bad";

function line(found, limit) {
  if (found === null) return EMPTY;
  const fits = found.byteLength > 0 && found.byteLength <= limit;
  return fits ? new Uint8Array(found) : encoder.encode(BAD);
}

function lines(keys, found, limit) {
  return encoder.encode(keys.map((key) => text(found.get(key), limit)).join("\n"));
}

function text(value, limit) {
  if (value === null || value === undefined) return "";
  return value.length <= limit && value.length > 0 && !value.includes("\n") ? value : BAD;
}

/** Whether a rate limit that the worker is bound to lets somebody through; one that is not there, or fails, lets everybody. */
export async function admits(env, binding, key) {
  try {
    return (await env[binding].limit({ key })).success;
  } catch {
    note([env[binding] === undefined ? "limit_unbound" : "limit_failed"]);
    return true;
  }
}

/** The network that a client's address belongs to (an IPv4 /24 or an IPv6 /48), as the platform gives the address. */
export function network(request) {
  const address = request.headers.get("cf-connecting-ip") ?? "";
  if (address.includes(":")) {
    const [first, rest] = address.split("::").map((side) => side.split(":").filter(Boolean));
    const leftOut = rest === undefined ? 0 : 8 - first.length - rest.length;
    return [...first, ...Array(leftOut).fill("0"), ...(rest ?? [])].slice(0, 3).join(":");
  }
  return address.split(".").slice(0, 3).join(".");
}
