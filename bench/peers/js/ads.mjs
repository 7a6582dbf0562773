// `/v1/decide` with a catalogue, as a JavaScript programmer would write it. The catalogue's file is JSON, parsed once
// and cached for half a minute; the person is JSON. Each ad group's filter is checked, impressions are counted once per
// request and window, and the eligible ad with the highest bid is placed. There is no model, and the edge has none in
// this bench.

import { answer, imported, insertion, named, open, Reader, seal, uuid, within } from "./common.mjs";

const HEADERS = { "content-type": "application/json; charset=utf-8", "cache-control": "no-store" };
const KV_DEADLINE_MS = 100;
const FRESH_MS = 30_000;
const [HOUR_MS, DAY_MS] = [3_600_000, 86_400_000];
const LEVELS = ["ad", "ad_group", "campaign", "advertiser"];
let held;

export default {
  async fetch(request, env, ctx) {
    const key = await imported(env);
    const cookies = request.headers.get("cookie") ?? "";
    const [body, identity, ledger] = await Promise.all([
      request.json(),
      open(key, "cw_id", named(cookies, "__Host-cw_id")),
      open(key, "cw_recent", named(cookies, "__Host-cw_recent")),
    ]);
    if (identity === null) return answer({ visitor: null, person: null, decisions: [], kv_reads: 0 }, HEADERS);
    const visitor = uuid(new Reader(identity).value().v.toHex());
    const reading = within(KV_DEADLINE_MS, env.PROFILES.get(`json:${visitor}`, "json"));
    const [stored, ads] = await Promise.all([reading, catalogue(env, ctx)]);
    if (stored === null) return answer({ visitor, person: null, decisions: [], kv_reads: 1 }, HEADERS);
    if (env.FACTS) ctx.waitUntil(env.FACTS.send(new Uint8Array(Number(env.MESSAGE_BYTES)), { contentType: "bytes" }));
    const decisions = decide(ads, stored, body, Date.now());
    const person = { devices: stored.devices, new_visitor: false, bridged: stored.devices > 1 };
    const cookie = `__Host-cw_recent=${await seal(key, "cw_recent", ledger)}; Max-Age=86400; Path=/; Secure; HttpOnly; SameSite=Lax`;
    const value = { visitor, person, decisions, catalogue: "c-1", kv_reads: 1, consent: "full" };
    return answer(value, { ...HEADERS, "set-cookie": cookie });
  },
};

/** The catalogue; if it is older than half a minute it is read again, in parallel with the answer. */
async function catalogue(env, ctx) {
  if (!held) {
    const ads = await load(env);
    held = { until: Date.now() + FRESH_MS, ads };
  } else if (Date.now() >= held.until) {
    held.until = Date.now() + FRESH_MS;
    ctx.waitUntil(load(env).then((ads) => (held.ads = ads)));
  }
  return held.ads;
}

async function load(env) {
  const file = await env.PROFILES.get("json:catalogue", "json");
  const byId = (rows) => new Map(rows.map((row) => [row.id, row]));
  const [groups, campaigns, advertisers] = [file.ad_group, file.campaign, file.advertiser].map(byId);
  const ads = file.ad.map((ad) => {
    const group = groups.get(ad.ad_group);
    const campaign = campaigns.get(group.campaign);
    const advertiser = advertisers.get(campaign.advertiser);
    const rows = [ad, group, campaign, advertiser];
    const codes = Object.fromEntries(LEVELS.map((level, i) => [level, rows[i].code]));
    const caps = rows.flatMap((row, i) => (row.caps ?? []).map((cap) => ({ ...cap, level: LEVELS[i], code: row.code, window: `${cap.window.interval} ${cap.window.unit}` })));
    return { ad, group, campaign, codes, caps, worth: worth(campaign.bid) };
  });
  const windows = new Set(ads.flatMap(({ caps }) => caps.map(({ window }) => window)));
  return { ads, of: new Map(ads.map((one) => [one.ad.code, one])), windows: [...windows] };
}

/** The value of a thousand impressions, with one click in a thousand and one conversion in a hundred clicks. */
function worth({ cpm_micros, cpc_micros, cpa_micros }) {
  return cpm_micros ?? cpc_micros ?? Math.floor(cpa_micros / 100);
}

function decide({ ads, of, windows }, person, body, now) {
  const counts = new Map(windows.map((window) => [window, counted(of, person.actions, since(window, now))]));
  const segments = new Set(person.segments.filter(([, expires]) => expires > now).map(([id]) => id));
  const matching = new Map();
  const placed = [];
  return body.placements.map(({ id, sizes, view_type, floor_micros }) => {
    const subject = { person, segments, view_type };
    const matches = (group) => {
      const known = `${view_type} ${group.id}`;
      if (!matching.has(known)) matching.set(known, holds(group.targeting, subject));
      return matching.get(known);
    };
    const may = ({ ad, group, campaign, codes, caps, worth }) =>
      worth >= floor_micros &&
      ad.sizes.some(([w, h]) => sizes.some(([width, height]) => w === width && h === height)) &&
      matches(group) &&
      placed.every((other) => other.codes.advertiser !== codes.advertiser && !competes(other.campaign, campaign)) &&
      caps.every(({ level, code, window, limit }) => (counts.get(window)[level].get(code) ?? 0) < limit);
    const best = ads.filter(may).reduce((best, one) => (best && (best.worth > one.worth || (best.worth === one.worth && best.ad.code < one.ad.code)) ? best : one), null);
    if (!best) return { placement: id, ad: null, reason: "none_matches" };
    placed.push(best);
    const { ad, group, campaign, worth } = best;
    const shown = { id: ad.id, ad_group: group.id, campaign: campaign.id, advertiser: campaign.advertiser, creative: ad.creative };
    return { placement: id, ad: shown, price_micros: worth, insertion: insertion() };
  });
}

function competes(one, other) {
  return one.id !== other.id && one.categories.some((category) => other.categories.includes(category));
}

/** The start of a window of whole hours or days, the current one included. */
function since(window, now) {
  const [interval, unit] = window.split(" ");
  const length = unit === "hours" ? HOUR_MS : DAY_MS;
  return (Math.floor(now / length) - (interval - 1)) * length;
}

/** Number of impressions since a time, by level and code. */
function counted(of, actions, from) {
  const sums = Object.fromEntries(LEVELS.map((level) => [level, new Map()]));
  for (const [, actionType, ad, at] of actions) {
    const codes = of.get(ad)?.codes;
    if (actionType !== 1 || at < from || !codes) continue;
    for (const level of LEVELS) sums[level].set(codes[level], (sums[level].get(codes[level]) ?? 0) + 1);
  }
  return sums;
}

/** Whether a filter in the Mongo style matches. */
function holds(filter, subject) {
  return Object.entries(filter).every(([field, asked]) => {
    if (field === "$or") return asked.some((one) => holds(one, subject));
    if (field === "segments") {
      if (asked.$in) return asked.$in.some((id) => subject.segments.has(id));
      return !asked.$nin.some((id) => subject.segments.has(id));
    }
    return compares(value(field, subject), asked);
  });
}

function value(field, { person, view_type }) {
  if (field === "devices") return person.devices;
  if (field === "page.view_type") return view_type;
  return field.startsWith("attributes.") ? person.attributes[field.slice("attributes.".length)] : undefined;
}

function compares(value, asked) {
  if (value === undefined) return false;
  if (typeof asked !== "object") return value === asked;
  return Object.entries(asked).every(([operator, bound]) => {
    switch (operator) {
      case "$in":
        return bound.includes(value);
      case "$gt":
        return value > bound;
      case "$gte":
        return value >= bound;
      case "$lt":
        return value < bound;
      default:
        throw new Error(`unknown operator ${operator}`);
    }
  });
}
