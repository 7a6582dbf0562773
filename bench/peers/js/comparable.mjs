// `/v1/decide` in plain JavaScript, written for speed: checks both signed cookies, parses the body, reads the snapshot
// within a deadline, verifies and walks it, and signs a cookie of the answer.
//
// Variants by variable: JSON_SNAPSHOT reads the same person as 10 KB of JSON, which the platform parses. IMPORT imports
// the key in each request, as the examples of the platform's documents do. Both together are the code of a programmer
// without regard to speed. LIGHT is the least comparable work: it checks one signature, makes none, and does not verify
// the snapshot. SIGNED has all parts of the edge's answer: the ad's address names the visitor, masked and signed.
// TOGETHER makes one call of the queue for all messages that arrived during the previous call, as the edge does;
// otherwise each message is one call. No variant has consent or bounds.

import { answer, encoder, imported, insertion, named, open, Reader, seal, token, uuid, within } from "./common.mjs";

const HEADERS = { "content-type": "application/json; charset=utf-8", "cache-control": "no-store" };
const AD = { id: "house", creative: { title: "Your own advertisement", url: "https://example.com/" } };
const KV_DEADLINE_MS = 100;

export default {
  async fetch(request, env, ctx) {
    const key = await imported(env);
    const cookies = request.headers.get("cookie") ?? "";
    const id = named(cookies, "__Host-cw_id");
    const [body, identity, ledger] = await Promise.all([
      request.json(),
      open(key, "cw_id", id),
      env.LIGHT ? null : open(key, "cw_recent", named(cookies, "__Host-cw_recent")),
    ]);
    if (identity === null) return answer({ visitor: null, person: null, decisions: [], kv_reads: 0 }, HEADERS);
    const own = new Reader(identity).value().v;
    const visitor = uuid(own.toHex());
    const held = await snapshot(env, visitor);
    if (env.TOGETHER) together(env, ctx);
    else if (env.FACTS) ctx.waitUntil(env.FACTS.send(new Uint8Array(Number(env.MESSAGE_BYTES)), { contentType: "bytes" }));
    const decisions = env.SIGNED
      ? await Promise.all(body.placements.map(({ id }) => signed(key, id, own)))
      : body.placements.map(({ id }) => ({ placement: id, ad: AD, insertion: insertion() }));
    const person = { devices: held?.devices ?? 1, new_visitor: false, bridged: held?.devices > 1 };
    const cookie = env.LIGHT
      ? `__Host-cw_id=${id}; Max-Age=34560000; Path=/; Secure; HttpOnly; SameSite=Lax`
      : `__Host-cw_recent=${await seal(key, "cw_recent", ledger)}; Max-Age=86400; Path=/; Secure; HttpOnly; SameSite=Lax`;
    const value = { visitor, person, decisions, catalogue: null, kv_reads: 1, consent: "full" };
    if (held === null) value.degraded = ["no snapshot"];
    return answer(value, { ...HEADERS, "set-cookie": cookie });
  },
};

const waiting = [];
let sending = false;

function together(env, ctx) {
  if (!env.FACTS) return;
  waiting.push({ body: new Uint8Array(Number(env.MESSAGE_BYTES)), contentType: "bytes" });
  if (!sending) ctx.waitUntil(sendAll(env));
}

async function sendAll(env) {
  sending = true;
  for (let calls = 0; calls < 10 && waiting.length > 0; calls++) await env.FACTS.sendBatch(waiting.splice(0, 25));
  sending = false;
  if (waiting.length > 0) await env.FACTS.sendBatch(waiting.splice(0));
}

async function signed(key, placement, visitor) {
  const insertion = await token(key, visitor);
  return { placement, ad: AD, insertion, impression_url: `/v1/i/${insertion}` };
}

/** The visitor's person; null if the value is missing, late or damaged. */
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

/** Number of parts of a packed profile before its sums. */
const [ACTED, SEGMENTED] = [4, 8];

/** The person of a snapshot: the number of devices, and the sums over them. */
function walk(bytes, visitor) {
  const { m: { d: devices }, p: profiles } = new Reader(bytes).value();
  const person = { devices, pages: 0, purchases: 0, own: null };
  const own = visitor.replaceAll("-", "");
  const rows = new Rows(profiles);
  while (rows.at < profiles.length) {
    const name = profiles.subarray(rows.at, rows.at + 16).toHex();
    rows.at += 16;
    // The version: a restore epoch and a counter.
    rows.number();
    rows.number();
    const end = rows.number() + rows.at;
    const flags = rows.number();
    for (const part of [ACTED, SEGMENTED]) if (flags & part) rows.skip();
    const pages = rows.number();
    rows.number();
    person.pages += pages;
    person.purchases += rows.number();
    if (name === own) person.own = pages;
    rows.at = end;
  }
  return person;
}

/** A reader of packed rows. */
class Rows {
  #bytes;
  at = 0;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  /** Skips a part that follows its length. */
  skip() {
    const length = this.number();
    this.at += length;
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
