//! The routes, one file each.
//!
//! A route parses its part of the request and declares the data that it needs. The engine recognises the visitor and
//! reads the data. The route then answers.

pub(crate) mod decide;
mod decide_body;
mod decide_repair;
pub(crate) mod erase;
mod event_reader;
pub(crate) mod events;
pub(crate) mod me;
pub(crate) mod pixel;
mod placing;
pub(crate) mod table;

use std::fmt::Debug;

use causeway_shared::base::ids::VisitorId;
use causeway_shared::identity::{IdentityRequest, RecognisedVisitor};

use crate::http::answer::HttpAnswer;
use crate::http::unserved::UnservedReason;
use crate::objects::object_call::ObjectCall;
use crate::objects::offers::SoldOutOffers;
use crate::state::request_state::RequestState;

/// The data that one kind of request needs.
pub(crate) trait Route: Debug {
    /// Whether the answer needs the catalogue.
    fn catalogue_need(&self) -> CatalogueNeed;

    /// Whether the answer needs the attribute names.
    fn names_need(&self) -> NamesNeed {
        NamesNeed::None
    }
}

/// A route that answers for a recognised visitor.
pub(crate) trait VisitorRoute: Route {
    /// Whether the route mints a visitor if the request has none. Only `decide` does (ARCHITECTURE.md).
    fn mints_visitors(&self) -> bool;

    /// Answers for the recognised visitor.
    fn answer_visitor(
        self: Box<Self>,
        state: RequestState,
        recognised: RecognisedVisitor,
        sold_out: &SoldOutOffers,
    ) -> RouteProgress;

    /// Answers if no visitor may be used; `reason` is given in the answer.
    fn answer_unidentified(self: Box<Self>, state: RequestState, reason: &'static str) -> HttpAnswer;
}

/// A route that recognises no visitor.
pub(crate) trait AnonymousRoute: Route {
    /// Visitors of the request's tokens and cookies that may have been erased since. Their snapshots are read.
    fn named_visitors(&self) -> Vec<VisitorId> {
        Vec::new()
    }

    /// Answers the request.
    fn answer_anonymous(self: Box<Self>, state: RequestState) -> RouteProgress;
}

/// Whether and when a route needs the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatalogueNeed {
    /// Never.
    None,
    /// In parallel with a read of the visitor's history. The route does without the catalogue if nothing else is read.
    WithHistory,
    /// Whenever the cached pointer is due.
    WhenDue,
    /// Whenever the cached pointer is due, and in any case if no catalogue is cached.
    Always,
}

/// Whether and when a route needs the attribute names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamesNeed {
    /// Never.
    None,
    /// Names of the last minute are enough.
    Cached,
    /// The names as they are in the KV now.
    Current,
}

/// The next step of a route.
#[derive(Debug)]
pub(crate) enum RouteProgress {
    /// The answer.
    Answer(HttpAnswer),
    /// The request cannot be served.
    Unserved(UnservedReason),
    /// A Durable Object must be called first.
    Call(ObjectCall, Box<dyn ObjectWait>),
}

/// A route that waits for an object's answer.
pub(crate) trait ObjectWait: Debug {
    /// Memory of the waiting request, in bytes of a body.
    fn bytes(&self) -> usize;

    /// Continues with the object's answer; `None` if no answer came in time.
    fn resume(self: Box<Self>, answer: Option<&[u8]>, sold_out: &mut SoldOutOffers) -> RouteProgress;
}

/// The outcome of a route's first look at a request.
#[derive(Debug)]
pub(crate) enum RouteOutcome {
    /// An answer at once.
    Answer(HttpAnswer),
    /// A page that the worker serves itself.
    Page(WorkerPage),
    /// A request that recognises no visitor.
    Anonymous(RequestState, Box<dyn AnonymousRoute>),
    /// The visitor must be recognised first.
    Recognise(RequestState, Box<dyn VisitorRoute>, Box<IdentityRequest>),
}

/// A page that the worker serves itself, because it needs the platform or files of the build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerPage {
    /// `GET /healthz`, with the catalogue's part as JSON; `None` if the hostname belongs to no tenant.
    Health(Option<serde_json::Value>),
    /// `GET /causeway.js`, with the headers that let a page read it.
    PageTag(Vec<(&'static str, String)>),
    /// A page of the demonstration, of this tenant.
    Demo(String),
}
