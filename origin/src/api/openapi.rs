//! The OpenAPI document of the origin.
//!
//! The attributes and the types of the handlers generate it, so that it cannot differ from the routes. This module adds
//! the parts that hold for every route: the token, and the answers of a refused call.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::IntoResponse as _;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response};
use utoipa::{OpenApi, openapi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::admission::{Answer, admit};
use super::error::ErrorAnswer;
use crate::api::tokens::TokenRole;

/// Media type of the document and of every error.
const JSON: &str = "application/json";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Causeway origin",
        version = "1",
        description = "The HTTP interface of the origin: the admin side, the sync of the edges, health and metrics. \
            An error is `{\"error\": {\"code\", \"message\", \"field\"}}`. A time is in milliseconds since the Unix \
            epoch. Money is in integer micros of the catalogue's currency. The scope of a route's `bearer` security is \
            the role that the token needs; every role may call a route for `viewer`."
    ),
    components(schemas(ErrorAnswer))
)]
struct OriginDocument;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(show_document))
}

/// Shows this document.
#[utoipa::path(
    get,
    path = "/admin/v1/openapi.json",
    responses((status = 200, description = "The document.", body = Object)),
    security(("bearer" = ["viewer"]))
)]
async fn show_document(State(app): State<Arc<ApiState>>, parts: Parts) -> Answer {
    admit(&app, &parts, TokenRole::Viewer).await?;
    Ok(([(header::CONTENT_TYPE, JSON)], document_text()).into_response())
}

/// The document as JSON text. It is built once, at the first request.
pub(super) fn document_text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| document().to_pretty_json().unwrap_or_default());
    &TEXT
}

/// The document.
fn document() -> openapi::OpenApi {
    let mut document = OriginDocument::openapi();
    document.merge(super::described_routes().into_openapi());
    let bearer =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token of `causeway token create`."));
    let components = document.components.get_or_insert_default();
    components.security_schemes.insert("bearer".to_owned(), RefOr::T(SecurityScheme::Http(bearer.build())));
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            if path.starts_with("/admin/v1/") {
                add_refusals(operation);
            }
            describe_errors(operation);
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
}

/// Adds the refusals that every route of the admin side has, unless its own attribute describes the status.
fn add_refusals(operation: &mut Operation) {
    let has_body = operation.request_body.is_some();
    let has_input = has_body || operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    let refusals = [
        (has_input, "400", "A parameter, or a field of the body, is invalid; `field` names it."),
        (true, "401", "The call has no valid token."),
        (true, "403", "The role of the token does not allow the call, or the token is for another tenant."),
        (has_body, "408", "The body did not arrive in time."),
        (has_body, "413", "The body is too long: at most 64 KiB, and 8 MiB for a catalogue."),
        (true, "503", "The store cannot be read or written now. The header `retry-after` says when to call again."),
    ];
    for (_, status, description) in refusals.into_iter().filter(|(applies, ..)| *applies) {
        let response = || RefOr::T(Response::new(description));
        operation.responses.responses.entry(status.to_owned()).or_insert_with(response);
    }
}

/// Gives every error without a body of its own the common form.
fn describe_errors(operation: &mut Operation) {
    let errors = operation.responses.responses.iter_mut().filter(|(status, _)| status.starts_with(['4', '5']));
    for (_, response) in errors {
        if let RefOr::T(response) = response
            && response.content.is_empty()
        {
            let schema = Ref::from_schema_name("ErrorAnswer");
            response.content.insert(JSON.to_owned(), RefOr::T(ContentBuilder::new().schema(Some(schema)).build()));
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::base::job_kinds::JobKind;

    /// The document as callers read it.
    fn served() -> Value {
        serde_json::from_str(document_text()).unwrap()
    }

    fn operations_of(document: &Value) -> impl Iterator<Item = (String, &String, &Value)> {
        let paths = document["paths"].as_object().unwrap().iter();
        paths.flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(move |(method, of)| (format!("{method} {path}"), path, of))
        })
    }

    #[test]
    fn every_route_with_a_body_describes_that_the_body_may_be_late_or_too_long() {
        let document = served();
        let bodies = operations_of(&document).filter(|(.., of)| of["requestBody"].is_object());
        let names = bodies.map(|(name, _, of)| {
            let answers = ["408", "413"].map(|status| of["responses"][status].is_object());
            assert_eq!(answers, [true; 2], "{name}");
        });
        assert!(names.count() > 10);
    }

    #[test]
    fn every_route_of_the_admin_side_names_one_role_and_its_refusals() {
        let document = served();
        let admin = operations_of(&document).filter(|(_, path, _)| path.starts_with("/admin/v1/"));
        let count = admin
            .map(|(name, _, of)| {
                let has = |status: &str| of["responses"][status].is_object();
                assert!(has("401") && has("503"), "{name}");
                let takes_tenant = of["parameters"].to_string().contains("tenant");
                assert!(!takes_tenant || has("400"), "{name}");
                assert!(of["security"][0]["bearer"].is_array(), "{name}");
            })
            .count();
        assert!(count > 40);
    }

    #[test]
    fn the_start_of_a_job_explains_every_job() {
        let document = served();
        let explained = document["paths"]["/admin/v1/jobs/{job}"]["post"]["description"].as_str().unwrap();
        let missing = JobKind::names().into_iter().filter(|name| !explained.contains(&format!("`{name}`")));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn every_route_has_an_operation_id_of_its_own() {
        let document = served();
        let ids: Vec<&str> = operations_of(&document).map(|(.., of)| of["operationId"].as_str().unwrap()).collect();
        let unique: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(unique.len(), ids.len(), "{ids:?}");
    }

    #[test]
    fn every_parameter_is_described_and_those_of_a_path_are_required() {
        let document = served();
        for (name, _, of) in operations_of(&document) {
            for parameter in of["parameters"].as_array().into_iter().flatten() {
                let is_required = parameter["in"] != "path" || parameter["required"] == true;
                assert!(is_required && parameter["description"].is_string(), "{name}: {parameter}");
            }
        }
    }

    #[test]
    fn every_reference_of_the_document_names_a_part_of_it() {
        let document = served();
        let text = document.to_string();
        let references = text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next());
        let missing: Vec<&str> = references.filter(|at| document.pointer(at).is_none()).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }
}
