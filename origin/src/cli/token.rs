//! `causeway token`. Works in parallel with a serving origin, and before its first start.

use anyhow::bail;
use causeway_origin::api::tokens::{self, TokenGrant, TokenRole};
use causeway_origin::base::clock;
use causeway_origin::base::config::Config;
use causeway_origin::store;
use causeway_shared::base::time::DAY_MS;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{CommonOptions, UsageError};

/// Longest name of a token, in bytes.
const NAME_BYTES: usize = 128;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create a token and print it. The token cannot be shown again.
    Create {
        /// The token's role. Every role may read; `operator` may change, `privacy` may erase.
        #[arg(long, value_enum, default_value_t = RoleArg::Viewer)]
        role: RoleArg,
        /// A name for the token, of your choice.
        #[arg(long, default_value = "")]
        name: String,
        /// The token's tenant. Optional if only one tenant is configured.
        #[arg(long, conflicts_with = "all_tenants")]
        tenant: Option<String>,
        /// Valid for all tenants, and for jobs.
        #[arg(long)]
        all_tenants: bool,
        /// Validity in days.
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3_650))]
        days: u16,
    },
    /// List the tokens with number, role, name, tenant, expiry and last use, but without their text.
    List,
    /// Revoke a token at once.
    Revoke {
        /// The token's number in the list.
        id: i64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RoleArg {
    Viewer,
    Operator,
    Privacy,
}

impl RoleArg {
    fn role(self) -> TokenRole {
        match self {
            Self::Viewer => TokenRole::Viewer,
            Self::Operator => TokenRole::Operator,
            Self::Privacy => TokenRole::Privacy,
        }
    }
}

pub(super) fn run(command: &TokenCommand, common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    if matches!(command, TokenCommand::Create { name, .. } if name.len() > NAME_BYTES) {
        bail!(UsageError(format!("the token's name is too long: at most {NAME_BYTES} bytes are allowed")));
    }
    let conn = match command {
        TokenCommand::Create { .. } => store::open(&config.data)?,
        TokenCommand::List => store::open_readonly(&config.data)?,
        TokenCommand::Revoke { .. } => {
            store::existing_file(&config.data)?;
            store::open(&config.data)?
        }
    };
    match command {
        TokenCommand::Create { role, name, tenant, all_tenants, days } => {
            let tenant = if *all_tenants { None } else { Some(tenant_name(&config, tenant.as_deref())?) };
            let now = clock::now();
            let expires_ms = Some(now.saturating_add(u64::from(*days) * DAY_MS));
            let (token, text) =
                tokens::create_token(&conn, TokenGrant { role: role.role(), name, tenant, expires_ms }, now)?;
            let object = json!({
                "token": text, "id": token.id, "role": token.role, "name": token.name, "tenant": token.tenant,
                "expires_ms": token.expires_ms,
            });
            common.output.text(&text, &object)
        }
        TokenCommand::List => {
            let rows: Vec<Value> =
                tokens::list_tokens(&conn)?.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
            let columns = ["id", "role", "name", "tenant", "created_ms", "expires_ms", "used_ms", "revoked_ms"];
            common.output.list(&columns, &rows)
        }
        TokenCommand::Revoke { id } => {
            if !tokens::revoke_token(&conn, *id, clock::now())? {
                bail!("token {id} not found, or already revoked: see `causeway token list`");
            }
            common.output.text(&format!("token {id} is revoked"), &json!({"revoked": id}))
        }
    }
}

/// The token's tenant: the named one, or the only one configured.
fn tenant_name<'c>(config: &'c Config, name: Option<&'c str>) -> anyhow::Result<&'c str> {
    let all: Vec<&str> = config.edge.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    match (name, &all[..]) {
        (Some(name), all) if all.contains(&name) => Ok(name),
        (Some(name), _) => bail!(UsageError(format!("tenant `{name}` is not configured"))),
        (None, [only]) => Ok(only),
        (None, _) => {
            bail!(UsageError("several tenants are configured: add --tenant NAME, or --all-tenants".to_owned()))
        }
    }
}
