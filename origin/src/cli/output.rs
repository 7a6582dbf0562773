//! The output of commands: a table for people, JSON for programs.

use std::io::Write as _;
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A table, for people.
    Table,
    /// JSON, for programs.
    Json,
}

impl Format {
    /// Prints a list of objects, one row per object, with the columns in the given order.
    pub(super) fn list(self, columns: &[&str], rows: &[impl Serialize]) -> anyhow::Result<()> {
        let rows = rows.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        match self {
            Self::Json => self.json(&Value::from(rows)),
            Self::Table => {
                let mut table = Table::new();
                table.load_style(presets::NOTHING);
                table.set_header(columns.iter().map(|c| c.to_uppercase()));
                for row in &rows {
                    table.add_row(columns.iter().map(|c| row.get(c).map_or_else(String::new, format_cell)));
                }
                print_text(&table.to_string())
            }
        }
    }

    /// Prints one object, one line per field.
    pub(super) fn one(self, object: &impl Serialize) -> anyhow::Result<()> {
        let object = serde_json::to_value(object)?;
        match self {
            Self::Json => self.json(&object),
            Self::Table => print_text(&object_lines(&object)),
        }
    }

    /// Prints the text unchanged, or the JSON instead.
    pub(super) fn text(self, text: &str, json: &Value) -> anyhow::Result<()> {
        match self {
            Self::Json => self.json(json),
            Self::Table => print_text(text),
        }
    }

    fn json(self, value: &Value) -> anyhow::Result<()> {
        print_text(&serde_json::to_string_pretty(value)?)
    }
}

/// One object as text for people, one line per field.
pub(super) fn object_lines(object: &Value) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (path, value) in flatten_value(object) {
        table.add_row([path, value]);
    }
    table.to_string()
}

/// Prints a message that is not part of the result to standard error. A write error is ignored, so that the command
/// continues.
pub(super) fn print_line(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

/// A progress bar on standard error, redrawn once a second, if that is a terminal.
pub(super) fn progress_bar(length: u64, form: &str) -> ProgressBar {
    styled_bar(length, &format!("{{bar:30}} {{percent}} %, {form}, {{eta}} left"))
}

/// A progress bar over steps of unequal duration. It shows no remaining time.
pub(super) fn step_bar(length: u64) -> ProgressBar {
    let bar = styled_bar(length, "{bar:30} {pos} of {len} done, {msg}, since {elapsed}");
    // A long step reports no progress, so the elapsed time is redrawn by a timer.
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

fn styled_bar(length: u64, form: &str) -> ProgressBar {
    let target = indicatif::ProgressDrawTarget::stderr_with_hz(1);
    let bar = ProgressBar::with_draw_target(Some(length), target);
    let form = indicatif::ProgressStyle::with_template(form);
    bar.set_style(form.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()));
    bar
}

/// Callback that shows `(done, all)` on a bar.
pub(super) fn show_progress(bar: &ProgressBar) -> impl Fn(u64, u64) + Sync + '_ {
    |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    }
}

fn print_text(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in text.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(out.flush()?)
}

fn format_cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// All leaves of a value with their paths, such as `own.pages`.
fn flatten_value(value: &Value) -> Vec<(String, String)> {
    let join = |key: &str, inner: Vec<(String, String)>| -> Vec<(String, String)> {
        let with = |(path, value): (String, String)| {
            let path = if path.is_empty() { key.to_owned() } else { format!("{key}.{path}") };
            (path, value)
        };
        inner.into_iter().map(with).collect()
    };
    match value {
        Value::Object(fields) => fields.iter().flat_map(|(key, inner)| join(key, flatten_value(inner))).collect(),
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().flat_map(|(i, inner)| join(&i.to_string(), flatten_value(inner))).collect()
        }
        Value::Array(_) => vec![(String::new(), "-".to_owned())],
        leaf => vec![(String::new(), format_cell(leaf))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_becomes_a_line_a_leaf() {
        let object = json!({"own": {"pages": 2}, "members": ["a", "b"], "links": [], "flag": null});
        let lines: Vec<String> = flatten_value(&object).into_iter().map(|(p, v)| format!("{p}={v}")).collect();
        assert_eq!(lines, ["flag=-", "links=-", "members.0=a", "members.1=b", "own.pages=2"]);
    }
}
