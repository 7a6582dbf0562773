// Calls a module as `traffic.jsonl` says, and writes how often each of its branches was taken and not taken.
// Given: the glue, the module that counts, and the file to write.

import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

import { Module } from "../shell/module.mjs";

const [gluePath, modulePath, countsPath] = process.argv.slice(2);
const glue = await import(pathToFileURL(gluePath));
const { branch_counts } = glue.initSync({ module: new WebAssembly.Module(readFileSync(modulePath)) });

const traffic = readFileSync(new URL("traffic.jsonl", import.meta.url), "utf8");
const encoder = new TextEncoder();
let module;
let step;
for (const line of traffic.trimEnd().split("\n")) {
  const { config, keys, head, body, now, seed, values } = JSON.parse(line);
  if (config !== undefined) module = new Module(glue, JSON.stringify(config), JSON.stringify(keys));
  else if (values !== undefined) step = module.next("resume", step, encoder.encode(values), "");
  else step = module.step("begin", head, encoder.encode(body), now, Uint8Array.from(seed));
  if (step?.status >= 400 || step?.gone || step?.notes) {
    const how = "cargo run -p causeway-market -- record > edge/branches/traffic.jsonl";
    throw new Error(`the module refuses what was recorded, so record it anew (${how}): ${line.slice(0, 200)}`);
  }
}
writeFileSync(countsPath, new Uint8Array(branch_counts.buffer));
