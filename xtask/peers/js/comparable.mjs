// What `/v1/decide` does, in plain JavaScript as one would write it for speed: both signed cookies are checked, the
// body parsed, the snapshot read within a deadline, verified and walked, and the answer signs a cookie anew.
//
// With JSON_SNAPSHOT it reads the same person as a JavaScript programmer would have stored it, JSON of 10 KB, which the
// platform parses. With LIGHT it does the least that could still be called comparable: one signature is checked and none
// made, and the snapshot is taken as it comes. Consent and bounds it knows in no form.

const encoder = new TextEncoder();
const HEADERS = { "content-type": "application/json; charset=utf-8", "cache-control": "no-store" };
const AD = { id: "house", creative: { title: "Your own advertisement", url: "https://example.com/" } };
const KV_DEADLINE_MS = 100;
const MAC_BYTES = 16;
let imported;

export default {
  async fetch(request, env, ctx) {
    imported ??= crypto.subtle.importKey("raw", Uint8Array.fromBase64(env.COOKIE_SECRET), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const key = await imported;
    const cookies = request.headers.get("cookie") ?? "";
    const id = named(cookies, "cw_id");
    const [body, identity, ledger] = await Promise.all([
      request.json(),
      open(key, "cw_id", id),
      env.LIGHT ? null : open(key, "cw_recent", named(cookies, "cw_recent")),
    ]);
    if (identity === null) return answer({ visitor: null, person: null, decisions: [], kv_reads: 0 }, HEADERS);
    const visitor = uuid(new Reader(identity).value()[1].toHex());
    const held = await snapshot(env, visitor);
    if (env.FACTS) ctx.waitUntil(env.FACTS.send(new Uint8Array(Number(env.MESSAGE_BYTES)), { contentType: "bytes" }));
    const decisions = body.placements.map(({ id }) => ({ placement: id, ad: AD, insertion: insertion() }));
    const person = { devices: held?.devices ?? 1, new_visitor: false, bridged: held?.devices > 1 };
    const cookie = env.LIGHT
      ? `cw_id=${id}; Max-Age=34560000; Path=/; Secure; HttpOnly; SameSite=Lax`
      : `cw_recent=${await seal(key, "cw_recent", ledger)}; Max-Age=86400; Path=/; Secure; HttpOnly; SameSite=Lax`;
    const value = { visitor, person, decisions, catalogue: null, kv_reads: 1, consent: "full" };
    return answer(value, { ...HEADERS, "set-cookie": cookie });
  },
};

function answer(value, headers) {
  return new Response(JSON.stringify(value), { headers });
}

/** The visitor's person, or null when the value is missing, late or not whole. */
async function snapshot(env, visitor) {
  if (env.JSON_SNAPSHOT) return sums(await within(KV_DEADLINE_MS, env.PROFILES.get(`json:${visitor}`, "json")), visitor);
  const kvKey = `v:bench:${visitor}`;
  const reading = env.PROFILES.get(kvKey);
  const value = await (env.LIGHT ? reading : within(KV_DEADLINE_MS, reading));
  if (value === null) return null;
  const bytes = Uint8Array.fromBase64(value.slice(2));
  const content = bytes.subarray(4);
  if (!env.LIGHT) {
    const sum = new DataView(bytes.buffer).getUint32(0);
    if (checksum(encoder.encode(`${value.slice(0, 2)}${kvKey}\0`), content) !== sum) return null;
  }
  return walk(content, visitor);
}

function sums(stored, visitor) {
  if (stored?.visitor !== visitor) return null;
  const person = { devices: stored.devices, pages: 0, purchases: 0, own: null };
  for (const profile of stored.profiles) {
    person.pages += profile.pages;
    person.purchases += profile.purchases;
    if (profile.visitor === visitor) person.own = profile.pages;
  }
  return person;
}

function within(ms, promise) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms, null);
    const done = (value) => {
      clearTimeout(timer);
      resolve(value);
    };
    promise.then(done, () => done(null));
  });
}

function named(cookies, name) {
  for (const pair of cookies.split(";")) {
    const text = pair.trim();
    if (text.startsWith(name) && text[name.length] === "=") return text.slice(name.length + 1);
  }
  return null;
}

/** The payload of a cookie whose signature fits, else null. */
async function open(key, name, cookie) {
  const parts = cookie?.split(".") ?? [];
  if (parts.length !== 4) return null;
  const payload = Uint8Array.fromBase64(parts[2], { alphabet: "base64url" });
  const given = Uint8Array.fromBase64(parts[3], { alphabet: "base64url" });
  const mac = await sign(key, name, payload);
  let different = given.length ^ MAC_BYTES;
  for (let i = 0; i < MAC_BYTES; i++) different |= mac[i] ^ given[i];
  return different === 0 ? payload : null;
}

async function seal(key, name, payload) {
  const mac = await sign(key, name, payload);
  const text = (bytes) => bytes.toBase64({ alphabet: "base64url", omitPadding: true });
  return `v1.1.${text(payload)}.${text(mac.subarray(0, MAC_BYTES))}`;
}

/** HMAC over the parts, each followed by its length in eight bytes. */
async function sign(key, name, payload) {
  const parts = [COOKIE, name === "cw_id" ? CW_ID : CW_RECENT, TENANT, payload];
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

const [COOKIE, CW_ID, CW_RECENT, TENANT] = ["cookie", "cw_id", "cw_recent", "bench"].map((text) => encoder.encode(text));

function uuid(hex) {
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** CRC-32 over the parts. */
function checksum(...parts) {
  let sum = -1;
  for (const part of parts) {
    for (let i = 0; i < part.length; i++) sum = CRC[(sum ^ part[i]) & 0xff] ^ (sum >>> 8);
  }
  return ~sum >>> 0;
}

const CRC = Int32Array.from({ length: 256 }, (_, byte) => {
  let sum = byte;
  for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  return sum;
});

function insertion() {
  return crypto.getRandomValues(new Uint8Array(16)).toHex();
}

/** The person in a snapshot: how many devices, and the sums over them. */
function walk(bytes, visitor) {
  const [, , , , [, devices], profiles] = new Reader(bytes).value();
  const person = { devices, pages: 0, purchases: 0, own: null };
  const own = visitor.replaceAll("-", "");
  const rows = new Rows(profiles);
  while (rows.at < profiles.length) {
    const end = rows.number() + rows.at;
    const name = profiles.subarray(rows.at, rows.at + 16).toHex();
    rows.at += 16;
    rows.number();
    rows.number();
    const pages = rows.number();
    rows.number();
    person.pages += pages;
    person.purchases += rows.number();
    if (name === own) person.own = pages;
    rows.at = end;
  }
  return person;
}

/** Packed rows. */
class Rows {
  #bytes;
  at = 0;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  number() {
    let number = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = this.#bytes[this.at++];
      number += (byte & 127) * unit;
      if (byte < 128) return number;
    }
  }
}

/** The CBOR that snapshots and cookies use. */
class Reader {
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
      case 4: {
        const list = new Array(this.#number(low));
        for (let i = 0; i < list.length; i++) list[i] = this.value();
        return list;
      }
      case 7:
        return low === 20 ? false : low === 21 ? true : null;
      default:
        throw new Error(`a value of type ${first >> 5}`);
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
        // Times and short ids; a rounded id is as good a name here.
        return this.#view.getUint32(at) * 4_294_967_296 + this.#view.getUint32(at + 4);
    }
  }
}
