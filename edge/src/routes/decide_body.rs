//! The body of a decide call, and its bounds.

use std::borrow::Cow;

use causeway_shared::base::limits;
use serde::Deserialize;

use crate::http::claims::UserBody;
use crate::http::json_object::JsonObject;
use crate::http::permission::ConsentBody;
use crate::http::whole_number::WholeNumber;

/// The call's body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecideBody<'a> {
    #[serde(borrow, default)]
    pub(super) placements: Vec<JsonObject<PlacementBody<'a>>>,
    #[serde(borrow, default)]
    pub(super) page: JsonObject<PageBody<'a>>,
    #[serde(borrow, default)]
    pub(super) user: JsonObject<UserBody<'a>>,
    #[serde(borrow, default)]
    pub(super) consent: JsonObject<ConsentBody<'a>>,
    /// Insertions of the ads that the page already shows, as earlier answers named them.
    #[serde(borrow, default)]
    pub(super) shown: Vec<Cow<'a, str>>,
    #[serde(default)]
    pub(super) explain: bool,
    #[serde(default = "yes")]
    pub(super) page_view: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlacementBody<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(default)]
    pub(super) sizes: Vec<[WholeNumber<u32>; 2]>,
    #[serde(borrow, default)]
    pub(super) view_type: Cow<'a, str>,
    #[serde(default)]
    pub(super) floor_micros: WholeNumber<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageBody<'a> {
    #[serde(borrow, default)]
    pub(super) url: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) referrer: Cow<'a, str>,
    #[serde(default)]
    pub(super) keywords: Vec<String>,
}

/// Reads a body that is valid and within its bounds; `None` for any other.
pub(super) fn read_exact(text: &str) -> Option<DecideBody<'_>> {
    let JsonObject(body) = serde_json::from_str::<JsonObject<DecideBody<'_>>>(text).ok()?;
    body.is_within_bounds().then_some(body)
}

impl DecideBody<'_> {
    fn is_within_bounds(&self) -> bool {
        let Self { placements, page: JsonObject(page), user: JsonObject(user), shown, .. } = self;
        shown.len() <= limits::SHOWN
            && placements.len() <= limits::PLACEMENTS
            && placements.iter().all(|JsonObject(placement)| placement.check().is_ok())
            && page.url.len() <= limits::URL_BYTES
            && page.referrer.len() <= limits::URL_BYTES
            && page.keywords.len() <= limits::KEYWORDS
            && page.keywords.iter().all(|keyword| keyword.len() <= limits::NAME_BYTES)
            && [user.ids.len(), user.proofs.len()].iter().all(|kinds| *kinds <= limits::KINDS)
            && user.ids.keys().all(|kind| (1..=limits::NAME_BYTES).contains(&kind.len()))
    }
}

impl PlacementBody<'_> {
    /// # Errors
    /// The first field that is out of its bounds, and the expected value.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let name = |most| format!("expected a text of 1 to {most} bytes");
        if !(1..=limits::NAME_BYTES).contains(&self.id.len()) {
            return Err(("id", name(limits::NAME_BYTES)));
        }
        if self.sizes.len() > limits::SIZES {
            return Err(("sizes", format!("at most {} sizes are allowed", limits::SIZES)));
        }
        if self.view_type.len() > limits::NAME_BYTES {
            return Err(("view_type", name(limits::NAME_BYTES)));
        }
        Ok(())
    }
}
