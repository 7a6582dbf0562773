//! The state that an instance of the worker has once: the engine, and random bytes drawn in advance.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use causeway_shared::base::ids::Millis;
use causeway_shared::settings::facts_queues;
use js_sys::Date;
use worker::Env;

use super::bindings::set_header_names;
use super::gathered::GatheredFacts;
use crate::engine::Engine;

/// Number of random bytes that are drawn at a time. A request uses 32.
const DRAWN_BYTES: usize = 4_096;
/// Most late reads that may continue after their answers. Each may hold 4 MB, and an isolate has 128 MB.
const LATE_READS: usize = 8;
/// Time for which the platform lets a read continue after the answer, in milliseconds.
const LATE_READ_MS: u64 = 30_000;

/// The state of one instance.
pub(super) struct Isolate {
    pub(super) engine: RefCell<Engine>,
    /// Time at which a request last reported the counters to the origin.
    pub(super) counters_reported: Cell<Millis>,
    /// The catalogue that the origin named last.
    pub(super) origin_catalogue: RefCell<Option<String>>,
    /// Facts of answered requests.
    pub(super) gathered: GatheredFacts,
    /// Facts queues whose missing binding was noted, one bit for each.
    unbound: Cell<u32>,
    random: RefCell<RandomPool>,
    /// Start times of the late reads that continue.
    late_reads: RefCell<VecDeque<Millis>>,
}

struct RandomPool {
    drawn: [u8; DRAWN_BYTES],
    used: usize,
}

thread_local! {
    static ISOLATE: RefCell<Option<&'static Isolate>> = const { RefCell::new(None) };
}

/// The present time in milliseconds since the epoch. The platform's clock does not advance during a computation.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates: every time is valid"
)]
pub(super) fn now() -> Millis {
    Date::now() as Millis
}

/// The text of a variable or a secret; empty if it is not set.
pub(super) fn read_variable(env: &Env, name: &str) -> String {
    env.var(name).map(|value| value.to_string()).unwrap_or_default()
}

/// The instance's state, configured by the first event.
///
/// # Errors
/// The reason why the configuration cannot be used. The next event tries again.
pub(super) fn isolate(env: &Env) -> Result<&'static Isolate, String> {
    if let Some(isolate) = ISOLATE.with_borrow(|isolate| *isolate) {
        return Ok(isolate);
    }
    let engine = Engine::configure(&read_variable(env, "CAUSEWAY_CONFIG"), &read_variable(env, "CAUSEWAY_KEYS"))
        .map_err(|error| format!("the configuration cannot be used: {error}"))?;
    // The worker removes the last one (`fetch::RequestHead`).
    set_header_names(&[engine.header_names(), vec!["content-length".to_owned()]].concat().join("\n"));
    // Leaked once for each instance, which lives as long as its isolate.
    let isolate: &'static Isolate = Box::leak(Box::new(Isolate {
        engine: RefCell::new(engine),
        counters_reported: Cell::new(0),
        origin_catalogue: RefCell::default(),
        gathered: GatheredFacts::default(),
        unbound: Cell::new(0),
        random: RefCell::new(RandomPool { drawn: [0; DRAWN_BYTES], used: DRAWN_BYTES }),
        late_reads: RefCell::default(),
    }));
    ISOLATE.set(Some(isolate));
    Ok(isolate)
}

impl Isolate {
    /// Random bytes that no other request gets.
    ///
    /// # Errors
    /// If the platform returns no random bytes.
    pub(super) fn draw<const N: usize>(&self) -> Result<[u8; N], getrandom::Error> {
        let mut pool = self.random.borrow_mut();
        if pool.drawn.len() - pool.used < N {
            getrandom::fill(&mut pool.drawn)?;
            pool.used = 0;
        }
        let from = pool.used;
        pool.used += N;
        let mut bytes = [0; N];
        bytes.iter_mut().zip(pool.drawn.iter().skip(from)).for_each(|(to, byte)| *to = *byte);
        Ok(bytes)
    }

    /// The facts queue of a message with this hash.
    pub(super) fn choose_queue(&self, hash: u64) -> u32 {
        facts_queues::choose_queue(hash, self.engine.borrow().facts_queues())
    }

    /// Whether a facts queue without a binding is noted for the first time.
    pub(super) fn is_first_note(&self, queue: u32) -> bool {
        let (known, bit) = (self.unbound.get(), 1u32.checked_shl(queue).unwrap_or_default());
        self.unbound.set(known | bit);
        known & bit == 0
    }

    /// Whether one more late read may continue after its answer.
    pub(super) fn admits_late_read(&self, now: Millis) -> bool {
        let mut late = self.late_reads.borrow_mut();
        late.retain(|began| now.saturating_sub(*began) < LATE_READ_MS);
        let admits = late.len() < LATE_READS;
        if admits {
            late.push_back(now);
        }
        admits
    }
}
