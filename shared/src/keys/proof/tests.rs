#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

use base64_simd::STANDARD;
use bolero::check;
use ed25519_compact::{KeyPair, Seed};

use super::*;

const NOW_S: u64 = 1_790_000_000;
const NOW: Millis = NOW_S * 1000;

fn key(kid: &str, alg: ProofAlg, bytes: &[u8]) -> ProofKey {
    ProofKey { kid: kid.to_owned(), alg, key: STANDARD.encode_to_string(bytes) }
}

fn secret() -> ProofKey {
    let bytes: Vec<u8> = (0..32).collect();
    key("k-1", ProofAlg::HS256, &bytes)
}

fn pair() -> KeyPair {
    KeyPair::from_seed(Seed::new([7; 32]))
}

fn public() -> ProofKey {
    key("k-2", ProofAlg::EdDSA, &pair().pk[..])
}

fn keys() -> Vec<ProofKey> {
    vec![secret(), public()]
}

fn tenant() -> TenantId {
    "pub".parse().unwrap()
}

fn ask(token: &str) -> Result<ProofClaims, ProofError> {
    verify_proof(token, &keys(), &tenant(), NOW)
}

fn signed(header: &str, payload: &str) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode_to_string(header), URL_SAFE_NO_PAD.encode_to_string(payload));
    let mac = hs256(&secret().bytes()).unwrap().chain_update(&text).finalize();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode_to_string(mac.into_bytes()))
}

fn signed_by_pair(header: &str, payload: &str) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode_to_string(header), URL_SAFE_NO_PAD.encode_to_string(payload));
    let signature = pair().sk.sign(&text, None);
    format!("{text}.{}", URL_SAFE_NO_PAD.encode_to_string(&signature[..]))
}

const HS: &str = r#"{"alg":"HS256"}"#;

fn claims(more: &str) -> String {
    format!(r#"{{"sub":"m-123","aud":"pub","iat":{NOW_S},"exp":{}{more}}}"#, NOW_S + 3600)
}

#[test]
fn a_publishers_word_is_taken() {
    let token = sign_hs256(&secret(), "m-123", &tenant(), NOW_S, NOW_S + 3600).unwrap();
    let expected = ProofClaims { sub: "m-123".to_owned(), iat: NOW_S, exp: NOW_S + 3600 };
    assert_eq!(ask(&token), Ok(expected.clone()));
    let eddsa = r#"{"alg":"EdDSA","kid":"k-2"}"#;
    assert_eq!(ask(&signed_by_pair(eddsa, &claims(""))), Ok(expected));
    assert!(sign_hs256(&public(), "m", &tenant(), 1, 2).is_none());
    let short = key("s", ProofAlg::HS256, &[1; 31]);
    assert!(sign_hs256(&short, "m", &tenant(), 1, 2).is_none());
}

/// RFC 7515 A.1: the key and the token of the standard's own example.
#[test]
fn the_standards_example_of_hs256_holds() {
    let secret = URL_SAFE_NO_PAD
        .decode_to_vec("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
        .unwrap();
    let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let keys = [key("a", ProofAlg::HS256, &secret)];
    let payload = open(token, &keys).unwrap();
    assert!(payload.starts_with(br#"{"iss":"joe","#));
    // The example has no `sub`, no `aud` and no `iat`.
    let whole = verify_proof(token, &keys, &tenant(), NOW);
    assert_eq!(whole, Err(ProofError::Malformed));
}

/// RFC 8037 A.4 and A.5: Ed25519.
#[test]
fn the_standards_example_of_eddsa_holds() {
    let public = URL_SAFE_NO_PAD.decode_to_vec("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
    let token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let keys = [key("a", ProofAlg::EdDSA, &public)];
    assert_eq!(open(token, &keys).unwrap(), b"Example of Ed25519 signing");
}

#[test]
fn an_id_without_its_key_proves_nothing() {
    let unsigned = |header: &str| {
        format!("{}.{}.", URL_SAFE_NO_PAD.encode_to_string(header), URL_SAFE_NO_PAD.encode_to_string(claims("")))
    };
    for alg in ["none", "None", "NONE", "", "HS384", "ES256", "RS256", "hs256"] {
        let token = unsigned(&format!(r#"{{"alg":"{alg}"}}"#));
        assert_eq!(ask(&token), Err(ProofError::Algorithm), "{alg}");
    }
    assert_eq!(ask(&unsigned(HS)), Err(ProofError::Signature));
    assert_eq!(ask("m-123"), Err(ProofError::Malformed));
    assert_eq!(ask(""), Err(ProofError::Malformed));
}

/// The header must not select HS256 for an EdDSA key: anyone can sign with the bytes of a public key as a secret.
#[test]
fn the_header_never_chooses_the_algorithm() {
    let confused = ProofKey { alg: ProofAlg::HS256, ..public() };
    let token = sign_hs256(&confused, "m-123", &tenant(), NOW_S, NOW_S + 60).unwrap();
    assert_eq!(ask(&token), Err(ProofError::Algorithm));
    let only = [public()];
    let without_kid = signed(HS, &claims(""));
    let answer = verify_proof(&without_kid, &only, &tenant(), NOW);
    assert_eq!(answer, Err(ProofError::Algorithm));
    let eddsa = signed_by_pair(r#"{"alg":"EdDSA","kid":"k-1"}"#, &claims(""));
    assert_eq!(ask(&eddsa), Err(ProofError::Algorithm));
}

#[test]
fn a_key_that_is_not_base64_signs_nothing() {
    let broken = ProofKey { key: "not base64!".to_owned(), ..secret() };
    let text = signed(HS, &claims(""));
    let (start, _) = text.rsplit_once('.').unwrap();
    let mac = Hmac::<Sha256>::new_from_slice(b"").unwrap().chain_update(start).finalize();
    let token = format!("{start}.{}", URL_SAFE_NO_PAD.encode_to_string(mac.into_bytes()));
    let answer = verify_proof(&token, &[broken], &tenant(), NOW);
    assert_eq!(answer, Err(ProofError::Signature));
}

#[test]
fn the_key_id_chooses_the_key() {
    let other = key("k-3", ProofAlg::HS256, &[9; 32]);
    let rotating = [other, secret()];
    let ask = |header: &str| verify_proof(&signed(header, &claims("")), &rotating, &tenant(), NOW);
    assert!(ask(HS).is_ok());
    assert!(ask(r#"{"alg":"HS256","kid":"k-1"}"#).is_ok());
    let wrong = ask(r#"{"alg":"HS256","kid":"k-3"}"#);
    assert_eq!(wrong, Err(ProofError::Signature));
    let unknown = ask(r#"{"alg":"HS256","kid":"k-9"}"#);
    assert_eq!(unknown, Err(ProofError::UnknownKey));
    let none = verify_proof(&signed(HS, &claims("")), &[], &tenant(), NOW);
    assert_eq!(none, Err(ProofError::UnknownKey));
}

#[test]
fn a_proof_is_for_one_audience() {
    let with = |aud: &str| {
        let payload = format!(r#"{{"sub":"m","aud":{aud},"iat":{NOW_S},"exp":{}}}"#, NOW_S + 1);
        ask(&signed(HS, &payload)).map(|claims| claims.sub)
    };
    assert_eq!(with(r#""pub""#), Ok("m".to_owned()));
    assert_eq!(with(r#"["other","pub"]"#), Ok("m".to_owned()));
    for aud in [r#""other""#, r#""PUB""#, "[]", r#"["other"]"#, r#"[["pub"]]"#, "null", "7", r#"{"pub":1}"#] {
        assert_eq!(with(aud), Err(ProofError::Audience), "{aud}");
    }
}

#[test]
fn a_proof_is_for_a_while() {
    let with = |iat: u64, exp: u64| {
        let token = sign_hs256(&secret(), "m", &tenant(), iat, exp).unwrap();
        ask(&token).map(|_| ())
    };
    assert_eq!(with(NOW_S - 5, NOW_S + 1), Ok(()));
    assert_eq!(with(NOW_S - 5, NOW_S), Err(ProofError::Expired));
    assert_eq!(with(0, 1), Err(ProofError::Expired));
    assert_eq!(with(NOW_S + 60, NOW_S + 120), Ok(()));
    assert_eq!(with(NOW_S + 61, NOW_S + 120), Err(ProofError::NotYet));
    assert_eq!(with(u64::MAX, u64::MAX), Err(ProofError::NotYet));
    assert_eq!(with(NOW_S, NOW_S + 86_400), Ok(()));
    assert_eq!(with(NOW_S, NOW_S + 86_401), Err(ProofError::TooLongLived));
    assert_eq!(with(NOW_S, u64::MAX), Err(ProofError::TooLongLived));
    let later = claims(&format!(r#","nbf":{}"#, NOW_S + 61));
    assert_eq!(ask(&signed(HS, &later)), Err(ProofError::NotYet));
    let fraction = format!(r#"{{"sub":"m","aud":"pub","iat":{NOW_S}.75,"exp":{}.5}}"#, NOW_S + 9);
    assert_eq!(ask(&signed(HS, &fraction)).unwrap().iat, NOW_S);
}

#[test]
fn the_subject_is_bounded_and_given_as_it_is() {
    let with = |sub: &str| {
        let token = sign_hs256(&secret(), sub, &tenant(), NOW_S, NOW_S + 9).unwrap();
        ask(&token).map(|claims| claims.sub)
    };
    for sub in ["m-123", "another's", "\u{1F36A}\u{0}\"", &"x".repeat(256)] {
        assert_eq!(with(sub).as_deref(), Ok(sub));
    }
    assert_eq!(with(""), Err(ProofError::Subject));
    assert_eq!(with(&"x".repeat(257)), Err(ProofError::Subject));
    let without = format!(r#"{{"aud":"pub","iat":{NOW_S},"exp":{}}}"#, NOW_S + 9);
    assert_eq!(ask(&signed(HS, &without)), Err(ProofError::Subject));
    let text = format!("{:?}", ask(&signed(HS, &claims(""))).unwrap());
    assert!(!text.contains("m-123"));
}

#[test]
fn bad_forms_are_refused() {
    let good = signed(HS, &claims(""));
    assert!(ask(&good).is_ok());
    let parts: Vec<&str> = good.split('.').collect();
    let emptied = format!("{}..{}", parts[0], parts[2]);
    assert_eq!(ask(&emptied), Err(ProofError::Signature));
    for token in [
        format!("{good}."),
        format!(".{good}"),
        format!("{good}.AAAA"),
        format!("{}.{}", parts[0], parts[1]),
        format!("{good}="),
        format!(" {good}"),
        format!("{good}\n"),
        format!("{}=.{}.{}", parts[0], parts[1], parts[2]),
        signed(HS, "[]"),
        signed(HS, "{}"),
        signed(HS, &claims("}")),
        signed(HS, &claims(r#","sub":"other""#)),
        signed(HS, &claims("").replace("\"m-123\"", "7")),
        signed(HS, &claims("").replace(&NOW_S.to_string(), "-1")),
        signed(HS, &claims("").replace(&NOW_S.to_string(), "1e300")),
        signed(HS, &claims("").replace(&NOW_S.to_string(), "\"1\"")),
        signed(HS, &claims(r#","nbf":-5"#)),
        signed("{}", &claims("")),
        signed(r#"{"alg":7}"#, &claims("")),
        signed(r#"{"alg":"HS256","alg":"HS256"}"#, &claims("")),
        signed(r#"{"alg":"HS256","crit":["exp"]}"#, &claims("")),
        signed(r#"{"alg":"HS256","crit":null}"#, &claims("")),
        signed(r#"{"alg":"HS256","b64":false,"crit":["b64"]}"#, &claims("")),
    ] {
        assert_eq!(ask(&token), Err(ProofError::Malformed), "{token}");
    }
}

#[test]
fn huge_and_deep_tokens_are_refused() {
    assert_eq!(ask(&"A".repeat(2_049)), Err(ProofError::TooLong));
    assert_eq!(ask(&"a.".repeat(1_000_000)), Err(ProofError::TooLong));
    let deep = "[".repeat(10_000);
    let header = format!(r#"{{"alg":"HS256","x":{deep}"#);
    assert_eq!(ask(&signed(&header, "{}")), Err(ProofError::TooLong));
    for deep in ["[".repeat(1_000), r#"{"a":"#.repeat(200)] {
        for payload in [format!(r#","x":{deep}"#), format!(r#","aud":{deep}"#)] {
            let answer = ask(&signed(HS, &claims(&payload)));
            assert_eq!(answer, Err(ProofError::Malformed));
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_breaks_the_proof() {
    let eddsa = r#"{"alg":"EdDSA","kid":"k-2"}"#;
    for token in
        [sign_hs256(&secret(), "m-123", &tenant(), NOW_S, NOW_S + 60).unwrap(), signed_by_pair(eddsa, &claims(""))]
    {
        assert!(ask(&token).is_ok());
        for at in 0..token.len() {
            for bit in 0..8 {
                let mut bytes = token.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let flipped = String::from_utf8_lossy(&bytes).into_owned();
                assert!(ask(&flipped).is_err(), "byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn every_refusal_has_a_code_of_its_own() {
    let all = [
        ProofError::TooLong,
        ProofError::Malformed,
        ProofError::Algorithm,
        ProofError::UnknownKey,
        ProofError::Signature,
        ProofError::Audience,
        ProofError::Expired,
        ProofError::NotYet,
        ProofError::TooLongLived,
        ProofError::Subject,
    ];
    let codes: std::collections::BTreeSet<&str> = all.iter().map(|e| e.code()).collect();
    assert_eq!(codes.len(), all.len());
}

#[test]
fn damaged_tokens_never_panic_and_never_hold() {
    let good = signed(HS, &claims(""));
    check!().with_type::<(u16, Vec<u8>, u8)>().with_iterations(20_000).for_each(|(at, put, cut)| {
        let mut bytes = good.clone().into_bytes();
        let at = usize::from(*at) % bytes.len();
        let end = (at + usize::from(*cut)).min(bytes.len());
        bytes.splice(at..end, put.iter().copied());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(ask(&text).is_err() || text == good);
    });
}

/// A publisher may sign malformed claims, so a signed payload can contain anything.
#[test]
fn signed_nonsense_never_panics() {
    check!().with_iterations(10_000).with_max_len(600).for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        assert!(ask(&text).is_err());
        assert!(ask(&signed(HS, &text)).is_err());
        assert!(ask(&signed(&text, &claims(""))).is_err());
        let more: String = text.chars().filter(|c| *c != '"' && *c != '\\').collect();
        let _any = ask(&signed(HS, &claims(&format!(r#","x":"{more}""#))));
    });
}
