// A running `cargo xtask dev` for the browser tests: the one that CAUSEWAY_READY_FILE tells of, or one of their own.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Says that both answer; printed after the ready file was written. */
const READY = /Ctrl-C stops both/;

let networks = 0;

/** The header that says which network a browser is in: one of its own, as the edge bounds the new visitors of each. */
export const network = () => ({ "cf-connecting-ip": `10.${networks >> 8}.${networks++ & 255}.1` });

/**
 * Gives `{ edge, other, origin, token, own, pids, stop }`: the edge's two hostnames are two browsers. With `files`, texts
 * by name, it is one of their own with these in its data folder, such as another configuration.
 */
export async function world(files) {
  const told = files ? null : process.env.CAUSEWAY_READY_FILE;
  if (told) return describe(JSON.parse(await readFile(told, "utf8")), false, async () => {});
  const folder = await mkdtemp(join(tmpdir(), "causeway-browser-"));
  const file = join(folder, "ready.json");
  await mkdir(join(folder, "data"));
  // The marker says that the folder is for `cargo xtask dev`, which takes no other that holds something.
  for (const [name, text] of Object.entries({ ".causeway-dev": "", ...files })) await writeFile(join(folder, "data", name), text);
  const { child, closed, said } = start(["--data", join(folder, "data"), "--edge-port", "0", "--origin-port", "0", "--ready-file", file]);
  const stop = async () => {
    // The whole group, as a terminal's Ctrl-C would; `cargo` in front of it does not wait for what it ran.
    if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, "SIGINT");
    await closed;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await ready(child, closed, said);
    return describe(JSON.parse(await readFile(file, "utf8")), true, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

function start(flags) {
  const xtask = process.env.CAUSEWAY_XTASK;
  const [program, first] = xtask ? [xtask, []] : ["cargo", ["xtask"]];
  // Standard input stays open as long as this process lives: a test run that dies leaves nothing running.
  const args = [...first, "dev", "--until-stdin-ends", ...flags];
  const child = spawn(program, args, { cwd: ROOT, detached: true, stdio: ["pipe", "pipe", "pipe"] });
  const said = [];
  createInterface({ input: child.stderr }).on("line", (line) => said.push(line));
  return { child, closed: once(child, "close"), said };
}

async function ready(child, closed, said) {
  const lines = createInterface({ input: child.stdout });
  const answered = new Promise((resolve) => lines.on("line", (line) => READY.test(line) && resolve(true)));
  if (await Promise.race([answered, closed.then(() => false)])) return;
  throw new Error(`cargo xtask dev ended before it was ready:\n${said.slice(-20).join("\n")}`);
}

function describe(told, own, stop) {
  const { port } = new URL(told.edge_url);
  const { origin_url: origin, admin_token: token, pids } = told;
  return { edge: `http://localhost:${port}`, other: `http://127.0.0.1:${port}`, origin, token, own, pids, stop };
}
