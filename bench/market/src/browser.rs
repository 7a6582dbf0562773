//! A browser in front of an engine: it stores the engine's cookies, and nothing else.

use std::collections::HashMap;
use std::hash::BuildHasher;

use causeway_edge::{Engine, EngineStep, HttpAnswer};
use causeway_shared::base::ids::Millis;
use serde_json::Value;

use crate::dice::Dice;
use crate::world::Failed;

/// The KV as one engine reads it.
pub trait KvSource {
    /// The value of a key; `None` if the key has no value.
    fn read(&mut self, key: &str) -> Option<String>;
}

impl<S: BuildHasher> KvSource for &HashMap<String, String, S> {
    fn read(&mut self, key: &str) -> Option<String> {
        self.get(key).cloned()
    }
}

/// A browser's cookies.
#[derive(Debug, Clone, Default)]
pub struct Browser {
    cookies: Vec<(String, String)>,
    /// Whether the browser sends `Sec-GPC: 1`, which refuses permission.
    gpc: bool,
}

impl Browser {
    /// A browser without cookies.
    #[must_use]
    pub fn new(permits: bool) -> Self {
        Self { cookies: Vec::new(), gpc: !permits }
    }

    /// Sends a request to an engine, and stores the cookies of the answer. Object calls are not supported.
    ///
    /// # Errors
    /// The answer is an error, or the request is not served.
    pub fn send(
        &mut self,
        engine: &mut Engine,
        kv: &mut dyn KvSource,
        (method, path, body): (&str, &str, &str),
        now: Millis,
        dice: &mut Dice,
    ) -> Result<HttpAnswer, Failed> {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let gpc = if self.gpc { "1" } else { "" };
        let head =
            format!("{method}\nhttps://market.example{path}\n{}\n\n{gpc}\n\nFirefox/140.0\n\n", cookies.join("; "));
        let mut step = engine.begin(&head, body.as_bytes(), now, dice.seed());
        let answer = loop {
            step = match step {
                EngineStep::Read(read) => {
                    let values = read.keys.iter().map(|key| kv.read(key).map(String::into_bytes)).collect();
                    engine.resume_read(read.pending, &Ok(values))
                }
                EngineStep::Call(pending, _) => engine.resume_call(pending, None),
                EngineStep::Answer(answer) => break answer,
                EngineStep::Unserved(reason) => {
                    return Err(format!("{method} {path} is not served: {}", reason.name()).into());
                }
                EngineStep::Page(page) => {
                    return Err(format!("{method} {path} is a page of the worker: {page:?}").into());
                }
            };
        };
        if answer.status >= 400 {
            return Err(format!("{method} {path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body)).into());
        }
        for (_, cookie) in answer.headers.iter().filter(|(name, _)| *name == "set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            let Some((name, value)) = pair.split_once('=') else { continue };
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(answer)
    }
}

/// The decisions of an answer.
#[must_use]
pub fn decisions(answer: &HttpAnswer) -> Vec<Value> {
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match body.get_mut("decisions").map(Value::take) {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    }
}
