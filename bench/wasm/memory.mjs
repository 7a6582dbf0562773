// Plays requests on the bundled worker, and prints the memory of its instance after the first part of them and at the
// end. The argument is the folder of the bundle; standard input has the world as JSON.

import { readFileSync } from "node:fs";

import { EventContext, loadWorker } from "../../tests/platform/worker.mjs";

// The memory is recorded when the instance is created.
let memory;
const { Instance } = WebAssembly;
WebAssembly.Instance = class extends Instance {
  constructor(...all) {
    super(...all);
    memory = this.exports.memory;
  }
};

const { config, keys, kv, cookies, body, now, first, requests } = JSON.parse(readFileSync(0, "utf8"));
const { default: worker } = await loadWorker(process.argv[2]);
const encoder = new TextEncoder();
const bytes = (key) => (kv[key] === undefined ? null : encoder.encode(kv[key]).buffer);
const env = {
  CAUSEWAY_CONFIG: config,
  CAUSEWAY_KEYS: keys,
  PROFILES: { get: async (key) => (Array.isArray(key) ? new Map(key.map((key) => [key, kv[key] ?? null])) : bytes(key)) },
  FACTS: { async send() {} },
};
let [placed, at] = [0, now];
Date.now = () => at;

async function play(number) {
  at = now + number * 5;
  const headers = { "content-length": String(body.length), "user-agent": "Firefox/140.0", cookie: cookies[number % cookies.length] };
  const response = await worker.fetch(new Request("https://localhost/v1/decide", { method: "POST", headers, body }), env, new EventContext());
  placed += (await response.text()).includes('"campaign":') ? 1 : 0;
}

for (let number = 0; number < first; number += 1) await play(number);
const early = memory.buffer.byteLength;
for (let number = first; number < requests; number += 1) await play(number);
console.log(JSON.stringify({ early, late: memory.buffer.byteLength, placed }));
