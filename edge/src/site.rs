//! One tenant at the edge: its configuration and its keys.

use causeway_shared::base::ids::{Millis, TenantId, VisitorId};
use causeway_shared::keys::key_ring::{self, TenantKeys};
use causeway_shared::keys::visitor_token;
use causeway_shared::settings::config::TenantConfig;
use serde_json::value::{RawValue, to_raw_value};

/// One tenant with its keys.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) tenant: TenantConfig,
    pub(crate) id: TenantId,
    pub(crate) keys: TenantKeys,
    /// The key that admits `"explain": true`.
    explain: Option<String>,
    /// The house ad as JSON, as answers show it.
    pub(crate) house_ad: Option<Box<RawValue>>,
}

/// A query to one of the platform's rate limiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// The limiter's binding.
    pub binding: String,
    /// The key by which the limiter counts. For minted visitors the worker appends the client's network.
    pub key: String,
}

impl Site {
    pub(crate) fn new(tenant: TenantConfig, id: TenantId, keys: TenantKeys, explain: Option<String>) -> Self {
        let house_ad = tenant.house_ad.as_ref().and_then(|ad| to_raw_value(ad).ok());
        Self { tenant, id, keys, explain, house_ad }
    }

    /// Whether `key` admits explanations.
    pub(crate) fn admits_explain(&self, key: &str) -> bool {
        self.explain.as_deref().is_some_and(|own| key_ring::is_same(own, key))
    }

    /// The signed token of a visitor, for events that a page sends later.
    pub(crate) fn seal_visitor(&self, visitor: VisitorId, now: Millis) -> Option<String> {
        visitor_token::seal_visitor(&self.keys.cookie, &self.id, visitor, now)
    }

    /// The limit of minted visitors.
    pub(crate) fn mint_limit(&self) -> RateLimit {
        rate_limit(self.tenant.mint_limit.as_deref(), "MINT_LIMIT", self.id.as_str().to_owned())
    }

    /// The limit of calls that write a visitor's facts.
    pub(crate) fn events_limit(&self, visitor: VisitorId) -> RateLimit {
        let key = format!("{} {visitor}", self.id.as_str());
        rate_limit(self.tenant.events_limit.as_deref(), "EVENTS_LIMIT", key)
    }
}

fn rate_limit(configured: Option<&str>, default: &str, key: String) -> RateLimit {
    RateLimit { binding: configured.unwrap_or(default).to_owned(), key }
}
