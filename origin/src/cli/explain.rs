//! `causeway explain`: reads the store directly, also while the origin serves.

use anyhow::{Context as _, bail};
use causeway_origin::base::clock;
use causeway_origin::kv::explain::{self, ExplainRequest};
use clap::Args;
use serde_json::{Value, json};

use super::output::Format;
use super::{CommonOptions, ReadableStore, UsageError, named_tenant, parse_visitor};

#[derive(Debug, Args)]
pub(super) struct ExplainOptions {
    /// The visitor's id.
    #[arg(long)]
    visitor: String,
    /// The page's placements: name, sizes, view type and floor price in micros, such as
    /// `top:728x90/970x250:home:500000,side`.
    #[arg(long, value_delimiter = ',', required = true)]
    placements: Vec<String>,
    /// The page's address.
    #[arg(long)]
    url: Option<String>,
    /// Country and region as the platform names them: `DE-BE`. Without it, the location is unknown to filters.
    #[arg(long, value_parser = check_place)]
    place: Option<String>,
    /// The browser's `User-Agent`.
    #[arg(long, default_value = "Mozilla/5.0")]
    agent: String,
    /// The page's keywords.
    #[arg(long, value_delimiter = ',')]
    keywords: Vec<String>,
    /// File with an edge's answer to a call with `"explain": true`, to be compared. `-` reads it from standard input.
    #[arg(long, value_name = "FILE")]
    live: Option<String>,
    /// The visitor's tenant. Optional if only one tenant is configured.
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) fn run(command: &ExplainOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let ReadableStore { config, keys, mut conn, tenants } = ReadableStore::new(common)?;
    let known = named_tenant(&tenants, command.tenant.as_deref())?;
    let visitor = parse_visitor(&command.visitor)?;
    let placements: Vec<Value> =
        command.placements.iter().map(|text| parse_placement(text)).collect::<Result<_, _>>()?;
    let page = json!({ "url": command.url.as_deref().unwrap_or_default(), "keywords": command.keywords });
    let ask = ExplainRequest {
        visitor,
        body: json!({ "placements": placements, "page": page }),
        place: command.place.clone().unwrap_or_default(),
        agent: command.agent.clone(),
        now: clock::now(),
    };
    let live = command.live.as_deref().map(read_answer).transpose()?;
    let snapshot = conn.transaction()?;
    let offline = explain::explain_decision(&snapshot, &config.edge, &keys, known, &ask)?;
    let differences = live.map(|live| explain::answer_differences(&live, &offline));
    if common.output == Format::Json {
        return common.output.one(&json!({ "answer": offline, "differences": differences }));
    }
    common.output.list(&["placement", "ad", "outcome", "why"], &placement_rows(&offline))?;
    match differences.as_deref() {
        None => Ok(()),
        Some([]) => common.output.text("the live answer is the same", &Value::Null),
        Some(differences) => {
            common.output.text("the live answer differs:", &Value::Null)?;
            common.output.list(&["placement", "ad", "live", "offline"], differences)
        }
    }
}

/// Turns `DE-BE` into the form of the edge's shell, `DE BE`.
fn check_place(text: &str) -> Result<String, String> {
    let (country, region) = text.split_once('-').unwrap_or((text, ""));
    let is_country = country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_country && region.len() <= 3 && region.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(format!("{country} {region}").to_ascii_uppercase());
    }
    Err("expected a country's two letters and optionally a region: DE or DE-BE".to_owned())
}

/// Parses `top:728x90/970x250:home:500000`.
fn parse_placement(text: &str) -> anyhow::Result<Value> {
    let mut parts = text.split(':');
    let (id, sizes, view_type) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let floor = parts.next().map_or(Ok(0), str::parse::<u64>);
    let size = |size: &str| {
        let (width, height) = size.split_once('x')?;
        Some([width.parse::<u32>().ok()?, height.parse().ok()?])
    };
    let sizes = sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.split('/').map(size).collect());
    match (sizes.unwrap_or_else(|| Some(Vec::new())), floor, parts.next()) {
        (Some(sizes), Ok(floor), None) => {
            let view_type = view_type.unwrap_or_default();
            Ok(json!({ "id": id, "sizes": sizes, "view_type": view_type, "floor_micros": floor }))
        }
        _ => {
            Err(UsageError(format!("invalid placement `{text}`: expected name:WIDTHxHEIGHT/…:view type:floor")).into())
        }
    }
}

fn read_answer(file: &str) -> anyhow::Result<Value> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin())?,
        file => std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
    };
    let answer: Value = serde_json::from_str(&text).with_context(|| format!("{file} is not JSON"))?;
    if answer["trace"].is_null() {
        bail!("{file} has no trace: call the edge with \"explain\": true and the explain key");
    }
    Ok(answer)
}

/// One row per ad of each placement. A placement without candidates has one row with the reason for no ad.
fn placement_rows(answer: &Value) -> Vec<Value> {
    let mut rows = candidate_rows(answer);
    for decision in answer["decisions"].as_array().into_iter().flatten() {
        let placement = &decision["placement"];
        if !rows.iter().any(|row| row["placement"] == *placement) {
            rows.push(json!({ "placement": placement, "ad": null, "outcome": decision["reason"], "why": "" }));
        }
    }
    rows
}

fn candidate_rows(answer: &Value) -> Vec<Value> {
    let placements = answer["trace"]["placements"].as_array().into_iter().flatten();
    let each = placements.flat_map(|placement| {
        let candidates = placement["candidates"].as_array().into_iter().flatten();
        candidates.map(|one| {
            let cap = &one["cap"];
            let why = if cap.is_null() {
                String::new()
            } else {
                let window =
                    format!("{} {}", cap["window"]["interval"], cap["window"]["unit"].as_str().unwrap_or_default());
                let [level, action] = ["level", "action"].map(|field| cap[field].as_str().unwrap_or_default());
                format!("{} of {} {action}s of its {level} in {window}", cap["counted"], cap["limit"])
            };
            json!({ "placement": placement["placement"], "ad": one["ad"], "outcome": one["outcome"], "why": why })
        })
    });
    each.collect()
}
