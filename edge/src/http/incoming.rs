//! A request that is handed to a route.

use std::rc::Rc;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::random::Random;
use causeway_shared::wire::sync::FilterReason;

use crate::http::request::{FETCH_DEST, FETCH_MODE, HttpRequest, PURPOSE, is_prefetch};
use crate::site::Site;

/// A request with its tenant.
#[derive(Debug)]
pub(crate) struct TenantRequest<'a> {
    pub(crate) request: HttpRequest<'a>,
    /// Headers that the configuration names, in the order of the head text.
    pub(crate) further_headers: &'a [String],
    pub(crate) body: &'a [u8],
    /// Time of receipt, by the edge's clock.
    pub(crate) now: Millis,
    pub(crate) random: Random,
    pub(crate) site: Rc<Site>,
    /// The headers that let the page read the answer.
    pub(crate) cors: Vec<(&'static str, String)>,
}

impl TenantRequest<'_> {
    /// The reason why this request is answered but not counted: a HEAD request, a prefetch, or a declared bot.
    pub(crate) fn uncounted(&self) -> Option<FilterReason> {
        let declares_prefetch = || self.request.extra(self.further_headers, PURPOSE).is_some_and(is_prefetch);
        self.request.uncounted().or_else(|| declares_prefetch().then_some(FilterReason::Prefetch))
    }

    /// Whether the request is a navigation of a whole page, as far as the browser's headers tell. A picture, a script
    /// or a frame is not.
    pub(crate) fn is_navigation(&self) -> bool {
        let has_value = |name, value| self.request.extra(self.further_headers, name).is_none_or(|sent| sent == value);
        has_value(FETCH_MODE, "navigate") && has_value(FETCH_DEST, "document")
    }
}
