//! A simulator that plays a whole world from one seed: the edge module, and the origin's intake, log, folding,
//! publishing and jobs on a real SQLite. Between them are a network, a KV, a queue, clocks and a disk that fail in
//! every way that their contracts allow. Nothing waits and nothing runs in parallel, so one seed is one history. As in
//! TigerBeetle's VOPR, faults come first; then they stop, and the world must converge.

pub mod browser;
pub mod bulk;
pub mod check;
pub mod dice;
pub mod disk;
pub mod edge;
pub mod kv;
pub mod measure;
pub mod model;
pub mod objects;
pub mod operators;
pub mod origin;
pub mod queue;
pub mod setup;
pub mod sync;
pub mod world;
