// The origin's dashboard in a real browser, as an administrator uses it, with an origin that has data of real pages.

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

/** Waits until an element shows a text; returns its complete text. */
async function shows(selector, wanted) {
  try {
    await page.locator(selector).filter({ hasText: wanted }).first().waitFor();
  } catch {
    assert.fail(`${selector} shows ${JSON.stringify(await page.locator(selector).allInnerTexts())}, not ${wanted}`);
  }
  return page.locator(selector).first().innerText();
}

async function use(token, tenant = "") {
  await page.getByLabel("Token").fill(token);
  await page.getByLabel("Tenant").fill(tenant);
  await page.getByRole("button", { name: "Use" }).click();
}

test("without_a_token_the_dashboard_shows_health_and_asks_for_a_token", async () => {
  await shows("#health", "Accepts syncs");
  await shows("#said", "causeway token create");
  assert.equal(await page.getByRole("heading", { name: "Jobs" }).isVisible(), false);
});

test("an_invalid_token_is_refused_with_a_message", async () => {
  await use("0".repeat(64));
  await shows("#said", /token/);
});

test("with_a_token_the_dashboard_shows_jobs_catalogue_budgets_and_experiments", async () => {
  await use(here.token);
  await shows("#said", /tenant/);
  await use(here.token, "demo");
  for (const job of ["reconcile", "trim", "verify"]) await shows("#jobs", job);
  await shows("#versions", "current");
  assert.match(await shows("#budgets", "summer"), /50\.00/);
  const arms = await shows("#experiments", "none (control)");
  assert.match(arms, /prices[\s\S]*50\.00 %/);
});

test("a_job_shows_its_plan_first_and_a_run_needs_a_confirmation", async () => {
  await page.getByRole("button", { name: "Plan reconcile" }).click();
  await shows("#report", /reconcile \(plan\): done/);
  const questions = [];
  page.once("dialog", (dialog) => (questions.push(dialog.message()), dialog.dismiss()));
  await page.getByRole("button", { name: "Run trim" }).click();
  assert.match(questions[0], /Run trim\?/);
  page.once("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "Run trim" }).click();
  await shows("#report", /trim: done/);
});

test("a_job_shows_the_chosen_tenant_s_run_and_no_other_tenant_s", async () => {
  const train = (tenant) => `${here.origin}/admin/v1/jobs/train?tenant=${tenant}&dry_run=true`;
  const answer = await fetch(train("strict"), { method: "POST", headers: { authorization: `Bearer ${here.token}` } });
  assert.equal(answer.status, 202);
  await use(here.token, "strict");
  await shows("#jobs tr:has-text('train')", /\(plan\)|waiting| of /);
  await use(here.token, "demo");
  await shows("#jobs tr:has-text('train')", "never");
});

test("a_visitor_is_looked_up_and_an_absent_one_is_reported", async () => {
  await page.getByRole("textbox", { name: "Id" }).fill(visitor);
  // The page view arrives through the queue, after a second.
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
  assert.equal(await page.locator("#person").isVisible(), false, "the previous person is still shown");
});

test("data_of_a_token_or_tenant_disappears_with_it", async () => {
  await page.getByLabel("Kind").fill("visitor");
  await page.getByRole("textbox", { name: "Id" }).fill(visitor);
  await page.getByRole("button", { name: "Look up" }).click();
  await shows("#person", visitor);
  await use(here.token, "strict");
  await shows("#versions", "none");
  assert.equal(await page.locator("#person").isVisible(), false, "a person of the tenant demo is shown under another tenant");
  await use("0".repeat(64), "demo");
  await shows("#said", /token/);
  for (const selector of ["#versions", "#budgets", "#jobs", "#report"]) assert.equal(await page.locator(selector).isVisible(), false, selector);
  await use(here.token, "demo");
  await shows("#versions", "current");
});

test("an_audience_is_estimated_and_an_invalid_filter_is_refused", async () => {
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
  // Each field has a name, and each table has a caption.
  const unnamed = "input:not(label input), textarea:not(label textarea), table:not(:has(caption)), section:not([aria-labelledby])";
  assert.equal(await page.locator(unnamed).count(), 0);
});
