//! Names of the keys of the edge KV. Every KV key is built here.

use crate::base::ids::{AlternateId, TenantId, VisitorId};

/// The key of a visitor's snapshot or tombstone.
#[must_use]
pub fn snapshot_key(tenant: &TenantId, visitor: VisitorId) -> String {
    let mut key = String::with_capacity(3 + tenant.as_str().len() + 36);
    key.extend(["v:", tenant.as_str(), ":"]);
    visitor.push_to(&mut key);
    key
}

/// The key of the lookup of an alternate id.
#[must_use]
pub fn lookup_key(tenant: &TenantId, id: AlternateId) -> String {
    format!("a:{tenant}:{}:{}", id.kind.0, id.hash)
}

/// The key of a page of the tenant's attribute names; `page` is below [`crate::base::limits::ATTRIBUTE_PAGES`].
#[must_use]
pub fn attributes_key(tenant: &TenantId, page: usize) -> String {
    format!("c:{tenant}:attributes:{page}")
}

/// The key of one version of the tenant's catalogue. Its value is written once and never changed.
#[must_use]
pub fn catalogue_key(tenant: &TenantId, version: u32) -> String {
    format!("c:{tenant}:{version}")
}

/// The key of the tenant's newest model.
#[must_use]
pub fn model_key(tenant: &TenantId) -> String {
    format!("c:{tenant}:model")
}

/// The key of the pointer to the tenant's current catalogue.
#[must_use]
pub fn pointer_key(tenant: &TenantId) -> String {
    format!("c:{tenant}:current")
}

/// The key of the tenant's traffic allocation and paces.
#[must_use]
pub fn allocation_key(tenant: &TenantId) -> String {
    format!("c:{tenant}:allocation")
}

/// The number of [`standing_keys`].
pub const STANDING_KEYS: usize = 3;

/// The keys that every isolate reads regularly: the pointer, the model and the traffic allocation, in this order.
#[must_use]
pub fn standing_keys(tenant: &TenantId) -> [String; STANDING_KEYS] {
    [pointer_key(tenant), model_key(tenant), allocation_key(tenant)]
}
