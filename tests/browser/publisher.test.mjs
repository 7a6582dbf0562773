// The page tag on difficult publishers' pages: frames, the Back button, frameworks that own the page, overlays,
// mistakes.
//
// No test waits for time to pass: where the tag counts seconds, the test moves the page's clock.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";

import {
  admin, asked, close, CONSENTS, cookies, decided, decides, FAR, filled, here, impressions, open, pageOf, REFUSES, shown, SOLD, START,
  PATIENT, SIDE, startPublisher, stopPublisher, TOP, UNSOLD, until, visitor,
} from "./publisher.mjs";
import { HOUSES, openReact, RENDER } from "./react.mjs";

// The tests need the browser's cache for pages that were left, which Playwright switches off.
before(() => startPublisher({ ignoreDefaultArgs: ["--disable-back-forward-cache"] }), { timeout: START });
after(stopPublisher, { timeout: 60_000 });

/* ---- consent of a page, asked for from a frame in it ---- */

/** A consent manager in the page around the frame; it gets calls by messages, and the test gives its answers. */
function managerByMessage() {
  if (window !== top) return;
  window.calls = [];
  addEventListener("message", ({ data, source }) => {
    for (const name of ["__tcfapi", "__gpp"]) {
      const call = (typeof data === "string" ? JSON.parse(data) : data)?.[`${name}Call`];
      if (!call) continue;
      window.calls.push({ name, command: call.command, version: call.version });
      const reply = (returnValue) => ({ [`${name}Return`]: { returnValue, success: true, callId: call.callId } });
      window.answer = (returnValue, asText) => source.postMessage(asText ? JSON.stringify(reply(returnValue)) : reply(returnValue), "*");
    }
  });
}

const locator = (name) => `<iframe name="${name}Locator" style="display: none"></iframe>`;
const frame = (address) => `<iframe src="${address}" width="800" height="300"></iframe>`;
const tcf = (tcString) => ({ gdprApplies: true, eventStatus: "tcloaded", tcString });
const gpp = (ping) => ({ eventName: "signalStatus", pingData: { signalStatus: "ready", ...ping } });

/** Opens a page with a manager of that name and the tag in a frame; returns the page and the frame. */
async function openFrame(name, { inner = pageOf(TOP), around = frame("/pages/frame"), ...others } = {}) {
  const html = `<!doctype html><title>around</title>${locator(name)}${around}`;
  const page = await open("", { html, init: [managerByMessage], others: { frame: inner, ...others } });
  await shown(page, () => window.calls.length === 1);
  return [page, page.frames().find((one) => one.url().endsWith("/pages/frame"))];
}

describe("a_tag_in_a_frame_asks_the_consent_manager_of_the_page_around_it", () => {
  for (const [name, version, refused, permitted] of [
    ["__tcfapi", 2, tcf(REFUSES), tcf(CONSENTS)],
    ["__gpp", "1.1", gpp(UNSOLD), gpp(SOLD)],
  ]) {
    test(`${name}_by_its_locator_frame_and_a_refusal_mints_no_visitor`, async () => {
      const [page, inside] = await openFrame(name);
      assert.deepEqual(await page.evaluate(() => window.calls), [{ name, command: "addEventListener", version }]);
      assert.deepEqual(await inside.evaluate(() => window.asked), [], "it waits for the answer");
      await page.evaluate((signal) => window.answer(signal), refused);
      await filled(inside, "top");
      assert.deepEqual((await decides(inside)).map(({ consent }) => consent.tcf ?? consent.gpp), [refused.tcString ?? refused.pingData.gppString]);
      assert.deepEqual(await cookies(page), []);
      await page.evaluate((signal) => window.answer(signal, true), permitted);
      await until("cookies", async () => (await cookies(page)).length === 2);
      await page.evaluate((signal) => window.answer(signal), refused);
      await until("no cookies", async () => (await cookies(page)).length === 0);
      await close(page);
    });

    test(`${name}_that_does_not_answer_leaves_the_visitor_anonymous`, async () => {
      const [page, inside] = await openFrame(name, { inner: pageOf(TOP, { tag: 'data-timeout="50"' }) });
      await decided(inside, 1);
      assert.deepEqual((await decides(inside)).map(({ name, consent }) => [name, consent]), [["omit", { tcf: "" }]]);
      assert.deepEqual(await cookies(page), []);
      await close(page);
    });
  }

  test("through_a_frame_of_another_origin_too_and_no_other_frame_may_answer", async () => {
    const forged = `<script>
      let id = 0;
      setInterval(() => {
        for (const callId of [\`causeway-\${id}\`, id]) {
          parent[0].postMessage({ __tcfapiReturn: { returnValue: ${JSON.stringify(tcf(CONSENTS))}, success: true, callId } }, "*");
        }
        id = (id + 1) % 10;
      }, 5);
    </script>`;
    const around = frame(`${here.other}/pages/middle`);
    const [page, inside] = await openFrame("__tcfapi", { around, middle: frame(`${here.edge}/pages/frame`) + frame("/pages/forged"), forged });
    const heard = () => addEventListener("message", () => { window.forgeries = (window.forgeries ?? 0) + 1; });
    await inside.evaluate(heard);
    await shown(inside, () => window.forgeries > 50);
    assert.deepEqual(await inside.evaluate(() => window.asked), [], "a forged answer is ignored");
    await page.evaluate((signal) => window.answer(signal), tcf(REFUSES));
    await filled(inside, "top");
    assert.deepEqual((await decides(inside)).map(({ consent }) => consent), [{ tcf: REFUSES }]);
    await close(page);
  });

  test("by_its_function_where_a_page_of_the_same_origin_has_no_locator_frame", async () => {
    const refusing = (tcString) => {
      if (window === top) window.__tcfapi = (_command, _version, listener) => listener({ gdprApplies: true, eventStatus: "tcloaded", tcString }, true);
    };
    const html = `<!doctype html><title>around</title>${frame("/pages/frame")}`;
    const page = await open("", { html, init: [`(${refusing})(${JSON.stringify(REFUSES)})`], others: { frame: pageOf(TOP) } });
    const inside = await until("the frame", () => page.frames().find((one) => one.url().endsWith("/pages/frame")));
    await filled(inside, "top");
    assert.deepEqual((await decides(inside)).map(({ consent }) => consent), [{ tcf: REFUSES }]);
    assert.deepEqual(await cookies(page), []);
    await close(page);
  });
});

/* ---- a law that applies, without a string ---- */

describe("a_jurisdiction_that_applies_without_a_string_is_a_refusal", () => {
  const missing = { gdprApplies: true, eventStatus: "tcloaded" };
  for (const [what, name, signal] of [
    ["no_tc_string", "__tcfapi", missing],
    ["a_tc_string_that_is_null", "__tcfapi", { ...missing, tcString: null }],
    ["a_tc_string_that_is_a_number", "__tcfapi", { ...missing, tcString: 5 }],
    ["a_tc_string_that_is_too_long", "__tcfapi", { ...missing, tcString: "C".repeat(70_000) }],
    ["no_gpp_string", "__gpp", gpp({ applicableSections: [6] })],
    ["no_gpp_string_and_no_sections", "__gpp", gpp({})],
    ["gpp_sections_that_are_texts", "__gpp", gpp({ ...UNSOLD, applicableSections: ["6"] })],
    ["gpp_sections_that_are_no_numbers", "__gpp", gpp({ ...SOLD, applicableSections: ["usca"] })],
    ["a_gpp_section_that_is_not_in_a_list", "__gpp", gpp({ ...UNSOLD, applicableSections: 6 })],
  ]) {
    test(what, async () => {
      const saying = (name, signal) => { window[name] = (...args) => args.at(-1)(signal, true); };
      const page = await open(TOP, { init: [`(${saying})(${JSON.stringify(name)}, ${JSON.stringify(signal)})`] });
      await filled(page, "top");
      assert.deepEqual((await decides(page)).map(({ name }) => name), ["include"]);
      assert.deepEqual(await cookies(page), []);
      await close(page);
    });
  }
});

/* ---- the Back button ---- */

describe("a_page_from_the_browsers_cache", () => {
  /** A manager that stores the visitor's choice for all pages. */
  function storedManager() {
    window.__tcfapi = (command, _version, listener) => {
      if (command !== "addEventListener") return;
      window.listeners = [...(window.listeners ?? []), listener];
      listener({ gdprApplies: true, eventStatus: "tcloaded", tcString: localStorage.consent }, true);
    };
    window.say = (tcString) => {
      localStorage.consent = tcString;
      window.listeners.forEach((listener) => listener({ gdprApplies: true, eventStatus: "useractioncomplete", tcString }, true));
    };
    addEventListener("pageshow", ({ persisted }) => { window.persisted = persisted; });
  }

  test("asks_the_consent_manager_again_before_it_sends_anything", async () => {
    const consenting = (tcString) => { localStorage.consent ??= tcString; };
    const page = await open(TOP, { init: [`(${consenting})(${JSON.stringify(CONSENTS)})`, storedManager] });
    await filled(page, "top");
    await until("cookies", async () => (await cookies(page)).length === 2);
    await page.evaluate(() => { window.isFirst = true; });
    await page.goto(`${here.edge}/pages/two`);
    await filled(page, "top");
    await page.evaluate((tcString) => window.say(tcString), REFUSES);
    await until("no cookies", async () => (await cookies(page)).length === 0);

    await page.evaluate(() => { setTimeout(() => history.back()); });
    await until("the first page", () => page.evaluate(() => window.isFirst && location.pathname).catch(() => false));
    assert.equal(await page.evaluate(() => window.persisted), true, "the page came out of the browser's memory");
    await decided(page, 2);
    await shown(page, () => window.adIn("#top"));
    assert.deepEqual((await decides(page)).map(({ consent, page_view }) => [consent.tcf, page_view]), [[CONSENTS, true], [REFUSES, true]]);
    assert.deepEqual(await cookies(page), []);
    await close(page);
  });
});

/* ---- pages of a framework ---- */

describe("the_tag_leaves_the_pages_nodes_in_place", () => {
  const isStanding = (page) => page.evaluate(() => {
    const ad = window.adIn("#top") ?? document.querySelector(".own, #top + a > img, #top + a");
    return ad.checkVisibility() && ad.isConnected;
  });
  const own = () => { window.causeway = [(causeway) => { causeway.render = (box) => { box.className = "own"; box.textContent = "ad"; }; }]; };

  for (const [what, kind, init] of [
    ["in_a_shadow_root", "div", []],
    ["next_to_an_element_that_can_have_none", "ins", []],
    ["by_the_page_s_own_renderer", "div", [own]],
    ["by_the_page_s_own_renderer_next_to_an_element", "ins", [own]],
  ]) test(`react_changes_the_content_of_a_placement_whose_ad_is_${what}`, async () => {
    const page = await openReact("", { begin: RENDER, init: [...init, `window.kind = ${JSON.stringify(kind)}`] });
    await shown(page, () => window.adIn("#top") ?? document.querySelector(".own, #top + a > img"));
    // A page that sets a text as the only content of an element removes all else in it, such as a renderer's ad.
    const staysInPlace = init.length === 0 || kind === "ins";
    for (const [house, content] of HOUSES) {
      await page.evaluate((house) => window.set({ house }), house);
      assert.equal(await page.evaluate(() => [...document.querySelector("#top").childNodes].filter((node) => !node.slot).map((node) => node.textContent).join("")), content);
      if (staysInPlace) assert.ok(await isStanding(page), house);
    }
    for (const around of [["slot", "before", "after"], ["after", "more", "slot"], ["slot"]]) await page.evaluate((around) => window.set({ around }), around);
    await page.evaluate(() => window.set({ around: ["before", "after"] }));
    await shown(page, () => !document.querySelector(".own, #root img"));
    assert.equal(await page.evaluate(() => document.querySelector("#root").innerText), "before\n\nafter");
    await page.evaluate(() => window.set({ around: ["slot"] }));
    await shown(page, () => window.adIn("#top") ?? document.querySelector(".own, #top + a > img"));
    await page.evaluate(() => window.root.unmount());
    assert.equal(await page.evaluate(() => document.querySelector("#root").innerHTML.replace(/<a.*<\/a>|<div class="own">ad<\/div>/, "")), "");
    await close(page);
  });

  test("react_hydrates_a_page_whose_placement_shows_an_ad_already", async () => {
    const html = '<main><p>before</p><div id="top" data-causeway="top" data-sizes="728x90">house</div><p>after</p></main>';
    const page = await openReact(html);
    await filled(page, "top");
    await page.evaluate(() => {
      window.before = [document.querySelector("#top"), window.adIn("#top")];
      window.ReactDOM.flushSync(() => window.ReactDOM.hydrateRoot(document.querySelector("#root"), window.React.createElement(window.App)));
    });
    await shown(page, () => window.set);
    for (const [house] of HOUSES) await page.evaluate((house) => window.set({ house }), house);
    assert.deepEqual(await page.evaluate(() => window.before.map((node, i) => node === [document.querySelector("#top"), window.adIn("#top")][i])), [true, true]);
    assert.ok(await isStanding(page));
    assert.equal((await decides(page)).length, 1);
    await close(page);
  });

  test("a_custom_element_that_is_defined_later_gets_the_shadow_root_that_it_makes", async () => {
    const page = await open(TOP.replace("<div", "<my-box").replace("</div", "</my-box"));
    await shown(page, () => document.querySelector("#top + a > img"));
    await page.evaluate(() => customElements.define("my-box", class extends HTMLElement {
      constructor() {
        super();
        this.attachShadow({ mode: "open" }).textContent = "own";
      }
    }));
    assert.equal(await page.evaluate(() => document.querySelector("#top").shadowRoot.textContent), "own");
    await close(page);
  });

  test("also_when_the_ad_is_taken_out_and_where_a_page_has_a_shadow_root_of_its_own", async () => {
    const page = await open(`${TOP}<script>
      document.querySelector("#top").attachShadow({ mode: "open" }).innerHTML = "<em>own root</em><slot></slot>";
      window.moved = [];
      const house = document.querySelector("#top").firstChild;
      new MutationObserver((records) => records.forEach(({ removedNodes }) => removedNodes.forEach((node) => window.moved.push(node.nodeName))))
        .observe(document.querySelector("#top"), { childList: true });
    </script>`);
    await shown(page, () => document.querySelector("#top + a > img"));
    assert.equal(await page.evaluate(() => document.querySelector("#top").checkVisibility()), false);
    await page.context().route("**/v1/decide", (route) => route.fulfill({ body: '{"decisions":[]}', contentType: "application/json" }));
    await page.evaluate(() => history.pushState({}, "", "/pages/two"));
    await shown(page, () => document.querySelector("#top").checkVisibility() && !document.querySelector("#top + a"));
    assert.deepEqual(await page.evaluate(() => [window.moved, document.querySelector("#top").shadowRoot.innerHTML, document.querySelector("#top").textContent]),
      [[], "<em>own root</em><slot></slot>", "house"]);
    await close(page);
  });
});

/* ---- ads that cannot be seen ---- */

describe("an_ad_counts_as_viewable_only_where_it_can_be_seen", () => {
  /** Replaces the observer by one of a browser that does not track visibility. */
  const old = () => {
    window.IntersectionObserver = class extends IntersectionObserver {
      constructor(work, { threshold } = {}) {
        super(work, { threshold });
      }
    };
  };
  const overlay = (style) => `<div id="over" style="position: fixed; inset: 0; background: white; ${style}"></div>`;
  const around = (style) => `<div id="around" style="${style}">${TOP}</div>`;
  const HIDDEN = [
    ["under_an_overlay", TOP + overlay("")],
    ["under_most_of_an_overlay", TOP + overlay("left: 300px")],
    ["that_is_not_visible", around("visibility: hidden")],
    ["that_is_transparent", around("opacity: 0")],
    ["that_is_nearly_transparent_by_two_elements", around("opacity: 0.4").replace("<div id=\"top\"", '<div id="top" style="opacity: 0.4"')],
  ];
  const THROUGH = ["under_an_overlay_that_pointers_go_through", TOP + overlay("pointer-events: none")];

  /** Opens the page with a stopped clock, after the tag's observer has seen the ad. */
  async function begin(body, init) {
    const page = await open(FAR + body, { clock: true, init });
    await filled(page, "top");
    await page.evaluate(() => window.adIn("#top").decode());
    await page.clock.pauseAt(3_600_000);
    await page.evaluate(() => document.querySelector("#top").scrollIntoView());
    await shown(page, () => window.looks.get(window.adIn("#top"))?.intersectionRatio === 1);
    return page;
  }

  for (const [browser, init, cases] of [["", [], [...HIDDEN, THROUGH]], ["_in_a_browser_that_does_not_track_visibility", [old], HIDDEN]]) {
    for (const [what, body] of cases) test(`not_one_${what}${browser}`, async () => {
      const page = await begin(body, init);
      await page.clock.runFor(10_000);
      assert.equal(await impressions(page), 0);
      await page.evaluate(() => {
        document.querySelector("#over")?.remove();
        document.querySelectorAll("#around, #top").forEach((element) => element.removeAttribute("style"));
      });
      if (!init.length) await shown(page, () => window.looks.get(window.adIn("#top")).isVisible);
      await page.clock.runFor(1_200);
      assert.equal(await impressions(page), 1, "it counts after it became visible");
      await close(page);
    });

    test(`a_second_is_broken_off_by_what_covers_the_ad${browser}`, async () => {
      const page = await begin(TOP, init);
      if (!init.length) await shown(page, () => window.looks.get(window.adIn("#top")).isVisible);
      await page.clock.runFor(900);
      await page.evaluate((html) => document.body.insertAdjacentHTML("beforeend", html), overlay(""));
      if (!init.length) await shown(page, () => !window.looks.get(window.adIn("#top")).isVisible);
      await page.clock.runFor(10_000);
      assert.equal(await impressions(page), 0);
      await close(page);
    });
  }

  for (const [browser, init] of [["", []], ["_in_a_browser_that_does_not_track_visibility", [old]]]) {
    for (const [what, body, more] of [
      ["a_frame", SIDE, []],
      ["the_page_s_own_renderer", TOP, [() => { window.causeway = [(causeway) => { causeway.render = (box) => { box.style.height = "90px"; }; }]; }]],
      ["an_ad_next_to_its_placement", TOP.replace("<div", "<ins").replace("</div", "</ins"), []],
    ]) test(`one_of_${what}_counts${browser}`, async () => {
      const page = await open(body, { init: [...more, ...init], clock: true });
      await shown(page, () => window.adIn("#top, #side") ?? document.querySelector("[slot=causeway], #top + a > img"));
      await until("the impression", async () => {
        await page.clock.runFor(1_000);
        return (await impressions(page)) === 1;
      });
      await close(page);
    });
  }

  test("one_that_is_covered_by_a_third_counts_in_a_browser_that_does_not_track_visibility", async () => {
    const page = await begin(TOP + overlay("left: 500px"), [old]);
    await page.clock.runFor(1_000);
    assert.equal(await impressions(page), 1);
    await close(page);
  });
});

/* ---- what a page gets wrong ---- */

test("an_amount_that_is_not_quite_whole_is_rounded", async () => {
  const floor = `<div id="floor" data-causeway="floor" data-sizes="728x90" data-floor-micros="${2.01 * 1e6}"></div>`;
  assert.deepEqual([2.01 * 1e6, 8.2 * 1e6], [2_009_999.9999999998, 8_199_999.999999999]);
  const page = await open(floor);
  await filled(page, "floor");
  assert.equal((await decides(page))[0].placements[0].floor_micros, 2_010_000);
  await page.evaluate(() => window.causeway.track("purchase", { value_micros: 8.2 * 1e6, title: "cut" }, "order-7"));
  const [{ body }] = await until("the event", async () => { const events = await asked(page, "/v1/events"); return events.length && events; });
  assert.deepEqual(JSON.parse(body)[0].properties, { value_micros: 8_200_000, title: "cut" });
  const id = await visitor(page);
  await until("the purchase", async () => (await admin(`visitors/${id}`))?.own.revenue_micros === 8_200_000);
  await close(page);
});

test("an_id_is_a_text_or_a_number_and_no_value_that_is_equal_for_all_people", async () => {
  const early = () => { window.causeway = [(causeway) => causeway.identify(
    { promise: Promise.resolve("ann"), object: {}, list: ["ann"], yes: true, nan: NaN, endless: Infinity, call: () => "ann", none: null, empty: "", text: "ann", number: 0 },
    { member: Promise.resolve("proof"), text: "proof" },
  )]; };
  const page = await open(TOP, { init: [early], tag: `${PATIENT} data-debug` });
  await filled(page, "top");
  assert.deepEqual((await decides(page)).map(({ user }) => user), [{ ids: { text: "ann", number: "0" }, proofs: { text: "proof" } }]);
  const warned = page.warnings.filter((text) => text.includes("neither a text nor a number")).map((text) => text.split(" ")[1]);
  assert.deepEqual(warned, ["promise", "object", "list", "yes", "nan", "endless", "call", "member"]);
  await page.evaluate(() => window.causeway.track("read", {}, Promise.resolve("order-7")));
  const [{ body }] = await until("the event", async () => { const events = await asked(page, "/v1/events"); return events.length && events; });
  assert.match(JSON.parse(body)[0].id, /^[0-9a-f]{8}-/, "an id of its own");
  await close(page);
});

test("a_value_over_the_edges_bounds_in_bytes_is_left_out_alone", async () => {
  const placement = (id, more) => `<div data-causeway="${id}" data-sizes="728x90" ${more}></div>`;
  const [fits, over] = ["語".repeat(42), "語".repeat(60)];
  const early = (over) => { window.causeway = [(causeway) => {
    const ids = Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`kind${i}`, "x"]));
    causeway.identify({ long: over.repeat(2), [over]: "x", text: "x", ...ids }, { long: "x".repeat(2_049) });
  }]; };
  const keywords = [fits, over, "k".repeat(128), "k".repeat(129)];
  const page = await open(TOP + placement(over, "") + placement(fits, `data-view-type="${over}"`) + placement("vast", "").replace("728x90", "728x90,99999999999x1"), {
    init: [`(${early})(${JSON.stringify(over)})`],
    head: `<meta name="keywords" content="${keywords}">`,
    tag: `${PATIENT} data-debug`,
  });
  await filled(page, "top");
  const [{ placements, page: { keywords: sent }, user }, ...more] = await decides(page);
  assert.deepEqual(placements.map(({ id, view_type, sizes }) => [id, view_type, sizes.length]), [["top", "home", 1], [fits, undefined, 1], ["vast", undefined, 1]]);
  // The edge leaves out a keyword over its bound, and thereby learns that the page has more keywords than it reads.
  assert.deepEqual([sent, Object.keys(user.ids), user.proofs], [keywords, ["text", ...Array.from({ length: 7 }, (_, i) => `kind${i}`)], {}]);
  assert.deepEqual(more, []);
  for (const warning of [`placement ${over}: not requested`, `placement ${fits}: data-view-type`, "placement vast: data-sizes", "long is left out", `${over} is left out`]) {
    assert.equal(page.warnings.filter((text) => text.includes(warning)).length, warning === "long is left out" ? 2 : 1, warning);
  }
  await close(page);
});

test("the_tag_s_bounds_are_the_edge_s", async () => {
  const source = (path) => readFile(new URL(`../../${path}`, import.meta.url), "utf8");
  const bounds = (text) => [...text.matchAll(/^(?:export|pub) const ([A-Z_]+)(?:: \w+)? = ([\d_]+);/gm)].map(([, name, value]) => [name, +value.replaceAll("_", "")]);
  const limits = Object.fromEntries(bounds(await source("shared/src/base/limits.rs")));
  const own = bounds(await source("edge/tag/settings.js"));
  assert.ok(own.length >= 9);
  for (const [name, value] of own) assert.equal(value, limits[name], name);
});

test("a_size_may_be_written_with_a_capital_x_and_blanks", async () => {
  const page = await open(TOP.replace("728x90", "970X250, 728 × 90"));
  await filled(page, "top");
  assert.deepEqual((await decides(page))[0].placements[0].sizes, [[970, 250], [728, 90]]);
  await close(page);
});

describe("in_debug_mode_the_console_reports_each_problem", () => {
  const WRONG = `${SIDE.replace("data-sizes", 'data-size="728x90" data-sizes')}
    <div data-causeway="none" data-sizes="1x1"></div><div data-causeway="own" data-sizes="160x600"></div>`;
  const wrong = () => {
    window.__tcfapi = (_command, _version, listener) => listener({ gdprApplies: false }, true);
    window.causeway = [(causeway) => {
      causeway.track("fine");
      causeway.track("purchase", { value_micros: -1 });
      causeway.track("huge", { text: "x".repeat(30_000) });
      causeway.track("circle", window.circle = { get circle() { return window.circle; } });
      causeway.identify({ unheard: "x" });
    }];
  };

  for (const [how, options] of [["by_the_address", { query: "?causeway_debug" }], ["by_the_script", { tag: `${PATIENT} data-debug data-time-out="5"` }]]) {
    test(how, async () => {
      const page = await open(TOP + WRONG, { init: [wrong], ...options });
      await page.context().route("https://cdn.shoes.example/**", (route) => route.abort());
      await page.evaluate(() => history.pushState({}, "", "/pages/two"));
      const tells = (what) => until(`"${what}"`, async () => {
        await page.evaluate(() => 1);
        return page.warnings.some((text) => text.includes(what));
      }).catch((error) => assert.fail(`${error.message}: ${page.warnings.join("\n")}`));
      if (options.tag) await tells("unknown attribute of the script: timeOut");
      await tells("placement side: unknown attribute data-size");
      await tells("placement none is empty: no_size");
      await tells("placement own is empty: no renderer has shown the creative");
      await tells("placement top is empty: the image did not load");
      await tells("consent as read:");
      await tells("__tcfapi says");
      await tells("the edge's answer: consent full");
      await tells("the id unheard was refused: unknown");
      await tells("an event was rejected: value_out_of_range");
      await tells("an event is lost");
      await tells("Converting circular structure");
      await page.context().route("**/v1/decide", (route) => route.fulfill({
        contentType: "application/json",
        body: JSON.stringify({ visitor: null, decisions: [{ ad: null, warnings: ["of the placement"] }], warnings: ["of the answer"] }),
      }));
      await page.evaluate(() => history.pushState({}, "", "/pages/three"));
      await tells("of the placement");
      await tells("of the answer");
      page.faults = page.faults.filter((fault) => !fault.includes("ERR_FAILED"));
      await close(page);
    });
  }

  test("and_says_nothing_without_it", async () => {
    const page = await open(TOP + WRONG, { init: [wrong] });
    await filled(page, "top");
    await until("the events", async () => (await asked(page, "/v1/events")).length);
    await until("a visitor", () => visitor(page));
    assert.deepEqual(page.warnings, []);
    await close(page);
  });
});
