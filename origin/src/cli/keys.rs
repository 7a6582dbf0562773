//! `causeway keys`. No command prints a secret.

use std::io::Read as _;

use anyhow::{Context as _, bail};
use causeway_origin::base::key_file::{self, KeyError, KeyFile, PlatformToken, RotationResult};
use causeway_shared::keys::key_ring::KeyRing;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{CommonOptions, UsageError};

/// Bytes of standard input that a token is read from.
const TOKEN_INPUT_BYTES: u64 = 4_096;

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Create the key file, or the keys that it lacks.
    Init,
    /// List the keys with purpose and stage, never a secret.
    List,
    /// Make one step of a rotation: the first call creates the next key, the second makes it the active one.
    Rotate(KeyOptions),
    /// Store the token of the platform's API, read from standard input, for publishing in bulk.
    SetPlatformToken,
    /// Remove the old key. Values made with it are no longer accepted.
    Retire {
        #[command(flatten)]
        which: KeyOptions,
        /// Remove this key instead of the old one, such as a next key that will not be used.
        #[arg(long)]
        id: Option<u8>,
    },
}

#[derive(Debug, Args)]
pub(super) struct KeyOptions {
    /// Purpose of the key.
    purpose: KeyPurpose,
    /// The key's tenant; not for `sync`. Optional if only one tenant is configured.
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
    /// Signs the messages to a tenant's webhook.
    Webhook,
}

impl KeyPurpose {
    /// The receivers of the key, and the way to pass it on.
    fn readers(self) -> &'static str {
        match self {
            Self::Webhook => "the webhook's receiver (`whsec_` followed by the secret in the key file)",
            _ => "every edge (`causeway config edge`)",
        }
    }
}

pub(super) fn run(command: &KeysCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        KeysCommand::Init => create_keys(common),
        KeysCommand::List => list_keys(common),
        KeysCommand::SetPlatformToken => set_platform_token(common),
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
        0 => format!("{file}: no key is missing"),
        n => format!("{file}: created {n} keys: {}", made.join(", ")),
    };
    common.output.text(&text, &json!({"file": file, "made": made}))
}

fn set_platform_token(common: &CommonOptions) -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().take(TOKEN_INPUT_BYTES).read_to_string(&mut text).context("cannot read standard input")?;
    let Some(token) = PlatformToken::parse(text.trim()) else {
        bail!(UsageError("standard input must hold a token: 20 to 256 visible ASCII characters".to_owned()));
    };
    let config = common.load()?;
    let _alone = key_file::lock_file(&config.keys)?;
    let mut file = key_file::load_file(&config.keys)?;
    file.platform_token = Some(token);
    key_file::save_file(&config.keys, &file)?;
    let path = config.keys.display().to_string();
    common.output.text(&format!("{path}: stored the platform's token; restart the origin"), &json!({ "file": path }))
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
    let text = format!(
        "key {gone} is removed: give the remaining keys to {}, and restart the origin",
        which.purpose.readers()
    );
    report_key(common, which, tenant, &text, json!({"retired": gone}))
}

/// Changes one key ring and writes the key file.
fn change_keys<T>(
    common: &CommonOptions,
    which: &KeyOptions,
    step: impl FnOnce(&mut KeyRing, &mut u8) -> Result<T, KeyError>,
) -> anyhow::Result<(T, Option<String>)> {
    let config = common.load()?;
    let _alone = key_file::lock_file(&config.keys)?;
    let mut file = key_file::load_file(&config.keys)?;
    let KeyFile { keys, dropped, .. } = &mut file;
    let tenant = match (which.purpose, &which.tenant, config.edge.tenants.as_slice()) {
        (KeyPurpose::Sync, None, _) => None,
        (KeyPurpose::Sync, Some(_), _) => {
            bail!(UsageError("the sync key belongs to no tenant: leave --tenant out".to_owned()))
        }
        (_, Some(name), _) => {
            config.edge.by_name(name).with_context(|| format!("tenant `{name}` is not configured"))?;
            Some(name.clone())
        }
        (_, None, [only]) => Some(only.name.clone()),
        (_, None, _) => bail!(UsageError("several tenants are configured: add --tenant NAME".to_owned())),
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
    let done = step(ring, dropped)?;
    key_file::save_file(&config.keys, &file)?;
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
