// A publisher's pages in a real browser, with the real edge and origin: helpers of the tests of the page tag.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

import { chromium } from "playwright-core";

import { network, world } from "./world.mjs";

const CHROMIUM = process.env.CAUSEWAY_CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
export const PATIENCE = 30_000;
export const START = 20 * 60_000;
/** Lets the tag wait as long as the tests do, because the machine may be busy. */
export const PATIENT = `data-timeout="${PATIENCE}"`;
export const PIXEL = Buffer.from("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "base64");

/** TCF v2: `REFUSES` consents to no purpose, `CONSENTS` to purposes 1, 3 and 4. GPP: US Privacy, with and without a sale. */
export const REFUSES = "CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA";
export const CONSENTS = "CPXxRfAPXxRfAAfKABENB-CgALAAAAAAAAYgAAAAAAAA";
export const SOLD = { gppString: "DBABTA~1YNN", applicableSections: [6] };
export const UNSOLD = { gppString: "DBABTA~1YYN", applicableSections: [6] };

/** A creative that tries every access to the page that shows it. */
const HOSTILE = `</script></iframe><script>
  const tries = [() => parent.document.title, () => { parent.hurt = 1; }, () => { top.location = "/pages/hurt"; },
    () => document.cookie, () => localStorage.length];
  parent.postMessage(tries.map((attempt) => { try { attempt(); return "done"; } catch { return "refused"; } }), "*");
</script><a href="{click_url}" target="_blank">click</a>`;

const CONFIGURATION = `
data = "."
keys = "keys.json"
[[tenant]]
name = "demo"
hosts = ["localhost", "127.0.0.1"]
dev = true
no_signal = "allow"
publish_delay_s = 2
catalogue = "words.toml"
[[tenant.kinds]]
name = "member"
code = 1
unique = true
`;

/** An ad that is alone in its campaign, so that its size decides. */
const ad = (code, [width, height], creative) => `
[[advertiser]]
id = "a${code}"
code = ${code}
[[campaign]]
id = "c${code}"
code = ${code}
advertiser = "a${code}"
[[ad_group]]
id = "g${code}"
code = ${code}
campaign = "c${code}"
[[ad]]
id = "ad${code}"
code = ${code}
ad_group = "g${code}"
sizes = [[${width}, ${height}]]
landing = "https://landing.example/${code}"
creative = ${creative}
`;

const WORDS = `
[[view_type]]
name = "home"
code = 1
`;

export let here;
export let browser;
let userAgent;
let guide;

/** The content of the guide's first fenced block of a language. */
export const block = (language) => guide.split(`\`\`\`${language}\n`)[1].split("```")[0];

/** Starts the edge, the origin and the browser; `options` are the browser's. */
export async function startPublisher(options) {
  guide = await readFile(new URL("../../docs/TAG.md", import.meta.url), "utf8");
  const more = [
    ad(10, [970, 250], '{ image = "https://cdn.example/large.png" }'),
    ad(11, [320, 50], `{ html = '''${HOSTILE}''' }`),
    ad(12, [160, 600], '{ title = "Own", text = "shown by the page" }'),
  ];
  here = await world({ "causeway.toml": CONFIGURATION, "words.toml": WORDS, "ads.toml": block("toml") + more.join("") });
  await placed();
  browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS, ...options });
  userAgent = `Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/${browser.version()} Safari/537.36`;
}

export async function stopPublisher() {
  await browser?.close();
  await here?.stop();
}

/** Waits until the edge has the catalogue: it reads the pointer in the KV again after some seconds. */
async function placed() {
  // `Sec-GPC` makes the request anonymous, so that it does not use up the sixty new visitors a minute of one network.
  const [headers, body] = [{ "content-type": "application/json", "sec-gpc": "1" }, '{"page":{},"placements":[{"id":"a","sizes":[[728,90]]}]}'];
  for (;;) {
    const answer = await (await fetch(`${here.edge}/v1/decide`, { method: "POST", headers, body })).json();
    if (answer.catalogue) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/* ---- pages ---- */

export const TOP = '<div id="top" data-causeway="top" data-sizes="728x90" data-view-type="home">house</div>';
export const SIDE = '<div id="side" data-causeway="side" data-sizes="300x250">house</div>';
export const FAR = '<div style="height: 3000px"></div>';
export const STRICT = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src https:; style-src 'unsafe-inline'";

/** Runs first in the page and records the calls that the page makes. */
function witness() {
  window.asked = [];
  const note = (name, address, body) => window.asked.push({ name, path: new URL(address, location.href).pathname, body });
  const { fetch: ask } = window;
  window.fetch = (address, init = {}) => {
    note(init.credentials, address, init.body);
    return ask(address, init);
  };
  const beacon = navigator.sendBeacon.bind(navigator);
  navigator.sendBeacon = (address, body) => {
    note("beacon", address, body);
    return window.refusing ? false : beacon(address, body);
  };
  // The last entry of each element that the page's observers got, including the tag's observers.
  window.looks = new Map();
  window.IntersectionObserver = class extends IntersectionObserver {
    constructor(work, options) {
      super((entries, self) => {
        work(entries, self);
        entries.forEach((entry) => window.looks.set(entry.target, entry));
      }, options);
    }
  };
  window.adIn = (selector) => document.querySelector(selector)?.shadowRoot?.querySelector("img, iframe") ?? null;
  window.hide = (hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  };
}

/** A page of the publisher that contains the tag. */
export const pageOf = (body, { head = "", tag = PATIENT } = {}) =>
  `<!doctype html><meta charset="utf-8"><title>page</title><body style="margin: 0">${head}<script async src="/causeway.js" ${tag}></script>${body}`;

/**
 * A new person's browser with one page of the publisher; `init` scripts run first in it. `others` are the texts of
 * further pages, by the last part of their path.
 */
export async function open(body, { head, tag, policy = "", init = [], clock = false, html = pageOf(body, { head, tag }), others = {}, decide, query = "" } = {}) {
  const context = await browser.newContext({ userAgent, viewport: { width: 1280, height: 720 }, extraHTTPHeaders: network() });
  context.setDefaultTimeout(PATIENCE);
  await context.route(/^https:/, (route) => route.fulfill({ contentType: "image/gif", body: PIXEL }));
  await context.route("**/pages/**", (route) =>
    route.fulfill({ contentType: "text/html", body: others[new URL(route.request().url()).pathname.split("/").pop()] ?? html, headers: policy ? { "content-security-policy": policy } : {} }));
  if (decide) await context.route("**/v1/decide", decide);
  const page = await context.newPage();
  page.faults = [];
  page.warnings = [];
  page.on("console", (message) => message.type() === "warning" && page.warnings.push(message.text()));
  page.on("pageerror", (error) => page.faults.push(error.message));
  page.on("console", (message) => message.type() === "error" && page.faults.push(message.text()));
  await page.addInitScript(witness);
  for (const work of init) await page.addInitScript(work);
  if (clock) await page.clock.install({ time: 0 });
  await page.goto(`${here.edge}/pages/one${query}#part`);
  return page;
}

export async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

export const asked = async (page, path) => (await page.evaluate(() => window.asked)).filter((one) => one.path.startsWith(path));
export const decides = async (page) => (await asked(page, "/v1/decide")).map(({ name, body }) => ({ name, ...JSON.parse(body) }));
export const impressions = async (page) => (await asked(page, "/v1/i/")).length;

/** Waits until a function in the page returns a value; returns that value. */
export const shown = (page, work, argument) => page.waitForFunction(work, argument, { polling: 50, timeout: PATIENCE }).then((found) => found.jsonValue());
export const filled = (page, id) => shown(page, (id) => window.adIn(`#${id}`)?.tagName, id);
export const decided = (page, count) => shown(page, (count) => window.asked.filter(({ path }) => path === "/v1/decide").length >= count, count);
export const text = (page, id) => page.locator(`#${id}`).innerText();
export const cookies = async (page) => (await page.context().cookies()).map(({ name }) => name).sort();

/** Calls `ask` until it returns a value. */
export async function until(what, ask) {
  for (const end = Date.now() + PATIENCE; Date.now() < end; ) {
    const found = await ask();
    if (found) return found;
  }
  return assert.fail(`${what} did not come`);
}

export async function admin(path, body) {
  const init = { method: body ? "POST" : "GET", body: JSON.stringify(body), headers: { authorization: `Bearer ${here.token}` } };
  const answer = await fetch(`${here.origin}/admin/v1/${path}?tenant=demo`, init);
  return answer.status === 200 ? answer.json() : null;
}

/** The visitor of a page, from the edge's `/v1/me`. */
export const visitor = (page) => page.evaluate(() => fetch("/v1/me").then((answer) => answer.json()).then((me) => me.visitor));
export const pages = async (page, count) => {
  const id = await visitor(page);
  return until(`${count} pages`, async () => (await admin(`visitors/${id}`))?.own.pages === count);
};
