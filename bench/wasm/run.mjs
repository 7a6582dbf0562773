// Runs the module's loops for the bench, which writes one request per line and reads one answer per line:
// {"what": "counting", "count": 1000, "times": 500} → {"answer": …, "us": …}.
// The argument is the folder of the module and its glue code.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const glue = await import(pathToFileURL(join(folder, "engine.js")));
glue.initSync({ module: readFileSync(join(folder, "engine_bg.wasm")) });

const made = new Map();

const sorts = { counting: glue.Counting, segments: glue.Segments, filters: glue.Filters, decide: glue.Deciding, load: glue.Loading };

function workload(what, count) {
  const key = `${what} ${count}`;
  if (!made.has(key)) {
    made.set(key, new sorts[what](count));
  }
  return made.get(key);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { what, count, times } = JSON.parse(line);
  const work = workload(what, count);
  const start = process.hrtime.bigint();
  const answer = work.run(times);
  const us = Number(process.hrtime.bigint() - start) / 1_000;
  console.log(JSON.stringify({ answer, us: us / times }));
}
