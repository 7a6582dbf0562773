//! The reason why a line of an import is refused: a stable code and a message.

use causeway_shared::base::ids::VisitorId;
use serde::Deserialize;

pub(crate) type Refusal = (&'static str, String);

#[derive(Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct VisitorText(pub(super) String);

impl VisitorText {
    pub(crate) fn id(&self) -> Result<VisitorId, Refusal> {
        self.0.parse().map_err(|_| ("bad_id", "invalid visitor id: expected a UUID of version 7".to_owned()))
    }
}

pub(crate) fn malformed_line(message: impl Into<String>) -> Refusal {
    ("malformed", message.into())
}
