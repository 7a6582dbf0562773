// A visitor's object for strict caps: one in the world. It holds bytes, lets the module decide, stores what the module
// says before anything is answered, and passes a call on to the object that decides in its place.

import { kept } from "./module.mjs";

/** After so long without a call nothing of it counts any more: the longest window of a cap is 30 days. */
const LIFE_MS = 31 * 86_400_000;

export class Person {
  #storage;
  #env;
  #module;

  /** `module` is the worker's own; what is stored lies in one row. */
  constructor(ctx, env, module) {
    this.#storage = ctx.storage;
    this.#env = env;
    this.#module = module;
  }

  async fetch(request) {
    const call = new Uint8Array(await request.arrayBuffer());
    const step = kept(this.#take("object", call));
    if (step.hop === undefined) return new Response(step.body, { status: step.status });
    const answer = await callObject(this.#env, step);
    return new Response(this.#take("object_passed", step.body, answer).body);
  }

  /** Nobody came back: nothing is kept. */
  async alarm() {
    await this.#storage.deleteAlarm();
    await this.#storage.deleteAll();
  }

  // Reads, decides and stores without waiting in between: no other call sees a state that is about to change.
  #take(name, ...args) {
    const { sql } = this.#storage;
    sql.exec("CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 1), bytes BLOB NOT NULL)");
    const [row] = sql.exec("SELECT bytes FROM state").toArray();
    const before = row === undefined ? new Uint8Array(0) : new Uint8Array(row.bytes);
    const step = this.#module.step(name, before, ...args, Date.now());
    if (step.status === 400) return step;
    sql.exec("INSERT INTO state VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes", step.batch);
    this.#storage.setAlarm(Date.now() + LIFE_MS);
    return step;
  }
}

/** Calls the object that a step names, of its class; gives its answer's bytes, or throws. */
export async function callObject(env, { hop, class: name = "PERSONS", body }) {
  const objects = env[name];
  const object = objects.get(objects.idFromName(hop));
  const response = await object.fetch("http://object/", { method: "POST", body });
  if (response.status !== 200) throw new Error(`the object answered ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}
