// Plays requests on the edge's module in Node: reads a world of `tests/parity.rs` as JSON from standard input, and prints of
// each request the SHA-256 of all that the module gave.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { taken } from "../../edge/shell/module.mjs";

const folder = process.argv[2];
const glue = await import(pathToFileURL(join(folder, "engine.js")));
glue.initSync({ module: readFileSync(join(folder, "engine_bg.wasm")) });

const { config, keys, kv, requests } = JSON.parse(readFileSync(0, "utf8"));
const { error } = JSON.parse(glue.configure(config, keys));
if (error) throw new Error(error);
const encoder = new TextEncoder();
const all = () => new Uint8Array(glue.linear_memory().buffer);

/** The bytes of an outcome: seven numbers, the last four of them lengths of what lies behind. */
function bytes(at) {
  const numbers = new DataView(glue.linear_memory().buffer, at, 28);
  const length = [12, 16, 20, 24].reduce((sum, place) => sum + numbers.getUint32(place, true), 28);
  return all().subarray(at, at + length);
}

function play({ head, body, now, seed }) {
  const hash = createHash("sha256");
  let at = glue.begin(head, encoder.encode(body), now, Buffer.from(seed, "hex"));
  for (;;) {
    hash.update(bytes(at));
    const told = taken(all(), at);
    if (told.turn === undefined) return hash.digest("hex");
    // No object answers.
    const values = told.hop === undefined ? (told.read ?? []).map((key) => kv[key] ?? "").join("\n") : "";
    at = glue.resume(told.turn, encoder.encode(values), "");
  }
}

console.log(requests.map(play).join("\n"));
