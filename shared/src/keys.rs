//! Keys, and every value that a key signs: cookies, tokens, member proofs, calls from the edge to the origin.

pub mod ad_token;
pub mod cookie;
pub mod key_ring;
pub mod proof;
pub mod sync_auth;
pub mod visitor_token;
