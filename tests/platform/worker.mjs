// Loads the bundled worker in Node as `wrangler deploy` would upload it, and replaces the platform's globals.

import { readdirSync } from "node:fs";
import { registerHooks } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** Listeners for uncaught errors and rejections, by event; they belong to the isolate that was loaded last. */
let listeners = new Map();
globalThis.addEventListener = (name, listener) => listeners.set(name, [...(listeners.get(name) ?? []), listener]);

/** Reports an uncaught error to the worker, as the platform does. */
export function reportError(error) {
  for (const listener of listeners.get("error") ?? []) listener({ error });
}

// The platform reports an error of a microtask; Node would end the process.
const { queueMicrotask } = globalThis;
globalThis.queueMicrotask = (task) =>
  queueMicrotask(() => {
    try {
      task();
    } catch (error) {
      reportError(error);
    }
  });

// The bundle's modules that are not scripts, as the platform provides them.
registerHooks({
  load(url, context, next) {
    const source = (code) => ({ format: "module", source: `import { readFileSync } from "node:fs";\n${code}`, shortCircuit: true });
    const file = `new URL(${JSON.stringify(url)})`;
    if (url.endsWith(".wasm")) return source(`export default new WebAssembly.Module(readFileSync(${file}));`);
    if (url.endsWith(".html")) return source(`export default readFileSync(${file}, "utf8");`);
    return next(url, context);
  },
});

let isolates = 0;

/** Imports a fresh isolate of the worker from its bundle's folder: the handlers as `default`, and the classes. */
export async function loadWorker(folder) {
  listeners = new Map();
  const entry = readdirSync(folder).find((name) => name.endsWith(".js"));
  return import(`${pathToFileURL(join(folder, entry))}?${(isolates += 1)}`);
}

/** The context of one event, with the work after its answer. */
export class EventContext {
  /** Promises that run after the answer. */
  after = [];

  waitUntil(promise) {
    this.after.push(promise);
  }

  /** Waits for all work after the answer. */
  async settle() {
    for (let at = 0; at < this.after.length; at += 1) await this.after[at];
  }
}
