//! Once all is calm, the job `verify` comes to an end; read back through a location, the KV holds what the store would have
//! it hold; and every erasure is proven.

use causeway_origin::kv::verify::VerifyReport;

use crate::setup;
use crate::world::World;

/// What the last verification came to.
pub fn converged(world: &mut World) -> Option<String> {
    // Each tenant's paces are made anew every minute: something is always on its way.
    let paces = setup::TENANTS.len() as u64;
    // A snapshot may hold a hash under a key that was retired since: no edge compares by it.
    let retires = world.plan.rotation;
    // Written anew, it is proven by the next verification, which repairs nothing.
    let put = match &world.verified {
        Some(VerifyReport { missing: 0, not_erased: 0, keys: 1.., differs, waiting, put, .. })
            if (*differs == 0 || retires) && *waiting <= paces =>
        {
            *put
        }
        Some(verified) => return Some(format!("the KV is not as the store would have it: {verified:?}")),
        None => return Some("the verification of the KV comes to no end".to_owned()),
    };
    const UNPROVEN: &str = "SELECT count(DISTINCT tenant || ' ' || kind || ' ' || hex(subject)) FROM erasure_keys
        WHERE verified IS NULL";
    let Some((conn, _)) = world.origin.store() else { return Some("the origin is down".to_owned()) };
    let unproven: u32 = conn.query_row(UNPROVEN, [], |row| row.get(0)).unwrap_or(u32::MAX);
    (u64::from(unproven) > put).then(|| format!("{unproven} keys of erasures were never proven"))
}
