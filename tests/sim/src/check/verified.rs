//! After all faults have ended, the job `verify` finishes; read back through a location, the KV holds what the store
//! would publish; and every erasure is proven.

use causeway_origin::kv::verify::VerifyReport;

use crate::setup;
use crate::world::World;

/// The first fault in the report of the last verification.
pub fn converged(world: &mut World) -> Option<String> {
    // The pacing of each tenant is published every minute, so one such key per tenant may be in transit.
    let paces = setup::TENANTS.len() as u64;
    // A snapshot may hold a hash under a key that was retired since; no edge compares with it.
    let retires = world.plan.rotation;
    // A key that was written again is proven by the next verification, which repairs nothing.
    let put = match &world.verified {
        Some(VerifyReport { missing: 0, not_erased: 0, keys: 1.., differs, waiting, put, .. })
            if (*differs == 0 || retires) && *waiting <= paces =>
        {
            *put
        }
        Some(verified) => return Some(format!("the KV differs from the store: {verified:?}")),
        None => return Some("the verification of the KV does not finish".to_owned()),
    };
    const UNPROVEN: &str = "SELECT count(DISTINCT tenant || ' ' || kind || ' ' || hex(subject)) FROM erasure_keys
        WHERE verified IS NULL";
    let Some((conn, _)) = world.origin.store() else { return Some("the origin is down".to_owned()) };
    let unproven: u32 = conn.query_row(UNPROVEN, [], |row| row.get(0)).unwrap_or(u32::MAX);
    (u64::from(unproven) > put).then(|| format!("{unproven} keys of erasures were never proven"))
}
