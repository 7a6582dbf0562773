// Gathering: what of a request crosses into the module.

const EMPTY = new Uint8Array(0);

/** Method, address and the asked-for headers, one a line. */
export function head(request, names) {
  const { headers } = request;
  let text = `${request.method}\n${request.url}`;
  for (const name of names) text += `\n${headers.get(name) ?? ""}`;
  return text;
}

/**
 * The body, of at most `limit` bytes. A longer one is not read to its end: what is given then is one byte over
 * the limit, which the module refuses.
 */
export async function body(request, limit) {
  if (request.method !== "POST" || request.body === null) return EMPTY;
  const declared = request.headers.get("content-length");
  if (declared !== null) {
    return Number(declared) <= limit ? new Uint8Array(await request.arrayBuffer()) : new Uint8Array(limit + 1);
  }
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
  #late;
  #timer;

  constructor(ms) {
    this.#ms = ms;
  }

  /** The promise's value, or `late` when the deadline comes first. */
  async race(promise, late) {
    this.#late ??= new Promise((resolve) => {
      this.#timer = setTimeout(resolve, this.#ms, Deadline.#PASSED);
    });
    const first = await Promise.race([promise, this.#late]);
    return first === Deadline.#PASSED ? late : first;
  }

  clear() {
    if (this.#timer !== undefined) clearTimeout(this.#timer);
  }

  static #PASSED = Symbol("passed");
}

/** The values of the keys in one bulk read, one a line; `fault` says why there are none. */
export async function read(kv, keys, deadline, limit) {
  if (keys === undefined) return { values: "", fault: "" };
  const reading = (keys.length === 1 ? kv.get(keys[0]) : kv.get(keys)).then(
    (found) => ({ values: lines(found, keys, limit), fault: "" }),
    () => ({ values: "", fault: "kv_failed" }),
  );
  return deadline.race(reading, { values: "", fault: "kv_late" });
}

function lines(found, keys, limit) {
  if (keys.length === 1) return line(found, limit);
  return keys.map((key) => line(found.get(key), limit)).join("\n");
}

// A value of ours has no line break and is not longer than the limit; "bad" is a value that never decodes.
function line(value, limit) {
  if (value === null || value === undefined) return "";
  return value.length <= limit && value.length > 0 && !value.includes("\n") ? value : "bad";
}

/** The network that a client's address belongs to (an IPv4 /24 or an IPv6 /48), as the platform gives the address. */
export function network(request) {
  const address = request.headers.get("cf-connecting-ip") ?? "";
  if (address.includes(":")) return address.split(":").slice(0, 3).join(":");
  return address.split(".").slice(0, 3).join(".");
}
