//! `causeway config`.

use std::collections::BTreeMap;

use causeway_origin::{keyfile, reference};
use causeway_shared::keys::KeyRing;
use clap::Subcommand;
use serde_json::json;

use super::Common;

/// Longest variable or secret of a worker, in bytes (the platform's limit).
const VARIABLE_BYTES: usize = 5 * 1024;

#[derive(Debug, Subcommand)]
pub(super) enum Config {
    /// Check the configuration and the key file; says everything that is wrong.
    Check,
    /// Print every key with its default, its meaning and its variable.
    Reference,
    /// Print the worker's variable CAUSEWAY_CONFIG and secret CAUSEWAY_KEYS as one JSON object. Secret.
    Edge,
}

pub(super) fn run(command: &Config, common: &Common) -> anyhow::Result<()> {
    match command {
        Config::Check => check(common),
        Config::Reference => common.output.text(&reference::text(), &reference::json()),
        Config::Edge => edge(common),
    }
}

fn check(common: &Common) -> anyhow::Result<()> {
    let config = common.load()?;
    keyfile::load_checked(&config.keys, &config.edge)?;
    let names: Vec<&str> = config.edge.tenants.iter().map(|t| t.name.as_str()).collect();
    let object = json!({
        "config": common.config.display().to_string(),
        "keys": config.keys.display().to_string(),
        "data": config.data.display().to_string(),
        "listen": config.listen,
        "tenants": names,
        "problems": [],
    });
    common.output.text(&format!("fine: {} tenant(s), keys and configuration can be used", names.len()), &object)
}

/// Always JSON: a program reads it.
fn edge(common: &Common) -> anyhow::Result<()> {
    let config = common.load()?;
    let mut keys = keyfile::load_checked(&config.keys, &config.edge)?;
    keys.tenants.values_mut().for_each(|own| own.webhook = KeyRing::default());
    let values =
        [("CAUSEWAY_CONFIG", serde_json::to_string(&config.edge)?), ("CAUSEWAY_KEYS", serde_json::to_string(&keys)?)];
    for (name, value) in values.iter().filter(|(_, value)| value.len() > VARIABLE_BYTES) {
        let length = value.len();
        eprintln!(
            "{name} has {length} bytes, the platform takes {VARIABLE_BYTES}: deploy a second worker for some tenants"
        );
    }
    let object = json!(BTreeMap::from(values));
    common.output.text(&object.to_string(), &object)
}
