//! `causeway keys`. A secret is never printed.

use anyhow::{Context as _, bail};
use causeway_origin::base::key_file::{self, KeyError, KeyFile, RotationResult};
use causeway_shared::keys::key_ring::KeyRing;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{CommonOptions, UsageError};

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Make the key file, or what is missing in it.
    Init,
    /// List the keys: which there are and in which stage, never a secret.
    List,
    /// One step of a rotation: the first call makes the next key, the second makes it the active one.
    Rotate(KeyOptions),
    /// Remove the old key; things made with it are no longer understood.
    Retire {
        #[command(flatten)]
        which: KeyOptions,
        /// Another key than the old one: a next key that shall not be used after all.
        #[arg(long)]
        id: Option<u8>,
    },
}

#[derive(Debug, Args)]
pub(super) struct KeyOptions {
    /// What the key is for.
    purpose: KeyPurpose,
    /// Whose key; not for `sync`. With one tenant configured it need not be said.
    #[arg(long)]
    tenant: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeyPurpose {
    /// Authenticates the edge to the origin.
    Sync,
    /// Signs a tenant's cookies.
    Cookie,
    /// Hashes a tenant's alternate ids.
    Alternate,
    /// Signs what a tenant's webhook is told.
    Webhook,
}

impl KeyPurpose {
    /// Who must know the key, and how it is told.
    fn readers(self) -> &'static str {
        match self {
            Self::Webhook => "the webhook's receiver (`whsec_` and the secret as it stands in the key file)",
            _ => "every edge (`causeway config edge`)",
        }
    }
}

pub(super) fn run(command: &KeysCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        KeysCommand::Init => create_keys(common),
        KeysCommand::List => list_keys(common),
        KeysCommand::Rotate(which) => rotate_key(common, which),
        KeysCommand::Retire { which, id } => retire_key(common, which, *id),
    }
}

fn create_keys(common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let _alone = key_file::lock_file(&config.keys)?;
    let mut file = match key_file::load_file(&config.keys) {
        Err(KeyError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => KeyFile::default(),
        other => other?,
    };
    let made = key_file::complete_keys(&mut file.keys, &config.edge)?;
    if !made.is_empty() {
        key_file::save_file(&config.keys, &file)?;
    }
    let file = config.keys.display().to_string();
    let text = match made.len() {
        0 => format!("{file}: nothing is missing"),
        n => format!("{file}: made {n} keys: {}", made.join(", ")),
    };
    common.output.text(&text, &json!({"file": file, "made": made}))
}

fn list_keys(common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let keys = key_file::load_keys(&config.keys)?;
    let mut rows = Vec::new();
    add_ring(&mut rows, "sync", None, &keys.sync);
    for (tenant, own) in &keys.tenants {
        add_ring(&mut rows, "cookie", Some(tenant), &own.cookie);
        add_ring(&mut rows, "alternate", Some(tenant), &own.alternate);
        add_ring(&mut rows, "webhook", Some(tenant), &own.webhook);
        for proof in &own.proof {
            let alg = serde_json::to_value(proof.alg)?;
            rows.push(json!({"purpose": "proof", "tenant": tenant, "id": proof.kid, "stage": "verify", "alg": alg}));
        }
        add_explain(&mut rows, Some(tenant), own.explain.as_ref());
    }
    add_explain(&mut rows, None, keys.explain.as_ref());
    common.output.list(&["purpose", "tenant", "id", "stage", "alg"], &rows)
}

fn add_explain(rows: &mut Vec<Value>, tenant: Option<&str>, key: Option<&String>) {
    let row = json!({"purpose": "explain", "tenant": tenant, "id": null, "stage": "active", "alg": null});
    rows.extend(key.map(|_| row));
}

fn add_ring(rows: &mut Vec<Value>, purpose: &str, tenant: Option<&str>, ring: &KeyRing) {
    for key in &ring.0 {
        rows.push(json!({
            "purpose": purpose, "tenant": tenant, "id": key.id, "stage": key.stage, "alg": "HMAC-SHA-256",
        }));
    }
}

fn rotate_key(common: &CommonOptions, which: &KeyOptions) -> anyhow::Result<()> {
    let ((done, tenant), readers) =
        (change_keys(common, which, |ring, dropped| key_file::rotate_ring(ring, *dropped))?, which.purpose.readers());
    let (text, object) = match done {
        RotationResult::First(id) => {
            (format!("key {id} is active: give it to {readers}, and restart the origin"), json!({"active": id}))
        }
        RotationResult::Staged(id) => (
            format!("key {id} is next: give it to {readers}, restart the origin, then rotate again"),
            json!({"next": id}),
        ),
        RotationResult::Promoted { active, old } => (
            format!(
                "key {active} is active, key {old} is old: give both to {readers}, restart the origin, \
                 and retire {old} when nothing made with it is in use"
            ),
            json!({"active": active, "old": old}),
        ),
    };
    report_key(common, which, tenant, &text, object)
}

fn retire_key(common: &CommonOptions, which: &KeyOptions, id: Option<u8>) -> anyhow::Result<()> {
    let (gone, tenant) = change_keys(common, which, |ring, dropped| key_file::retire_key(ring, id, dropped))?;
    let text = format!("key {gone} is gone: give the rest to {}, and restart the origin", which.purpose.readers());
    report_key(common, which, tenant, &text, json!({"retired": gone}))
}

/// Changes one ring and writes the file.
fn change_keys<T>(
    common: &CommonOptions,
    which: &KeyOptions,
    step: impl FnOnce(&mut KeyRing, &mut u8) -> Result<T, KeyError>,
) -> anyhow::Result<(T, Option<String>)> {
    let config = common.load()?;
    let _alone = key_file::lock_file(&config.keys)?;
    let key_file::KeyFile { mut keys, mut dropped } = key_file::load_file(&config.keys)?;
    let tenant = match (which.purpose, &which.tenant, config.edge.tenants.as_slice()) {
        (KeyPurpose::Sync, None, _) => None,
        (KeyPurpose::Sync, Some(_), _) => {
            bail!(UsageError("the sync key belongs to no tenant: leave --tenant out".to_owned()))
        }
        (_, Some(name), _) => {
            config.edge.by_name(name).with_context(|| format!("there is no tenant `{name}`"))?;
            Some(name.clone())
        }
        (_, None, [only]) => Some(only.name.clone()),
        (_, None, _) => bail!(UsageError("there are several tenants: say --tenant NAME".to_owned())),
    };
    let ring = match &tenant {
        None => &mut keys.sync,
        Some(name) => {
            let own = keys.tenants.entry(name.clone()).or_default();
            match which.purpose {
                KeyPurpose::Cookie => &mut own.cookie,
                KeyPurpose::Webhook => &mut own.webhook,
                KeyPurpose::Alternate | KeyPurpose::Sync => &mut own.alternate,
            }
        }
    };
    let done = step(ring, &mut dropped)?;
    key_file::save_file(&config.keys, &KeyFile { keys, dropped })?;
    Ok((done, tenant))
}

fn report_key(
    common: &CommonOptions,
    which: &KeyOptions,
    tenant: Option<String>,
    text: &str,
    mut object: Value,
) -> anyhow::Result<()> {
    let purpose = which.purpose.to_possible_value().map(|v| v.get_name().to_owned());
    if let Some(fields) = object.as_object_mut() {
        fields.insert("purpose".to_owned(), purpose.clone().into());
        fields.insert("tenant".to_owned(), tenant.clone().into());
    }
    let at = tenant.map(|t| format!("{t} ")).unwrap_or_default();
    common.output.text(&format!("{at}{}: {text}", purpose.unwrap_or_default()), &object)
}
