// Consent strings as the IAB's own libraries write them: the edge must read them like the library's decoder.

import assert from "node:assert/strict";
import { test } from "node:test";

import { GppModel } from "@iabgpp/cmpapi";
import { GVL, Segment, TCModel, TCString } from "@iabtcf/core";

import { bindings, configOf, decide, freshWorker, takeLog } from "./world.mjs";

const STRINGS = 500;
const PURPOSES = [1, 3, 4];
const VENDOR = 7;
const VENDORS = 20;
/** A string created since this time names the disclosed vendors, whatever its policy version (TCF 2.3). */
const DISCLOSES = Date.UTC(2026, 2, 1);
const DISCLOSING_POLICY = 5;

/** A seeded random number generator (Marsaglia's xorshift). */
function dice(state) {
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

/** Starts an edge; returns a function from a consent signal to the consent that the edge reads, `full` or `none`. */
async function startEdge(tenant = {}) {
  const { default: worker } = await freshWorker();
  const env = bindings({ CAUSEWAY_CONFIG: configOf({ tcf_purposes: PURPOSES, ...tenant }) });
  return async (consent) => {
    const { json } = await decide(worker, env, { body: JSON.stringify({ placements: [], consent }) });
    takeLog();
    return json.consent;
  };
}

const numbered = (count, more = {}) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [i + 1, { id: i + 1, name: "", description: "", illustrations: [], ...more }]));

const vendorList = new GVL({
  gvlSpecificationVersion: 3,
  vendorListVersion: 100,
  tcfPolicyVersion: DISCLOSING_POLICY,
  lastUpdated: "2026-01-01T00:00:00Z",
  purposes: numbered(11),
  specialPurposes: numbered(3),
  features: numbered(3),
  specialFeatures: numbered(2),
  stacks: {},
  dataCategories: {},
  vendors: numbered(VENDORS, { purposes: PURPOSES, legIntPurposes: [2, 7], flexiblePurposes: [], specialPurposes: [], features: [], specialFeatures: [], policyUrl: "" }),
});

/** A random TCF string. Most consent to all that is needed, so that each other rule is decisive in many strings. */
function writeTcf(draw) {
  const model = new TCModel(vendorList);
  const some = (count, share) => Array.from({ length: count }, (_, i) => i + 1).filter(() => draw(100) < share);
  model.cmpId = 10;
  model.cmpVersion = 1;
  model.isServiceSpecific = draw(10) > 0;
  model.purposeConsents.set(draw(3) ? [...PURPOSES, ...some(11, 30)] : some(11, 70));
  model.purposeLegitimateInterests.set(some(11, 50).filter((purpose) => purpose > 1));
  model.vendorConsents.set(draw(4) ? [VENDOR, ...some(VENDORS, 40)] : some(VENDORS, 40));
  model.vendorLegitimateInterests.set(some(VENDORS, 40));
  model.vendorsDisclosed.set(draw(4) ? [VENDOR, ...some(VENDORS, 60)] : some(VENDORS, 40));
  model.policyVersion = 2 + draw(4);
  model.created = new Date(Date.UTC(2025, 6, 1) + draw(500) * 86_400_000);
  model.lastUpdated = model.created;
  const segments = draw(3) ? [Segment.CORE, Segment.VENDORS_DISCLOSED] : [Segment.CORE];
  return TCString.encode(model, { segments });
}

/** The consent in a string by the IAB's decoder, with the tenant's purposes and vendor: `full` or `none`. */
function readTcf(text, vendor) {
  const model = TCString.decode(text);
  const isDisclosing = text.split(".").length > 1;
  const mustDisclose = model.policyVersion >= DISCLOSING_POLICY || model.created.getTime() >= DISCLOSES;
  if (!model.isServiceSpecific || (mustDisclose && !isDisclosing)) return "none";
  const isConsented = PURPOSES.every((purpose) => model.purposeConsents.has(purpose));
  const isVendors = !vendor || (model.vendorConsents.has(vendor) && (!mustDisclose || model.vendorsDisclosed.has(vendor)));
  return isConsented && isVendors ? "full" : "none";
}

for (const [suffix, vendor] of [["for_purposes_alone", undefined], ["for_a_vendor_too", VENDOR]]) {
  test(`500_tcf_strings_are_read_as_iabs_decoder_reads_them_${suffix}`, async () => {
    const askEdge = await startEdge(vendor ? { tcf_vendor: vendor } : {});
    const draw = dice(1 + (vendor ?? 0));
    const seen = { full: 0, none: 0 };
    for (let i = 0; i < STRINGS; i += 1) {
      const tcf = writeTcf(draw);
      const expected = readTcf(tcf, vendor);
      assert.equal(await askEdge({ tcf }), expected, tcf);
      seen[expected] += 1;
    }
    assert.ok(Math.min(seen.full, seen.none) > STRINGS / 10, JSON.stringify(seen));
  });
}

const SECTIONS = [
  "usnat", "usca", "usva", "usco", "usut", "usct", "usfl", "usmt", "usor", "ustx", "usde", "usia", "usne", "usnh", "usnj",
  "ustn", "usmn", "usmd", "usin", "usky", "usri",
];

/** Fields that are not random: the version of a section, and fields that MSPA's rules tie together. */
const FIXED = /^(Version|Mspa.*|GpcSegmentType|GpcSegmentIncluded)$/;

/** A random US section, national or of a state. Most sections opt out of nothing. */
function writeGpp(section, draw) {
  const model = new GppModel();
  model.setFieldValue(section, "SaleOptOut", 0);
  const often = draw(2) ? 3 : 10;
  const value = () => (draw(often) ? [0, 2][draw(2)] : 1);
  for (const [field, initial] of Object.entries(model.toObject()[section])) {
    if (FIXED.test(field)) continue;
    if (field === "Gpc") model.setFieldValue(section, field, draw(8) === 0);
    else model.setFieldValue(section, field, Array.isArray(initial) ? initial.map(value) : value());
  }
  return model.encode();
}

const OPT_OUTS = ["SaleOptOut", "SharingOptOut", "TargetedAdvertisingOptOut"];

/** The consent in the only section of a string by the IAB's decoder. */
function readGpp(text, section) {
  const fields = new GppModel(text).toObject()[section];
  const isOut = OPT_OUTS.some((field) => fields[field] === 1) || fields.Gpc === true;
  return isOut || [fields.KnownChildSensitiveDataConsents ?? []].flat().includes(1) ? "none" : "full";
}

test("500_gpp_strings_of_all_us_sections_are_read_as_iabs_decoder_reads_them", async () => {
  const askEdge = await startEdge();
  const draw = dice(5);
  const seen = new Map(SECTIONS.map((section) => [section, new Set()]));
  for (let i = 0; i < STRINGS; i += 1) {
    const section = SECTIONS[i % SECTIONS.length];
    const gpp = writeGpp(section, draw);
    const expected = readGpp(gpp, section);
    const gpp_sid = new GppModel(gpp).getSectionIds();
    assert.equal(await askEdge({ gpp, gpp_sid }), expected, `${section} ${gpp}`);
    seen.get(section).add(expected);
  }
  for (const [section, answers] of seen) assert.equal(answers.size, 2, `${section}: ${[...answers]}`);
});

test("a_gpp_string_with_a_tcf_section_is_read_as_the_tcf_string_alone", async () => {
  const askEdge = await startEdge();
  const draw = dice(9);
  for (let i = 0; i < 50; i += 1) {
    const tcf = writeTcf(draw);
    // The header names the sections 2 and 6; the library writes a TCF section only from fields.
    assert.equal(await askEdge({ gpp: `DBACNY~${tcf}~1YNN`, gpp_sid: [2] }), readTcf(tcf), tcf);
  }
});
