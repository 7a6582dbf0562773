//! `causeway config`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use causeway_origin::base::config::{Config, ConfigError};
use causeway_origin::base::key_file::{self, KeyError};
use causeway_origin::base::{settings_reference, worker_file};
use causeway_origin::kv::bulk::client::{BulkClient, BulkOutcome};
use causeway_shared::base::problems::ConfigProblem;
use causeway_shared::keys::key_ring::KeyRing;
use causeway_shared::settings::config::{EdgeConfig, TenantConfig};
use clap::Subcommand;
use serde_json::{Value, json};

use super::CommonOptions;
use super::output::{Format, print_line};

/// Longest variable or secret of a worker, in bytes (the platform's limit).
const VARIABLE_BYTES: usize = 5 * 1024;

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check the configuration, then the key file, and report every problem.
    Check {
        /// The worker's wrangler.toml: also check that its facts queues are those of `facts_queues`.
        #[arg(long, value_name = "FILE")]
        wrangler: Option<PathBuf>,
    },
    /// Print every configuration key with its default, its meaning and its environment variable.
    Reference,
    /// Print the worker's variable CAUSEWAY_CONFIG and secret CAUSEWAY_KEYS as one JSON object. The output is secret.
    Edge,
}

pub(super) fn run(command: &ConfigCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check { wrangler } => check_config(common, wrangler.as_deref()),
        ConfigCommand::Reference => {
            common.output.text(&settings_reference::reference_text(), &settings_reference::reference_json())
        }
        ConfigCommand::Edge => print_edge(common),
    }
}

fn check_config(common: &CommonOptions, wrangler: Option<&Path>) -> anyhow::Result<()> {
    let checked = common.load().and_then(|config| {
        key_file::load_checked(&config.keys, &config.edge)?;
        wrangler.map_or(Ok(()), |file| check_worker(file, &config))?;
        check_platform(&config)?;
        Ok(config)
    });
    let config = match checked {
        Ok(config) => config,
        Err(e) if common.output == Format::Json => {
            common
                .output
                .one(&json!({ "config": common.config.display().to_string(), "problems": list_problems(&e) }))?;
            return Err(e);
        }
        Err(e) => return Err(e),
    };
    if key_file::is_exposed(&config.keys) {
        print_line(&format!("{} is readable by other users: run chmod 600", config.keys.display()));
    }
    let names: Vec<&str> = config.edge.tenants.iter().map(|t| t.name.as_str()).collect();
    let object = json!({
        "config": common.config.display().to_string(),
        "keys": config.keys.display().to_string(),
        "data": config.data.display().to_string(),
        "listen": config.listen,
        "tenants": names,
        "problems": [],
    });
    common.output.text(&format!("valid: {} tenant(s), keys and configuration can be used", names.len()), &object)
}

/// Compares the facts queues of the worker's file with the configuration.
fn check_worker(file: &Path, config: &Config) -> anyhow::Result<()> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}: check --wrangler"))?;
    let check = worker_file::check_queues(&text, config.edge.facts_queues)
        .with_context(|| format!("{shown} is no file of wrangler"))?;
    for queue in &check.leftovers {
        print_line(&format!("{shown}: the consumer of {queue} is superfluous: remove it once that queue is empty"));
    }
    if check.problems.is_empty() {
        return Ok(());
    }
    let in_file = |problem: ConfigProblem| ConfigProblem { path: format!("{shown}: {}", problem.path), ..problem };
    Err(ConfigError::Problems(check.problems.into_iter().map(in_file).collect()).into())
}

/// Asks the platform for the namespace that the origin publishes to in bulk.
fn check_platform(config: &Config) -> anyhow::Result<()> {
    let Some(settings) = config.publish.clone() else { return Ok(()) };
    let token = key_file::load_platform_token(&config.keys)?;
    match BulkClient::new(settings, token).check_namespace() {
        BulkOutcome::Written { .. } | BulkOutcome::Busy { .. } => Ok(()),
        BulkOutcome::Refused(refused) => Err(refused.into()),
        BulkOutcome::Unknown(why) => {
            bail!("the platform's API cannot be asked for the namespace: {why}: check `publish.api`")
        }
    }
}

fn list_problems(e: &anyhow::Error) -> Vec<Value> {
    match (e.downcast_ref(), e.downcast_ref()) {
        (Some(ConfigError::Problems(all)), _) | (_, Some(KeyError::Problems { problems: all, .. })) => {
            all.iter().map(|problem| json!({ "path": problem.path, "message": problem.message })).collect()
        }
        _ => vec![json!({ "path": null, "message": format!("{e:#}") })],
    }
}

/// The output is always JSON, because a program reads it.
fn print_edge(common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let mut keys = key_file::load_checked(&config.keys, &config.edge)?;
    keys.tenants.values_mut().for_each(|own| own.webhook = KeyRing::default());
    let values = [("CAUSEWAY_CONFIG", compact_json(&config.edge)?), ("CAUSEWAY_KEYS", serde_json::to_string(&keys)?)];
    for (name, value) in values.iter().filter(|(_, value)| value.len() > VARIABLE_BYTES) {
        let length = value.len();
        print_line(&format!(
            "{name} has {length} bytes, the platform allows {VARIABLE_BYTES}: move some tenants to a second worker"
        ));
    }
    let object = json!(BTreeMap::from(values));
    common.output.text(&object.to_string(), &object)
}

/// The configuration without default values, because the tenants share a variable of limited size.
fn compact_json(edge: &EdgeConfig) -> anyhow::Result<String> {
    let plain: TenantConfig = serde_json::from_value(json!({ "name": "", "hosts": [] }))?;
    let (plain, mut all) = (serde_json::to_value(plain)?, serde_json::to_value(edge)?);
    for tenant in all["tenant"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        tenant.retain(|field, value| plain.get(field) != Some(value));
    }
    Ok(all.to_string())
}
