// A running `cargo xtask dev` for the browser tests: the one in CAUSEWAY_READY_FILE, or a separate one.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Output of `cargo xtask dev` after edge and origin answer and the ready file is written. */
const READY = /Ctrl-C stops both/;

let networks = 0;

/** A header that gives each browser its own network, because the edge limits the new visitors of a network. */
export const network = () => ({ "cf-connecting-ip": `10.${networks >> 8}.${networks++ & 255}.1` });

/**
 * Returns `{ edge, other, origin, token, own, pids, stop }`: the edge's two hostnames act as two browsers. With
 * `files`, texts by name, it starts a separate world with these files in its data folder, such as another
 * configuration.
 */
export async function world(files) {
  const readyFile = files ? null : process.env.CAUSEWAY_READY_FILE;
  if (readyFile) return describe(JSON.parse(await readFile(readyFile, "utf8")), false, async () => {});
  const folder = await mkdtemp(join(tmpdir(), "causeway-browser-"));
  const file = join(folder, "ready.json");
  await mkdir(join(folder, "data"));
  // The marker says that the folder belongs to `cargo xtask dev`, which refuses any other folder that is not empty.
  for (const [name, text] of Object.entries({ ".causeway-dev": "", ...files })) await writeFile(join(folder, "data", name), text);
  const { child, closed, errors } = start(["--data", join(folder, "data"), "--edge-port", "0", "--origin-port", "0", "--ready-file", file]);
  const stop = async () => {
    // Ends the whole group like a terminal's Ctrl-C; `cargo` does not wait for the process that it started.
    if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, "SIGINT");
    await closed;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await ready(child, closed, errors);
    return describe(JSON.parse(await readFile(file, "utf8")), true, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

function start(flags) {
  const xtask = process.env.CAUSEWAY_XTASK;
  const [program, first] = xtask ? [xtask, []] : ["cargo", ["xtask"]];
  // Standard input stays open as long as this process lives, so that an aborted test run leaves nothing running.
  const args = [...first, "dev", "--until-stdin-ends", ...flags];
  const child = spawn(program, args, { cwd: ROOT, detached: true, stdio: ["pipe", "pipe", "pipe"] });
  const errors = [];
  createInterface({ input: child.stderr }).on("line", (line) => errors.push(line));
  return { child, closed: once(child, "close"), errors };
}

async function ready(child, closed, errors) {
  const lines = createInterface({ input: child.stdout });
  const answered = new Promise((resolve) => lines.on("line", (line) => READY.test(line) && resolve(true)));
  if (await Promise.race([answered, closed.then(() => false)])) return;
  throw new Error(`cargo xtask dev ended before it was ready:\n${errors.slice(-20).join("\n")}`);
}

function describe(readyFile, own, stop) {
  const { port } = new URL(readyFile.edge_url);
  const { origin_url: origin, admin_token: token, pids } = readyFile;
  return { edge: `http://localhost:${port}`, other: `http://127.0.0.1:${port}`, origin, token, own, pids, stop };
}
