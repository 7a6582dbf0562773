// The dashboard: what the admin side says, for people to read. It decides nothing, and keeps nothing but the token and the
// tenant's name, for as long as the tab is open. What came from outside is put on the page as text alone.

/** How often it is asked how the origin is. */
const EVERY_MS = 5_000;
/** And how far a run is. */
const STEP_MS = 1_000;

const $ = (id) => document.getElementById(id);
const number = (value) => new Intl.NumberFormat("en").format(value);
const percent = (value) => `${(100 * value).toFixed(2)} %`;
const money = (micros) => (micros / 1e6).toFixed(2);
const time = (ms) => (ms ? new Date(ms).toISOString().slice(0, 19).replace("T", " ") : "–");

function made(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Fills a table: a head, and rows of texts, numbers or elements. */
function fill(table, head, rows) {
  const cell = (value) => {
    if (value instanceof Node) return made("td", {}, value);
    return typeof value === "number" ? made("td", { class: "number" }, number(value)) : made("td", {}, value ?? "–");
  };
  const [caption] = table.getElementsByTagName("caption");
  const titles = head.map((title) => made(title === "" ? "td" : "th", title === "" ? {} : { scope: "col" }, title));
  const none = () => made("tr", {}, made("td", { colspan: head.length }, "none"));
  const body = rows.length > 0 ? rows.map((row) => made("tr", {}, ...row.map(cell))) : [none()];
  table.replaceChildren(caption, made("thead", {}, made("tr", {}, ...titles)), made("tbody", {}, ...body));
  table.hidden = false;
}

function say(text) {
  $("said").textContent = text;
}

/** `turn` counts what the page was opened with: an answer to a token or a tenant of before is no answer any more. */
const access = { token: sessionStorage.getItem("token") ?? "", tenant: sessionStorage.getItem("tenant") ?? "", turn: 0 };

/** Asks the admin side. What it refuses is thrown, in its own words. */
async function ask(path, { query = {}, ...options } = {}) {
  const { turn } = access;
  const url = new URL(`/admin/v1/${path}`, location.href);
  for (const [name, value] of Object.entries({ ...(access.tenant && { tenant: access.tenant }), ...query })) url.searchParams.set(name, value);
  const answer = await fetch(url, { ...options, headers: { authorization: `Bearer ${access.token}`, ...options.headers } });
  const body = await answer.json();
  if (turn !== access.turn) throw new Error("nobody waits for this answer any more");
  if (!answer.ok) throw new Error(body?.error?.message ?? `${path}: ${answer.status}`);
  return body;
}

/** Does something for the person at the page, and says why where it cannot be done. */
async function attempt(what) {
  const { turn } = access;
  let told = "";
  try {
    await what();
  } catch (error) {
    told = error.message;
  }
  if (turn === access.turn) say(told);
}

/** The samples of a metrics page: `name` or `name{label="value"}`, and the number. */
function samples(text) {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]));
}

/** What is looked at first, and above what it is bad: the alerts of `docs/DEPLOY.md`, which says what to do then. */
const LOOKED_AT = [
  ["Facts counted", "causeway_facts_accepted_total"],
  ["Facts in the log, not folded yet", "causeway_unfolded_facts", 1_000_000],
  ["Age of the newest sync, s", "causeway_last_sync_age_seconds", 180],
  ["Age of the facts queue, s", "causeway_queue_age_seconds", 60],
  ["KV writes that wait", "causeway_outbox_depth", 5_000],
  ["Age of the oldest of them, s", "causeway_outbox_age_seconds", 120],
  ["Facts lost at the edges", "causeway_edge_facts_lost_total", 0],
  ["Messages that edges gave up on", "causeway_edge_dead_letters_total", 0],
  ["Requests of bots, not counted", 'causeway_edge_filtered_requests_total{reason="bot"}'],
  ["Prefetches, not counted", 'causeway_edge_filtered_requests_total{reason="prefetch"}'],
  ["Transactions that failed", "causeway_commit_failures_total", 0],
];

/** As many runs as the admin side lists at once: of some jobs there are many. */
const RUNS = 1_000;

let jobs = [];

async function health() {
  try {
    const [ready, metrics] = await Promise.all([fetch("/readyz"), fetch("/metrics")]);
    if (!metrics.ok) throw new Error("no metrics");
    const [{ reason }, text] = await Promise.all([ready.json(), metrics.text()]);
    const found = samples(text);
    jobs = [...found.keys()].flatMap((name) => name.match(/^causeway_job_seconds\{job="(.+)"\}$/)?.[1] ?? []);
    const state = (bad) => made("span", { class: bad ? "bad" : "good" }, bad ? "look at this" : "good");
    const row = ([title, name, bad]) => [title, found.get(name) ?? "–", bad === undefined ? "" : state(!(found.get(name) <= bad))];
    fill($("health"), ["What", "Now", ""], [["Takes syncs", ready.ok ? "yes" : reason, state(!ready.ok)], ...LOOKED_AT.map(row)]);
  } catch {
    fill($("health"), ["What", "Now", ""], [["The origin", "does not answer", made("span", { class: "bad" }, "look at this")]]);
  }
}

async function showJobs() {
  const { runs } = await ask("jobs", { query: { limit: RUNS } });
  // All tenants' runs are listed; those of most jobs are no tenant's.
  const own = ({ tenant }) => !tenant || !access.tenant || tenant === access.tenant;
  const newest = new Map();
  for (const run of runs.filter(own)) if (!newest.has(run.job)) newest.set(run.job, run);
  // Of some jobs there may be so many runs that those of others are not among them.
  const others = runs.length < RUNS ? [] : jobs.filter((job) => !newest.has(job));
  for (const job of others) newest.set(job, (await ask("jobs", { query: { job, limit: RUNS } })).runs.find(own));
  const how = (run) => {
    if (!run) return "never";
    if (!run.ended_ms) return run.started_ms ? `${number(run.done)} of ${number(run.all)}` : "waits";
    return made("span", { class: run.outcome === "done" ? "good" : "bad" }, `${run.outcome}${run.dry_run ? " (plan)" : ""}`);
  };
  const button = (job, title, dryRun) => {
    const pressed = made("button", { type: "button", "aria-label": `${title} ${job}` }, title);
    pressed.addEventListener("click", () => attempt(() => start(job, dryRun)));
    return pressed;
  };
  const row = (job) => {
    const run = newest.get(job);
    const took = run?.ended_ms ? ((run.ended_ms - run.started_ms) / 1_000).toFixed(1) : "–";
    const buttons = made("span", {}, button(job, "Plan", true), " ", button(job, "Run", false));
    return [job, time(run?.started_ms), took, how(run), buttons];
  };
  fill($("jobs"), ["Job", "Began (UTC)", "Took, s", "Outcome", ""], jobs.map(row));
}

/** Starts a job, and shows how far it is until it has ended, and then what it said. */
async function start(job, dryRun) {
  if (!dryRun && !confirm(`Run ${job}? “Plan” shows what it would change.`)) return;
  const { turn } = access;
  let run = await ask(`jobs/${job}`, { method: "POST", query: { dry_run: dryRun } });
  while (!run.ended_ms) {
    await showJobs();
    await new Promise((done) => setTimeout(done, STEP_MS));
    if (turn !== access.turn) return;
    run = await ask(`jobs/${run.run}`);
  }
  await showJobs();
  $("report").hidden = false;
  $("report").textContent = `${job}${dryRun ? " (plan)" : ""}: ${run.outcome}\n${JSON.stringify(run.report, null, 2)}`;
}

async function showPerson() {
  $("person").hidden = true;
  const [kind, id] = [$("kind").value.trim() || "visitor", $("id").value.trim()];
  const visitor = kind === "visitor" ? id : (await ask(`lookups/${encodeURIComponent(kind)}/${encodeURIComponent(id)}`)).visitor;
  const found = await ask(`visitors/${encodeURIComponent(visitor)}`);
  const totals = ({ pages, sessions, purchases, revenue_micros: revenue }) =>
    `${number(pages)} pages, ${number(sessions)} sessions, ${number(purchases)} purchases, ${money(revenue)}`;
  const link = (of) => `${of.kind ?? "visitor"} ${of.hash ?? of.visitor} by ${of.source}, ${of.weight}${of.flag ? `, ${of.flag}` : ""}${of.stands ? "" : ", ended"}`;
  fill($("person"), ["What", "Held"], [
    ["Visitor", found.visitor],
    ["Person", `${found.person.master}, ${found.person.devices} devices`],
    ["Visitors of it", (found.person.members ?? []).join(" ")],
    ["Its own", totals(found.own)],
    ["Over the person", totals(found.view)],
    ["Seen (UTC)", `${time(found.first_seen_ms)} to ${time(found.last_seen_ms)}`],
    ["Links", (found.links ?? []).map(link).join("; ") || "none"],
    ["Experiments", (found.experiments ?? []).map((of) => `${of.experiment}: ${of.arm}`).join(", ") || "none"],
    ["Snapshot published", found.snapshot_version ?? "not yet"],
  ]);
}

async function showCatalogue() {
  const [{ versions }, { budgets }] = await Promise.all([ask("catalogue/versions"), ask("catalogue/budgets")]);
  const version = (of) => [String(of.version), time(of.applied_ms), of.by, of.current ? "current" : ""];
  fill($("versions"), ["Version", "Applied (UTC)", "By", ""], versions.slice(0, 5).map(version));
  const budget = (of) => [
    of.campaign, money(of.spent_micros), of.budget_micros === null ? "–" : money(of.budget_micros), money(of.spent_today_micros),
    of.daily_budget_micros === null ? "–" : money(of.daily_budget_micros), of.pace_ppm === null ? "–" : percent(of.pace_ppm / 1e6),
  ];
  fill($("budgets"), ["Campaign", "Spent", "of", "Today", "of", "Pace"], budgets.map(budget));
  return versions.length > 0;
}

/** An interval as a line, and its value as a dot, between 0 and the most. */
function interval(of, most) {
  const svg = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const x = (value) => 4 + (184 * value) / (most || 1);
  const drawn = svg("svg", { viewBox: "0 0 192 16", "aria-hidden": "true" });
  drawn.append(svg("line", { x1: x(of.low), x2: x(of.high), y1: 8, y2: 8 }), svg("circle", { cx: x(of.value), cy: 8, r: 4 }));
  return drawn;
}

async function showExperiments(hasCatalogue) {
  const { catalogue } = hasCatalogue ? await ask("catalogue") : { catalogue: {} };
  const ids = (catalogue.experiment ?? []).map((experiment) => experiment.id);
  const shown = [];
  for (const id of ids) {
    const found = await ask(`experiments/${encodeURIComponent(id)}`);
    const most = Math.max(...found.arms.map((arm) => arm.rate?.high ?? 0));
    const range = (of) => (of ? `${percent(of.value)} (${percent(of.low)} to ${percent(of.high)})` : "–");
    const table = made("table", {}, made("caption", {}, `Conversion: ${found.conversion}. 95 % intervals, the uplift against the control`));
    const arm = (of) => [
      `${of.arm}${of.control ? " (control)" : ""}`, percent(of.share_now / 10_000), of.recipients, of.converted, range(of.rate),
      of.rate ? interval(of.rate, most) : "", range(of.uplift),
    ];
    fill(table, ["Arm", "Traffic", "People", "Converted", "Rate", "", "Uplift"], found.arms.map(arm));
    const bad = found.sample_ratio?.mismatch ? [made("p", { class: "bad" }, "The traffic was not split as it was to be: believe none of this.")] : [];
    shown.push(made("h3", {}, id), ...bad, table);
  }
  $("experiments").replaceChildren(...(shown.length > 0 ? shown : [made("p", {}, "none")]));
}

async function estimate() {
  $("estimate").textContent = "looking …";
  try {
    const filter = JSON.parse($("filter").value);
    const body = JSON.stringify({ filter });
    const told = await ask("audience/estimate", { method: "POST", body, headers: { "content-type": "application/json" } });
    const [least, most] = told.interval;
    $("estimate").textContent =
      `About ${number(Math.round(told.estimate))} people (${number(Math.round(least))} to ${number(Math.round(most))}) of ${number(told.population)}: ` +
      `${number(told.found)} found among ${number(told.sample_size)} looked at, in ${told.seconds.toFixed(2)} s.`;
  } catch (error) {
    $("estimate").textContent = "";
    throw error;
  }
}

/** Everything that needs a token, and nothing of the one before. */
async function open() {
  access.turn += 1;
  for (const table of document.querySelectorAll("[data-needs-token] table, #report")) table.hidden = true;
  for (const button of document.querySelectorAll("form button")) button.disabled = false;
  $("experiments").replaceChildren();
  $("estimate").textContent = "";
  for (const section of document.querySelectorAll("[data-needs-token]")) section.hidden = access.token === "";
  if (access.token === "") return say("Most of this needs a token: `causeway token create --role viewer --name me`.");
  await attempt(async () => {
    await showJobs();
    await showExperiments(await showCatalogue());
  });
}

/** One at a time: the answer that comes last is to the question that stands there. */
function on(form, what) {
  const button = $(form).querySelector("button");
  $(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    await attempt(what);
    button.disabled = false;
  });
}

on("who", showPerson);
on("audience", estimate);
$("access").addEventListener("submit", (event) => {
  event.preventDefault();
  Object.assign(access, { token: $("token").value.trim(), tenant: $("tenant").value.trim() });
  for (const name of ["token", "tenant"]) sessionStorage.setItem(name, access[name]);
  open();
});

$("token").value = access.token;
$("tenant").value = access.tenant;
await health();
await open();
setInterval(health, EVERY_MS);
