//! A browser in front of an edge: it keeps the edge's cookies, and nothing else.

use std::collections::HashMap;
use std::hash::BuildHasher;

use causeway_edge::{Engine, Outcome};
use causeway_shared::ids::Millis;
use serde_json::Value;

use crate::dice::Dice;
use crate::world::Failed;

/// Where an edge reads: by the key, nothing where there is none.
pub trait Reads {
    /// The value of a key.
    fn read(&mut self, key: &str) -> String;
}

impl<S: BuildHasher> Reads for &HashMap<String, String, S> {
    fn read(&mut self, key: &str) -> String {
        self.get(key).cloned().unwrap_or_default()
    }
}

/// A browser's cookies.
#[derive(Debug, Clone, Default)]
pub struct Browser {
    cookies: Vec<(String, String)>,
    /// Whether it says that it gives no permission.
    gpc: bool,
}

impl Browser {
    /// Without cookies.
    #[must_use]
    pub fn new(permits: bool) -> Self {
        Self { cookies: Vec::new(), gpc: !permits }
    }

    /// Sends a request to an edge, and keeps the cookies of the answer.
    ///
    /// # Errors
    /// An answer that is an error.
    pub fn send(
        &mut self,
        edge: &mut Engine,
        reads: &mut dyn Reads,
        (method, path, body): (&str, &str, &str),
        now: Millis,
        dice: &mut Dice,
    ) -> Result<Outcome, Failed> {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let gpc = if self.gpc { "1" } else { "" };
        let head =
            format!("{method}\nhttps://market.example{path}\n{}\n\n{gpc}\n\nFirefox/140.0\n\n", cookies.join("; "));
        let mut outcome = edge.begin(&head, body.as_bytes(), now, &dice.seed());
        while let Some(turn) = outcome.head.turn {
            let values: Vec<String> = outcome.head.read.iter().map(|key| reads.read(key)).collect();
            outcome = edge.resume(turn, values.join("\n").as_bytes(), "");
        }
        if outcome.head.status >= 400 {
            return Err(
                format!("{method} {path}: {} {}", outcome.head.status, String::from_utf8_lossy(&outcome.body)).into()
            );
        }
        for (_, cookie) in outcome.head.headers.iter().filter(|(name, _)| *name == "set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            let Some((name, value)) = pair.split_once('=') else { continue };
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(outcome)
    }
}

/// The decisions of an answer.
#[must_use]
pub fn decisions(outcome: &Outcome) -> Vec<Value> {
    let mut answer: Value = serde_json::from_slice(&outcome.body).unwrap_or_default();
    match answer.get_mut("decisions").map(Value::take) {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    }
}
