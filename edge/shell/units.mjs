// An object of a limited offer: one of the sixteen of its campaign. It holds rows, lets the module decide, stores what the
// module says before anything is answered, and passes a call on to the next of them when it has no unit left.

import { kept } from "./module.mjs";
import { callObject } from "./person.mjs";

const DAY_MS = 86_400_000;

/** How long it is remembered who got a unit: by then snapshots have said so for long. What was given stays given. */
const ROW_LIFE_MS = 31 * DAY_MS;

export class Units {
  #storage;
  #env;
  #module;

  /** `module` is the worker's own. */
  constructor(ctx, env, module) {
    this.#storage = ctx.storage;
    this.#env = env;
    this.#module = module;
  }

  async fetch(request) {
    const call = new Uint8Array(await request.arrayBuffer());
    const step = kept(this.#take("unit", call));
    if ((await this.#storage.getAlarm()) === null) await this.#storage.setAlarm(Date.now() + DAY_MS);
    if (step.hop === undefined) return new Response(step.body, { status: step.status });
    const answer = await callObject(this.#env, step);
    return new Response(this.#take("unit_passed", step.body, answer).body);
  }

  /** Forgets visitors, once a day; after a day without any there is nothing more to forget. */
  async alarm() {
    const { sql } = this.#storage;
    sql.exec("DELETE FROM rows WHERE key <> 'stock' AND at < ?", Date.now() - ROW_LIFE_MS);
    if (sql.exec("SELECT 1 FROM rows WHERE key <> 'stock' LIMIT 1").toArray().length > 0) {
      await this.#storage.setAlarm(Date.now() + DAY_MS);
    }
  }

  // Reads, decides and stores without waiting in between: no other call sees a state that is about to change.
  #take(name, call, ...args) {
    const { sql } = this.#storage;
    sql.exec("CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID");
    const asked = this.#module.step("unit_rows", call);
    if (asked.status === 400) return asked;
    const values = asked.read.map((key) => sql.exec("SELECT value FROM rows WHERE key = ?", key).toArray()[0]?.value ?? "");
    const step = this.#module.step(name, new TextEncoder().encode(values.join("\n")), call, ...args);
    if (step.status === 400) return step;
    for (const line of new TextDecoder().decode(step.batch).split("\n")) {
      const space = line.indexOf(" ");
      const [key, value] = [line.slice(0, space), line.slice(space + 1)];
      if (value === "") sql.exec("DELETE FROM rows WHERE key = ?", key);
      else sql.exec("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", key, value, Date.now());
    }
    return step;
  }
}
