//! The output of benches: JSON lines or a table.

use std::time::Instant;

use serde_json::{Value, json};

/// One measured value, with a peer's value if there is a peer.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) bench: &'static str,
    pub(crate) case: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) peer: Option<(String, f64)>,
    /// Target of the ratio to the peer, or of the value without a peer. It is printed, never enforced, because noise of
    /// the machine must not fail a run.
    pub(crate) bar: Option<Bar>,
}

/// A target, and its good side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bar) => value >= bar,
            Self::AtMost(bar) => value <= bar,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bar) => format!(">= {}", round(bar)),
            Self::AtMost(bar) => format!("<= {}", round(bar)),
        }
    }
}

impl Line {
    fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|(_, peer)| self.value / peer.max(f64::MIN_POSITIVE))
    }

    /// The figure that the target refers to.
    fn measured(&self) -> f64 {
        self.ratio().unwrap_or(self.value)
    }

    fn json(&self) -> Value {
        let (peer, peer_value) = self.peer.clone().unzip();
        let mut line = json!({
            "bench": self.bench, "case": self.case, "value": round(self.value), "unit": self.unit,
            "peer": peer, "peer_value": peer_value.map(round), "ratio": self.ratio().map(round),
        });
        if let (Some(bar), Some(object)) = (self.bar, line.as_object_mut()) {
            object.insert("bar".to_owned(), bar.text().into());
            object.insert("met".to_owned(), bar.met(self.measured()).into());
        }
        line
    }

    fn row(&self) -> String {
        let value = format!("{} {}", round(self.value), self.unit);
        let peer = self.peer.as_ref().map(|(name, value)| format!("{name} {}", round(*value))).unwrap_or_default();
        let ratio = self.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let verdict = |bar: Bar| if bar.met(self.measured()) { "met" } else { "NOT MET" };
        let bar = self.bar.map(|bar| format!("{} {}", bar.text(), verdict(bar)));
        format!("{:<20} {value:>18}   {peer:<24} {ratio:>6}   {}", self.case, bar.unwrap_or_default())
    }
}

/// Prints one line at once.
pub(crate) fn print(line: &Line, as_json: bool) {
    if as_json {
        println!("{}", line.json());
    } else {
        println!("{}", line.row().trim_end());
    }
}

/// Rounds to three decimals below ten, one below a thousand, none above, because further digits are noise.
fn round(value: f64) -> f64 {
    let to = match value.abs() {
        ..10.0 => 1000.0,
        ..1000.0 => 10.0,
        _ => 1.0,
    };
    (value * to).round() / to
}

/// Microseconds of one repetition.
pub(crate) fn time(times: u32, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..times).for_each(|_| run());
    start.elapsed().as_secs_f64() * 1e6 / f64::from(times.max(1))
}

/// The median; 0 without values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |i: usize| values.get(i).copied().unwrap_or_default();
    if values.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.saturating_sub(1)), at(middle)) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::float_cmp, reason = "tests; the values are exact")]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn a_line_in_both_forms() {
        let line = Line {
            bench: "edge",
            case: "decide".to_owned(),
            value: 3600.4,
            unit: "req/s",
            peer: Some(("js".to_owned(), 3000.0)),
            bar: Some(Bar::AtLeast(1.2)),
        };
        assert_eq!(
            line.json(),
            json!({ "bench": "edge", "case": "decide", "value": 3600.0, "unit": "req/s", "peer": "js",
                    "peer_value": 3000.0, "ratio": 1.2, "bar": ">= 1.2", "met": true })
        );
        assert!(line.row().ends_with(">= 1.2 met"));
        let alone = Line { peer: None, bar: Some(Bar::AtMost(10.0)), ..line };
        assert!(alone.json().get("ratio").unwrap().is_null());
        assert!(alone.row().ends_with("NOT MET"));
    }
}
