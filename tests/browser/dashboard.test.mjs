// The origin's dashboard in a real browser, as an administrator uses it, over an origin that real pages have called.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

import { network, world } from "./world.mjs";

const CHROMIUM = process.env.CAUSEWAY_CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"];
const PATIENCE = 30_000;
const START = 20 * 60_000;

/** A campaign with a budget, and a test of two arms. */
const ADS = `
[[advertiser]]
id = "shoes"
[[campaign]]
id = "summer"
advertiser = "shoes"
bid = { cpm_micros = 300_000 }
daily_budget_micros = 50_000_000
[[ad_group]]
id = "red"
campaign = "summer"
[[experiment]]
id = "prices"
starts = 1
arm = [{ id = "none", code = 1, share = 5000, control = true }, { id = "low", code = 2, share = 5000 }]
[[ad]]
id = "a-1"
ad_group = "red"
sizes = [[728, 90]]
landing = "https://shoes.example/"
creative = { text = "from 20" }
`;

let here;
let browser;
let page;
let visitor;
const faults = [];

before(async () => {
  here = await world({ "ads.toml": ADS });
  const call = { method: "POST", headers: { "content-type": "application/json", ...network() }, body: '{"page":{},"placements":[{"id":"a","sizes":[[728,90]]}]}' };
  ({ visitor } = await (await fetch(`${here.edge}/v1/decide`, call)).json());
  browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (line) => line.type() === "error" && !line.text().includes("401") && faults.push(line.text()));
  await page.goto(here.origin);
}, { timeout: START });

after(async () => {
  await browser?.close();
  await here?.stop();
}, { timeout: 60_000 });

/** Waits until a place shows what is wanted, and gives all that it shows. */
async function shows(place, wanted) {
  try {
    await page.locator(place).filter({ hasText: wanted }).first().waitFor();
  } catch {
    assert.fail(`${place} shows ${JSON.stringify(await page.locator(place).allInnerTexts())}, not ${wanted}`);
  }
  return page.locator(place).first().innerText();
}

async function use(token, tenant = "") {
  await page.getByLabel("Token").fill(token);
  await page.getByLabel("Tenant").fill(tenant);
  await page.getByRole("button", { name: "Use" }).click();
}

test("without_a_token_it_says_how_the_origin_is_and_what_is_missing", async () => {
  await shows("#health", "Takes syncs");
  await shows("#said", "causeway token create");
  assert.equal(await page.getByRole("heading", { name: "Jobs" }).isVisible(), false);
});

test("a_token_that_is_none_is_refused_in_words", async () => {
  await use("0".repeat(64));
  await shows("#said", /token/);
});

test("with_a_token_it_shows_jobs_catalogue_budgets_and_experiments", async () => {
  await use(here.token);
  await shows("#said", /tenant/);
  await use(here.token, "demo");
  for (const job of ["reconcile", "trim", "verify"]) await shows("#jobs", job);
  await shows("#versions", "current");
  assert.match(await shows("#budgets", "summer"), /50\.00/);
  const arms = await shows("#experiments", "none (control)");
  assert.match(arms, /prices[\s\S]*50\.00 %/);
});

test("a_plan_of_a_job_is_shown_before_it_is_run_and_a_run_is_asked_for_twice", async () => {
  await page.getByRole("button", { name: "Plan reconcile" }).click();
  await shows("#report", /reconcile \(plan\): done/);
  const asked = [];
  page.once("dialog", (dialog) => (asked.push(dialog.message()), dialog.dismiss()));
  await page.getByRole("button", { name: "Run trim" }).click();
  assert.match(asked[0], /Run trim\?/);
  page.once("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "Run trim" }).click();
  await shows("#report", /trim: done/);
});

test("a_job_shows_the_chosen_tenant_s_run_and_no_other_tenant_s", async () => {
  const train = (tenant) => `${here.origin}/admin/v1/jobs/train?tenant=${tenant}&dry_run=true`;
  const answer = await fetch(train("strict"), { method: "POST", headers: { authorization: `Bearer ${here.token}` } });
  assert.equal(answer.status, 202);
  await use(here.token, "strict");
  await shows("#jobs tr:has-text('train')", /\(plan\)|waits| of /);
  await use(here.token, "demo");
  await shows("#jobs tr:has-text('train')", "never");
});

test("a_visitor_is_looked_up_and_one_that_is_not_there_is_told_of", async () => {
  await page.getByRole("textbox", { name: "Id" }).fill(visitor);
  // Its page view comes by the queue, after a second.
  for (const end = Date.now() + PATIENCE; ; ) {
    assert.ok(Date.now() < end, await page.locator("#person").innerText());
    await page.getByRole("button", { name: "Look up" }).click();
    const found = page.locator("#person").filter({ hasText: "1 pages" });
    if (await found.waitFor({ timeout: 1_000 }).then(() => true, () => false)) break;
  }
  assert.match(await page.locator("#person").innerText(), new RegExp(`${visitor}[\\s\\S]*1 devices`));
  await page.getByLabel("Kind").fill("member");
  await page.getByRole("textbox", { name: "Id" }).fill("nobody");
  await page.getByRole("button", { name: "Look up" }).click();
  await shows("#said", /./);
  assert.equal(await page.locator("#person").isVisible(), false, "the one of before stands there still");
});

test("what_a_token_or_a_tenant_showed_goes_with_it", async () => {
  await page.getByLabel("Kind").fill("visitor");
  await page.getByRole("textbox", { name: "Id" }).fill(visitor);
  await page.getByRole("button", { name: "Look up" }).click();
  await shows("#person", visitor);
  await use(here.token, "strict");
  await shows("#versions", "none");
  assert.equal(await page.locator("#person").isVisible(), false, "demo's person under another tenant's name");
  await use("0".repeat(64), "demo");
  await shows("#said", /token/);
  for (const place of ["#versions", "#budgets", "#jobs", "#report"]) assert.equal(await page.locator(place).isVisible(), false, place);
  await use(here.token, "demo");
  await shows("#versions", "current");
});

test("an_audience_is_estimated_and_a_filter_that_is_none_is_refused", async () => {
  await page.getByLabel("Filter").fill('{"devices": {"$gte": 1}}');
  await page.getByRole("button", { name: "Estimate" }).click();
  await shows("#estimate", /About \d+ people \(\d+ to \d+\) of \d+/);
  await page.getByLabel("Filter").fill('{"devices": {"$gteee": 1}}');
  await page.getByRole("button", { name: "Estimate" }).click();
  await shows("#said", /gteee/);
});

test("nothing_failed_on_the_page_and_nothing_came_from_elsewhere", async () => {
  assert.deepEqual(faults.filter((fault) => !/status of 40[04]/.test(fault)), []);
  const answer = await fetch(here.origin);
  assert.match(answer.headers.get("content-security-policy"), /default-src 'none'.*frame-ancestors 'none'/);
  const html = await answer.text();
  assert.doesNotMatch(html, /https?:\/\//);
  // Each field has a name, and each table says what it shows.
  const unnamed = "input:not(label input), textarea:not(label textarea), table:not(:has(caption)), section:not([aria-labelledby])";
  assert.equal(await page.locator(unnamed).count(), 0);
});
