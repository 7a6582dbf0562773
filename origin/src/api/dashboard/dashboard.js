// The dashboard shows the answers of the admin API. It decides nothing. Session storage holds the token and the tenant's
// name until the tab is closed. Values from outside are inserted as text, never as HTML.

/** Interval between two updates of the system health. */
const HEALTH_INTERVAL_MS = 5_000;
/** Interval between two reads of a run's progress. */
const PROGRESS_INTERVAL_MS = 1_000;

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

/** Fills a table with a head and rows; a cell is a text, a number or an element. */
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

/** `turn` counts the changes of token or tenant. An answer that was requested in an earlier turn is discarded. */
const access = { token: sessionStorage.getItem("token") ?? "", tenant: sessionStorage.getItem("tenant") ?? "", turn: 0 };

/** Calls the admin API. A refusal is thrown as an error with the message of the API. */
async function ask(path, { query = {}, ...options } = {}) {
  const { turn } = access;
  const url = new URL(`/admin/v1/${path}`, location.href);
  for (const [name, value] of Object.entries({ ...(access.tenant && { tenant: access.tenant }), ...query })) url.searchParams.set(name, value);
  const answer = await fetch(url, { ...options, headers: { authorization: `Bearer ${access.token}`, ...options.headers } });
  const body = await answer.json();
  if (turn !== access.turn) throw new Error("the answer belongs to a previous token or tenant");
  if (!answer.ok) throw new Error(body?.error?.message ?? `${path}: ${answer.status}`);
  return body;
}

/** Runs an action of the user, and shows the message of its error, if any. */
async function attempt(action) {
  const { turn } = access;
  let message = "";
  try {
    await action();
  } catch (error) {
    message = error.message;
  }
  if (turn === access.turn) say(message);
}

/** The samples of a metrics page: `name` or `name{label="value"}`, each with its number. */
function samples(text) {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]));
}

/** Title, metric and alert threshold of each row. The thresholds and the remedies are in `docs/DEPLOY.md`, part 9. */
const HEALTH_ROWS = [
  ["Events accepted", "causeway_facts_accepted_total"],
  ["Backlog: events not folded yet", "causeway_unfolded_facts", 1_000_000],
  ["Age of the newest sync, s", "causeway_last_sync_age_seconds", 180],
  ["Age of the event queue, s", "causeway_queue_age_seconds", 60],
  ["Pending KV writes", "causeway_outbox_depth", 5_000],
  ["Age of the oldest pending KV write, s", "causeway_outbox_age_seconds", 120],
  ["Events lost at the edge", "causeway_edge_facts_lost_total", 0],
  ["Dead letters", "causeway_edge_dead_letters_total", 0],
  ["Requests of bots (not counted)", 'causeway_edge_filtered_requests_total{reason="bot"}'],
  ["Prefetches (not counted)", 'causeway_edge_filtered_requests_total{reason="prefetch"}'],
  ["Failed transactions", "causeway_commit_failures_total", 0],
];

/** The most runs that one call of the admin API lists. */
const RUNS = 1_000;

let jobs = [];

async function health() {
  try {
    const [ready, metrics] = await Promise.all([fetch("/readyz"), fetch("/metrics")]);
    if (!metrics.ok) throw new Error("no metrics");
    const [{ reason }, text] = await Promise.all([ready.json(), metrics.text()]);
    const found = samples(text);
    jobs = [...found.keys()].flatMap((name) => name.match(/^causeway_job_seconds\{job="(.+)"\}$/)?.[1] ?? []).sort();
    const state = (bad) => made("span", { class: bad ? "bad" : "good" }, bad ? "alert" : "ok");
    const row = ([title, name, bad]) => [title, found.get(name) ?? "–", bad === undefined ? "" : state(!(found.get(name) <= bad))];
    fill($("health"), ["Metric", "Value", "Status"], [["Accepts syncs", ready.ok ? "yes" : reason, state(!ready.ok)], ...HEALTH_ROWS.map(row)]);
  } catch {
    fill($("health"), ["Metric", "Value", "Status"], [["Origin", "does not answer", made("span", { class: "bad" }, "alert")]]);
  }
}

async function showJobs() {
  const { runs } = await ask("jobs", { query: { limit: RUNS } });
  // The list has the runs of all tenants. A run of most jobs belongs to no tenant.
  const own = ({ tenant }) => !tenant || !access.tenant || tenant === access.tenant;
  const newest = new Map();
  for (const run of runs.filter(own)) if (!newest.has(run.job)) newest.set(run.job, run);
  // Frequent jobs may fill the list; the newest run of each job that is missing from it is requested separately.
  const missing = runs.length < RUNS ? [] : jobs.filter((job) => !newest.has(job));
  for (const job of missing) newest.set(job, (await ask("jobs", { query: { job, limit: RUNS } })).runs.find(own));
  const outcome = (run) => {
    if (!run) return "never";
    if (!run.ended_ms) return run.started_ms ? `${number(run.done)} of ${number(run.all)}` : "waiting";
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
    return [job, time(run?.started_ms), took, outcome(run), buttons];
  };
  fill($("jobs"), ["Job", "Started (UTC)", "Duration, s", "Outcome", ""], jobs.map(row));
}

/** Starts a job, and shows its progress until it has ended, then its report. */
async function start(job, dryRun) {
  if (!dryRun && !confirm(`Run ${job}? “Plan” shows what it would change.`)) return;
  const { turn } = access;
  let run = await ask(`jobs/${job}`, { method: "POST", query: { dry_run: dryRun } });
  while (!run.ended_ms) {
    await showJobs();
    await new Promise((done) => setTimeout(done, PROGRESS_INTERVAL_MS));
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
  fill($("person"), ["Field", "Value"], [
    ["Visitor", found.visitor],
    ["Person", `${found.person.master}, ${found.person.devices} devices`],
    ["Visitors of the person", (found.person.members ?? []).join(" ")],
    ["Visitor's own data", totals(found.own)],
    ["Person's view", totals(found.view)],
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
  fill($("budgets"), ["Campaign", "Spent", "Budget", "Spent today", "Daily budget", "Pacing"], budgets.map(budget));
  return versions.length > 0;
}

/** Draws an interval as a line and its value as a dot, on a scale from 0 to `max`. */
function interval(of, max) {
  const svg = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const x = (value) => 4 + (184 * value) / (max || 1);
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
    const max = Math.max(...found.arms.map((arm) => arm.rate?.high ?? 0));
    const range = (of) => (of ? `${percent(of.value)} (${percent(of.low)} to ${percent(of.high)})` : "–");
    const table = made("table", {}, made("caption", {}, `Conversion: ${found.conversion}. Rates and uplift against the control, with 95 % intervals`));
    const arm = (of) => [
      `${of.arm}${of.control ? " (control)" : ""}`, percent(of.share_now / 10_000), of.recipients, of.converted, range(of.rate),
      of.rate ? interval(of.rate, max) : "", range(of.uplift),
    ];
    fill(table, ["Arm", "Traffic", "People", "Converted", "Rate", "", "Uplift"], found.arms.map(arm));
    const bad = found.sample_ratio?.mismatch ? [made("p", { class: "bad" }, "Sample ratio mismatch: the traffic was not split by the shares of the arms. Do not use these results.")] : [];
    shown.push(made("h3", {}, id), ...bad, table);
  }
  $("experiments").replaceChildren(...(shown.length > 0 ? shown : [made("p", {}, "none")]));
}

async function estimate() {
  $("estimate").textContent = "Estimating …";
  try {
    const filter = JSON.parse($("filter").value);
    const body = JSON.stringify({ filter });
    const answer = await ask("audience/estimate", { method: "POST", body, headers: { "content-type": "application/json" } });
    const [low, high] = answer.interval;
    $("estimate").textContent =
      `About ${number(Math.round(answer.estimate))} people (${number(Math.round(low))} to ${number(Math.round(high))}) of ${number(answer.population)}: ` +
      `${number(answer.found)} of ${number(answer.sample_size)} sampled people match (${answer.seconds.toFixed(2)} s).`;
  } catch (error) {
    $("estimate").textContent = "";
    throw error;
  }
}

/** Shows the sections that need a token, without data of the previous token or tenant. */
async function open() {
  access.turn += 1;
  for (const table of document.querySelectorAll("[data-needs-token] table, #report")) table.hidden = true;
  for (const button of document.querySelectorAll("form button")) button.disabled = false;
  $("experiments").replaceChildren();
  $("estimate").textContent = "";
  for (const section of document.querySelectorAll("[data-needs-token]")) section.hidden = access.token === "";
  if (access.token === "") return say("Enter a token to see all sections. `causeway token create --role viewer --name me` creates one.");
  await attempt(async () => {
    await showJobs();
    await showExperiments(await showCatalogue());
  });
}

/** Runs an action when a form is submitted, one at a time, so that the shown answer belongs to the shown input. */
function on(form, action) {
  const button = $(form).querySelector("button");
  $(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    await attempt(action);
    button.disabled = false;
  });
}

on("lookup", showPerson);
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
setInterval(health, HEALTH_INTERVAL_MS);
