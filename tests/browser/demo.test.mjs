// The demonstration page in a real browser, used like a person would: clicks and keys, and the effect on the page.
//
// Each wait is for something that the page shows. Two hostnames of one edge have separate cookies, like two browsers.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { chromium } from "playwright-core";

import { network, world } from "./world.mjs";

const CHROMIUM = process.env.CAUSEWAY_CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
/** Time for something to appear: the dev origin publishes siblings after two seconds, on a busy machine later. */
const PATIENCE = 30_000;
const START = 20 * 60_000;

let here;
let browser;
/** Replaces the browser's own, because `HeadlessChrome` counts as a declared bot, which is answered but not counted. */
let userAgent;
let members = 0;

before(async () => {
  here = await world();
  // If no folder is given, Playwright creates a new one and removes it at the end.
  browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  userAgent = `Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/${browser.version()} Safari/537.36`;
}, { timeout: START });

after(async () => {
  await browser?.close();
  await here?.stop();
}, { timeout: 60_000 });

/** A new person's browser without cookies and storage. */
async function fresh(options = {}) {
  const context = await browser.newContext({ userAgent, extraHTTPHeaders: network(), ...options });
  context.setDefaultTimeout(PATIENCE);
  return context;
}

/** A member that is new in this world. */
function newMember() {
  members += 1;
  return `m${Date.now().toString(36)}-${members}`;
}

async function open(context, member, at = here.edge) {
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.message));
  page.faults = faults;
  await page.goto(`${at}/demo`);
  if (member) await page.getByLabel("Member", { exact: true }).fill(member);
  return page;
}

const on = (page, id) => page.getByTestId(id);

/** Waits until an element shows `wanted`, a text or a pattern. */
async function shows(page, id, wanted) {
  const pattern = wanted instanceof RegExp ? wanted.source : null;
  const read = ([name, text, source]) => {
    const shown = document.querySelector(`[data-testid="${name}"]`)?.innerText.trim();
    return shown !== undefined && (source === null ? shown === text : new RegExp(source).test(shown));
  };
  try {
    await page.waitForFunction(read, [id, pattern === null ? wanted : "", pattern], { polling: 100, timeout: PATIENCE });
  } catch {
    const shown = (await on(page, id).count()) ? await on(page, id).innerText() : "nothing";
    const messages = [await on(page, "said").innerText(), await on(page, "activity").innerText()].join("\n");
    assert.fail(`${id} shows ${JSON.stringify(shown)}, not ${wanted}. The page says: ${messages}`);
  }
}

/** Waits until a step is green; returns the lookups and profiles that it shows. */
async function done(page, step) {
  await shows(page, `step-${step}-state`, "✓ the same");
  return { lookups: await on(page, `step-${step}-lookups`).innerText(), profiles: await on(page, `step-${step}-profiles`).innerText() };
}

async function secondBrowser(context, page) {
  const [second] = await Promise.all([context.waitForEvent("page"), on(page, "second-browser").click()]);
  second.faults = [];
  second.on("pageerror", (error) => second.faults.push(error.message));
  await shows(second, "role", "second browser, “def”");
  return second;
}

/** Performs the first three steps of the table, up to the purchase. */
async function firstThree(page) {
  await on(page, "view-page").click();
  await done(page, 1);
  await on(page, "login").click();
  await done(page, 2);
  await on(page, "buy").click();
  await done(page, 3);
}

describe("the_sample_flow_step_by_step", () => {
  let context;
  let abc;
  let def;
  let member;

  before(async () => {
    context = await fresh();
    // In a world that other tests use, member 123 may have a history.
    member = here.own ? "123" : newMember();
    abc = await open(context, here.own ? null : member);
  });
  after(() => context.close());

  test("step_1_a_visit_gets_cookie_abc", async () => {
    await shows(abc, "visitor", "none yet");
    await shows(abc, "lookup-empty", "[empty]");
    await on(abc, "view-page").click();
    assert.deepEqual(await done(abc, 1), { lookups: "[empty]", profiles: "abc → {1 page}" });
    await shows(abc, "visitor", /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-/);
    // One read if the isolate must read the pointer of the catalogue first.
    await shows(abc, "served-kv-reads", /^[01]$/);
    await shows(abc, "ad", /Your own advertisement/);
  });

  test("step_2_a_login_writes_the_lookup", async () => {
    await on(abc, "login").click();
    assert.deepEqual(await done(abc, 2), { lookups: `${member} → abc`, profiles: "abc → {2 pages}" });
    await shows(abc, "lookup-visitor", new RegExp(`^abc \\(${await on(abc, "visitor").innerText()}\\)$`));
    await shows(abc, "served-devices", "1");
    await shows(abc, "served-bridged", "no");
  });

  test("step_3_a_purchase_is_counted", async () => {
    await on(abc, "buy").click();
    assert.deepEqual(await done(abc, 3), { lookups: `${member} → abc`, profiles: "abc → {2 pages, 1 $}" });
    await shows(abc, "abc-own-revenue_micros", "1.00\u00a0$");
  });

  test("step_4_another_browser_gets_cookie_def", async () => {
    def = await secondBrowser(context, abc);
    await shows(def, "visitor", "none yet");
    await on(def, "view-page").click();
    const row = { lookups: `${member} → abc`, profiles: "abc → {2 pages, 1 $}\ndef → {1 page}" };
    assert.deepEqual(await done(def, 4), row);
    assert.deepEqual(await done(abc, 4), row, "the first browser's page shows the same");
    assert.notEqual(await on(def, "visitor").innerText(), await on(abc, "visitor").innerText());
    await shows(def, "served-view", "only shown with the member’s proof");
  });

  test("step_5_a_login_there_serves_both_histories_at_once", async () => {
    await on(def, "login").click();
    // The edge's answer before the origin can know: two sequential reads, and both histories.
    await shows(def, "served-kv-reads", "2");
    await shows(def, "served-devices", "2");
    await shows(def, "served-bridged", "yes");
    await shows(def, "served-view", "{4 pages, 1 $}, 1.00\u00a0$");
    await shows(def, "served-own", "{2 pages}, 0.00\u00a0$");
    const row = { lookups: `${member} → def`, profiles: "abc → {2 pages, 1 $}\ndef → {4 pages, 1 $}" };
    assert.deepEqual(await done(def, 5), row);
    assert.deepEqual(await done(abc, 5), row);
  });

  test("the_merge_rewrote_no_profile_and_counts_two_devices", async () => {
    await shows(def, "abc-own-pages", "2");
    await shows(def, "abc-own-purchases", "1");
    await shows(def, "def-own-pages", "2");
    await shows(def, "def-own-purchases", "0");
    await shows(def, "def-view-pages", "4");
    await shows(def, "abc-devices", "2");
    await shows(def, "def-devices", "2");
    await shows(abc, "def-view-purchases", "1");
  });

  test("the_next_request_reads_once", async () => {
    await on(def, "view-page").click();
    await shows(def, "served-own", /^\{3 pages\}/);
    await shows(def, "served-kv-reads", "1");
    await shows(def, "served-view", /^\{5 pages, 1 \$\}/);
  });

  test("back_on_the_first_browser_nothing_is_lost_or_doubled", async () => {
    await on(abc, "view-page").click();
    await shows(abc, "served-own", "{3 pages, 1 $}, 1.00\u00a0$");
    await shows(abc, "served-view", "{6 pages, 1 $}, 1.00\u00a0$");
    await shows(abc, "lookup-visitor", /^abc /);
  });

  test("the_pages_ran_without_an_error_and_logged_what_they_asked", async () => {
    assert.deepEqual([...abc.faults, ...def.faults], []);
    const log = await on(abc, "activity").innerText();
    for (const part of ["POST /v1/decide", "POST /v1/events", "GET /demo/proof", "200", "202", "KV reads"]) {
      assert.ok(log.includes(part), `${part} is missing in ${log}`);
    }
  });
});

test("the_second_browser_stays_second_when_it_is_opened_before_the_first_has_a_visitor", async () => {
  const context = await fresh();
  const abc = await open(context, newMember());
  const def = await secondBrowser(context, abc);
  await on(def, "view-page").click();
  await shows(def, "def-own-pages", "1");
  await on(abc, "view-page").click();
  // The two pages notify each other.
  await shows(def, "abc-own-pages", "1");
  await shows(abc, "def-own-pages", "1");
  await shows(abc, "role", "first browser, “abc”");
  await def.reload();
  await shows(def, "abc-own-pages", "1");
  await shows(def, "role", "second browser, “def”");
  assert.deepEqual([...abc.faults, ...def.faults], []);
  await context.close();
});

test("two_first_party_cookies_arrive_and_no_script_reads_them", async () => {
  const context = await fresh();
  const page = await open(context);
  const answered = page.waitForResponse((response) => response.url().endsWith("/v1/decide"));
  await on(page, "view-page").click();
  const headers = await (await answered).headersArray();
  const set = headers.filter(({ name }) => name.toLowerCase() === "set-cookie").map(({ value }) => value);
  assert.equal(set.length, 2, `two headers, not ${JSON.stringify(set)}`);

  const cookies = await context.cookies();
  assert.deepEqual(cookies.map(({ name }) => name).sort(), ["cw_id", "cw_recent"]);
  for (const cookie of cookies) {
    assert.equal(cookie.httpOnly, true, cookie.name);
    assert.equal(cookie.sameSite, "Lax", cookie.name);
    assert.equal(cookie.path, "/", cookie.name);
    assert.equal(cookie.domain, "localhost", "only of this host");
    assert.match(cookie.value, /^v1\.\d+\.[\w-]+\.[\w-]+$/, cookie.name);
  }
  const days = (name) => (cookies.find((cookie) => cookie.name === name).expires - Date.now() / 1_000) / 86_400;
  assert.ok(days("cw_id") > 399 && days("cw_id") <= 400, "400 days at most");
  assert.ok(days("cw_recent") > 0.9 && days("cw_recent") <= 1, "one day");
  assert.equal(await page.evaluate(() => document.cookie), "");
  await context.close();
});

test("a_reload_keeps_the_visitor_and_counts_nothing", async () => {
  const context = await fresh();
  const page = await open(context, newMember());
  await on(page, "view-page").click();
  await done(page, 1);
  const visitor = await on(page, "visitor").innerText();
  await page.reload();
  await shows(page, "visitor", visitor);
  await shows(page, "step-1-state", "✓ the same");
  await shows(page, "abc-own-pages", "1");
  await context.close();
});

test("gpc_gets_no_cookie_and_removes_the_existing_one", async () => {
  const refusing = await fresh({ extraHTTPHeaders: { "Sec-GPC": "1" } });
  const page = await open(refusing);
  await on(page, "view-page").click();
  await shows(page, "served-visitor", "none: gpc");
  await on(page, "buy").click();
  await shows(page, "said", /no_consent/);
  assert.deepEqual(await refusing.cookies(), []);
  await shows(page, "ad", /Your own advertisement/);
  await refusing.close();

  const changing = await fresh();
  const other = await open(changing);
  await on(other, "view-page").click();
  await shows(other, "abc-own-pages", "1");
  assert.equal((await changing.cookies()).length, 2);
  await changing.setExtraHTTPHeaders({ "Sec-GPC": "1" });
  await on(other, "view-page").click();
  await shows(other, "served-visitor", "none: gpc");
  assert.deepEqual(await changing.cookies(), []);
  await changing.close();
});

test("a_purchase_sent_again_counts_once", async () => {
  const context = await fresh();
  const page = await open(context, newMember());
  await firstThree(page);
  await on(page, "buy-again").click();
  await shows(page, "said", /counted once/);
  await on(page, "buy").click();
  // This page view follows all three purchases in the queue: when it is counted, they are counted too.
  await on(page, "view-page").click();
  await shows(page, "abc-own-pages", "3");
  await shows(page, "abc-own-purchases", "2");
  await shows(page, "abc-own-revenue_micros", "2.00\u00a0$");
  await context.close();
});

test("after_log_out_the_joined_view_is_no_longer_shown", async () => {
  const context = await fresh();
  const page = await open(context, newMember());
  await on(page, "login").click();
  await shows(page, "served-view", /^\{1 page\}/);
  await on(page, "logout").click();
  await shows(page, "served-view", "only shown with the member’s proof");
  await shows(page, "login-state", "logged out");
  await context.close();
});

test("the_page_is_usable_with_the_keyboard_alone", async () => {
  const context = await fresh();
  const page = await open(context);
  const focused = () => page.evaluate(() => document.activeElement.dataset.testid);
  const order = ["view-page", "member", "login", "buy", "second-browser"];
  for (const id of order) {
    await page.keyboard.press("Tab");
    assert.equal(await focused(), id);
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(outline, "none", `${id} shows its focus`);
    if (id === "view-page") await page.keyboard.press("Enter");
    if (id === "member") await page.keyboard.type(newMember());
    if (id === "login") await page.keyboard.press("Space");
    if (id === "login") await shows(page, "login-state", /^logged in as/);
    if (id === "login") await page.keyboard.press("Tab");
  }
  await shows(page, "abc-own-pages", "2");
  await context.close();
});

test("every_control_and_table_has_a_name_and_headings_a_hierarchy", async () => {
  const context = await fresh();
  const page = await open(context);
  await on(page, "view-page").click();
  await shows(page, "abc-own-pages", "1");
  const session = await context.newCDPSession(page);
  const { nodes } = await session.send("Accessibility.getFullAXTree");
  const wanted = new Set(["button", "link", "textbox", "table", "region", "list", "heading"]);
  const seen = nodes.filter(({ ignored, role }) => !ignored && wanted.has(role?.value));
  const nameless = seen.filter(({ name }) => !name?.value?.trim()).map(({ role }) => role.value);
  assert.deepEqual(nameless, []);
  assert.ok(seen.filter(({ role }) => role.value === "table").length >= 4);
  for (const name of ["View a page", "Log out", "Buy for 1 $", "Send that purchase again"]) {
    assert.equal(await page.getByRole("button", { name, exact: true }).count(), 1, name);
  }
  assert.equal(await page.getByRole("textbox", { name: "Member" }).count(), 1);
  assert.equal(await page.getByRole("link", { name: "Open the second browser" }).count(), 1);
  assert.equal(await page.getByRole("rowheader", { name: /^2\. User logs in/ }).count(), 1);
  const levels = await page.evaluate(() => [...document.querySelectorAll("h1, h2, h3")].map((h) => Number(h.tagName[1])));
  assert.equal(levels[0], 1);
  assert.ok(levels.every((level, i) => i === 0 || level <= levels[i - 1] + 1));
  assert.equal(await page.getAttribute("html", "lang"), "en");
  await context.close();
});

for (const colorScheme of ["light", "dark"]) {
  test(`text_has_enough_contrast_in_${colorScheme}`, async () => {
    const context = await fresh({ colorScheme });
    const page = await open(context, newMember());
    await on(page, "view-page").click();
    await done(page, 1);
    assert.deepEqual(await page.evaluate(faint), [], "WCAG 2.2 asks for 4.5 to 1");
    await context.close();
  });
}

/** Runs in the page: texts with a contrast below 4.5 to 1. Disabled controls are excepted, as in WCAG 1.4.3. */
function faint() {
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      const [, , , alpha = 1] = parts(colour);
      if (alpha > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    const text = texts.currentNode.data.trim();
    if (text === "" || !node.checkVisibility() || node.closest(":disabled, script, style")) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${text} (${((a + 0.05) / (b + 0.05)).toFixed(1)})`);
  }
  return found;
}

// This test comes last, because a world of its own does not get its origin back.
test("the_page_continues_without_the_origin", async (t) => {
  if (!here.own) return t.skip("only in a world of its own: CAUSEWAY_READY_FILE is set");
  const context = await fresh();
  const page = await open(context, newMember());
  await shows(page, "origin-status", "origin answers");
  process.kill(here.pids.origin, "SIGKILL");
  await shows(page, "origin-status", /^origin not reachable/);
  await on(page, "view-page").click();
  await shows(page, "served-own", /^\{1 page\}/);
  await on(page, "login").click();
  await shows(page, "served-own", /^\{2 pages\}/);
  await on(page, "buy").click();
  await shows(page, "said", "The purchase is safe in the queue.");
  assert.deepEqual(page.faults, []);
  await context.close();
});

test("the_demonstration_page_reports_a_filtered_bot", async () => {
  const context = await fresh({ userAgent: "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36 Chrome-Lighthouse" });
  const page = await open(context);
  await page.getByRole("button", { name: "View a page" }).click();
  await page.getByText("Filtered: bot.").waitFor();
  await context.close();
});
