//! The body of a decide call, and its bounds.

use std::borrow::Cow;

use causeway_shared::limits;
use serde::Deserialize;

use crate::http::answer::Answer;
use crate::http::claims::UserBody;
use crate::http::malformed;
use crate::http::permission::ConsentBody;

/// The call's body.
#[derive(Debug, Deserialize)]
pub(super) struct DecideBody<'a> {
    #[serde(borrow, default)]
    pub(super) placements: Vec<PlacementBody<'a>>,
    #[serde(borrow, default)]
    pub(super) page: PageBody<'a>,
    #[serde(borrow, default)]
    pub(super) user: UserBody<'a>,
    #[serde(borrow, default)]
    pub(super) consent: ConsentBody<'a>,
    #[serde(default)]
    pub(super) explain: bool,
    #[serde(default = "yes")]
    pub(super) page_view: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
pub(super) struct PlacementBody<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(default)]
    pub(super) sizes: Vec<[u32; 2]>,
    #[serde(borrow, default)]
    pub(super) view_type: Cow<'a, str>,
    #[serde(default)]
    pub(super) floor_micros: u64,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct PageBody<'a> {
    #[serde(borrow, default)]
    pub(super) url: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) referrer: Cow<'a, str>,
    #[serde(default)]
    pub(super) keywords: Vec<String>,
}

/// Reads the body, within its bounds.
///
/// # Errors
/// The answer to a body that is not of its form.
pub(super) fn read_body(body: &[u8]) -> Result<DecideBody<'_>, Box<Answer>> {
    if body.len() > limits::BODY_BYTES {
        return Err(Box::new(Answer::too_large()));
    }
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Box::new(Answer::error(400, "malformed", "the body is not a JSON object", None)));
    }
    let refuse = |message: &str, field: Option<&str>| Box::new(Answer::error(400, "malformed", message, field));
    let text = std::str::from_utf8(body).map_err(|_| refuse("the body is not UTF-8", None))?;
    let body: DecideBody<'_> = serde_json::from_str(text).map_err(|error| {
        let message = format!("the body is not the JSON it should be: {error}");
        refuse(&message, malformed::field(text, &error).as_deref())
    })?;
    body.check()?;
    Ok(body)
}

impl DecideBody<'_> {
    fn check(&self) -> Result<(), Box<Answer>> {
        if self.placements.len() > limits::PLACEMENTS {
            return Err(out_of_bounds("placements", limits::PLACEMENTS));
        }
        for (i, placement) in self.placements.iter().enumerate() {
            let at = |field: &str| format!("placements[{i}].{field}");
            if placement.id.is_empty() || placement.id.len() > limits::NAME_BYTES {
                return Err(out_of_bounds(&at("id"), limits::NAME_BYTES));
            }
            if placement.sizes.len() > limits::SIZES {
                return Err(out_of_bounds(&at("sizes"), limits::SIZES));
            }
            if placement.view_type.len() > limits::NAME_BYTES {
                return Err(out_of_bounds(&at("view_type"), limits::NAME_BYTES));
            }
        }
        let page = &self.page;
        if page.url.len() > limits::URL_BYTES {
            return Err(out_of_bounds("page.url", limits::URL_BYTES));
        }
        if page.referrer.len() > limits::URL_BYTES {
            return Err(out_of_bounds("page.referrer", limits::URL_BYTES));
        }
        if page.keywords.len() > limits::KEYWORDS || page.keywords.iter().any(|k| k.len() > limits::NAME_BYTES) {
            return Err(out_of_bounds("page.keywords", limits::KEYWORDS));
        }
        if self.user.ids.len() > limits::KINDS || self.user.proofs.len() > limits::KINDS {
            return Err(out_of_bounds("user.ids", limits::KINDS));
        }
        if self.user.ids.keys().any(|kind| kind.is_empty() || kind.len() > limits::NAME_BYTES) {
            return Err(out_of_bounds("user.ids", limits::NAME_BYTES));
        }
        Ok(())
    }
}

/// The answer to a field that is empty or over its bound.
pub(super) fn out_of_bounds(field: &str, most: usize) -> Box<Answer> {
    let message = format!("{field} is empty or over its bound of {most}");
    Box::new(Answer::error(400, "out_of_bounds", &message, Some(field)))
}
