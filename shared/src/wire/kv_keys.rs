//! The keys of the edge KV. Every key that names a visitor or an alternate id is built here.

use crate::base::ids::{AlternateId, TenantId, VisitorId};

/// Where a visitor's snapshot or tombstone is.
#[must_use]
pub fn snapshot_key(tenant: &TenantId, visitor: VisitorId) -> String {
    let mut key = String::with_capacity(3 + tenant.as_str().len() + 36);
    key.extend(["v:", tenant.as_str(), ":"]);
    visitor.push_to(&mut key);
    key
}

/// Where the lookup of an alternate id is.
#[must_use]
pub fn lookup_key(tenant: &TenantId, id: AlternateId) -> String {
    format!("a:{tenant}:{}:{}", id.kind.0, id.hash)
}

/// Where a page of the tenant's names of attributes is; `page` is below [`crate::base::limits::ATTRIBUTE_PAGES`].
#[must_use]
pub fn attributes_key(tenant: &TenantId, page: usize) -> String {
    format!("c:{tenant}:attributes:{page}")
}

/// Where a version of the tenant's catalogue is: written once, never changed.
#[must_use]
pub fn catalogue_key(tenant: &TenantId, version: u32) -> String {
    format!("c:{tenant}:{version}")
}

/// Where the tenant's newest model is.
#[must_use]
pub fn model_key(tenant: &TenantId) -> String {
    format!("c:{tenant}:model")
}

/// Where the pointer to the tenant's current catalogue is.
#[must_use]
pub fn pointer_key(tenant: &TenantId) -> String {
    format!("c:{tenant}:current")
}

/// Where the tenant's steering is.
#[must_use]
pub fn steering_key(tenant: &TenantId) -> String {
    format!("c:{tenant}:steering")
}

/// How many [`standing_keys`] there are.
pub const STANDING_KEYS: usize = 3;

/// What every isolate reads again and again, in this order: the pointer, the model, the steering.
#[must_use]
pub fn standing_keys(tenant: &TenantId) -> [String; STANDING_KEYS] {
    [pointer_key(tenant), model_key(tenant), steering_key(tenant)]
}
