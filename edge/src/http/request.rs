//! A request in the platform's form, and the parts that all routes use: tenant, origin, cookies.

use causeway_shared::base::limits;
use causeway_shared::settings::config::TenantConfig;
use causeway_shared::wire::sync::FilterReason;

use crate::http::bots::is_declared_bot;

/// Headers that are read from every request, in this order. The headers that the configuration names follow them.
pub(crate) const HEADERS: [&str; 5] = ["cookie", "origin", "sec-gpc", "sec-purpose", "user-agent"];
/// The header with the key for explanations. It is read if such a key is configured.
pub(crate) const EXPLAIN: &str = "x-causeway-explain";
/// The header by which older browsers declare a prefetch, instead of `Sec-Purpose`.
pub(crate) const PURPOSE: &str = "purpose";
/// The header that tells whether a request is a navigation (Fetch Metadata).
pub(crate) const FETCH_MODE: &str = "sec-fetch-mode";
/// The header that tells the destination of a request: a page, a frame, a picture (Fetch Metadata).
pub(crate) const FETCH_DEST: &str = "sec-fetch-dest";

/// The parts of a request's address that determine the answer if the request cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTarget<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// The path, at least `/`.
    pub path: &'a str,
    /// The query without its question mark.
    pub query: &'a str,
    /// The `Origin` header.
    pub origin: Option<&'a str>,
    /// The `Access-Control-Request-Headers` header.
    pub requested_headers: Option<&'a str>,
}

impl<'a> RequestTarget<'a> {
    /// Reads an absolute address; `None` for any other. The headers are empty.
    #[must_use]
    pub fn parse(method: &'a str, url: &'a str) -> Option<Self> {
        let ParsedUrl { path, query, .. } = ParsedUrl::parse(url)?;
        Some(Self { method, path, query, origin: None, requested_headers: None })
    }

    /// Whether the request is the retry that the answer to an unserved click requested.
    pub(crate) fn is_again(&self) -> bool {
        is_again(self.query)
    }
}

/// Whether a declared purpose is to load a page that may never be shown.
pub(super) fn is_prefetch(purpose: &str) -> bool {
    let purpose = purpose.to_ascii_lowercase();
    ["prefetch", "prerender", "preview"].iter().any(|word| purpose.contains(word))
}

fn is_again(query: &str) -> bool {
    query.split('&').any(|part| part == "again")
}

/// An absolute address, split.
struct ParsedUrl<'a> {
    scheme: &'a str,
    /// Scheme, host and port, in the form of an origin.
    origin: &'a str,
    /// Hostname without port.
    host: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> ParsedUrl<'a> {
    fn parse(url: &'a str) -> Option<Self> {
        let (scheme, after) = url.split_once(':')?;
        let after = after.strip_prefix("//")?;
        let (authority, target) = after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len()));
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => authority,
        };
        let target = target.split('#').next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let origin = url.get(..scheme.len() + 3 + authority.len())?;
        Some(Self { scheme, origin, host, path: if path.is_empty() { "/" } else { path }, query })
    }
}

/// A request's parts, borrowed from the platform's head text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a str,
    /// The client's country and region as the platform gives them, separated by a space. Empty if the platform has
    /// none, and for a request without a body.
    pub(crate) location: &'a str,
    pub(crate) secure: bool,
    /// Scheme, host and port, in the form of an origin.
    pub(crate) own_origin: &'a str,
    /// Hostname without port.
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    /// Whether the request is the retry that the answer to an unserved click requested.
    pub(crate) is_again: bool,
    values: [&'a str; HEADERS.len()],
    /// Whether the cookie header is over its bound, so that no cookie is read.
    too_long: bool,
    extra: &'a str,
}

impl<'a> HttpRequest<'a> {
    /// Reads the head text: the method (followed by country and region), the address, then one line per header. `None`
    /// if the text is not of this form.
    pub(crate) fn parse(head: &'a str) -> Option<Self> {
        let (first, rest) = head.split_once('\n')?;
        let (method, location) = first.split_once(' ').unwrap_or((first, ""));
        let (url, rest) = rest.split_once('\n')?;
        let mut values = [""; HEADERS.len()];
        let mut lines = rest.splitn(HEADERS.len() + 1, '\n');
        values.iter_mut().zip(&mut lines).for_each(|(value, line)| *value = line);
        let is_too_long = |value: &&str| value.len() > limits::HEADER_BYTES;
        let too_long = values.first().is_some_and(is_too_long);
        values.iter_mut().filter(|value| is_too_long(value)).for_each(|value| *value = "");
        let extra = lines.next().unwrap_or("");
        let ParsedUrl { scheme, origin, host, path, query } = ParsedUrl::parse(url)?;
        Some(Self {
            method,
            location,
            secure: scheme == "https",
            own_origin: origin,
            host,
            path,
            is_again: is_again(query),
            values,
            too_long,
            extra,
        })
    }

    /// The values of one cookie. Browsers send one value for each path and domain that set it.
    pub(crate) fn cookies(self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.all_cookies().filter_map(move |(named, value)| (named == name).then_some(value))
    }

    /// Names and values of all cookies, in the order of the header.
    pub(crate) fn all_cookies(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let [cookie, ..] = self.values;
        // The platform joins the lines of a repeated header with a comma and a blank.
        let pairs = cookie.split(';').flat_map(|pairs| pairs.split(", "));
        pairs.filter_map(|pair| pair.trim().split_once('='))
    }

    pub(crate) fn cookies_are_too_long(self) -> bool {
        self.too_long
    }

    pub(crate) fn origin(self) -> Option<&'a str> {
        let [_, origin, ..] = self.values;
        (!origin.is_empty()).then_some(origin)
    }

    pub(crate) fn gpc(self) -> bool {
        let [_, _, gpc, ..] = self.values;
        // The platform joins the values of a repeated header with commas.
        gpc.split(',').any(|value| value.trim() == "1")
    }

    pub(crate) fn agent(self) -> &'a str {
        let [.., agent] = self.values;
        agent
    }

    /// The value of a header that the configuration names; `names` are all such headers in the order of the head text.
    pub(crate) fn extra(self, names: &[String], name: &str) -> Option<&'a str> {
        let index = names.iter().position(|n| n == name)?;
        self.extra.split('\n').nth(index).filter(|v| !v.is_empty())
    }

    /// The reason why this request is answered but not counted, as far as the headers of every request tell.
    pub(super) fn uncounted(self) -> Option<FilterReason> {
        if self.method == "HEAD" {
            return Some(FilterReason::Head);
        }
        let [_, _, _, purpose, ..] = self.values;
        if is_prefetch(purpose) {
            return Some(FilterReason::Prefetch);
        }
        is_declared_bot(self.agent()).then_some(FilterReason::Bot)
    }

    /// Whether a page of `origin` may call with credentials: the edge's own origin, or one that the tenant configured.
    pub(crate) fn admits(self, origin: &str, tenant: &TenantConfig) -> bool {
        origin == self.own_origin || tenant.origins.iter().any(|o| o == origin)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_head_text_is_split_into_its_parts() {
        let head = "POST\nhttps://ads.pub.example:8443/v1/decide?x=1\na=1; cw_id=v1.x; cw_id=v1.y\nhttps://pub.example\n1\n\nMozilla\nkey\nproof\nother";
        let request = HttpRequest::parse(head).unwrap();
        assert_eq!((request.method, request.host, request.path), ("POST", "ads.pub.example", "/v1/decide"));
        assert_eq!(request.own_origin, "https://ads.pub.example:8443");
        assert_eq!(request.cookies("cw_id").collect::<Vec<_>>(), ["v1.x", "v1.y"]);
        assert!(request.gpc() && request.secure);
        let gpc = |value: &str| HttpRequest::parse(&format!("GET\nhttp://localhost/\n\n\n{value}\n")).unwrap().gpc();
        assert_eq!(["1, 1", "0,1", "0", "11", ""].map(gpc), [true, true, false, false, false]);
        let names = [EXPLAIN.to_owned(), "x-a".to_owned(), "x-b".to_owned()];
        assert_eq!(request.extra(&names, EXPLAIN), Some("key"));
        assert_eq!(request.extra(&names, "x-b"), Some("other"));
        assert_eq!(request.extra(&names, "x-c"), None);
    }

    #[test]
    fn addresses_without_a_path_or_with_an_ip_literal_are_split_too() {
        let parse =
            |url: &str| HttpRequest::parse(&format!("GET\n{url}\n")).map(|r| (r.host.to_owned(), r.path.to_owned()));
        assert_eq!(parse("http://localhost"), Some(("localhost".to_owned(), "/".to_owned())));
        assert_eq!(parse("http://[::1]:80/x"), Some(("[::1]".to_owned(), "/x".to_owned())));
        assert_eq!(parse("localhost/x"), None);
        assert!(HttpRequest::parse("GET").is_none());
    }

    #[test]
    fn prefetches_and_bots_are_not_counted() {
        let with = |purpose: &str, agent: &str| {
            let head = format!("POST\nhttp://localhost/\n\n\n\n{purpose}\n{agent}\n\n");
            HttpRequest::parse(&head).unwrap().uncounted()
        };
        assert_eq!(with("prefetch;prerender", "Mozilla/5.0"), Some(FilterReason::Prefetch));
        assert_eq!(with("", "Mozilla/5.0 (compatible; Googlebot/2.1)"), Some(FilterReason::Bot));
        assert_eq!(with("", "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"), None);
        let phone = "Mozilla/5.0 (Linux; Android 9; CUBOT_NOTE_20 Build/PPR1) Chrome/74.0 Mobile Safari/537.36";
        assert_eq!(with("", phone), None);
        assert_eq!(with("", &format!("{phone} (compatible; Googlebot/2.1)")), Some(FilterReason::Bot));
    }
}
