//! `causeway catalogue`: works on the store directly, also while the origin serves.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use causeway_origin::base::{clock, key_file};
use causeway_origin::campaigns::catalogue::{self as of, AppliedCatalogue, ApplyError, CheckError, document, schema};
use causeway_origin::campaigns::{allocation, offers};
use causeway_origin::store::tenants::{TenantContext, Tenants};
use causeway_origin::store::{self, OpenError};
use causeway_shared::base::limits;
use clap::Subcommand;
use serde_json::{Value, json};

use super::output::Format;
use super::{CommonOptions, ReadableStore, UsageError, WritableStore, named_tenant};

#[derive(Debug, Subcommand)]
pub(super) enum CatalogueCommand {
    /// Report every problem of a file, and the changes that applying it would make. Changes nothing.
    Check {
        /// The file: TOML if its name ends in `.toml`, otherwise JSON.
        file: PathBuf,
        /// The catalogue's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Check a file, store it as a new version, and publish it as the current one.
    Apply {
        /// The file: TOML if its name ends in `.toml`, otherwise JSON.
        file: PathBuf,
        /// Only print the changes.
        #[arg(long)]
        dry_run: bool,
        /// Also apply a file without any row, which removes everything of the current version.
        #[arg(long)]
        empty: bool,
        /// The catalogue's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// List all versions, newest first.
    List {
        /// The catalogue's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show spend, remaining budget and pacing of the current version's campaigns with a budget.
    Budgets {
        /// The catalogue's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show how many offer codes of the current version's limited offers are given, and to how many people.
    Recipients {
        /// The catalogue's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Print a version's document, as JSON.
    Show {
        /// The version's number. Default: the current version.
        version: Option<u32>,
        /// The catalogue's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Make an older version the current one again.
    Rollback {
        /// The version's number.
        version: u32,
        /// The catalogue's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Print the JSON Schema of the file.
    Schema,
}

pub(super) fn run(command: &CatalogueCommand, common: &CommonOptions) -> anyhow::Result<()> {
    let looked_at = |tenant: &Option<String>| {
        let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
        let tenant = named_tenant(&tenants, tenant.as_deref())?.clone();
        anyhow::Ok((conn, tenant))
    };
    match command {
        CatalogueCommand::Schema => print_schema(common),
        CatalogueCommand::Check { file, tenant } | CatalogueCommand::Apply { file, tenant, dry_run: true, .. } => {
            check_file(file, tenant.as_deref(), common)
        }
        CatalogueCommand::Apply { file, tenant, empty, .. } => {
            let document = read(file)?;
            // A catalogue may be applied before the first visitor arrives, so the store is created if missing.
            let WritableStore { mut conn, rules, .. } = WritableStore::or_made(common.load()?)?;
            let tenant = named_tenant(&rules.tenants, tenant.as_deref())?;
            if !empty {
                of::refuse_empty(&conn, tenant.no, &document).map_err(|e| match e {
                    ApplyError::Empties(_) => anyhow!(UsageError(format!("{e} with --empty"))),
                    e => e.into(),
                })?;
            }
            let applied = of::apply(
                &mut conn,
                &rules,
                causeway_origin::store::write_txn::draw_inputs()?,
                tenant,
                document,
                "cli",
            );
            common.output.one(&applied.map_err(|e| apply_error(e, common))?)
        }
        CatalogueCommand::Rollback { version, tenant } => {
            let WritableStore { mut conn, rules, .. } = WritableStore::new(common)?;
            let tenant = named_tenant(&rules.tenants, tenant.as_deref())?;
            let applied: AppliedCatalogue =
                of::rollback(&mut conn, &rules, causeway_origin::store::write_txn::draw_inputs()?, tenant, *version)?;
            common.output.one(&applied)
        }
        CatalogueCommand::List { tenant } => {
            let (conn, tenant) = looked_at(tenant)?;
            let columns = ["version", "current", "published", "applied_ms", "by", "bytes", "sha256"];
            common.output.list(&columns, &of::versions::list_versions(&conn, tenant.no)?)
        }
        CatalogueCommand::Budgets { tenant } => {
            let (conn, tenant) = looked_at(tenant)?;
            let columns = [
                "campaign",
                "budget_micros",
                "daily_budget_micros",
                "spent_micros",
                "spent_today_micros",
                "left_micros",
                "pace_ppm",
                "day_ends_ms",
            ];
            common.output.list(&columns, &allocation::report_budgets(&conn, tenant.no, clock::now())?)
        }
        CatalogueCommand::Recipients { tenant } => {
            let (conn, tenant) = looked_at(tenant)?;
            let columns = ["campaign", "recipients", "given", "left", "people", "with_several"];
            common.output.list(&columns, &offers::report_offers(&conn, tenant.no)?)
        }
        CatalogueCommand::Show { version, tenant } => {
            let (conn, tenant) = looked_at(tenant)?;
            show_catalogue(&conn, &tenant, *version, common)
        }
    }
}

fn print_schema(common: &CommonOptions) -> anyhow::Result<()> {
    let schema = schema::document_schema();
    common.output.text(&format!("{schema:#}"), &schema)
}

/// Checks a catalogue against the store. If the store is missing or does not know the tenant, the check runs against an
/// empty store.
fn check_file(file: &Path, tenant: Option<&str>, common: &CommonOptions) -> anyhow::Result<()> {
    let there = match ReadableStore::new(common) {
        Err(e) if matches!(e.downcast_ref(), Some(OpenError::Missing(_))) => None,
        there => Some(there?),
    };
    let (conn, tenants) = match there.filter(|there| there.tenants.named(tenant).is_some()) {
        Some(ReadableStore { conn, tenants, .. }) => (conn, tenants),
        None => {
            let config = common.load()?;
            let keys = key_file::load_checked(&config.keys, &config.edge)?;
            let mut conn = rusqlite::Connection::open_in_memory()?;
            store::prepare_store(&mut conn)?;
            let tenants = Tenants::open(&conn, &config.edge, &keys)?;
            (conn, tenants)
        }
    };
    let checked = of::check(&conn, named_tenant(&tenants, tenant)?, read(file)?).map_err(|e| apply_error(e, common))?;
    common.output.one(&json!({ "problems": [], "plan": checked.plan }))
}

fn show_catalogue(
    conn: &rusqlite::Connection,
    tenant: &TenantContext,
    version: Option<u32>,
    common: &CommonOptions,
) -> anyhow::Result<()> {
    let stored = of::stored_version(conn, tenant.no, version)?;
    let stored = stored.with_context(|| match version {
        Some(version) => format!("version {version} not found: see `causeway catalogue list`"),
        None => "no catalogue was applied yet".to_owned(),
    })?;
    let document: Value = serde_json::from_str(&stored.document)?;
    common.output.text(&serde_json::to_string_pretty(&document)?, &document)
}

fn read(file: &Path) -> anyhow::Result<Value> {
    let size = std::fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    if size > limits::CATALOGUE_BYTES as u64 {
        bail!("{} has {size} bytes: at most {} are allowed", file.display(), limits::CATALOGUE_BYTES);
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(document::read(&file.to_string_lossy(), &text)?)
}

/// Prints the problems, as table rows or in the form of a check's JSON answer, and returns the error.
fn apply_error(e: ApplyError, common: &CommonOptions) -> anyhow::Error {
    let ApplyError::Check(CheckError::Problems(problems)) = &e else { return e.into() };
    let rows: Vec<Value> = problems.iter().map(|p| json!({ "path": p.path, "message": p.message })).collect();
    let printed = match common.output {
        Format::Table => common.output.list(&["path", "message"], &rows),
        Format::Json => common.output.one(&json!({ "problems": rows, "plan": null })),
    };
    printed.err().unwrap_or_else(|| e.into())
}
