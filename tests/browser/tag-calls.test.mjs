// The calls of the tag: the visitor of its events while calls fail and users change, and the data of a page that
// exceeds the edge's bounds. The tag runs in Node, with a replaced edge and a clock that the test moves.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const GATHER_MS = 60;
const RETRY_MS = 6_000;
const entryPoints = [fileURLToPath(new URL("../../edge/tag/causeway.js", import.meta.url))];
const { outputFiles: [{ text: TAG }] } = await build({ entryPoints, bundle: true, format: "esm", write: false });

let pages = 0;

/** A page without placements. `answer` returns the edge's answer to the member of a decide call, or throws. */
async function open(t, answer, { href = "https://edge.example/", keywords = "" } = {}) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const page = { sent: [], warnings: [], listeners: {}, pages: [] };
  const listen = (name, listener) => (page.listeners[name] = listener);
  const globals = {
    window: globalThis,
    parent: globalThis,
    frames: {},
    addEventListener: listen,
    location: { origin: "https://edge.example", href, search: "" },
    history: {},
    navigator: {},
    MutationObserver: class { observe() {} },
    document: {
      readyState: "complete", referrer: "", addEventListener: listen, querySelectorAll: () => [], querySelector: () => ({ content: keywords }),
    },
    fetch: async (url, { body }) => {
      const call = JSON.parse(body);
      page.pages.push(call.page);
      if (url.endsWith("/v1/decide")) return { json: async () => answer(call.user?.ids.member) };
      page.sent.push(...call.map(({ name, visitor_token: token }) => [name, token]));
      return { status: 200, json: async () => ({}) };
    },
  };
  for (const [name, value] of Object.entries(globals)) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
  t.mock.method(console, "warn", (...parts) => page.warnings.push(parts.join(" ")));
  const { causeway, start } = await import(`data:text/javascript,${encodeURIComponent(TAG)}//${(pages += 1)}`);
  start({ timeout: 1, debug: true });
  page.causeway = causeway;
  page.wait = async (ms) => {
    // Promises run between two steps of the clock.
    for (let step = 0; step < ms; step += 20) {
      t.mock.timers.tick(20);
      await new Promise(setImmediate);
    }
  };
  return page;
}

const named = (member) => ({ decisions: [], consent: "full", visitor_token: `token-of-${member}` });

for (const failure of ["error", "unserved"]) {
  test(`an_event_whose_call_failed_is_dropped_when_another_member_comes (${failure})`, async (t) => {
    const page = await open(t, (member) => {
      if (member !== "ann") return named(member);
      if (failure === "error") throw new Error("the network is down");
      return { reason: "overloaded" };
    });
    await page.wait(GATHER_MS);
    page.causeway.identify({ member: "ann" });
    page.causeway.track("purchase");
    await page.wait(GATHER_MS);
    page.causeway.identify({ member: "bob" });
    page.causeway.track("search");
    await page.wait(RETRY_MS);
    assert.deepEqual(page.sent, [["search", "token-of-bob"]]);
    assert.ok(page.warnings.some((warning) => /1 events are lost/.test(warning)), page.warnings.join("\n"));
  });
}

test("an_event_between_two_logins_during_one_call_never_counts_for_the_second_member", async (t) => {
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  const page = await open(t, async (member) => {
    if (!member) await held;
    return named(member);
  });
  page.causeway.track("before");
  await page.wait(GATHER_MS);
  page.causeway.identify({ member: "ann" });
  page.causeway.identify({ member: "bob" });
  page.causeway.track("of-bob");
  page.causeway.identify({ member: "carl" });
  release();
  await page.wait(RETRY_MS);
  assert.deepEqual(page.sent, [["before", "token-of-undefined"]]);
});

test("an_event_counts_for_its_member_after_a_failed_call_where_only_the_proof_changes", async (t) => {
  let calls = 0;
  const page = await open(t, (member) => {
    calls += 1;
    if (calls === 1) throw new Error("the network is down");
    return named(member);
  });
  page.causeway.track("before-the-name");
  page.causeway.identify({ member: "ann" });
  page.causeway.track("purchase");
  await page.wait(GATHER_MS);
  page.causeway.identify({ member: "ann" }, { member: "a-proof" });
  await page.wait(RETRY_MS);
  assert.deepEqual(page.sent, [["before-the-name", "token-of-ann"], ["purchase", "token-of-ann"]]);
});

test("an_event_before_the_first_login_does_not_go_to_the_cookie_of_the_second_member", async (t) => {
  const page = await open(t, () => ({ reason: "overloaded" }));
  page.causeway.track("before");
  page.causeway.identify({ member: "ann" });
  page.causeway.identify({ member: "bob" });
  await page.wait(GATHER_MS);
  page.listeners.pagehide({ persisted: false });
  await page.wait(RETRY_MS);
  assert.deepEqual(page.sent, []);
});

test("the_edge_learns_that_a_page_has_more_than_it_reads", async (t) => {
  const long = `https://edge.example/${"x".repeat(3_000)}`;
  const words = Array.from({ length: 80 }, (_, i) => `w${i}`);
  const page = await open(t, named, { href: long, keywords: [...words, "", "k".repeat(500)].join(",") });
  await page.wait(GATHER_MS);
  const [{ url, keywords }] = page.pages;
  assert.deepEqual([url.length, keywords], [2_049, words.slice(0, 65)]);
});

test("a_keyword_that_is_too_long_is_sent_as_one_that_the_edge_leaves_out", async (t) => {
  const page = await open(t, named, { keywords: `gambling, ${"k".repeat(500)}` });
  await page.wait(GATHER_MS);
  assert.deepEqual(page.pages[0].keywords, ["gambling", "k".repeat(129)]);
});
