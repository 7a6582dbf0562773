// Code that the JavaScript workers share: signed cookies, their CBOR, and small helpers.

export const encoder = new TextEncoder();
const decoder = new TextDecoder();
const MAC_BYTES = 16;
let importing;

/** The key that signs cookies. */
export function imported(env) {
  if (env.IMPORT) return importKey(env);
  importing ??= importKey(env);
  return importing;
}

function importKey(env) {
  const secret = Uint8Array.fromBase64(env.COOKIE_SECRET);
  return crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}

export function answer(value, headers) {
  return new Response(JSON.stringify(value), { headers });
}


export function within(ms, promise) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms, null);
    const done = (value) => {
      clearTimeout(timer);
      resolve(value);
    };
    promise.then(done, () => done(null));
  });
}


export function named(cookies, name) {
  for (const pair of cookies.split(";")) {
    const text = pair.trim();
    if (text.startsWith(name) && text[name.length] === "=") return text.slice(name.length + 1);
  }
  return null;
}


/** The payload of a cookie with a valid signature, otherwise null. */
export async function open(key, name, cookie) {
  const parts = cookie?.split(".") ?? [];
  if (parts.length !== 4) return null;
  const payload = Uint8Array.fromBase64(parts[2], { alphabet: "base64url" });
  const given = Uint8Array.fromBase64(parts[3], { alphabet: "base64url" });
  const mac = await sign(key, name, payload);
  let different = given.length ^ MAC_BYTES;
  for (let i = 0; i < MAC_BYTES; i++) different |= mac[i] ^ given[i];
  return different === 0 ? payload : null;
}

export async function seal(key, name, payload) {
  const mac = await sign(key, name, payload);
  const text = (bytes) => bytes.toBase64({ alphabet: "base64url", omitPadding: true });
  return `v1.1.${text(payload)}.${text(mac.subarray(0, MAC_BYTES))}`;
}

function sign(key, name, payload) {
  return hmac(key, [COOKIE, NAMES[name], TENANT, payload]);
}

/** HMAC over the parts, each followed by its length in eight bytes. */
async function hmac(key, parts) {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length + 8, 0));
  const view = new DataView(all.buffer);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    view.setUint32(at + part.length + 4, part.length);
    at += part.length + 8;
  }
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, all));
}

const [COOKIE, CW_ID, CW_RECENT, AD, MASK, TENANT] = ["cookie", "cw_id", "cw_recent", "ad", "ad visitor", "bench"].map((text) =>
  encoder.encode(text),
);
const NAMES = { cw_id: CW_ID, cw_recent: CW_RECENT, ad: AD };

/** The signed token in the addresses of a placed house ad: the masked visitor and the time. */
export async function token(key, visitor) {
  const bytes = new Uint8Array(44);
  bytes[0] = 2;
  const placing = crypto.getRandomValues(bytes.subarray(17, 33));
  const mask = await hmac(key, [MASK, TENANT, placing]);
  for (let i = 0; i < 16; i++) bytes[1 + i] = visitor[i] ^ mask[i];
  // The bytes between are four codes and a view type, which a house ad does not have.
  for (let i = 38, left = Date.now(); i < 44; i++, left = Math.floor(left / 128)) bytes[i] = (left % 128) | (i < 43 ? 128 : 0);
  return seal(key, "ad", bytes);
}

export function uuid(hex) {
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}


export function insertion() {
  return crypto.getRandomValues(new Uint8Array(16)).toHex();
}

/** A reader of the CBOR of cookies and snapshots. */
export class Reader {
  #bytes;
  #view;
  #at = 0;

  constructor(bytes) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  value() {
    const first = this.#bytes[this.#at++];
    const low = first & 0x1f;
    switch (first >> 5) {
      case 0:
        return this.#number(low);
      case 1:
        return -1 - this.#number(low);
      case 2: {
        const length = this.#number(low);
        this.#at += length;
        return this.#bytes.subarray(this.#at - length, this.#at);
      }
      case 3: {
        const length = this.#number(low);
        this.#at += length;
        return decoder.decode(this.#bytes.subarray(this.#at - length, this.#at));
      }
      case 5: {
        const map = {};
        for (let left = this.#number(low); left > 0; left--) {
          const key = this.value();
          map[key] = this.value();
        }
        return map;
      }
      case 4: {
        const list = new Array(this.#number(low));
        for (let i = 0; i < list.length; i++) list[i] = this.value();
        return list;
      }
      case 7:
        return low === 20 ? false : low === 21 ? true : null;
      default:
        throw new Error(`unsupported CBOR type ${first >> 5}`);
    }
  }

  #number(low) {
    if (low < 24) return low;
    const at = this.#at;
    switch (low) {
      case 24:
        this.#at += 1;
        return this.#bytes[at];
      case 25:
        this.#at += 2;
        return this.#view.getUint16(at);
      case 26:
        this.#at += 4;
        return this.#view.getUint32(at);
      default:
        this.#at += 8;
        // Times and short ids. The rounding of an id does not matter here.
        return this.#view.getUint32(at) * 4_294_967_296 + this.#view.getUint32(at + 4);
    }
  }
}
