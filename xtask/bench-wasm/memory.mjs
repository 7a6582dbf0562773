// Plays requests on the edge's module, and says how much memory it has: after the first part of them, and at the end.
// Started with the folder of the module and its glue; reads the world as JSON from standard input.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { taken } from "../../edge/shell/module.mjs";

const folder = process.argv[2];
const glue = await import(pathToFileURL(join(folder, "engine.js")));
const { memory } = glue.initSync({ module: readFileSync(join(folder, "engine_bg.wasm")) });

const { config, keys, kv, heads, body, now, first, requests } = JSON.parse(readFileSync(0, "utf8"));
const { error } = JSON.parse(glue.configure(config, keys));
if (error) throw new Error(error);
const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];
const [call, seed] = [encoder.encode(body), new Uint8Array(32)];
let placed = 0;

function play(number) {
  new DataView(seed.buffer).setUint32(0, number);
  let at = glue.begin(heads[number % heads.length], call, now + number * 5, seed);
  let told;
  for (;;) {
    told = taken(new Uint8Array(memory.buffer), at);
    if (told.turn === undefined) break;
    const values = (told.read ?? []).map((key) => kv[key] ?? "").join("\n");
    at = glue.resume(told.turn, encoder.encode(values), "");
  }
  placed += decoder.decode(told.body).includes('"campaign":') ? 1 : 0;
}

for (let number = 0; number < first; number += 1) play(number);
const early = memory.buffer.byteLength;
for (let number = first; number < requests; number += 1) play(number);
console.log(JSON.stringify({ early, late: memory.buffer.byteLength, placed }));
