//! Requests and answers: what a request brings (cookies, ids, consent, client), and the form of an answer.

pub(crate) mod answer;
pub(crate) mod attributes;
pub(crate) mod body_text;
pub(crate) mod bots;
pub(crate) mod claims;
pub(crate) mod client;
pub(crate) mod cookies;
pub(crate) mod cors;
pub(crate) mod incoming;
pub(crate) mod json_object;
pub(crate) mod permission;
pub(crate) mod request;
pub(crate) mod unserved;
pub(crate) mod whole_number;
