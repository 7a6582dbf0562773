//! The peers, and the check of their answers before the measurement.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use causeway_shared::keys::cookie::{IDENTITY, LEDGER};
use serde_json::Value;

use super::fixture::{Fixture, VISITOR};
use crate::environment::{self, path};
use crate::http1::Message;
use crate::workerd::{Module, Service};

/// Name of the edge, which is compared with all others.
pub(crate) const DECIDE: &str = "decide";

/// One worker to measure.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// The services without and with the queue; a peer that serves both has one service.
    pub(crate) services: Vec<Service>,
    pub(crate) says: Says,
}

/// The kind of a peer's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    /// Any body.
    Anything,
    /// The length of the value.
    Length,
    /// The decision with this signed cookie; if `counts` is set, the ad has an address that names the visitor.
    Decision { cookie: &'static str, counts: bool },
}

impl Says {
    pub(crate) fn check(self, answer: &Message<'_>, fixture: &Fixture) -> Result<()> {
        let body = String::from_utf8_lossy(answer.body);
        let head = String::from_utf8_lossy(answer.head);
        ensure!(answer.status() == Some(200), "status {:?}: {body}", answer.status());
        match self {
            Self::Anything => {}
            Self::Length => {
                ensure!(body == fixture.value.len().to_string(), "{body} instead of the value's length");
            }
            Self::Decision { cookie, counts } => {
                let json: Value = serde_json::from_str(&body).with_context(|| format!("no JSON: {head}{body}"))?;
                let is = |pointer: &str, wanted: Value| {
                    let found = json.pointer(pointer);
                    ensure!(found == Some(&wanted), "{pointer} is {found:?} instead of {wanted}: {body}");
                    Ok(())
                };
                is("/visitor", VISITOR.into())?;
                is("/person/devices", fixture.devices.into())?;
                is("/person/new_visitor", false.into())?;
                is("/person/bridged", true.into())?;
                is("/kv_reads", 1.into())?;
                is("/decisions/0/placement", "top".into())?;
                for (place, ad) in fixture.expected.iter().enumerate() {
                    is(&format!("/decisions/{place}/ad/id"), ad.as_str().into())?;
                }
                ensure!(json.get("degraded").is_none(), "degraded: {body}");
                let signed = answer.headers("set-cookie").any(|set| fixture.signed(cookie, set));
                ensure!(signed, "no Set-Cookie with a signed {cookie}: {head}");
                let address = json.pointer("/decisions/0/impression_url").and_then(Value::as_str);
                let named = address.is_some_and(|address| fixture.names_visitor(address));
                ensure!(named || !counts, "no address that counts the ad for the visitor: {body}");
            }
        }
        Ok(())
    }

    /// Checks that a peer does not accept a forged cookie.
    pub(crate) fn check_forged(self, answer: &Message<'_>) -> Result<()> {
        if let Self::Decision { .. } = self {
            let json: Value = serde_json::from_slice(answer.body)?;
            ensure!(json.get("visitor") != Some(&VISITOR.into()), "a forged cookie is accepted");
        }
        Ok(())
    }
}

/// All peers, the edge last. With `ads`, only the peers that place ads and the peer that only reads. `beside` has other
/// builds of the edge.
pub(crate) fn all(fixture: &Fixture, ads: bool, beside: &[(String, PathBuf)]) -> Result<Vec<Peer>> {
    let built = path("CAUSEWAY_PEERS")?;
    let js = path("CAUSEWAY_ROOT")?.join("bench/peers/js");
    let rust = |name: &str| worker_build(&built.join(name));
    let script = |name: &str| vec![module("worker.js", js.join(name)), module("./common.mjs", js.join("common.mjs"))];
    if ads {
        let [read, js] = [rust("read"), script("ads.mjs")];
        return Ok(vec![
            peer("rust-read", [read, rust("read-queue")], Says::Length, true, fixture),
            peer("js", [js, script("ads.mjs")], plain(LEDGER), true, fixture),
            edge(DECIDE, &path("CAUSEWAY_EDGE_BUNDLE")?, fixture)?,
        ]);
    }
    let comparable = || [script("comparable.mjs"), script("comparable.mjs")];
    let shim = || vec![module("worker.js", js.join("shim.mjs")), module("shim.wasm", built.join("shim.wasm"))];
    let mut peers = vec![
        peer("rust-empty", [rust("empty"), rust("empty-queue")], Says::Anything, false, fixture),
        peer("rust-read", [rust("read"), rust("read-queue")], Says::Length, true, fixture),
        peer("js-empty", [script("empty.mjs"), script("empty.mjs")], Says::Anything, false, fixture),
        peer("js-read", [script("empty.mjs"), script("empty.mjs")], Says::Length, true, fixture),
        peer("shim-empty", [shim(), shim()], Says::Anything, false, fixture),
        peer("shim-read", [shim(), shim()], Says::Length, true, fixture),
        peer("io", [script("io.mjs"), script("io.mjs")], Says::Anything, true, fixture),
        with("LIGHT", peer("js-light", comparable(), plain(IDENTITY), true, fixture)),
        with("JSON_SNAPSHOT", peer("js-json", comparable(), plain(LEDGER), true, fixture)),
        with("IMPORT", peer("js-import", comparable(), plain(LEDGER), true, fixture)),
        with("JSON_SNAPSHOT", with("IMPORT", peer("js-plain", comparable(), plain(LEDGER), true, fixture))),
        with("TOGETHER", peer("js-together", comparable(), plain(LEDGER), true, fixture)),
        with("SIGNED", peer("js-signed", comparable(), Says::Decision { cookie: LEDGER, counts: true }, true, fixture)),
        peer("js", comparable(), plain(LEDGER), true, fixture),
    ];
    for (name, bundle) in beside {
        peers.push(edge(name, bundle, fixture)?);
    }
    peers.push(edge(DECIDE, &path("CAUSEWAY_EDGE_BUNDLE")?, fixture)?);
    Ok(peers)
}

fn plain(cookie: &'static str) -> Says {
    Says::Decision { cookie, counts: false }
}

fn peer(name: &str, modules: [Vec<Module>; 2], says: Says, kv: bool, fixture: &Fixture) -> Peer {
    let texts = vec![
        ("KEY", fixture.key.clone()),
        ("COOKIE_SECRET", fixture.secret.clone()),
        ("MESSAGE_BYTES", fixture.message_bytes.to_string()),
    ];
    let services = modules
        .into_iter()
        .zip([false, true])
        .map(|(modules, queue)| Service { modules, kv, queue, texts: texts.clone() })
        .collect();
    Peer { name: name.to_owned(), services, says }
}

/// The JavaScript worker with another variant, by the name of its variable.
fn with(form: &'static str, mut peer: Peer) -> Peer {
    for service in &mut peer.services {
        service.texts.push((form, "yes".to_owned()));
    }
    peer
}

fn edge(name: &str, bundle: &Path, fixture: &Fixture) -> Result<Peer> {
    let texts = vec![
        ("CAUSEWAY_CONFIG", fixture.config.clone()),
        ("CAUSEWAY_KEYS", fixture.keys.clone()),
        ("ORIGIN_URL", "http://127.0.0.1:9".to_owned()),
        ("EDGE_NAME", "bench".to_owned()),
    ];
    let service = Service { modules: environment::bundle(bundle)?, kv: true, queue: true, texts };
    Ok(Peer { name: name.to_owned(), services: vec![service], says: Says::Decision { cookie: LEDGER, counts: true } })
}

/// The modules that worker-build writes.
fn worker_build(folder: &Path) -> Vec<Module> {
    vec![module("index.js", folder.join("index.js")), module("./index_bg.wasm", folder.join("index_bg.wasm"))]
}

fn module(name: &str, file: PathBuf) -> Module {
    Module { name: name.to_owned(), file }
}
