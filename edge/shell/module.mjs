// The WebAssembly module behind one small class: calls go through here, so that a trap in one request costs
// that request alone and the next one finds a fresh instance.

const decoder = new TextDecoder();

/** A call that trapped, or a module that cannot be used. */
export class ModuleFault extends Error {}

export class Module {
  #glue;
  #config;
  #keys;
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
      this.#configure();
      throw new ModuleFault(`${name} trapped: ${error?.message}`);
    }
  }

  /** Calls an export that gives an outcome, and takes it apart: head fields, `body`, `batch`. */
  step(name, ...args) {
    const bytes = this.call(name, ...args);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const bodyAt = 8 + view.getUint32(0, true);
    const factsAt = bodyAt + view.getUint32(4, true);
    const step = JSON.parse(decoder.decode(bytes.subarray(8, bodyAt)));
    step.body = bytes.subarray(bodyAt, factsAt);
    step.batch = bytes.subarray(factsAt);
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
