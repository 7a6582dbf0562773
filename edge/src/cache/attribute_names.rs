//! The tenant's attribute names and types as the edge reads them from the KV, cached for a minute.

use std::collections::BTreeMap;
use std::rc::Rc;

use causeway_shared::base::ids::{Millis, TenantId};
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::wire::{self, kv_keys};

/// Time for which cached names are used, in milliseconds.
const FRESH_MS: u64 = 60_000;
/// Tenants whose names are cached.
const CACHED_TENANTS: usize = 8;

/// The KV keys of a tenant's attribute names, one per page.
pub(crate) fn name_keys(tenant: &TenantId) -> impl Iterator<Item = String> + '_ {
    (0..limits::ATTRIBUTE_PAGES).map(|page| kv_keys::attributes_key(tenant, page))
}

/// Reads the pages of attribute names, up to the first page that is absent or not full.
///
/// # Errors
/// [`InvalidNames`] if a page is invalid. The names are then unknown as a whole, because a part of them would refuse
/// attributes whose names are on the other pages.
pub(crate) fn read_names<'a>(
    tenant: &TenantId,
    pages: impl Iterator<Item = Option<&'a [u8]>>,
) -> Result<NameDictionary, InvalidNames> {
    let mut entries = Vec::new();
    for (key, page) in name_keys(tenant).zip(pages) {
        let Some(value) = page else { break };
        let page = wire::kv::decode_names(&key, value).map_err(|_| InvalidNames)?;
        let is_full = page.len() == limits::ATTRIBUTE_PAGE;
        entries.extend(page);
        if !is_full {
            break;
        }
    }
    NameDictionary::from_entries(entries).ok_or(InvalidNames)
}

/// A page of attribute names that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidNames;

/// The attribute names that the isolate read within the last minute, by tenant, each with the time of the read.
#[derive(Debug, Default)]
pub(crate) struct AttributeNameCache(BTreeMap<TenantId, (Millis, Rc<NameDictionary>)>);

impl AttributeNameCache {
    /// The names, if they were read within the last minute.
    pub(crate) fn fresh(&self, tenant: &TenantId, now: Millis) -> Option<Rc<NameDictionary>> {
        self.0.get(tenant).filter(|(at, _)| is_fresh(*at, now)).map(|(_, names)| Rc::clone(names))
    }

    /// Stores names that were read. An empty dictionary is not stored, so that the first names take effect at once.
    pub(crate) fn store(&mut self, tenant: &TenantId, now: Millis, names: &Rc<NameDictionary>) {
        if names.is_empty() {
            return;
        }
        self.0.insert(tenant.clone(), (now, Rc::clone(names)));
        self.0.retain(|_, (at, _)| is_fresh(*at, now));
        let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(tenant, _)| tenant.clone());
        if let Some(oldest) = oldest.filter(|_| self.0.len() > CACHED_TENANTS) {
            self.0.remove(&oldest);
        }
    }
}

fn is_fresh(at: Millis, now: Millis) -> bool {
    now.checked_sub(at).is_some_and(|age| age < FRESH_MS)
}
