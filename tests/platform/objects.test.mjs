// The Durable Objects of strict caps and of limited offers, over SQLite.

import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";

import { Browser, Kv, STRICT, bindObjects, bindings, decide, freshWorker, never, takeLog } from "./world.mjs";
import { readOfferNumber, writeOfferCall } from "./wire.mjs";

const DAY_MS = 86_400_000;

let classes;
let worker;
let env;
beforeEach(async () => {
  classes = await freshWorker();
  worker = classes.default;
  env = bindObjects(classes, { PROFILES: new Kv(STRICT) });
  takeLog();
});

/** Calls an object with bytes. */
const call = (namespace, name, body) => namespace.get(name).fetch(new Request("http://object/", { method: "POST", body }));

/** Logs the calls of strict-cap objects: name and bytes. */
function logCalls() {
  const calls = [];
  const get = env.STRICT_CAPS.get.bind(env.STRICT_CAPS);
  env.STRICT_CAPS.get = (name) => ({
    async fetch(request) {
      calls.push({ name, body: await request.clone().bytes() });
      return get(name).fetch(request);
    },
  });
  return calls;
}

const storeOf = (storage) => storage.rows("SELECT bytes FROM state").map(({ bytes }) => Buffer.from(bytes));

describe("a strict-cap object", () => {
  test("stores before it answers, and grants a limit of one once", async () => {
    const calls = logCalls();
    const { json } = await decide(worker, env);
    assert.equal(json.decisions[0].ad.id, "red");
    const [{ name, body }] = calls;
    assert.equal(name, `demo:${json.visitor}`);
    const { storage } = env.STRICT_CAPS.named(name);
    assert.equal(storeOf(storage).length, 1);
    assert.ok(storage.alarm > Date.now() + 30 * DAY_MS);
    const again = await (await call(env.STRICT_CAPS, name, body)).bytes();
    const fresh = await (await call(env.STRICT_CAPS, "demo:fresh", body)).bytes();
    assert.ok(again.length < fresh.length, "an object that has granted it grants it to no second page");
  });

  test("refuses the second page of a visitor whose limit is used up", async () => {
    const browser = new Browser(worker, env);
    assert.equal((await browser.decide()).json.decisions[0].ad.id, "red");
    // A tab that does not know of the first page, because its cookie of recent pages is missing.
    browser.cookies.delete("cw_recent");
    const { json } = await browser.decide();
    assert.equal(json.decisions[0].ad.id, "house");
    assert.equal(env.STRICT_CAPS.made.size, 1);
  });

  test("has loaded its state when it was made again", async () => {
    const browser = new Browser(worker, env);
    await browser.decide();
    const [[name, { storage }]] = env.STRICT_CAPS.made;
    env.STRICT_CAPS.made.set(name, { storage, object: new classes.StrictCapObject({ storage }, env) });
    browser.cookies.delete("cw_recent");
    assert.equal((await browser.decide()).json.decisions[0].ad.id, "house");
  });

  test("answers a call that is not of its form with 400 and stores nothing", async () => {
    assert.equal((await call(env.STRICT_CAPS, "demo:x", Uint8Array.of(9, 9))).status, 400);
    const { storage } = env.STRICT_CAPS.named("demo:x");
    assert.deepEqual([storeOf(storage), storage.alarm], [[], null]);
  });

  test("deletes everything on its alarm, and begins again", async () => {
    const calls = logCalls();
    await decide(worker, env);
    const [{ name, body }] = calls;
    const { storage, object } = env.STRICT_CAPS.named(name);
    await object.alarm();
    assert.deepEqual([storage.rows("SELECT name FROM sqlite_schema"), storage.alarm], [[], null]);
    assert.equal((await call(env.STRICT_CAPS, name, body)).status, 200);
    assert.equal(storeOf(storage).length, 1);
  });

  test("grants a limit of one to one of 20 pages that ask at once", async () => {
    const browser = new Browser(worker, bindings());
    await browser.decide();
    // The catalogue is due again; each tab knows only of the first page.
    const tabs = Array.from({ length: 20 }, () => Object.assign(new Browser(worker, env), { cookies: new Map(browser.cookies) }));
    const { default: fresh, StrictCapObject } = await freshWorker();
    env.STRICT_CAPS.type = StrictCapObject;
    const warm = await decide(fresh, env);
    assert.equal(warm.json.catalogue, "c-1");
    const pages = await Promise.all(tabs.map((tab) => Object.assign(tab, { worker: fresh }).decide()));
    const ads = pages.map(({ json }) => json.decisions[0].ad.id);
    assert.equal(ads.filter((ad) => ad === "red").length, 1, `${ads}`);
    assert.equal(ads.filter((ad) => ad === "house").length, 19, `${ads}`);
  });
});

describe("a call of an object", () => {
  test("has its own bytes while others are answered", async () => {
    const bodies = [];
    env.STRICT_CAPS.get = () => ({
      async fetch(request) {
        bodies.push(await request.bytes());
        return never();
      },
    });
    const pages = await Promise.all([decide(worker, env), decide(worker, env)]);
    assert.ok(pages.every(({ json }) => json.degraded.includes("strict_unanswered")));
    assert.equal(bodies.length, 2);
    for (const [index, { json }] of pages.entries()) {
      const own = Buffer.from(json.visitor.replaceAll("-", ""), "hex");
      assert.deepEqual(bodies.map((body) => Buffer.from(body).includes(own)), [index === 0, index === 1]);
    }
  });

  test("that fails is logged and leaves the page without the ad", async () => {
    const failures = [
      [async () => new Response("", { status: 400 }), /the object answered 400/],
      [async () => Promise.reject(new Error("the object was reset")), /the object was reset/],
      [
        () => {
          throw new Error("no such object");
        },
        /no such object/,
      ],
    ];
    for (const [fetch, message] of failures) {
      env.STRICT_CAPS.get = () => ({ fetch });
      const { json } = await decide(worker, env);
      assert.deepEqual([json.decisions[0].ad.id, json.degraded], ["house", ["strict_unanswered"]]);
      const [line] = takeLog();
      assert.equal(line.event, "object_failed");
      assert.match(line.message, message);
    }
    const unbound = bindings({ PROFILES: new Kv(STRICT) });
    assert.deepEqual((await decide(worker, unbound)).json.degraded, ["strict_unanswered"]);
  });
});

describe("an offer object", () => {
  const NAME = "demo:7:3";
  const ask = async (limit, visitor) => {
    const body = writeOfferCall({ tenant: "demo", campaign: 7, limit, range: 3, visitor });
    const answer = await call(env.OFFERS, NAME, body);
    assert.equal(answer.status, 200);
    return readOfferNumber(await answer.bytes());
  };
  const keys = (storage) => storage.rows("SELECT key FROM rows").map(({ key }) => key);

  test("gives its codes, asks the others when it has none left, and gives a visitor the same code again", async () => {
    assert.deepEqual([await ask(5, 1), await ask(5, 1)], [3, 3]);
    // Its range has one of five codes.
    const given = [];
    for (const visitor of [2, 3, 4, 5]) given.push(await ask(5, visitor));
    assert.deepEqual(given, [4, 0, 1, 2]);
    assert.equal(await ask(5, 6), undefined);
    assert.equal(await ask(5, 3), 0);
    // A raised limit has codes for it again.
    assert.equal(await ask(20, 6), 19);
    assert.equal(keys(env.OFFERS.named(NAME).storage).length, 7);
  });

  test("gives no code twice to visitors that ask at once", async () => {
    const numbers = await Promise.all(Array.from({ length: 40 }, (_, visitor) => ask(30, visitor)));
    const given = numbers.filter((number) => number !== undefined);
    assert.deepEqual([given.length, new Set(given).size, Math.max(...given)], [30, 30, 29]);
  });

  test("answers for itself while its storage is read, and stores before it asks another", async () => {
    await ask(5, 1);
    const { storage } = env.OFFERS.named(NAME);
    const get = env.OFFERS.get.bind(env.OFFERS);
    const visitors = () => storage.rows("SELECT key FROM rows WHERE key <> 'stock'").length;
    const before = visitors();
    let seen;
    env.OFFERS.get = (name) => ({
      fetch(request) {
        if (name !== NAME) seen ??= visitors();
        return get(name).fetch(request);
      },
    });
    assert.equal(await ask(5, 2), 4);
    assert.equal(seen, before + 1);
  });

  test("fails where the next object fails, remembers that it asked, and asks again", async () => {
    await ask(2, 1);
    const get = env.OFFERS.get.bind(env.OFFERS);
    env.OFFERS.get = (name) => (name === "demo:7:4" ? { fetch: async () => Promise.reject(new Error("the object was reset")) } : get(name));
    const failed = writeOfferCall({ tenant: "demo", campaign: 7, limit: 2, range: 3, visitor: 2 });
    await assert.rejects(call(env.OFFERS, NAME, failed), /the object was reset/);
    env.OFFERS.get = get;
    assert.equal(await ask(2, 2), 1);
  });

  test("deletes the rows of visitors after 31 days, once a day while there are any", async () => {
    await ask(5, 1);
    await ask(5, 2);
    const { storage, object } = env.OFFERS.named(NAME);
    assert.ok(Math.abs(storage.alarm - (Date.now() + DAY_MS)) < 60_000);
    const age = (days, where) => storage.database.exec(`UPDATE rows SET at = ${Date.now() - days * DAY_MS} WHERE ${where}`);
    age(32, "key = (SELECT key FROM rows WHERE key <> 'stock' LIMIT 1)");
    storage.alarm = null;
    await object.alarm();
    assert.equal(keys(storage).length, 2);
    assert.ok(storage.alarm > Date.now());
    age(32, "true");
    storage.alarm = null;
    await object.alarm();
    assert.deepEqual([keys(storage), storage.alarm], [["stock"], null]);
    // An offer code that was given stays given.
    assert.equal(await ask(5, 3), 0);
  });

  test("answers a call that is not of its form with 400 and stores nothing", async () => {
    assert.equal((await call(env.OFFERS, NAME, Uint8Array.of(9))).status, 400);
    assert.deepEqual(env.OFFERS.named(NAME).storage.rows("SELECT name FROM sqlite_schema"), []);
  });
});
