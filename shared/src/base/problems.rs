//! Problems of a configuration or a catalogue.

/// One problem of a configuration: its location and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Path in the document, such as `tenant[0].kinds[1].code`.
    pub path: String,
    /// The problem and the remedy.
    pub message: String,
}

#[derive(Default)]
pub(crate) struct ProblemList(pub(crate) Vec<ConfigProblem>);

impl ProblemList {
    pub(crate) fn say(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(ConfigProblem { path: path.into(), message: message.into() });
    }

    pub(crate) fn unique<'a>(&mut self, at: &str, field: &str, seen: &mut Vec<&'a str>, value: &'a str) {
        if seen.contains(&value) {
            self.say(format!("{at}.{field}"), format!("`{value}` is used twice: choose another"));
        }
        seen.push(value);
    }
}
