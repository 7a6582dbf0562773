// The page tag: asks the edge once for all placements of a page, fills them, counts what was seen, and sends events.
//
// It never throws into the page and never blocks it: whatever fails, the house content stays where it is. It evaluates
// no text as code, and an ad's HTML lives in a sandboxed frame of no origin. docs/TAG.md explains how a page uses it.

/** The edge's bounds: placements of a call, sizes of a placement, events of a call, characters of an address. */
const PLACEMENTS = 32;
const SIZES = 16;
const NAME_CHARS = 128;
const EVENTS = 200;
const URL_CHARS = 2_048;
/** Keywords of a page; one has 128 bytes at most, and a character takes up to three. */
const KEYWORDS = 64;
const KEYWORD_CHARS = 42;
/** Events that wait at most; what comes beyond is lost. */
const WAITING = 1_000;
/** Characters of one batch of events, so that its bytes stay under the 64 KB that browsers and the edge take. */
const BATCH_CHARS = 20_000;

/** What comes within this time goes in one call: placements that are added, events. */
const GATHER_MS = 50;
const EVENTS_MS = 1_000;
/** When events that were not taken are tried again, and a call that was not served; that after twice as long each time. */
const AGAIN_MS = 5_000;
/** After this long an answer is given up, so that the next call may go: two at once would make two visitors. */
const GIVE_UP_MS = 10_000;

/** MRC's viewable impression: half of the pixels for a second, three tenths where an ad is as large as 970 × 250. */
const SEEN_MS = 1_000;
const LARGE_PIXELS = 242_500;

const SELECTOR = '[data-causeway]:not([data-causeway=""])';

/** Makes a function one that does nothing where it would throw. */
const safe = (work) => (...args) => {
  try {
    return work(...args);
  } catch {}
};

let edge;
let patience;
let countsRender;
let user;
let url;
let referrer;

/* ---- consent: what the page's consent managers say ---- */

let consent = {};
/** The same as text. */
let word = "{}";
/** Managers that have not said anything yet, one for all until the page listens. While there is one, nobody may be recognised. */
let silent = 1;
/** Resolves once all of them have spoken, or the page has waited long enough. */
let listened;

/** Listens to a manager; `read` gives what it says for the edge, or nothing while it does not know yet. */
const listen = safe((name, version, read, done) => {
  if (typeof window[name] !== "function") return;
  let first = 1;
  silent += 1;
  window[name]("addEventListener", ...version, safe((data, success) => {
    const said = success && data && read(data);
    if (!said) return;
    silent -= first;
    first = 0;
    if (!silent) done();
    word = JSON.stringify((consent = { ...consent, ...said }));
    plan();
  }));
});

function listenAll(done) {
  setTimeout(done, patience);
  // Where the GDPR does not apply there is no string, and the tenant's policy decides.
  listen("__tcfapi", [2], ({ gdprApplies, eventStatus, tcString }) =>
    gdprApplies === false ? { tcf: undefined } : /^tcloaded|^useraction/.test(eventStatus) && { tcf: tcString }, done);
  listen("__gpp", [], ({ pingData: ping }) =>
    ping?.signalStatus === "ready" && { gpp: ping.gppString, gpp_sid: ping.applicableSections }, done);
  // One that speaks at once is not the last before all are known.
  if (!--silent) done();
}

/* ---- decisions: one call for all placements ---- */

/** Of each placement that shows an ad: what shows, and the house content in whose stead it does. */
const placed = new Map();
/** Placements that were asked for since the page came to this address. */
let decided = new WeakSet();
/** Whether this page is still to be counted. */
let pageDue = true;
/** The consent that the edge has answered to last; without a manager there is none to tell. */
let told = "{}";
/** What the edge has answered to consent, so that it knows the visitor whose events come. */
let met;
let planned;
let again;
let pause = AGAIN_MS;
let turn = Promise.resolve();

/** Has the edge called soon, after the call before has ended. */
function plan() {
  planned ??= setTimeout(() => {
    planned = undefined;
    turn = turn.then(decide).catch(() => {});
  }, GATHER_MS);
}

/** Has it called later, if there is something left to tell it. */
function retry() {
  if (silent || !(outbox.length || told !== word)) return;
  again ??= setTimeout(() => {
    again = undefined;
    pause *= 2;
    plan();
  }, pause);
}

/**
 * Placements to ask for with the next call. One that is away is asked for when it comes back; for one whose id is too long the
 * edge would refuse the whole call.
 */
const due = () =>
  [...document.querySelectorAll(SELECTOR)].filter((element) => !decided.has(element) && !element.dataset.causeway[NAME_CHARS]);

/** Looks for placements that were not asked for, and lets go of what is the page's own again. */
const look = safe(() => {
  placed.forEach((_, element) => element.matches(SELECTOR) || restore(element));
  if (due()[0]) plan();
});

/** The page has another address: a page view, and new decisions for all placements. */
const moved = safe(() => {
  const now = address();
  if (now === url) return;
  referrer = url;
  url = now;
  pageDue = true;
  placed.forEach((_, element) => element.isConnected || restore(element));
  decided = new WeakSet();
  plan();
});

const address = () => location.href.split("#")[0].slice(0, URL_CHARS);

const asked = ({ dataset: { causeway: id, sizes = "", viewType: view_type, floorMicros: floor } }) => ({
  id,
  view_type,
  sizes: [...sizes.matchAll(/(\d+)x(\d+)/g)].slice(0, SIZES).map(([, width, height]) => [+width, +height]),
  floor_micros: /^\d{1,15}$/.test(floor) ? +floor : undefined,
});

async function decide() {
  await listened;
  const elements = due().slice(0, PLACEMENTS);
  const saying = word;
  if (!elements[0] && (silent || (!pageDue && met && saying === told))) return;
  elements.forEach((element) => decided.add(element));
  // Nobody has consented yet: no cookie and no id goes, so that nothing is made and nothing is taken back either.
  const call = silent ? { consent: { tcf: "" } } : { consent, user, page_view: pageDue };
  const credentials = silent ? "omit" : "include";
  const known = !silent;
  if (known) pageDue = false;
  const body = JSON.stringify({ placements: elements.map(asked), page: { url, referrer, keywords: keywords() }, ...call });
  let late;
  const timer = setTimeout(() => {
    late = true;
    elements.forEach(restore);
  }, patience);
  let answer;
  try {
    const signal = AbortSignal.timeout?.(GIVE_UP_MS);
    answer = await (await fetch(edge + "/v1/decide", { method: "POST", body, credentials, signal })).json();
  } catch {}
  clearTimeout(timer);
  // `internal`, `overloaded`, `mint_limited`, `forgotten`, `retry`: there is no visitor, of whom nothing was counted, and may be
  // one yet; or nobody took that who was here withdraws.
  const unserved = /^[fimor]/.test(answer?.reason);
  const heard = known && answer?.decisions && !unserved;
  if (heard) {
    met = answer.consent;
    told = saying;
    pause = AGAIN_MS;
  }
  // An ad that was chosen for the address before is none for this one, which is asked about next.
  if (!late) elements.forEach((element, i) => decided.has(element) && fill(element, answer?.decisions?.[i]));
  if (heard) flush();
  else if (known) {
    pageDue ||= unserved;
    retry();
  }
  look();
}

const keywords = () =>
  (document.querySelector("meta[name=keywords]")?.content ?? "")
    .split(",")
    .map((word) => word.trim())
    .filter((word) => word && word.length <= KEYWORD_CHARS)
    .slice(0, KEYWORDS);

/* ---- filling ---- */

/** Puts the house content back where the ad still stands in a placement, and counts nothing more of it. */
const restore = safe((element) => {
  const kept = placed.get(element);
  if (!kept) return;
  forget(kept.shown);
  placed.delete(element);
  if (kept.shown.closest(SELECTOR) === element) element.replaceChildren(...kept.house);
});

function fill(element, decision) {
  restore(element);
  // Meanwhile it may have become the page's own.
  if (!decision?.ad || !element.matches(SELECTOR)) return;
  decision.impression_url &&= edge + decision.impression_url;
  decision.click_url &&= edge + decision.click_url;
  decision.met = met;
  placed.set(element, { shown: element, house: [...element.childNodes] });
  try {
    show(element, decision);
  } catch {
    // Of a renderer that failed half-way nothing stays.
    restore(element);
  }
}

/** By the page's own renderer, unless there is none or it gives `false`; else HTML in a frame or an image in a link. */
function show(element, decision) {
  const kept = placed.get(element);
  if (causeway.render && causeway.render(element, decision) !== false) return count(element, decision);
  const [[wide, high] = []] = asked(element).sizes;
  const { html, image, alt = "", width = wide, height = high } = decision.ad.creative ?? {};
  const click = decision.click_url ?? "";
  let node;
  let outer;
  if (html) {
    outer = node = document.createElement("iframe");
    // Never `allow-same-origin`: the frame would be the page.
    node.sandbox = "allow-scripts allow-popups allow-popups-to-escape-sandbox";
    node.marginWidth = node.marginHeight = 0;
    node.scrolling = "no";
    node.srcdoc = html.replaceAll("{click_url}", click);
  } else if (image) {
    node = document.createElement("img");
    node.src = image;
    node.alt = alt;
    outer = document.createElement("a");
    if (click) outer.href = click;
    outer.target = "_blank";
    outer.rel = "noopener";
    outer.append(node);
  } else return placed.delete(element);
  if (width) node.width = width;
  if (height) node.height = height;
  node.style.border = 0;
  // Once: a frame that goes elsewhere loads again.
  node.onload = () => (node.onload = placed.get(element) === kept && count(node, decision));
  node.onerror = () => placed.get(element) === kept && restore(element);
  kept.shown = node;
  element.replaceChildren(outer);
}

/* ---- impressions ---- */

/** Of each ad that is to be seen: what counts it, whether enough of it shows now, and since when by a timer. */
const watched = new Map();
let observer;

function count(node, { impression_url: url, met: then }) {
  if (!url) return;
  // One that was decided for a visitor who has withdrawn since, or may have, names nobody.
  const hit = () =>
    (then === "full" && (met !== then || told !== word)) ||
    fetch(url, { mode: "no-cors", credentials: silent ? "omit" : "include", keepalive: true }).catch(() => {});
  if (countsRender) return hit();
  watched.set(node, { hit });
  observer ??= new IntersectionObserver(safe((entries) => entries.forEach(looked)), { threshold: [0.3, 0.5] });
  observer.observe(node);
}

function forget(node) {
  clearTimeout(watched.get(node)?.timer);
  watched.delete(node);
  observer?.unobserve(node);
}

function looked({ target, intersectionRatio: ratio, boundingClientRect: { width, height } }) {
  const watch = watched.get(target);
  if (!watch) return;
  const pixels = width * height;
  const enough = pixels > 0 && ratio >= (pixels < LARGE_PIXELS ? 0.5 : 0.3);
  if (enough !== watch.enough) {
    watch.enough = enough;
    time(watch, target);
  }
  // An element of no size is all there, and would stay so without a word when it grows: look at it again.
  if (ratio && !pixels) {
    setTimeout(() => {
      observer.unobserve(target);
      if (watched.get(target)) observer.observe(target);
    }, SEEN_MS);
  }
}

/** Begins the second, if the ad can be seen; ends the one that was under way. */
function time(watch, node) {
  clearTimeout(watch.timer);
  if (!watch.enough || document.hidden) return;
  watch.timer = setTimeout(() => {
    forget(node);
    watch.hit();
  }, SEEN_MS);
}

/* ---- events ---- */

/** Events, as JSON texts, that the browser has not taken yet. */
let outbox = [];
let sending;

const put = (event) => {
  const text = JSON.stringify({ ...event, id: named(event.id) ?? crypto.randomUUID?.() ?? `${Math.random()}` });
  if (text.length > BATCH_CHARS || outbox.length >= WAITING) return;
  outbox.push(text);
  sending ??= setTimeout(flush, EVENTS_MS);
};

/**
 * Hands the events over, batch by batch; before the edge has answered only when the page goes `away`, and never before it
 * has answered to what the visitor said last.
 */
const flush = safe((away) => {
  clearTimeout(sending);
  sending = undefined;
  if (silent || told !== word || (!met && !away)) return retry();
  while (outbox.length) {
    let chars = 0;
    const cut = outbox.findIndex((text, i) => ((chars += text.length + 1) > BATCH_CHARS && i > 0) || i >= EVENTS);
    const batch = outbox.splice(0, cut < 0 ? EVENTS : cut);
    if (!post(batch, away)) return keep(batch);
  }
});

/** Whether the browser has taken a batch. What comes of a beacon nobody hears: it is for who leaves. */
function post(batch, away) {
  const to = edge + "/v1/events";
  const body = `[${batch}]`;
  if (away && navigator.sendBeacon) return navigator.sendBeacon(to, body);
  fetch(to, { method: "POST", body, credentials: "include", keepalive: true }).then(
    ({ status }) => /429|^5/.test(status) && keep(batch),
    () => keep(batch),
  );
  return true;
}

/** For another try: the events have their ids, so that one which arrived after all counts once. */
function keep(batch) {
  outbox = [...batch, ...outbox];
  sending ??= setTimeout(flush, AGAIN_MS);
}

/* ---- the page's side ---- */

/** A page's id: a number is its digits, and what is empty is none. */
const named = (id) => (id || id === 0 ? `${id}` : undefined);
const texts = (of) => Object.fromEntries(Object.entries(of ?? {}).map(([kind, id]) => [kind, named(id)]));

/** What a page calls. Nothing in here throws. */
export const causeway = {
  render: undefined,
  track: safe((name, properties, id) => put({ type: "track", name, properties, id })),
  page: safe(() => put({ type: "page" })),
  identify: safe((ids, proofs) => {
    user = { ids: texts(ids), proofs: texts(proofs) };
  }),
};

/** Begins, once a page: finds the placements, and goes with the page wherever it goes. */
export const start = safe((options = {}) => {
  if (edge !== undefined) return;
  edge = options.edge ?? location.origin;
  patience = options.timeout ?? 1_000;
  countsRender = options.count === "render";
  const begin = safe(() => {
    if (url || document.readyState === "loading" || document.prerendering) return;
    listened = new Promise(listenAll);
    url = address();
    referrer = document.referrer.slice(0, URL_CHARS);
    plan();
    follow();
  });
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("prerenderingchange", begin);
  begin();
});

/** Follows what happens to the page: new elements, other addresses, going away and coming back. */
function follow() {
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
  followAway();
  // A page may have an element, or a name, `navigation` of its own.
  const { navigation, Navigation } = window;
  if (Navigation && navigation instanceof Navigation) {
    navigation.addEventListener("currententrychange", moved);
  } else {
    for (const name of ["pushState", "replaceState"]) {
      const own = history[name];
      history[name] = function (...args) {
        own.apply(this, args);
        moved();
      };
    }
    addEventListener("popstate", moved);
  }
}

function followAway() {
  // A page that comes back out of the browser's memory is viewed again.
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    url = "";
    moved();
  });
  // With the event for `away`.
  addEventListener("pagehide", flush);
  document.addEventListener("visibilitychange", () => {
    watched.forEach(time);
    if (document.hidden) flush(true);
  });
}
