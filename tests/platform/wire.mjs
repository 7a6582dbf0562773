// The wire formats of shared/src/wire that a test reads or writes in place of the origin: syncs, and calls of offer
// objects.

const UTF8 = new TextDecoder();

/** Reads one CBOR item (RFC 8949) of definite length: integers, bytes, texts, lists, maps, booleans, null. */
export function decodeCbor(bytes) {
  let at = 0;
  const take = (length) => {
    if (at + length > bytes.length) throw new Error("the bytes end early");
    at += length;
    return bytes.subarray(at - length, at);
  };
  const argument = (low) => {
    if (low < 24) return low;
    if (low > 27) throw new Error(`additional information ${low}`);
    return take(2 ** (low - 24)).reduce((number, byte) => number * 256 + byte, 0);
  };
  const item = () => {
    const [first] = take(1);
    const [major, low] = [first >> 5, first & 31];
    if (major === 7) return { 20: false, 21: true, 22: null }[low];
    const number = argument(low);
    switch (major) {
      case 0:
        return number;
      case 1:
        return -1 - number;
      case 2:
        return take(number).slice();
      case 3:
        return UTF8.decode(take(number));
      case 4:
        return Array.from({ length: number }, item);
      case 5:
        return Object.fromEntries(Array.from({ length: number }, () => [item(), item()]));
      default:
        throw new Error(`major type ${major}`);
    }
  };
  const value = item();
  if (at !== bytes.length) throw new Error("bytes after the item");
  return value;
}

/** Writes one CBOR item. */
export function encodeCbor(value) {
  const bytes = [];
  const head = (major, number) => {
    const size = number < 24 ? 0 : number < 2 ** 8 ? 1 : number < 2 ** 16 ? 2 : number < 2 ** 32 ? 4 : 8;
    bytes.push((major << 5) | (size === 0 ? number : 24 + Math.log2(size)));
    for (let byte = size - 1; byte >= 0; byte -= 1) bytes.push(Math.floor(number / 256 ** byte) % 256);
  };
  const item = (value) => {
    if (value === null) bytes.push(0xf6);
    else if (typeof value === "boolean") bytes.push(value ? 0xf5 : 0xf4);
    else if (typeof value === "number") head(0, value);
    else if (typeof value === "string") {
      const text = Buffer.from(value);
      head(3, text.length);
      bytes.push(...text);
    } else if (value instanceof Uint8Array) {
      head(2, value.length);
      bytes.push(...value);
    } else if (Array.isArray(value)) {
      head(4, value.length);
      value.forEach(item);
    } else {
      const fields = Object.entries(value);
      head(5, fields.length);
      fields.forEach((field) => field.forEach(item));
    }
  };
  item(value);
  return Uint8Array.from(bytes);
}

/** The body of a sync as the edge sends it. A field that is left out is empty. */
export function readSync(body) {
  const { f: form, e: edge, b: batch, q: facts = [], a: applied = [], d: drain = 0, l: lost = 0, x: dead = 0, u: filtered = {}, r: read = [] } =
    decodeCbor(body);
  if (form !== 1) throw new Error(`form ${form}`);
  return { edge, batch, facts, applied, drain, lost, dead, filtered, read: read.map(({ e, h = null }) => ({ entry: e, sha256: h })) };
}

/** An object without the fields that are null. */
const present = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));

/** The origin's answer to a sync. A field that is left out is empty. */
export function writeSyncAnswer({ rejected = [], publish = [], pending = 0, catalogue = null, verify = [] }) {
  const answer = {
    f: 1,
    r: rejected.map(({ batch, index = null, code }) => present({ b: batch, i: index, c: code, m: code })),
    p: publish.map(({ entry, key, value = null }) => present({ e: entry, k: key, v: { r: 1, c: entry + 1 }, t: value, d: 1_800_000_000_000 })),
    n: pending,
    c: catalogue,
    v: verify.map(({ entry, key }) => ({ e: entry, k: key })),
  };
  return encodeCbor(present(answer));
}

/** The id of a visitor by number, 16 bytes. */
const visitorId = (number) => Uint8Array.of(1, 0xa3, 0x18, 0x5c, 0x50, 0, 0x71, 2, 0x83, 4, 5, 6, 7, 8, 9, number);

/** A first call of the offer object of a campaign and a range, by a visitor that is alone in its person. */
export function writeOfferCall({ tenant, campaign, limit, range, visitor }) {
  const id = visitorId(visitor);
  return encodeCbor({ f: 1, t: tenant, c: campaign, l: limit, r: range, a: 0, o: id, m: [id] });
}

/** The number of the offer code that an object gave; `undefined` if it gave none. */
export const readOfferNumber = (answer) => decodeCbor(answer).u?.n;
