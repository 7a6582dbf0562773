//! A request on its way to a route.

use std::rc::Rc;

use causeway_shared::ids::Millis;
use causeway_shared::random::Random;

use crate::http::request::Request;
use crate::site::Site;

/// A request with its tenant.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) request: Request<'a>,
    /// Headers that the configuration names, in the order of the head text.
    pub(crate) further_headers: &'a [String],
    pub(crate) body: &'a [u8],
    /// When the request was received, by the edge's clock.
    pub(crate) now: Millis,
    pub(crate) random: Random,
    pub(crate) site: Rc<Site>,
    /// The headers that let the page read the answer.
    pub(crate) cors: Vec<(&'static str, String)>,
}
