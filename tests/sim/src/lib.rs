//! A whole world from one seed: the module of the edge, the origin's intake, log, folding, publishing and jobs on a real
//! SQLite, and between them a network, a KV, a queue, clocks and a disk that do everything their contracts let them do
//! wrong. Nothing here waits and nothing runs beside anything: one seed is one history. In the manner of TigerBeetle's
//! VOPR: faults first; then they stop, and the world must converge.

pub mod browser;
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
