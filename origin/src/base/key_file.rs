//! The key file: loading, completion, and the three steps of a rotation.
//!
//! The steps are pure functions on [`KeyRing`] and [`KeySet`]; [`load_file`] and [`save_file`] do the I/O.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_shared::base::json::{self, JsonError};
use causeway_shared::base::limits;
use causeway_shared::base::problems::ConfigProblem;
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, ProofAlg, ProofKey, RingKey, TenantKeys};
use causeway_shared::settings::config::EdgeConfig;
use serde::{Deserialize, Serialize};

use crate::base::clock;
use crate::base::config::problem_lines;
use crate::base::folders::make_folder;

/// `kid` of the proof key with which a dev tenant signs its own proofs.
pub const DEV_PROOF: &str = "dev-1";

/// The reason why keys cannot be loaded or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file could not be read.
    #[error("cannot read the key file {}{}", path.display(), error_advice(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a key file. The error names only a position and never shows a secret.
    #[error("the key file {} is invalid (line {line}, column {column})", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line at which parsing stopped.
        line: usize,
        /// Column in that line.
        column: usize,
    },
    /// An object of the file contains a key twice.
    #[error("the key file {}: `{key}` is repeated, keep one of them", path.display())]
    Repeated {
        /// The file.
        path: PathBuf,
        /// The path of the key.
        key: String,
    },
    /// The file could not be written.
    #[error("cannot write the key file {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Keys are missing or weak.
    #[error("{} problems in the key file {}:\n{}", problems.len(), path.display(), problem_lines(problems))]
    Problems {
        /// The file.
        path: PathBuf,
        /// The problems, each with the path of its key.
        problems: Vec<ConfigProblem>,
    },
    /// The machine's random source failed.
    #[error("the operating system's random source failed")]
    Random(#[source] getrandom::Error),
    /// The ring still has an old key.
    #[error("key {0} is still old: retire it first")]
    OldStays(u8),
    /// The only active key cannot be removed.
    #[error("key {0} is active and in use: rotate first")]
    Active(u8),
    /// The ring has no old key.
    #[error("there is no old key to retire")]
    NothingOld,
    /// The ring has no key with that number.
    #[error("there is no key {0}")]
    Unknown(u8),
    /// No key number is free, or the ring is full.
    #[error("no key number from 1 to 255 is free")]
    Full,
}

fn error_advice(source: &std::io::Error) -> &'static str {
    if source.kind() == std::io::ErrorKind::NotFound { ": `causeway keys init` makes one" } else { "" }
}

/// The result of one rotation step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationResult {
    /// A first key was created and is active at once.
    First(u8),
    /// A next key was created: distribute it to every edge, then rotate again.
    Staged(u8),
    /// The next key became active; the previous one is old and still accepted.
    Promoted {
        /// The active key.
        active: u8,
        /// The old one.
        old: u8,
    },
}

/// The key file: the keys, and the numbers that must not be reused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "KeyDocument", into = "KeyDocument")]
pub struct KeyFile {
    /// The keys.
    pub keys: KeySet,
    /// Highest number of a key that was removed before it became active; 0: none. Such a number never names another
    /// secret, because browsers or the KV may hold values made with it. Edges do not need it.
    pub dropped: u8,
    /// Token of the platform's REST API, with which the origin publishes in bulk. No edge gets it.
    pub platform_token: Option<PlatformToken>,
}

/// A token of the platform's REST API.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlatformToken(String);

impl PlatformToken {
    /// Longest token in characters.
    const MOST: usize = 256;

    /// A token: 20 to 256 visible ASCII characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (20..=Self::MOST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }

    /// The secret text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for PlatformToken {
    /// Leaves out the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlatformToken")
    }
}

/// JSON form of [`KeyFile`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyDocument {
    sync: KeyRing,
    #[serde(default)]
    explain: Option<String>,
    tenants: BTreeMap<String, TenantKeys>,
    #[serde(default, skip_serializing_if = "is_zero")]
    dropped: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    platform_token: Option<PlatformToken>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl From<KeyDocument> for KeyFile {
    fn from(KeyDocument { sync, explain, tenants, dropped, platform_token }: KeyDocument) -> Self {
        Self { keys: KeySet { sync, explain, tenants }, dropped, platform_token }
    }
}

impl From<KeyFile> for KeyDocument {
    fn from(KeyFile { keys: KeySet { sync, explain, tenants }, dropped, platform_token }: KeyFile) -> Self {
        Self { sync, explain, tenants, dropped, platform_token }
    }
}

/// Reads the key file and refuses weak or missing keys.
///
/// # Errors
/// [`KeyError::Read`], [`KeyError::Parse`], [`KeyError::Problems`].
pub fn load_checked(path: &Path, edge: &EdgeConfig) -> Result<KeySet, KeyError> {
    let keys = load_keys(path)?;
    let problems = keys.problems(edge.tenants.iter().map(|t| t.name.as_str()));
    if problems.is_empty() { Ok(keys) } else { Err(KeyError::Problems { path: path.to_owned(), problems }) }
}

/// Reads the token of the platform's API.
///
/// # Errors
/// [`KeyError::Read`], [`KeyError::Parse`]; [`KeyError::Problems`] if there is no valid token.
pub fn load_platform_token(path: &Path) -> Result<PlatformToken, KeyError> {
    let token = load_file(path)?.platform_token.and_then(|token| PlatformToken::parse(token.reveal()));
    token.ok_or_else(|| {
        let message = "publishing in bulk needs a token of the platform: `causeway keys set-platform-token` stores it";
        let problem = ConfigProblem { path: "platform_token".to_owned(), message: message.to_owned() };
        KeyError::Problems { path: path.to_owned(), problems: vec![problem] }
    })
}

/// Reads the keys of the key file without checking them.
///
/// # Errors
/// [`KeyError::Read`], [`KeyError::Parse`].
pub fn load_keys(path: &Path) -> Result<KeySet, KeyError> {
    Ok(load_file(path)?.keys)
}

/// Reads the key file without checking its keys.
///
/// # Errors
/// [`KeyError::Read`], [`KeyError::Parse`].
pub fn load_file(path: &Path) -> Result<KeyFile, KeyError> {
    let text = std::fs::read_to_string(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
    json::read(text.as_bytes()).map_err(|e| match e {
        JsonError::Repeated(key) => KeyError::Repeated { path: path.to_owned(), key },
        JsonError::Form(e) => KeyError::Parse { path: path.to_owned(), line: e.line(), column: e.column() },
    })
}

/// Exclusive lock on the key file during a change; other writers wait.
#[derive(Debug)]
pub struct KeyFileLock(#[expect(dead_code, reason = "the open folder is the lock")] std::fs::File);

/// Locks the file's directory until the lock is dropped. The caller locks before it reads the file; otherwise one of
/// two concurrent changes is lost.
///
/// # Errors
/// [`KeyError::Write`].
pub fn lock_file(path: &Path) -> Result<KeyFileLock, KeyError> {
    let folder = parent_folder(path);
    let locked = make_folder(folder).and_then(|()| std::fs::File::open(folder)).and_then(|folder| {
        folder.lock()?;
        Ok(KeyFileLock(folder))
    });
    locked.map_err(|source| KeyError::Write { path: path.to_owned(), source })
}

fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Whether users other than the owner can read the file.
#[must_use]
pub fn is_exposed(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o077 != 0)
}

/// Replaces the key file atomically, readable by its owner only. The owner stays the same even if root writes the file.
///
/// # Errors
/// [`KeyError::Write`]; the previous file is then intact.
pub fn save_file(path: &Path, file: &KeyFile) -> Result<(), KeyError> {
    let failed = |source| KeyError::Write { path: path.to_owned(), source };
    // A symbolic link stays a link; its target is replaced.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let text = serde_json::to_string_pretty(file).map_err(|e| failed(e.into()))?;
    write_private(path, text.as_bytes()).map_err(failed)
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = parent_folder(path);
    make_folder(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            if let Ok(before) = std::fs::metadata(path) {
                fchown(&file, Some(before.uid()), Some(before.gid()))?;
            }
            file.write_all(bytes)?;
            file.write_all(b"\n")?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // Only the first error is reported.
        drop(std::fs::remove_file(&temporary));
        return written;
    }
    std::fs::File::open(folder)?.sync_all()
}

/// Creates missing keys for these tenants and changes no existing key. Returns the paths of the new keys.
///
/// # Errors
/// [`KeyError::Random`].
pub fn complete_keys(keys: &mut KeySet, edge: &EdgeConfig) -> Result<Vec<String>, KeyError> {
    let mut made = Vec::new();
    first_key(&mut keys.sync, "sync", &mut made)?;
    if keys.explain.is_none() {
        keys.explain = Some(random_bytes::<16>()?.iter().map(|b| format!("{b:02x}")).collect());
        made.push("explain".to_owned());
    }
    for tenant in &edge.tenants {
        let own = keys.tenants.entry(tenant.name.clone()).or_default();
        let at = format!("tenants.{}", tenant.name);
        first_key(&mut own.cookie, &format!("{at}.cookie"), &mut made)?;
        first_key(&mut own.alternate, &format!("{at}.alternate"), &mut made)?;
        if tenant.dev && !own.proof.iter().any(|p| p.kid == DEV_PROOF) {
            own.proof.push(ProofKey {
                kid: DEV_PROOF.to_owned(),
                alg: ProofAlg::HS256,
                key: STANDARD.encode(random_bytes::<32>()?),
            });
            made.push(format!("{at}.proof.{DEV_PROOF}"));
        }
    }
    Ok(made)
}

fn first_key(ring: &mut KeyRing, name: &str, made: &mut Vec<String>) -> Result<(), KeyError> {
    if ring.0.is_empty() {
        rotate_ring(ring, 0)?;
        made.push(name.to_owned());
    }
    Ok(())
}

/// Performs one rotation step: creates a next key if there is none, otherwise makes the next key active. `dropped` is
/// the highest number that [`retire_key`] dropped from any ring.
///
/// # Errors
/// [`KeyError::OldStays`] if an old key was not retired, [`KeyError::Random`], [`KeyError::Full`].
pub fn rotate_ring(ring: &mut KeyRing, dropped: u8) -> Result<RotationResult, KeyError> {
    let of = |ring: &KeyRing, stage| ring.0.iter().find(|k| k.stage == stage).map(|k| k.id);
    let Some(active) = of(ring, KeyStage::Active) else {
        return add(ring, KeyStage::Active, dropped).map(RotationResult::First);
    };
    let Some(next) = of(ring, KeyStage::Next) else {
        return add(ring, KeyStage::Next, dropped).map(RotationResult::Staged);
    };
    if let Some(old) = of(ring, KeyStage::Old) {
        return Err(KeyError::OldStays(old));
    }
    for key in &mut ring.0 {
        if key.id == active {
            key.stage = KeyStage::Old;
        } else if key.id == next {
            key.stage = KeyStage::Active;
        }
    }
    Ok(RotationResult::Promoted { active: next, old: active })
}

/// Removes the old key, or the key `id`, such as a next key that will not be used. If the removed number was the
/// highest, `dropped` records it, because values hashed with that key may exist.
///
/// # Errors
/// [`KeyError::Active`], [`KeyError::NothingOld`], [`KeyError::Unknown`].
pub fn retire_key(ring: &mut KeyRing, id: Option<u8>, dropped: &mut u8) -> Result<u8, KeyError> {
    let index = match id {
        Some(id) => ring.0.iter().position(|k| k.id == id).ok_or(KeyError::Unknown(id))?,
        None => {
            let old = ring.0.iter().position(|k| k.stage == KeyStage::Old);
            old.ok_or(KeyError::NothingOld)?
        }
    };
    // One of two active keys, which a hand-written file may have, can be removed.
    let is_only = ring.0.iter().filter(|k| k.stage == KeyStage::Active).count() == 1;
    match ring.0.get(index) {
        Some(key) if key.stage == KeyStage::Active && is_only => Err(KeyError::Active(key.id)),
        Some(_) => {
            let RingKey { id, .. } = ring.0.remove(index);
            if ring.0.iter().all(|key| key.id < id) {
                *dropped = id.max(*dropped);
            }
            Ok(id)
        }
        None => Err(KeyError::NothingOld),
    }
}

/// Adds a key with the number after the highest one, so that a number is not reused soon.
fn add(ring: &mut KeyRing, stage: KeyStage, dropped: u8) -> Result<u8, KeyError> {
    let used = |id: &u8| ring.0.iter().any(|k| k.id == *id);
    let newest = ring.0.iter().map(|k| k.id).max().unwrap_or(0).max(dropped);
    let id = (newest.saturating_add(1)..=255)
        .chain(1..=newest)
        .find(|id| !used(id))
        .filter(|_| ring.0.len() < limits::KEYS_A_PURPOSE)
        .ok_or(KeyError::Full)?;
    ring.0.push(RingKey { id, stage, secret: random_bytes::<32>()?.into() });
    Ok(id)
}

/// Random bytes from the operating system.
///
/// # Errors
/// [`KeyError::Random`].
pub fn random_bytes<const N: usize>() -> Result<[u8; N], KeyError> {
    clock::random_bytes().map_err(KeyError::Random)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn edge() -> EdgeConfig {
        serde_json::from_str(r#"{"tenant":[{"name":"pub","hosts":["a"]},{"name":"demo","hosts":["b"],"dev":true}]}"#)
            .unwrap()
    }

    #[test]
    fn what_is_missing_is_made_once_and_is_good() {
        let mut keys = KeySet::default();
        let made = complete_keys(&mut keys, &edge()).unwrap();
        assert_eq!(made.len(), 7);
        assert!(made.contains(&"tenants.demo.proof.dev-1".to_owned()));
        assert_eq!(keys.problems(["pub", "demo"]), vec![]);
        assert_eq!(keys.explain.as_ref().unwrap().len(), 32);
        let before = keys.clone();
        assert!(complete_keys(&mut keys, &edge()).unwrap().is_empty());
        assert_eq!(keys, before);
    }

    #[test]
    fn a_rotation_has_three_steps() {
        let (mut ring, mut dropped) = (KeyRing::default(), 0);
        assert_eq!(rotate_ring(&mut ring, dropped).unwrap(), RotationResult::First(1));
        assert!(matches!(retire_key(&mut ring, None, &mut dropped), Err(KeyError::NothingOld)));
        assert!(matches!(retire_key(&mut ring, Some(1), &mut dropped), Err(KeyError::Active(1))));
        assert_eq!(rotate_ring(&mut ring, dropped).unwrap(), RotationResult::Staged(2));
        assert_eq!(ring.active().unwrap().id, 1);
        assert_eq!(rotate_ring(&mut ring, dropped).unwrap(), RotationResult::Promoted { active: 2, old: 1 });
        assert_eq!(ring.active().unwrap().id, 2);
        assert_eq!(rotate_ring(&mut ring, dropped).unwrap(), RotationResult::Staged(3));
        assert!(matches!(rotate_ring(&mut ring, dropped), Err(KeyError::OldStays(1))));
        assert_eq!((retire_key(&mut ring, None, &mut dropped).unwrap(), dropped), (1, 0));
        assert_eq!(ring.0.len(), 2);
        assert!(matches!(retire_key(&mut ring, Some(9), &mut dropped), Err(KeyError::Unknown(9))));
        // Ids were hashed with the key while it was next, so its number is never reused.
        assert_eq!((retire_key(&mut ring, Some(3), &mut dropped).unwrap(), dropped), (3, 3));
        assert_eq!(rotate_ring(&mut ring, dropped).unwrap(), RotationResult::Staged(4));
    }

    #[test]
    fn of_two_active_keys_one_can_go() {
        let mut ring = KeyRing::default();
        rotate_ring(&mut ring, 0).unwrap();
        add(&mut ring, KeyStage::Active, 0).unwrap();
        let mut found = KeySet { sync: ring.clone(), ..KeySet::default() }.problems([]);
        assert_eq!(
            found.pop().unwrap().message,
            "2 keys are active, but only one may be: run `causeway keys retire --id`"
        );
        let mut dropped = 0;
        assert_eq!(retire_key(&mut ring, Some(2), &mut dropped).unwrap(), 2);
        assert!(matches!(retire_key(&mut ring, Some(1), &mut dropped), Err(KeyError::Active(1))));
    }

    #[test]
    fn a_link_to_the_file_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let [link, real] = ["keys.json", "real.json"].map(|name| folder.path().join(name));
        save_file(&real, &KeyFile::default()).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut keys = KeySet::default();
        complete_keys(&mut keys, &edge()).unwrap();
        save_file(&link, &KeyFile { keys: keys.clone(), dropped: 3, ..KeyFile::default() }).unwrap();
        assert!(link.is_symlink());
        assert_eq!(load_file(&real).unwrap(), KeyFile { keys, dropped: 3, ..KeyFile::default() });
    }

    #[test]
    fn the_file_is_the_owners_alone_and_survives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/keys.json");
        let mut keys = KeySet::default();
        complete_keys(&mut keys, &edge()).unwrap();
        let file = KeyFile { keys: keys.clone(), ..KeyFile::default() };
        save_file(&path, &file).unwrap();
        save_file(&path, &file).unwrap();
        assert!(!is_exposed(&path));
        assert_eq!(load_checked(&path, &edge()).unwrap(), keys);
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "the temporary file was left");
    }

    #[test]
    fn the_file_stays_with_who_has_it_and_a_missing_one_alone_is_to_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        assert!(load_keys(&path).unwrap_err().to_string().ends_with("`causeway keys init` makes one"));
        assert!(!load_keys(folder.path()).unwrap_err().to_string().contains("init"), "a folder is no missing file");
        save_file(&path, &KeyFile::default()).unwrap();
        // Only root may give a file away.
        drop(std::os::unix::fs::chown(&path, Some(12_345), Some(12_345)));
        let owner = || std::fs::metadata(&path).map(|file| (file.uid(), file.gid())).unwrap();
        let before = owner();
        save_file(&path, &KeyFile::default()).unwrap();
        assert_eq!(owner(), before);
    }

    #[test]
    fn the_token_of_the_platform_is_stored_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        save_file(&path, &KeyFile::default()).unwrap();
        let missing = load_platform_token(&path).unwrap_err().to_string();
        assert!(missing.contains("causeway keys set-platform-token"), "{missing}");
        let token = PlatformToken::parse("a-token-of-the-platform").unwrap();
        save_file(&path, &KeyFile { platform_token: Some(token.clone()), ..KeyFile::default() }).unwrap();
        assert_eq!(load_platform_token(&path).unwrap(), token);
        assert!(!format!("{:?}", load_file(&path).unwrap()).contains("a-token"));
        let bad = ["", "short", "with a blank between its characters", &"x".repeat(257)];
        assert_eq!(bad.map(PlatformToken::parse), [const { None }; 4]);
    }

    #[test]
    fn a_weak_key_is_refused_by_its_name_and_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let mut keys = KeySet::default();
        complete_keys(&mut keys, &edge()).unwrap();
        keys.sync.0[0].secret = [7; 32].into();
        save_file(&path, &KeyFile { keys, ..KeyFile::default() }).unwrap();
        let text = load_checked(&path, &edge()).unwrap_err().to_string();
        assert!(text.contains("sync: key 1 is weak"), "{text}");
        assert!(!text.contains("BwcH"));
    }
}
