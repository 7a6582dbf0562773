//! Table `[publish]`: the platform's REST API, through which the origin publishes many keys at once.

use serde::Deserialize;

use super::is_safe_url;

/// The KV namespace that the origin publishes to, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishSettings {
    /// Base address of the platform's REST API, without a slash at its end.
    pub api: String,
    /// Id of the account.
    pub account: String,
    /// Id of the namespace.
    pub namespace: String,
    /// Batches in progress at the same time, 1 to 16.
    pub lanes: usize,
}

/// Table `[publish]`; [`super::SETTINGS`] documents the meaning, range and reason of each key.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub(super) struct PublishTable {
    account: String,
    namespace: String,
    api: String,
    lanes: usize,
}

impl Default for PublishTable {
    fn default() -> Self {
        let api = "https://api.cloudflare.com/client/v4".to_owned();
        Self { account: String::new(), namespace: String::new(), api, lanes: 4 }
    }
}

impl PublishTable {
    /// The settings; `None` if neither account nor namespace is named.
    pub(super) fn checked(self, mut say: impl FnMut(&str, &str)) -> Option<PublishSettings> {
        let Self { account, namespace, api, lanes } = self;
        if !(1..=16).contains(&lanes) {
            say("publish.lanes", "between 1 and 16 lanes are needed");
        }
        if account.is_empty() && namespace.is_empty() {
            return None;
        }
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        for (path, id) in [("publish.account", &account), ("publish.namespace", &namespace)] {
            if !is_id(id) {
                say(
                    path,
                    "32 hexadecimal digits are needed, as `wrangler kv namespace list` and the platform's console show",
                );
            }
        }
        if !is_safe_url(&api) {
            say(
                "publish.api",
                "an https: URL is needed, or one of http: whose host is localhost or a loopback address",
            );
        }
        Some(PublishSettings { api: api.trim_end_matches('/').to_owned(), account, namespace, lanes })
    }
}
