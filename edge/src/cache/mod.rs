//! Data that an isolate reads once for many requests: catalogues and attribute names.

pub(crate) mod attribute_names;
pub(crate) mod catalogue;
