// Plays requests on the edge's module in Node: reads a world of `tests/parity.rs` as JSON from standard input, and prints of
// each request the SHA-256 of all that the module gave.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const glue = await import(pathToFileURL(join(folder, "engine.js")));
glue.initSync({ module: readFileSync(join(folder, "engine_bg.wasm")) });

const { config, keys, kv, requests } = JSON.parse(readFileSync(0, "utf8"));
const { error } = JSON.parse(glue.configure(config, keys));
if (error) throw new Error(error);
const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];

function play({ head, body, now, seed }) {
  const hash = createHash("sha256");
  let bytes = glue.begin(head, encoder.encode(body), now, Buffer.from(seed, "hex"));
  for (;;) {
    hash.update(bytes);
    const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    const told = JSON.parse(decoder.decode(bytes.subarray(8, 8 + length)));
    if (told.turn === undefined) return hash.digest("hex");
    // No object answers.
    const values = told.hop === undefined ? (told.read ?? []).map((key) => kv[key] ?? "").join("\n") : "";
    bytes = glue.resume(told.turn, encoder.encode(values), "");
  }
}

console.log(requests.map(play).join("\n"));
