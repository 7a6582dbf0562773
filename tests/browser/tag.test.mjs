// The page tag in a real browser, on a publisher's pages, with the real edge and origin.
//
// No test waits for time to pass: where the tag counts seconds, the test moves the page's clock.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";

import {
  admin, asked, block, close, CONSENTS, cookies, decided, decides, FAR, filled, here, impressions, open,
  pages, PATIENCE, PATIENT, PIXEL, REFUSES, shown, SIDE, SOLD, START, startPublisher, stopPublisher, STRICT, text, TOP,
  UNSOLD, until, visitor,
} from "./publisher.mjs";
import { network } from "./world.mjs";

before(() => startPublisher(), { timeout: START });
after(stopPublisher, { timeout: 60_000 });

/* ---- filling ---- */

test("one_call_fills_all_placements_of_a_page_under_a_strict_content_policy", async () => {
  const none = '<div id="none" data-causeway="none" data-sizes="1x1"><b>our own</b></div>';
  const twice = '<script async src="/causeway.js"></script>';
  const page = await open(TOP + SIDE + none + '<div data-causeway="">no name</div>', { policy: STRICT, head: twice });
  await filled(page, "top");
  await filled(page, "side");
  const [call, ...others] = await decides(page);
  assert.deepEqual(others, []);
  assert.deepEqual(call.placements, [
    { id: "top", view_type: "home", sizes: [[728, 90]] }, { id: "side", sizes: [[300, 250]] }, { id: "none", sizes: [[1, 1]] },
  ]);
  assert.deepEqual([call.name, call.page_view, call.page.url], ["include", true, `${here.edge}/pages/one`]);
  const link = page.locator("#top > a");
  assert.match(await link.getAttribute("href"), new RegExp(`^${here.edge}/v1/c/`));
  assert.deepEqual(await page.locator("#top img").evaluate((img) => [img.src, img.alt, img.width, img.height]),
    ["https://cdn.shoes.example/red.png", "Red shoes", 728, 90]);
  const frame = page.locator("#side > iframe");
  assert.equal(await frame.getAttribute("sandbox"), "allow-scripts allow-popups allow-popups-to-escape-sandbox");
  assert.deepEqual(await frame.evaluate((frame) => [frame.width, frame.height]), ["300", "250"]);
  assert.match(await page.frameLocator("#side > iframe").locator("a").getAttribute("href"), new RegExp(`^${here.edge}/v1/c/`));
  assert.equal(await text(page, "none"), "our own", "the house content stays where there is no ad");
  assert.deepEqual(await cookies(page), ["cw_id", "cw_recent"]);
  const globals = await page.evaluate(() => Object.keys(window).filter((name) => !["asked", "hide"].includes(name) && /cause|cw_|tag/i.test(name)));
  assert.deepEqual(globals, ["causeway"]);
  await close(page);
});

test("a_click_goes_by_the_click_url_and_nowhere_else", async () => {
  const page = await open(TOP + SIDE);
  await filled(page, "top");
  await filled(page, "side");
  const links = [[page.locator("#top > a"), "https://shoes.example/red"], [page.frameLocator("#side > iframe").locator("a"), "https://boats.example/summer"]];
  for (const [link, landing] of links) {
    const [popup] = await Promise.all([page.context().waitForEvent("page"), link.click()]);
    await popup.waitForURL(landing);
    assert.equal(await popup.evaluate(() => window.opener), null);
    await popup.close();
  }
  await close(page);
});

test("the_house_content_stays_when_the_answer_is_late", async () => {
  const holding = () => {
    const { fetch: ask } = window;
    window.fetch = async (...args) => {
      const answer = await ask(...args);
      if (!window.release) await new Promise((release) => { window.release = release; });
      return answer;
    };
  };
  const page = await open(TOP, { clock: true, init: [holding], tag: "" });
  await shown(page, () => window.release);
  await page.clock.runFor(1_000);
  // The next call must come after this answer was handled, because two parallel calls would mint two visitors.
  await page.evaluate((html) => document.body.insertAdjacentHTML("beforeend", html), SIDE);
  await page.clock.runFor(1_000);
  assert.equal((await decides(page)).length, 1);
  await page.evaluate(() => window.release());
  await decided(page, 2);
  assert.equal(await text(page, "top"), "house");
  assert.deepEqual(await cookies(page), ["cw_id", "cw_recent"], "the answer was not given up");
  assert.deepEqual((await decides(page)).map(({ page_view }) => page_view), [true, false]);
  await close(page);
});

test("without_an_edge_the_house_content_stays_and_no_ad_moves_to_the_next_address", async () => {
  const page = await open(TOP);
  await filled(page, "top");
  await page.context().route("**/v1/decide", (route) => route.abort());
  await page.evaluate(() => history.pushState({}, "", "/pages/two"));
  await shown(page, () => document.querySelector("#top").innerText === "house");
  page.faults = page.faults.filter((fault) => !fault.includes("ERR_FAILED"));
  await close(page);
});

test("an_ad_that_was_chosen_for_an_address_is_not_placed_on_the_next_one", async () => {
  const renderer = () => {
    window.rendered = [];
    const calls = () => window.asked.filter(({ path }) => path === "/v1/decide").length;
    window.causeway = [(causeway) => { causeway.render = () => { window.rendered.push(calls()); return false; }; }];
  };
  const page = await open(TOP, { init: [renderer] });
  await filled(page, "top");
  let answer;
  const held = new Promise((resolve) => { answer = resolve; });
  await page.context().route("**/v1/decide", async (route) => { await held; await route.continue(); });
  await page.evaluate(() => history.pushState({}, "", "/pages/two"));
  await decided(page, 2);
  await page.evaluate(() => history.pushState({}, "", "/pages/three"));
  answer();
  assert.deepEqual(await shown(page, () => window.rendered.length > 1 && window.rendered), [1, 3]);
  await pages(page, 3);
  await close(page);
});

test("an_image_that_does_not_load_leaves_the_house_content", async () => {
  const page = await open("");
  await page.context().route("https://cdn.shoes.example/**", (route) => route.abort());
  await page.evaluate((html) => document.body.insertAdjacentHTML("beforeend", html), TOP + SIDE);
  await filled(page, "side");
  await shown(page, () => document.querySelector("#top").innerText === "house");
  page.faults = page.faults.filter((fault) => !fault.includes("ERR_FAILED"));
  await close(page);
});

test("a_page_s_own_navigation_is_not_the_browser_s", async () => {
  const own = () => Object.defineProperty(window, "navigation", { value: document.createElement("nav") });
  const page = await open(TOP, { init: [own] });
  await filled(page, "top");
  await page.evaluate(() => history.pushState({}, "", "/pages/two"));
  await decided(page, 2);
  await until("a visitor", () => visitor(page));
  await page.evaluate(() => { window.causeway.track("read"); window.hide(true); });
  assert.deepEqual((await asked(page, "/v1/events")).map(({ name }) => name), ["beacon"], "the last event is sent");
  await close(page);
});

test("a_page_that_is_prerendered_asks_for_nothing_before_it_is_shown", async () => {
  const prerendered = () => Object.defineProperty(document, "prerendering", { value: true, configurable: true });
  const queued = () => { window.causeway = [(causeway) => causeway.identify({ member: "early" }), (causeway) => causeway.track("early")]; };
  const page = await open(TOP, { init: [prerendered, queued], clock: true });
  await shown(page, () => window.causeway?.track && document.readyState === "complete");
  await page.clock.runFor(60_000);
  assert.deepEqual(await page.evaluate(() => window.asked), [], "no consent was asked for, no page was seen");
  await page.evaluate(() => {
    Object.defineProperty(document, "prerendering", { value: false });
    document.dispatchEvent(new Event("prerenderingchange"));
  });
  await filled(page, "top");
  assert.deepEqual((await decides(page)).map(({ page_view, user }) => [page_view, user.ids]), [[true, { member: "early" }]]);
  await close(page);
});

test("a_placement_removed_during_its_decision_is_decided_again_when_it_returns", async () => {
  const page = await open(TOP, { clock: true });
  await filled(page, "top");
  await page.clock.pauseAt(3_600_000);
  const moves = (away) => page.evaluate((away) => {
    window.side ??= Object.assign(document.createElement("div"), { id: "side" });
    Object.assign(window.side.dataset, { causeway: "side", sizes: "300x250" });
    away ? window.side.remove() : document.body.append(window.side);
    // The tag's observer was registered earlier, so it is notified before this one.
    return new Promise((resolve) => { new MutationObserver(resolve).observe(document.body, { childList: true }); document.body.append(""); });
  }, away);
  await moves(false);
  await moves(true);
  await page.clock.runFor(1_000);
  await moves(false);
  await page.clock.runFor(1_000);
  await filled(page, "side");
  // A placement with an ad is decided again for the address at which it returns, whether it left before or after the
  // address changed.
  for (const before of [false, true]) {
    await page.evaluate(() => { window.shownBefore = window.adIn("#side"); });
    if (before) await moves(true);
    await page.evaluate((before) => history.pushState(null, "", `/pages/two?${before}`), before);
    if (!before) await moves(true);
    await page.clock.runFor(1_000);
    await moves(false);
    if (before) assert.equal(await page.locator("#side > iframe").count(), 0, "not with the ad of another address");
    await page.clock.runFor(1_000);
    await shown(page, () => ![null, window.shownBefore].includes(window.adIn("#side")));
  }
  await close(page);
});

for (const late of [false, true]) test(`an_element_that_is_no_placement_any_more_is_the_page_s_own${late ? "_also_when_it_was_asked_for" : ""}`, async () => {
  const page = await open(TOP + SIDE);
  await filled(page, "top");
  await filled(page, "side");
  let answer;
  const held = new Promise((resolve) => { answer = resolve; });
  await page.context().route("**/v1/decide", async (route) => { await held; await route.continue(); });
  await page.evaluate((late) => {
    window.before = window.adIn("#side");
    window.leave = () => {
      const top = document.querySelector("#top");
      top.removeAttribute("data-causeway");
      top.append("article");
    };
    history.pushState(null, "", "/pages/two");
    if (!late) window.leave();
  }, late);
  await decided(page, 2);
  await page.evaluate((late) => late && window.leave(), late);
  answer();
  await shown(page, () => ![null, window.before].includes(window.adIn("#side")));
  const [, { placements, page_view }, ...more] = await decides(page);
  assert.deepEqual([placements.map(({ id }) => id).join(), page_view, more], [late ? "top,side" : "side", true, []]);
  assert.match(await text(page, "top"), /article/);
  await pages(page, 2);
  await close(page);
});

test("content_that_replaces_an_ad_counts_as_no_ad_and_is_not_overwritten_by_earlier_content", async () => {
  const renderer = () => { window.causeway = [(causeway) => { causeway.render = (element) => { element.textContent = "ad"; }; }]; };
  const page = await open(FAR + TOP.replace("<div", '<div style="height: 90px"'), { init: [renderer], clock: true });
  await shown(page, () => document.querySelector("#top").innerText === "ad");
  await page.clock.pauseAt(3_600_000);
  await page.evaluate(() => {
    const top = document.querySelector("#top");
    delete top.dataset.causeway;
    top.textContent = "article";
    top.scrollIntoView();
    return new Promise((resolve) => { new IntersectionObserver(resolve).observe(top); });
  });
  await page.clock.runFor(10_000);
  assert.equal(await impressions(page), 0);
  const body = JSON.stringify({ decisions: [], reason: "overloaded" });
  await page.context().route("**/v1/decide", (route) => route.fulfill({ body, contentType: "application/json" }));
  await page.evaluate(() => {
    history.pushState(null, "", "/pages/two");
    Object.assign(document.querySelector("#top"), { textContent: "other house" }).dataset.causeway = "top";
  });
  await page.clock.runFor(1_000);
  await decided(page, 2);
  // The next call comes after this answer was handled.
  await page.evaluate((html) => document.body.insertAdjacentHTML("beforeend", html), SIDE);
  await until("the next call", async () => {
    await page.clock.runFor(100);
    return (await decides(page)).length === 3;
  });
  assert.equal(await text(page, "top"), "other house");
  await close(page);
});

test("an_ad_without_a_renderer_leaves_the_pages_changes_of_the_house_content", async () => {
  const page = await open('<div id="own" data-causeway="own" data-sizes="160x600">house</div>' + SIDE);
  await filled(page, "side");
  await page.evaluate(() => {
    window.before = window.adIn("#side");
    document.querySelector("#own").textContent = "other house";
    history.pushState(null, "", "/pages/two");
  });
  await shown(page, () => ![null, window.before].includes(window.adIn("#side")));
  assert.equal(await text(page, "own"), "other house");
  await close(page);
});

test("placements_beyond_32_go_in_a_second_call_also_when_the_first_fills_none", async () => {
  const page = await open('<div data-causeway="none" data-sizes="1x1"></div>'.repeat(32) + TOP);
  await filled(page, "top");
  const calls = (await decides(page)).map(({ placements, page_view }) => [placements.length, placements[0].id, page_view]);
  assert.deepEqual(calls, [[32, "none", true], [1, "top", false]]);
  await close(page);
});

test("a_placement_whose_id_is_too_long_is_left_out_of_the_call", async () => {
  const page = await open(`<div data-causeway="${"x".repeat(129)}"></div>${TOP}`);
  await filled(page, "top");
  assert.deepEqual((await decides(page)).map(({ placements }) => placements.map(({ id }) => id)), [["top"]]);
  await close(page);
});

test("an_old_browser_s_call_has_no_time_to_be_given_up_at", async () => {
  const page = await open(TOP, { init: [() => { delete AbortSignal.timeout; }] });
  await filled(page, "top");
  await close(page);
});

test("keywords_have_no_white_space_around_them", async () => {
  const page = await open(TOP, { head: '<meta name="keywords" content="\n  hotel,\n  sea and sun\t,,\n">' });
  await filled(page, "top");
  assert.deepEqual((await decides(page))[0].page.keywords, ["hotel", "sea and sun"]);
  await close(page);
});

test("a_page_renders_its_own_ads_and_a_failing_renderer_loses_only_its_ad", async () => {
  const own = '<div id="own" data-causeway="own" data-sizes="160x600" style="width: 160px; height: 600px">house</div>';
  const renderer = () => {
    window.causeway = [(causeway) => {
      causeway.render = (element, { ad, placement }) => {
        if (placement === "side") throw new Error("hurt");
        if (!ad.creative.title) return false;
        element.textContent = ad.creative.title;
      };
    }, () => { throw new Error("the page's own fault"); }];
  };
  const page = await open(TOP + SIDE + own, { init: [renderer], tag: `${PATIENT} data-count="render"` });
  await filled(page, "top");
  assert.equal(await text(page, "own"), "Own");
  assert.equal(await text(page, "side"), "house");
  await shown(page, () => window.asked.filter(({ path }) => path.startsWith("/v1/i/")).length === 2);
  await close(page);
});

test("a_hostile_creative_reaches_neither_the_page_nor_its_storage", async () => {
  const page = await open('<div id="top" data-causeway="top" data-sizes="320x50"></div>', {
    init: [() => addEventListener("message", ({ data, origin }) => { window.heard = { data, origin }; })],
  });
  const heard = await shown(page, () => window.heard);
  assert.deepEqual(heard, { data: Array(5).fill("refused"), origin: "null" }, "its script ran, in a frame of no origin");
  assert.equal(await page.evaluate(() => window.hurt), undefined);
  assert.equal(page.url(), `${here.edge}/pages/one#part`);
  assert.equal(await page.locator("body > script").count(), 1, "the page's own");
  page.faults = page.faults.filter((fault) => !/sandboxed|Unsafe attempt|navigate/.test(fault));
  await close(page);
});

/* ---- impressions ---- */

describe("an_impression_counts_when_it_is_viewable", () => {
  /** Scrolls until `pixels` of an ad's height are in view, and waits until the tag's observer has seen it. */
  async function show(page, id, pixels) {
    await page.evaluate(([id, pixels]) => {
      const top = document.getElementById(id).getBoundingClientRect().top + scrollY;
      scrollTo(0, top + pixels - innerHeight);
    }, [id, pixels]);
    // The tag's observer is not notified of an ad that was already counted.
    if (await impressions(page)) return undefined;
    return shown(page, (id) => {
      const ad = window.adIn(`#${id}`);
      const { top, bottom, height } = ad.getBoundingClientRect();
      const ratio = Math.max(0, Math.min(bottom, innerHeight) - Math.max(top, 0)) / height;
      const level = (ratio) => [0.3, 0.5].filter((bound) => ratio >= bound).length;
      const look = window.looks.get(ad);
      return look && level(look.intersectionRatio) === level(ratio) && look.isVisible === level(ratio) > 0 && { ratio };
    }, id).then(({ ratio }) => ratio);
  }

  async function begin(placement) {
    const page = await open(FAR + placement + FAR, { clock: true });
    await filled(page, "top");
    await page.evaluate(() => window.adIn("#top").decode());
    await page.clock.pauseAt(3_600_000);
    assert.equal(await show(page, "top", 0), 0);
    return page;
  }

  test("half_of_it_for_a_second_without_a_break", async () => {
    const page = await begin(TOP);
    assert.ok(await show(page, "top", 44) < 0.5);
    await page.clock.runFor(10_000);
    assert.equal(await impressions(page), 0, "less than half");
    assert.ok(await show(page, "top", 46) >= 0.5);
    await page.clock.runFor(999);
    await show(page, "top", 10);
    await show(page, "top", 90);
    await page.clock.runFor(999);
    assert.equal(await impressions(page), 0, "twice less than a second");
    await show(page, "top", 60);
    await page.clock.runFor(1);
    assert.equal(await impressions(page), 1);
    await page.clock.runFor(10_000);
    await show(page, "top", 0);
    await show(page, "top", 90);
    await page.clock.runFor(10_000);
    assert.equal(await impressions(page), 1, "once");
    const ask = { visitor: await visitor(page), actions: ["impression"], last: { interval: 2, unit: "days" }, level: "ad", ids: [1] };
    await until("the impression at the origin", async () => (await admin("counts", ask))?.counts["1"] === 1);
    await close(page);
  });

  test("a_hidden_page_shows_nothing", async () => {
    const page = await begin(TOP);
    await show(page, "top", 90);
    await page.clock.runFor(999);
    await page.evaluate(() => window.hide(true));
    await page.clock.runFor(10_000);
    assert.equal(await impressions(page), 0);
    await page.evaluate(() => window.hide(false));
    await page.clock.runFor(999);
    assert.equal(await impressions(page), 0, "a new second has begun");
    await page.clock.runFor(1);
    assert.equal(await impressions(page), 1);
    await close(page);
  });

  test("one_that_has_no_size_yet_is_looked_at_again_also_after_the_page_was_hidden", async () => {
    const renderer = () => {
      window.causeway = [(causeway) => { causeway.render = () => { window.isRendered = true; }; }];
    };
    const page = await open('<div id="top" data-causeway="top" data-sizes="728x90" style="width: 728px"></div>', { clock: true, init: [renderer] });
    await shown(page, () => window.isRendered);
    await page.clock.pauseAt(3_600_000);
    for (const hidden of [true, false]) await page.evaluate((hidden) => window.hide(hidden), hidden);
    await page.evaluate(() => { document.querySelector("#top").style.height = "90px"; });
    await until("the impression", async () => {
      await page.clock.runFor(1_000);
      return (await impressions(page)) === 1;
    });
    await close(page);
  });

  test("three_tenths_of_a_large_one", async () => {
    const page = await begin('<div id="top" data-causeway="top" data-sizes="970x250"></div>');
    await show(page, "top", 74);
    await page.clock.runFor(10_000);
    assert.equal(await impressions(page), 0);
    await show(page, "top", 76);
    await page.clock.runFor(600);
    await show(page, "top", 200);
    await page.clock.runFor(400);
    assert.equal(await impressions(page), 1, "more of it begins no new second");
    await close(page);
  });
});

/* ---- events ---- */

describe("events_reach_the_origin", () => {
  test("calls_queued_before_the_script_are_sent_after_the_visitor_is_known", async () => {
    const early = () => { window.causeway = [(causeway) => {
      causeway.track("purchase", { value_micros: 49_900_000 });
      causeway.track("circle", window.causeway);
      causeway.track("huge", { text: "x".repeat(30_000) });
      causeway.page();
    }]; };
    const page = await open("", { init: [early] });
    await shown(page, () => window.asked.some(({ path }) => path === "/v1/events"));
    const [{ path, body }] = await asked(page, "/v1/events");
    assert.equal(path, "/v1/events");
    const events = JSON.parse(body);
    assert.deepEqual(events.map(({ type, name }) => [type, name]), [["track", "purchase"], ["track", "circle"], ["page", undefined]]);
    assert.equal(new Set(events.map(({ id }) => id)).size, 3);
    for (const { id } of events) assert.match(id, /^[0-9a-f]{8}-/);
    await pages(page, 2);
    const { own } = await admin(`visitors/${await visitor(page)}`);
    assert.deepEqual([own.purchases, own.revenue_micros], [1, 49_900_000]);
    await close(page);
  });

  test("they_leave_in_batches_when_the_page_is_hidden_and_refused_ones_are_tried_again", async () => {
    const page = await open("", { clock: true });
    await decided(page, 1);
    await until("a visitor", () => visitor(page));
    await page.clock.pauseAt(3_600_000);
    await page.evaluate(() => {
      window.refusing = true;
      // The first event has the maximum length.
      const none = { type: "track", name: "read", properties: { text: "", i: 0 }, id: crypto.randomUUID() };
      window.causeway.track("read", { text: "x".repeat(20_000 - JSON.stringify(none).length), i: 0 });
      for (let i = 1; i < 30; i += 1) window.causeway.track("read", { text: "ü".repeat(700), i });
      window.hide(true);
    });
    const sent = async () => (await asked(page, "/v1/events")).map(({ body }) => body);
    const [refused, ...more] = await sent();
    assert.deepEqual(more, [], "one try at a time");
    await page.evaluate(() => { window.refusing = false; });
    await page.clock.runFor(5_000);
    const [again, ...rest] = (await sent()).slice(1);
    assert.equal(again, refused, "the same events, with their ids");
    for (const body of [again, ...rest]) assert.ok(Buffer.byteLength(body) < 64_000);
    const numbers = [again, ...rest].flatMap((body) => JSON.parse(body).map(({ properties }) => properties.i));
    assert.deepEqual(numbers, Array.from({ length: 30 }, (_, i) => i), "each once, in order");
    await close(page);
  });

  /** A page on which a member is logged in, and its visitor. */
  async function openAs(member) {
    const { proof } = await (await fetch(`${here.edge}/demo/proof?member=${member}`)).json();
    const early = new Function(`window.causeway = [(causeway) => causeway.identify(${JSON.stringify({ member })}, ${JSON.stringify({ member: proof })})];`);
    const page = await open("", { init: [`(${early})()`] });
    await decided(page, 1);
    return { page, ann: await until("a visitor", () => visitor(page)) };
  }

  /** Another member logs in on the page. */
  async function logIn(page, member) {
    const { proof } = await (await fetch(`${here.edge}/demo/proof?member=${member}`)).json();
    await page.evaluate(([member, proof]) => window.causeway.identify({ member }, { member: proof }), [member, proof]);
  }

  const visitorAfter = (page, before) => until("another visitor", async () => {
    const now = await visitor(page);
    return now !== before && now;
  });

  const purchases = async (visitor) => (await admin(`visitors/${visitor}`))?.own?.purchases ?? 0;
  const buy = (page, name) => page.evaluate((name) => window.causeway.track(name, { value_micros: 9_000_000 }, "m-7"), name);

  for (const [how, isTaken] of [["could_not_be_sent", false], ["arrived_without_its_answer", true]]) {
    test(`a_purchase_that_${how}_counts_once_for_its_visitor_after_another_member_logged_in`, async () => {
      const { page, ann } = await openAs(`ann-${how}`);
      let tries = 0;
      await page.context().route("**/v1/events", async (route) => {
        tries += 1;
        if (tries > 1) return route.continue();
        if (isTaken) await route.fetch();
        return route.abort();
      });
      await buy(page, "purchase");
      await until("a try", async () => (await asked(page, "/v1/events")).length === 1);
      await logIn(page, `bob-${how}`);
      const bob = await visitorAfter(page, ann);
      await buy(page, "saved");
      await until("both are sent", async () => (await asked(page, "/v1/events")).length === 2);
      await until("the purchase counts", async () => (await purchases(ann)) === 1);
      await until("Bob's event counts", () => admin(`visitors/${bob}`));
      const sent = (await asked(page, "/v1/events")).flatMap(({ body }) => JSON.parse(body));
      const tokens = new Map(sent.map(({ name, visitor_token }) => [name, visitor_token]));
      assert.notEqual(tokens.get("purchase"), tokens.get("saved"));
      assert.deepEqual([await purchases(ann), await purchases(bob)], [1, 0]);
      page.faults = page.faults.filter((fault) => !fault.includes("net::ERR_FAILED"));
      await close(page);
    });
  }

  test("an_event_between_a_login_and_its_answer_waits_for_the_new_member", async () => {
    const { page, ann } = await openAs("ann-waits");
    let release;
    const released = new Promise((resolve) => (release = resolve));
    await page.context().route("**/v1/decide", async (route) => {
      await released;
      return route.continue();
    });
    await logIn(page, "bob-waits");
    await buy(page, "purchase");
    await page.evaluate(() => window.hide(true));
    assert.deepEqual(await asked(page, "/v1/events"), [], "the visitor of the event is not known yet");
    release();
    const bob = await visitorAfter(page, ann);
    await until("it counts for Bob", async () => (await purchases(bob)) === 1);
    assert.equal(await purchases(ann), 0);
    await close(page);
  });

  test("a_waiting_event_of_an_erased_visitor_is_dropped_and_counts_for_no_new_one", async () => {
    const page = await open("", { query: "?causeway_debug" });
    await decided(page, 1);
    const ann = await until("a visitor", () => visitor(page));
    let isLost = true;
    await page.context().route("**/v1/events", (route) => (isLost ? route.abort() : route.continue()));
    await buy(page, "purchase");
    await until("a try", async () => (await asked(page, "/v1/events")).length);
    const [{ visitor_token }] = JSON.parse((await asked(page, "/v1/events"))[0].body);
    await page.evaluate(() => fetch("/v1/me", { method: "DELETE" }));
    await until("the edge knows of the erasure", async () => {
      const body = JSON.stringify([{ type: "track", name: "probe", visitor_token }]);
      const answer = await fetch(`${here.edge}/v1/events`, { method: "POST", headers: network(), body });
      // The calls of one visitor are limited.
      await new Promise((resolve) => setTimeout(resolve, 500));
      return (await answer.json()).rejected?.[0]?.code === "erased";
    });
    isLost = false;
    await page.evaluate(() => history.pushState({}, "", "/pages/two"));
    const next = await visitorAfter(page, ann);
    await until("the event is refused", async () => (await visitor(page)) && page.warnings.some((warning) => /rejected.*erased/.test(warning)));
    await buy(page, "purchase");
    await until("the new visitor's event counts", async () => (await purchases(next)) > 0);
    assert.equal(await purchases(next), 1);
    page.faults = page.faults.filter((fault) => !fault.includes("net::ERR_FAILED"));
    await close(page);
  });

  for (const [how, hidden, init] of [["of_a_page_that_is_seen", false, []], ["without_send_beacon", true, [() => { navigator.sendBeacon = undefined; }]]]) {
    test(`those_${how}_come_back_when_the_edge_could_not_take_them`, async () => {
      const refused = [503, 429];
      const answers = [(route) => route.abort(), ...refused.map((status) => (route) => route.fulfill({ status, body: "{}" }))];
      const page = await open("", { clock: true, init });
      await page.context().route("**/v1/events", (route) => (answers.shift() ?? ((last) => last.continue()))(route));
      await decided(page, 1);
      await until("a visitor", () => visitor(page));
      await page.clock.pauseAt(3_600_000);
      const failed = page.waitForEvent("requestfailed");
      await page.evaluate((hidden) => { window.causeway.track("purchase", { value_micros: 1 }, "order-7"); if (hidden) window.hide(true); }, hidden);
      await page.clock.runFor(1_000);
      await failed;
      for (const status of refused) {
        const answered = page.waitForResponse("**/v1/events");
        await page.clock.runFor(5_000);
        assert.equal((await answered).status(), status);
      }
      const again = page.waitForResponse("**/v1/events");
      await page.clock.runFor(5_000);
      await page.clock.runFor(5_000);
      assert.equal((await again).status(), 202);
      const bodies = (await asked(page, "/v1/events")).map(({ body }) => body);
      assert.deepEqual([bodies.length, new Set(bodies).size, JSON.parse(bodies[0])[0].id], [4, 1, "order-7"], "the same event");
      page.faults = page.faults.filter((fault) => !/503|429|ERR_FAILED/.test(fault));
      await close(page);
    });
  }

  test("they_wait_until_the_edge_has_served_and_it_is_asked_again", async () => {
    const early = () => { window.causeway = [(causeway) => causeway.track("purchase", { value_micros: 7 }, 8)]; };
    const unserved = ["overloaded", "mint_limited", "forgotten", "retry"].map((reason) => (route) =>
      route.fulfill({ body: JSON.stringify({ visitor: null, decisions: [], consent: "full", reason }), contentType: "application/json" }));
    const answers = [(route) => route.abort(), ...unserved];
    let [gone, reached] = [true, false];
    const decide = (route) => {
      if (gone) return (answers.shift() ?? ((one) => one.abort()))(route);
      reached = true;
      return route.continue();
    };
    const page = await open("", { clock: true, init: [early], decide });
    await decided(page, 1);
    await page.clock.runFor(1_000_000);
    await decided(page, 6);
    const calls = (await decides(page)).length;
    assert.ok(calls < 12, `${calls} calls: each after twice as long`);
    assert.deepEqual(await asked(page, "/v1/events"), [], "the visitor of the events is not known");
    gone = false;
    // One second at a time: an answer takes real time, and a clock that runs ahead would end the call.
    while (!reached) await page.clock.runFor(1_000);
    const id = await until("a visitor", () => visitor(page));
    await until("the purchase", async () => {
      await page.clock.runFor(1_000);
      return (await admin(`visitors/${id}`))?.own.revenue_micros === 7;
    });
    assert.equal(JSON.parse((await asked(page, "/v1/events"))[0].body)[0].id, "8");
    page.faults = page.faults.filter((fault) => !fault.includes("ERR_FAILED"));
    await close(page);
  });
});

/* ---- going from page to page without loading one ---- */

for (const [how, init] of [["with_the_navigation_api", []], ["without_it", [() => { Object.defineProperty(window, "navigation", { value: undefined }); }]]]) {
  test(`another_address_is_a_page_view_and_decides_again_${how}`, async () => {
    const page = await open(TOP + SIDE, { init });
    const insertions = async () => page.locator("#top > a").getAttribute("href");
    await filled(page, "side");
    const first = await insertions();
    await page.evaluate(() => { location.hash = "other-part"; history.pushState({}, "", "/pages/two?x=1#part"); });
    await shown(page, (first) => ![null, first].includes(window.adIn("#top")?.parentElement.getAttribute("href")), first);
    await page.evaluate(() => { history.replaceState({ page: "the same" }, ""); document.querySelector("#side").remove(); });
    await page.evaluate((html) => document.body.insertAdjacentHTML("beforeend", html.replaceAll("side", "late")), SIDE);
    await filled(page, "late");
    await page.evaluate(() => history.back());
    await decided(page, 4);
    // A page from the browser's cache; a browser that a test controls caches no page.
    await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
    await decided(page, 5);
    const calls = await decides(page);
    assert.deepEqual(calls.map(({ page_view }) => page_view), [true, true, false, true, true]);
    const names = calls.map(({ placements }) => placements.map(({ id }) => id).join());
    assert.deepEqual(names, ["top,side", "top,side", "late", "top,late", "top,late"]);
    const [one, two] = [`${here.edge}/pages/one`, `${here.edge}/pages/two?x=1`];
    assert.deepEqual(calls.map(({ page }) => [page.url, page.referrer]), [[one, ""], [two, one], [two, one], [one, two], [one, ""]]);
    await pages(page, 4);
    await close(page);
  });
}

test("placements_that_come_later_get_no_ad_that_the_page_shows_already", async () => {
  const page = await open(TOP);
  await filled(page, "top");
  const late = (id) => page.evaluate((html) => document.body.insertAdjacentHTML("beforeend", html), TOP.replaceAll('"top"', `"${id}"`));
  await late("again");
  await decided(page, 2);
  // The only ad of the size is on the page, so the house content stays.
  await late("third");
  await decided(page, 3);
  const calls = await decides(page);
  const [{ insertion }] = calls[1].shown.map((insertion) => ({ insertion }));
  assert.deepEqual(calls.map(({ shown }) => shown), [[], [insertion], [insertion]]);
  assert.deepEqual([await text(page, "again"), await text(page, "third")], ["house", "house"]);
  // A placement outside the page no longer shows an ad.
  await page.evaluate(() => document.querySelector("#top").remove());
  await late("fourth");
  await filled(page, "fourth");
  assert.deepEqual((await decides(page))[3].shown, []);
  await close(page);
});

/* ---- consent ---- */

/** A TCF manager as in the head of a page; the test gives its answers. */
function managers() {
  window.listeners = { tcf: [], gpp: [] };
  window.__tcfapi = (command, _version, listener) => command === "addEventListener" && window.listeners.tcf.push(listener);
  window.sayTcf = (said) => window.listeners.tcf.forEach((listener) => listener({ gdprApplies: true, ...said }, true));
}

function platform() {
  window.spoken = [];
  window.__gpp = (command, listener) => {
    if (command === "addEventListener") window.spoken.push(listener);
    listener({ eventName: "listenerRegistered", pingData: { signalStatus: "not ready", gppString: "", applicableSections: [] } }, true);
  };
  window.sayGpp = (ping) => window.spoken.forEach((listener) => listener({ eventName: "signalStatus", pingData: { signalStatus: "ready", ...ping } }, true));
}

describe("consent_comes_from_the_page_s_consent_managers", () => {
  /** Gives a consent string through the TCF manager, and runs the page's clock until `come` holds. */
  async function says(page, tcString, come) {
    await shown(page, () => window.listeners.tcf.length === 1);
    await page.evaluate((tcString) => window.sayTcf({ eventStatus: "useractioncomplete", tcString }), tcString);
    await until("the effect of the consent string", async () => {
      await page.clock.runFor(100);
      return come();
    });
  }

  /** Keeps the ad in view for the time after which it counts. */
  async function look(page) {
    await page.evaluate(() => window.adIn("#top").decode());
    await page.evaluate(() => document.querySelector("#top").scrollIntoView());
    await shown(page, () => window.looks.get(window.adIn("#top"))?.isVisible);
    await page.clock.runFor(10_000);
  }

  test("the_visitor_is_anonymous_before_a_manager_answers_and_a_withdrawal_is_sent_at_once", async () => {
    const page = await open(TOP, { init: [managers], clock: true });
    await shown(page, () => window.listeners.tcf.length === 1);
    await page.clock.fastForward(PATIENCE);
    await filled(page, "top");
    await page.evaluate(() => window.sayTcf({ eventStatus: "cmpuishown", tcString: "" }));
    const [first] = await decides(page);
    assert.deepEqual([first.name, first.consent, first.user, first.page_view], ["omit", { tcf: "" }, undefined, undefined]);
    assert.deepEqual(await cookies(page), [], "a contextual ad, and no cookie");

    await page.evaluate((tcString) => window.sayTcf({ eventStatus: "useractioncomplete", tcString }), CONSENTS);
    await until("cookies", async () => (await cookies(page)).length === 2);
    await pages(page, 1);
    const id = await visitor(page);
    await page.evaluate((tcString) => window.sayTcf({ eventStatus: "useractioncomplete", tcString }), REFUSES);
    await until("no cookies", async () => (await cookies(page)).length === 0);
    const calls = await decides(page);
    assert.deepEqual(calls.slice(1).map(({ consent, page_view, placements }) => [consent.tcf, page_view, placements]),
      [[CONSENTS, true, []], [REFUSES, false, []]]);
    const held = await until("the withdrawal", async () => (await admin(`visitors/${id}`)));
    assert.equal(held.own.pages, 1);
    await close(page);
  });

  for (const late of [false, true]) test(`an_ad_that_${late ? "is_on_its_way" : "stands_there"}_reports_no_impression_after_a_withdrawal`, async () => {
    const page = await open(FAR + TOP, { init: [managers], clock: true });
    let come;
    const held = new Promise((resolve) => { come = resolve; });
    if (late) await page.context().route(/^https:/, async (route) => { await held; await route.fulfill({ contentType: "image/gif", body: PIXEL }); });
    await says(page, CONSENTS, async () => (await cookies(page)).length === 2);
    await filled(page, "top");
    if (!late) await page.evaluate(() => window.adIn("#top").decode());
    await says(page, REFUSES, async () => (await cookies(page)).length === 0);
    come();
    await look(page);
    assert.equal(await impressions(page), 0);
    await close(page);
  });

  for (const slow of [false, true]) test(`nor_does_it_while_the_edge_is_too_${slow ? "slow" : "busy"}_to_serve_the_withdrawal`, async () => {
    const page = await open(FAR + TOP, { init: [managers], clock: true });
    await says(page, CONSENTS, async () => (await cookies(page)).length === 2);
    await filled(page, "top");
    const body = JSON.stringify({ visitor: null, decisions: [], consent: "none", reason: "overloaded" });
    await page.context().route("**/v1/decide", (route) => slow || route.fulfill({ body, contentType: "application/json" }));
    const before = (await decides(page)).length;
    await says(page, REFUSES, async () => (await decides(page)).length > before);
    await look(page);
    assert.equal(await impressions(page), 0);
    assert.equal((await cookies(page)).length, 2);
    await close(page);
  });

  test("a_manager_that_refuses_in_time_gets_one_call_and_no_cookie", async () => {
    const refusing = (tcString) => { window.__tcfapi = (_command, _version, listener) => listener({ gdprApplies: true, eventStatus: "tcloaded", tcString }, true); };
    const page = await open(TOP, { init: [`(${refusing})(${JSON.stringify(REFUSES)})`] });
    await filled(page, "top");
    const calls = await decides(page);
    assert.deepEqual(calls.map(({ consent, page_view }) => [consent, page_view]), [[{ tcf: REFUSES }, true]]);
    assert.deepEqual(await cookies(page), []);
    await close(page);
  });

  test("events_wait_for_the_answer_to_what_the_visitor_said_last", async () => {
    const page = await open(TOP, { init: [managers] });
    await shown(page, () => window.listeners.tcf.length === 1);
    await page.evaluate((tcString) => window.sayTcf({ eventStatus: "tcloaded", tcString }), CONSENTS);
    await until("cookies", async () => (await cookies(page)).length === 2);
    let answer;
    const held = new Promise((resolve) => { answer = resolve; });
    await page.context().route("**/v1/decide", async (route) => { await held; await route.continue(); });
    await page.evaluate((tcString) => window.sayTcf({ eventStatus: "useractioncomplete", tcString }), REFUSES);
    await decided(page, 2);
    await page.evaluate(() => { window.causeway.track("read"); window.hide(true); window.hide(false); });
    assert.deepEqual(await asked(page, "/v1/events"), [], "not with the cookie that is about to go");
    answer();
    await until("no cookies", async () => (await cookies(page)).length === 0);
    await close(page);
  });

  test("a_manager_that_speaks_at_once_is_not_taken_for_the_last", async () => {
    const sure = () => { window.__tcfapi = (_command, _version, listener) => listener({ gdprApplies: false }, true); };
    const page = await open(TOP, { init: [sure, platform], clock: true });
    await shown(page, () => window.spoken.length === 1);
    await page.clock.runFor(1_000);
    assert.deepEqual(await decides(page), [], "it waits for the other manager");
    await page.evaluate((ping) => window.sayGpp(ping), SOLD);
    await filled(page, "top");
    assert.deepEqual((await decides(page)).map(({ name, consent }) => [name, consent.gpp]), [["include", SOLD.gppString]]);
    await close(page);
  });

  test("both_managers_of_a_page_must_have_spoken_and_either_can_refuse", async () => {
    const page = await open(TOP, { init: [managers, platform] });
    await shown(page, () => window.listeners.tcf.length === 1 && window.spoken.length === 1);
    await page.evaluate(() => window.sayTcf({ gdprApplies: false }));
    await page.evaluate((ping) => window.sayGpp(ping), SOLD);
    await filled(page, "top");
    await until("cookies", async () => (await cookies(page)).length === 2);
    await page.evaluate((ping) => window.sayGpp(ping), UNSOLD);
    await until("no cookies", async () => (await cookies(page)).length === 0);
    const signals = (await decides(page)).filter(({ name }) => name === "include").map(({ consent }) => consent);
    assert.deepEqual(signals, [SOLD, UNSOLD].map(({ gppString, applicableSections }) => ({ gpp: gppString, gpp_sid: applicableSections })));
    await close(page);
  });

  test("a_failing_manager_leaves_the_visitor_anonymous_and_the_page_intact", async () => {
    const hurting = () => { window.__gpp = () => { window.called = true; throw new Error("hurt"); }; };
    const page = await open(TOP, { init: [hurting], clock: true });
    await shown(page, () => window.called);
    await page.clock.fastForward(PATIENCE);
    await filled(page, "top");
    assert.deepEqual(await cookies(page), []);
    await close(page);
  });
});

/* ---- who it is, and how the tag comes ---- */

test("identify_names_the_member_in_the_calls_that_follow", async () => {
  const page = await open(TOP);
  await filled(page, "top");
  const member = `m${Date.now().toString(36)}`;
  const { proof } = await (await fetch(`${here.edge}/demo/proof?member=${member}`)).json();
  await page.evaluate(([member, proof]) => {
    window.causeway.identify({ member }, { member: proof });
    history.pushState({}, "", "/pages/account");
  }, [member, proof]);
  await decided(page, 2);
  assert.deepEqual((await decides(page)).map(({ user }) => user), [undefined, { ids: { member }, proofs: { member: proof } }]);
  const id = await visitor(page);
  await until("the lookup", async () => (await admin(`lookups/member/${member}`))?.visitor === id);
  await close(page);
});

test("an_id_that_a_page_does_not_have_costs_it_nothing", async () => {
  const early = () => { window.causeway = [(causeway) => causeway.identify({ member: 123, partner: null, other: "" }, { member: undefined })]; };
  const page = await open(TOP, { init: [early] });
  await filled(page, "top");
  assert.deepEqual((await decides(page)).map(({ user }) => user), [{ ids: { member: "123" }, proofs: {} }]);
  await close(page);
});

test("the_complete_page_of_docs_tag_md_works_unchanged", async () => {
  const html = block("html").replaceAll("https://ads.pub.example", here.edge).replace('data-timeout="800"', PATIENT);
  const page = await open("", { html });
  await shown(page, () => window.adIn("[data-causeway=top]") && window.adIn("[data-causeway=side]"));
  const [{ placements, page: sentPage, user }] = await decides(page);
  assert.deepEqual(placements, [
    { id: "top", view_type: "home", sizes: [[728, 90], [970, 250]] }, { id: "side", sizes: [[300, 250]], floor_micros: 100_000 },
  ]);
  assert.deepEqual(sentPage.keywords, ["hotel", "sea"]);
  assert.deepEqual(user, { ids: { member: "m-123" }, proofs: { member: "<JWS>" } });
  await page.getByRole("button", { name: "Buy" }).click();
  const names = async () => (await asked(page, "/v1/events")).flatMap(({ body }) => JSON.parse(body).map(({ name }) => name));
  await until("both events", async () => (await names()).join() === "search,purchase");
  await close(page);
});

test("the_tag_is_cached_by_its_content", async () => {
  const first = await fetch(`${here.edge}/causeway.js`);
  assert.equal(first.status, 200);
  const [type, cache, etag] = ["content-type", "cache-control", "etag"].map((name) => first.headers.get(name));
  assert.match(type, /^text\/javascript/);
  assert.equal(cache, "public, max-age=3600");
  assert.match(etag, /^(W\/)?"[0-9a-f]{32}"$/);
  assert.ok((await first.text()).length > 1_000);
  const again = await fetch(`${here.edge}/causeway.js`, { headers: { "if-none-match": etag } });
  assert.deepEqual([again.status, await again.text()], [304, ""]);
  const other = await fetch(`${here.edge}/causeway.js`, { headers: { "if-none-match": '"0"' } });
  assert.equal(other.status, 200);
});

test("the_npm_package_is_the_same_without_a_global", async () => {
  const page = await open(TOP, { html: `<!doctype html><title>module</title>${TOP}<script type="module" src="/pages/main.js"></script>` });
  await page.context().route("**/pages/*.js", async (route) => {
    const main = 'import { causeway, start } from "/pages/causeway.js"; start({ timeout: 30000 }); start({ edge: "https://other.example" }); causeway.track("read");';
    const name = route.request().url().split("/").pop();
    const body = name === "main.js" ? main : await readFile(new URL(`../../edge/tag/${name}`, import.meta.url));
    return route.fulfill({ contentType: "text/javascript", body });
  });
  page.faults = [];
  await page.reload();
  await filled(page, "top");
  await shown(page, () => window.asked.some(({ path }) => path === "/v1/events"));
  assert.equal(await page.evaluate(() => typeof window.causeway), "undefined");
  await close(page);
});
