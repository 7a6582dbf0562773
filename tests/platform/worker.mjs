// Loads the bundled worker in Node, as `wrangler deploy` would upload it, and stands in for the platform's globals.

import { readdirSync } from "node:fs";
import { registerHooks } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** Listeners for uncaught errors and rejections, by event: those of the isolate that was loaded last. */
let listeners = new Map();
globalThis.addEventListener = (name, listener) => listeners.set(name, [...(listeners.get(name) ?? []), listener]);

/** Reports an uncaught error to the worker, as the platform does. */
export function reportError(error) {
  for (const listener of listeners.get("error") ?? []) listener({ error });
}

// The platform reports what a microtask throws. Node would end the process.
const { queueMicrotask } = globalThis;
globalThis.queueMicrotask = (task) =>
  queueMicrotask(() => {
    try {
      task();
    } catch (error) {
      reportError(error);
    }
  });

// What the platform makes of the bundle's modules that are not scripts.
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

/** Imports the worker from the folder of its bundle: its handlers as `default`, and its classes. Each call is a fresh isolate. */
export async function loadWorker(folder) {
  listeners = new Map();
  const entry = readdirSync(folder).find((name) => name.endsWith(".js"));
  return import(`${pathToFileURL(join(folder, entry))}?${(isolates += 1)}`);
}

/** The context of one event, with what it runs after its answer. */
export class EventContext {
  /** Promises that run after the answer. */
  after = [];

  waitUntil(promise) {
    this.after.push(promise);
  }

  /** Waits until everything has ended that runs after the answer. */
  async settle() {
    for (let at = 0; at < this.after.length; at += 1) await this.after[at];
  }
}
