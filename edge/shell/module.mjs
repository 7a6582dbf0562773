// The WebAssembly module behind one small class: calls go through here, so that a trap in one request costs
// that request alone and the next one finds a fresh instance.

const decoder = new TextDecoder();
const NOTHING = new Uint8Array(0);

/** A call that trapped, or a module that cannot be used. */
export class ModuleFault extends Error {}

export class Module {
  #glue;
  #config;
  #keys;
  #bytes = NOTHING;
  /** What the module told of itself when it was configured: headers to gather, bounds to keep. */
  told = { headers: [], body_bytes: 0, value_chars: 0, kv_deadline_ms: 0, origin_timeout_ms: 0, sync_messages: 0 };
  /** How often a trap made a fresh instance necessary. */
  restarts = 0;

  /** `glue` is what wasm-bindgen wrote, already initialised; `config` and `keys` are JSON texts. */
  constructor(glue, config, keys) {
    this.#glue = glue;
    this.#config = config;
    this.#keys = keys;
    this.#configure();
  }

  #configure() {
    const told = JSON.parse(this.#glue.configure(this.#config ?? "", this.#keys ?? ""));
    if (told.error) throw new ModuleFault(`the configuration cannot be used: ${told.error}`);
    this.told = told;
  }

  /** Calls an export by name. A trap leaves memory in an unknown state, so the instance is replaced. */
  call(name, ...args) {
    try {
      return this.#glue[name](...args);
    } catch (error) {
      this.restarts += 1;
      this.#glue.__wbg_reset_state();
      this.#bytes = NOTHING;
      this.#configure();
      throw new ModuleFault(`${name} trapped: ${error?.message}`);
    }
  }

  /** Calls an export that gives an outcome, and takes it out of the module's memory. */
  step(name, ...args) {
    const at = this.call(name, ...args);
    // Memory that has grown lies elsewhere.
    if (this.#bytes.byteLength === 0) this.#bytes = new Uint8Array(this.#glue.linear_memory().buffer);
    const step = taken(this.#bytes, at);
    step.instance = this.restarts;
    return step;
  }

  /**
   * Goes on with a request that waits since `step`. A fresh instance counts its turns anew: of one that waited in another
   * it is told turn 0, which nothing has.
   */
  next(name, step, ...args) {
    return this.step(name, step.instance === this.restarts ? step.turn : 0, ...args);
  }
}

const [JSON_BODY, ACK, PLACE, KEYS] = [1, 2, 4, 8];

/**
 * The outcome that lies at a place in memory, as `Outcome::write` in `edge/src/answer.rs` puts it. Its body and its batch lie
 * there until the module is called again. Most outcomes are numbers and a line or two: to make JSON of them, and a view of
 * each, takes longer than to decide.
 */
export function taken(bytes, at) {
  const turn = number(bytes, at);
  const status = number(bytes, at + 4);
  const flags = number(bytes, at + 8);
  const linesAt = at + 28;
  const restAt = linesAt + number(bytes, at + 12);
  const bodyAt = restAt + number(bytes, at + 16);
  const factsAt = bodyAt + number(bytes, at + 20);
  const end = factsAt + number(bytes, at + 24);
  const lines = restAt > linesAt ? decoder.decode(bytes.subarray(linesAt, restAt)).split("\n") : undefined;
  const step = {
    turn: turn > 0 ? turn : undefined,
    status: status & 0xffff,
    facts: status >>> 16,
    json: (flags & JSON_BODY) > 0,
    ack: (flags & ACK) > 0,
    place: (flags & PLACE) > 0,
    read: (flags & KEYS) > 0 ? lines : undefined,
    headers: (flags & KEYS) > 0 ? undefined : lines?.map(pair),
    body: factsAt > bodyAt ? bytes.subarray(bodyAt, factsAt) : NOTHING,
    batch: end > factsAt ? bytes.subarray(factsAt, end) : NOTHING,
    instance: 0,
  };
  if (bodyAt > restAt) Object.assign(step, JSON.parse(decoder.decode(bytes.subarray(restAt, bodyAt))));
  return step;
}

/** The outcome with a body that stays when the module is called again. */
export function kept(step) {
  return { ...step, body: step.body.slice() };
}

function number(bytes, at) {
  return (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;
}

function pair(line) {
  const space = line.indexOf(" ");
  return [line.slice(0, space), line.slice(space + 1)];
}
