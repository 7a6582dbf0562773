// Plays the requests of tests/tests/parity.rs on the bundled worker: reads the world as JSON from standard input, and
// prints for each request the SHA-256 of its status, headers, body and facts.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import { EventContext, loadWorker } from "./worker.mjs";

const { config, keys, kv, requests } = JSON.parse(readFileSync(0, "utf8"));

// The worker draws random bytes for many requests at once; each request takes 32 of them, in order.
const seeds = Buffer.from(requests.map(({ seed }) => seed).join(""), "hex");
let drawn = 0;
crypto.getRandomValues = (to) => {
  to.set(seeds.subarray(drawn, drawn + to.length));
  drawn += to.length;
  return to;
};
let now = 0;
Date.now = () => now;

// No object is bound here, and the worker logs that for each request; the log is dropped.
console.log = () => {};

const { default: worker } = await loadWorker(process.argv[2]);

let facts = [];
const encoder = new TextEncoder();
const env = {
  CAUSEWAY_CONFIG: config,
  CAUSEWAY_KEYS: keys,
  ORIGIN_URL: "http://localhost",
  PROFILES: {
    async get(key, form) {
      if (Array.isArray(key)) return new Map(key.map((key) => [key, kv[key] ?? null]));
      if (form !== "arrayBuffer") throw new Error(`a value of the form ${form}`);
      return kv[key] === undefined ? null : encoder.encode(kv[key]).buffer;
    },
  },
  FACTS: {
    async sendBatch(messages) {
      facts.push(...messages.map(({ body }) => body.slice()));
    },
  },
};

async function play(request) {
  facts = [];
  now = request.now;
  const context = new EventContext();
  const { method, url, headers, body } = request;
  const response = await worker.fetch(new Request(url, { method, headers, body }), env, context);
  await context.settle();
  const hash = createHash("sha256");
  hash.update(`${response.status}\n`);
  for (const [name, value] of [...response.headers].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))) hash.update(`${name}: ${value}\n`);
  hash.update(new Uint8Array(await response.arrayBuffer()));
  for (const message of facts) hash.update(message);
  return hash.digest("hex");
}

const digests = [];
for (const request of requests) digests.push(await play(request));
process.stdout.write(`${digests.join("\n")}\n`);
