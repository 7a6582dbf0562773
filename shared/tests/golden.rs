//! Golden bytes: every wire form stays the same; an edge one release older or newer than the origin works; values that
//! were cut, changed or stored under another key are refused.
//!
//! The bytes were made from the forms' description (RFC 8949, RFC 2104, CRC-32 of IEEE 802.3) by another encoder.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use crate::common::{MEMBER, NOW};
use crate::frame;
use causeway_shared::ads::model::{Model, Part, Quality};
use causeway_shared::ads::strict_caps::{
    Answer, Candidate, CapCall, CapClaim, CapEntry, CapObject, CapRequest, Entries, KnownLinks, SeenImpression,
    StrictCap, WantedPlacement,
};
use causeway_shared::base::ids::{
    AltHash, AlternateId, Epoch, FactId, InsertionId, Micros, Millis, SessionId, SnapshotVersion, TenantId, VisitorId,
};
use causeway_shared::base::limits;
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::actions::{ActionType, AdEntity, AdLevel, InsertionHash, TimeWindow, ViewType, WindowUnit};
use causeway_shared::facts::attributes::{AttributeMap, AttributeValue, NameToken, ValueKind};
use causeway_shared::facts::events::{EventCount, VisitorEvents};
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::exposures::{Exposures, FirstExposure};
use causeway_shared::facts::fact::{self, ErasureScope, Fact, FactKind, PURCHASE};
use causeway_shared::facts::offer_codes::{
    self, GivenOfferCode, HeldOfferCodes, OfferCodeRows, OfferCodeStock, OfferCodeWrites, VisitorOfferCodes,
};
use causeway_shared::facts::segments::{SegmentId, SegmentState, WriteStamp};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::keys::cookie::{self, IDENTITY};
use causeway_shared::keys::key_ring::{KeyRing, KeyStage, RingKey};
use causeway_shared::keys::sync_auth;
use causeway_shared::profiles::activity::BestSendTime;
use causeway_shared::profiles::ledger::{Ledger, PlacedInsertion, RunningSession};
use causeway_shared::profiles::membership::{Membership, VisitorCut};
use causeway_shared::profiles::profile::{
    LaterPage, MissingParts, Profile, ProfileParts, ProfileTotals, SubContent, SubProfile,
};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::facts::FactBatch;
use causeway_shared::wire::kv_keys::{attributes_key, catalogue_key, lookup_key, model_key, pointer_key, snapshot_key};
use causeway_shared::wire::model as wire_model;
use causeway_shared::wire::offer_codes as wire_offers;
use causeway_shared::wire::strict_caps as wire_strict;
use causeway_shared::wire::sync::{KvWrite, ReadResult, RejectedFact, SyncRequest, SyncResponse, VerifyRequest};
use causeway_shared::wire::{WireError, catalogue, cookies, facts, kv, profile, sync};
use ciborium::Value as Cbor;

const PAGE: &str = "a66166016169500101010101010101010101010101010161765001a3185c50007102830405060708090a61721b000001a318\
     5c53e8616b0061624ca161731b01c9c38001020304";
const ALIAS: &str = "a66166016169500202020202020202020202020202020261765001a3185c50007102830405060708090a61721b000001a318\
     5c57d0616b0161625831a36169a2616b0161685001a1a2a3a4a5a6a7a8a9aaabacadaeaf6161815002b1b2b3b4b5b6b7b8b9\
     babbbcbdbebf6170f5";
const PURCHASE_FACT: &str = "a76166016169500303030303030303030303030303030361765001a3185c50007102830405060708090a61721b000001a318\
     5c5bb861641901f4616b0261625821a3616e68707572636861736561761a0ee6b28061706b7b22736b75223a2278227d";
const TRACK: &str = "a66166016169500404040404040404040404040404040461765001a3185c50007102830405060708090a61721b000001a318\
     5c5fa0616b0261624aa1616e667369676e7570";
const WITHDRAWAL: &str = "a56166016169500505050505050505050505050505050561765001a3185c50007102830405060708090a61721b000001a318\
     5c6388616b03";
const ACTION: &str = "a66166016169500606060606060606060606060606060661765001a3185c50007102830405060708090a61721b000001a318\
     5c6770616b046162582da4616950606162636465666768696a6b6c6d6e6f6176016174046165a461611a0001117061670361\
     6302617601";
const SEGMENTS: &str = "a66166016169500707070707070707070707070707070761765001a3185c50007102830405060708090a61721b000001a318\
     5c6b58616b056162581fa1617782a3617319210961781a00011558616181a2617402617626a1617309";
const ATTRIBUTES: &str = "a66166016169500808080808080808080808080808080861765001a3185c50007102830405060708090a61721b000001a318\
     5c6f40616b066162581da1617782a2616e6973686f655f73697a656176420254a1616e63766970";
const CANCELLATION: &str = "a66166016169500909090909090909090909090909090961765001a3185c50007102830405060708090a61721b000001a318\
     5c7328616b076162581aa16169a2616b0161685001a1a2a3a4a5a6a7a8a9aaabacadaeaf";
const ERASURE: &str = "a66166016169500a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a61765001a3185c50007102830405060708090a61721b000001a318\
     5c7710616b0861625831a36170f56169a2616b0161685001a1a2a3a4a5a6a7a8a9aaabacadaeaf6161815002b1b2b3b4b5b6\
     b7b8b9babbbcbdbebf";
const ERASURE_OF_ONE: &str = "a66166016169500b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b61765001a3185c50007102830405060708090a61721b000001a318\
     5c7af8616b08616241a0";
const EXPOSURE: &str = "a66166016169500c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c61765001a3185c50007102830405060708090a61721b000001a318\
     5c7ee0616b0961624ba261651a00011170616102";
const OFFER_CODE: &str = "a66166016169500d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d61765001a3185c50007102830405060708090a61721b000001a318\
     5c82c8616b0a61624da261631a00011170616e19012c";
const EVIDENCE: &str = "a66166016169500e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e61765001a3185c50007102830405060708090a61721b000001a318\
     5c86b0616b0b61625822a36169a2616b0161685001a1a2a3a4a5a6a7a8a9aaabacadaeaf61771902bc617305";
const BATCH: &str = "a36166016174637075626171825847a66166016169500101010101010101010101010101010161765001a3185c5000710283\
     0405060708090a61721b000001a3185c53e8616b0061624ca161731b01c9c380010203045838a56166016169500505050505\
     050505050505050505050561765001a3185c50007102830405060708090a61721b000001a3185c6388616b03";
const EVENTS: &str = "000604706167650001c09384040870757263686173650001c0938404067369676e75700001c0938404";
const PROFILE: &str = "aa61660161700161620161761a0ee6b28061734801c9c380010203046174a261611b000001a3185c53e8617a1b000001a318\
     5c6b58616e584ae8a7f1c2b1340101010101010101e8070202020202020202e8070303030303030303e80704040404040404\
     04e8070505050505050505e8070606060606060606e80707070707070707076161582701010101780b01000000e001002ed1\
     bad924520000010470110100030000000200000001000000616758220203d8aa040109804202000000000000000001040101\
     020d01d8d6f1c2b1340000026179426803";
const VKEY: &str = "v:pub:01a3185c-5000-7102-8304-05060708090a";
const AKEY: &str = "a:pub:1:01a1a2a3a4a5a6a7a8a9aaabacadaeaf";
const CKEY: &str = "c:pub:attributes:0";
const V1: &str = "01a3185c-5000-7102-8304-05060708090a";
const SNAPSHOT: &str = "s15qiQMKZhZgFhdqJhcgBhYwdhaVABoxhcUABxAoMEBQYHCAkKYXWCUAGhoqOkpaanqKmqq6ytrq9QArGys7S1tre4ubq7vL2+v2FtpGFlCWFkA2FjVwGjGFxQAHAAgAAAAAAAAACo5vHCsTQBYXdQAaMYXTpgcRKTFBUWFxgZGmFwWQEFAaMYXFAAcQKDBAUGBwgJCgAH2AGPAScBAQEBeAsBAAAA4AEALtG62SRSAAABBHARAQADAAAAAgAAAAEAAAAiAgPYqgQBCYBCAgAAAAAAAAAAAQQBAQINAdjW8cKxNAAAAgEBAYDKte4B6KfxwrE08C4BAcnDgAECAwQAB+in8cKxNAEBAQEBAQEB0K/xwrE0AgICAgICAgK4t/HCsTQDAwMDAwMDA6C/8cKxNAQEBAQEBAQEiMfxwrE0BQUFBQUFBQXwzvHCsTQGBgYGBgYGBtjW8cKxNAcHBwcHBwcHDQAAAcCThAQAAcCThAQBoxhdOmBxEpMUFRYXGBkaAAYGgCgEAgAA";
const TOMBSTONE: &str = "t1HFKfOA";
const LOOKUP: &str = "l1YGvKe6JhZgFhdoJQAaMYXTpgcRKTFBUWFxgZGlABoxhcUABxAoMEBQYHCAkK";
const NAMES: &str = "n1vGgDEqJhZgFhblECCXNob2Vfc2l6ZQIDdmlwAQ";
const FILTERING: &str = "a461660161656165616250000000000000000000000000000000006175a3616219012c617002616801";
const REQUEST: &str = "a9616601616566656467652d31616250eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee6171815890a3616601617463707562617182\
     5847a66166016169500101010101010101010101010101010161765001a3185c50007102830405060708090a61721b000001\
     a3185c53e8616b0061624ca161731b01c9c380010203045838a5616601616950050505050505050505050505050505056176\
     5001a3185c50007102830405060708090a61721b000001a3185c6388616b03616182111261641864616c02617801617282a2\
     61651161685820dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddda1616512";
const RESPONSE: &str = "a8616601616102616401617282a4616200616901616367746f6f5f6f6c64616d781e7265636569766564206d6f7265207468\
     616e20333020646179732061676fa36162016163696d616c666f726d6564616d6f6e6f74206f662074686520666f726d6170\
     82a5616511616b782a763a7075623a30316133313835632d353030302d373130322d383330342d3035303630373038303930\
     616176a2617200616307617468743148464b664f4161641b000001a3185c6770a4616512616b7828613a7075623a313a3031\
     6131613261336134613561366137613861396161616261636164616561666176a261720161630861641b000001a3185c6b58\
     616e03616364632d3432617681a2616513616b782a763a7075623a30316133313835632d353030302d373130322d38333034\
     2d303530363037303830393061";
const IDENTITY_PAYLOAD: &str = "a861660161765001a3185c50007102830405060708090a61771b000001a3185c500061745001a1a2a3a4a5a6a7a8a9aaabac\
     adaeaf6163811adeadbeef616581a261745002b1b2b3b4b5b6b7b8b9babbbcbdbebf61765001a3185d3a6071129314151617\
     18191a6170815001a3185d3a607112931415161718191a616ca261721b000001a3185c500061731b0102030405060708";
const IDENTITY_WITHOUT_LOGIN: &str = "a761660161765001a3185c50007102830405060708090a61771b000001a3185c500061745001a1a2a3a4a5a6a7a8a9aaabac\
     adaeaf6163811adeadbeef616581a261745002b1b2b3b4b5b6b7b8b9babbbcbdbebf61765001a3185d3a6071129314151617\
     18191a6170815001a3185d3a607112931415161718191a";
const LEDGER: &str = "a761660161765001a3185c50007102830405060708090a6168a2617200616307616e1b000001a3185c6388616c0061735001\
     c9c3bc0506070801c9c380010203046170551122334455667788a01f0100000000000000990000";
const RESERVING: &str = "a861660161765001a3185c50007102830405060708090a6168a2617200616307616e1b000001a3185c6388616c0061735001\
     c9c3bc0506070801c9c380010203046170551122334455667788a01f01000000000000009900006172582ae989820202f0a2\
     0403020100000000a1a1a1a1a1a1040009a2a2a2a2a2a2000109a3a3a3a3a3a3040000";
const EXPOSING: &str = "a961660161765001a3185c50007102830405060708090a6168a2617200616307616e1b000001a3185c6388616c0061735001\
     c9c3bc0506070801c9c380010203046170551122334455667788a01f01000000000000009900006172582ae989820202f0a2\
     0403020100000000a1a1a1a1a1a1040009a2a2a2a2a2a2000109a3a3a3a3a3a3040000617848030480a0f1c2b134";
const SESSION: &str = "a461660161765001a3185c50007102830405060708090a61731b0102030405060708616c1b000001a3185c5000";
const GETTING: &str = "aa61660161765001a3185c50007102830405060708090a6168a2617200616307616e1b000001a3185c6388616c0061735001\
     c9c3bc0506070801c9c380010203046170551122334455667788a01f01000000000000009900006172582ae989820202f0a2\
     0403020100000000a1a1a1a1a1a1040009a2a2a2a2a2a2000109a3a3a3a3a3a3040000617848030480a0f1c2b13461754803\
     0580a0f1c2b134";
const SEALED: &str = "v1.5.p2FmAWF2UAGjGFxQAHECgwQFBgcICQphdxsAAAGjGFxQAGF0UAGhoqOkpaanqKmqq6ytrq9hY4Ea3q2-72FlgaJhdFACsbK\
     ztLW2t7i5uru8vb6_YXZQAaMYXTpgcRKTFBUWFxgZGmFwgVABoxhdOmBxEpMUFRYXGBka.xtdFkHvMWfz74_RIMgPTZQ";
const STRICT_OBJECT: &str = "a7616601616c19012c616505616f5001a3185c50007102830405060708090a6174f5616e81a56169460707070707076165a4\
     61611a00011170616703616302617601616d19012b6163f5616b1905a0617500";
const STRICT_CLAIM: &str = "a5616601617463707562616f5001a3185d3a607112931415161718191a616ca2616505616d825001a3185c50007102830405\
     060708090a5001a3185d3a607112931415161718191a6161a1616ca3616381a26165a461611a000111706167036163026176\
     01616381a3616c02616d036177a2617502616901617781a261694607070707070761638100617381a3616946080808080808\
     6165a461611a00011170616703616302617601616d19012b";
const STRICT_CONFIRM: &str = "a4616601617463707562616f5001a3185d3a607112931415161718191a6161a1616946070707070707";
const STRICT_ANSWER: &str =
    "a2616601616781a46169460707070707076165a461611a00011170616703616302617601616d19012b616b1905a0";
const OFFERS_CALL: &str = "a9616601617463707562616319012c616c19c35061720f6161026167f5616f5001a3185c50007102830405060708090a616d\
     825001a3185c50007102830405060708090a5001a3185d3a607112931415161718191a";
const OFFERS_ANSWER: &str = "a26166016175a2616e19012c61685001a3185d3a607112931415161718191a";
const OFFERS_NO_ANSWER: &str = "a1616601";
const OFFERS_STOCK: &str = "o2FmAWFnB2FlGGQ";
const OFFERS_ASKED: &str = "oWFmAQ";
const OFFERS_GIVEN: &str = "omFmAWF1omFuGQEsYWhQAaMYXTpgcRKTFBUWFxgZGg";
const POINTER: &str = "p1BJsHmaRhZgFhcKJhcgJhYwdhdgNhZFDQ0dLT1NXW19jZ2tvc3d7f";
const DOCUMENT: &str = "k1TZ27MKRhZgFhZFDQ0dLT1NXW19jZ2tvc3d7fYW4JYWJKkHsiYWQiOltdfQ";
/// The model up to the weights of the price, which are all 1, and the bytes after them.
const MODEL: [&str; 2] = [
    "a961660161620b617419012c61651903e86173820318c86163a461692461730a617748020280080303d8046171a6616e18c8\
     617007616c1a000186a061621a000249f061611a000aae606163036176a26169006173006170a361691a0001000061730a61\
     7759080101",
    "616407",
];
const MODEL_VALUE: &str =
    "w1v3bifaNhZgFhcKJhcgJhYwdhbVgvqGFmAWFiC2F0GQEsYWUZA+hhY6JhaQBhcwBhdqJhaQBhcwBhcKJhaQBhcwBhZAA";
const ATTRIBUTED: &str = "18020102040200001002060000320202540180a0f1c2b13409";
const EXPOSED: &str = "20040200001203\
     0480a0f1c2b134eda2040381a0f1c2b134";
const RECENT: &str = "8001040001001080adff010002bab9050500000180a305";
const GOT: &str = "40040200001303\
     0580a0f1c2b134eda204ac0281a0f1c2b134";
const ALT123: &str = "057592e7813c8e6bebfb95109a9d6a41";
const SYNC_MAC: &str = "Iw2DWNyOiJC0xY3utikS7i8gNXrpKlzIYbmOaP4xrLU.PrXFwJbe9-ZEXJasUSK21T9Fe3FBe6UEcv2MPOjo9lI";
const MESSAGE: &str = "e5d5fa1dfd288c8e25ef928e6a1c48db";
const WITHDRAWAL_ID: &str = "d740980137898c0f3dd86a945305e1cb";
const ERASURE_ID: &str = "b46bdf72274f8ab9deb2c183cfbdae8e";
const RECEIPT: &str = "b46bdf72-274f-8ab9-deb2-c183cfbdae8e";
const OFFER_CODE_ID: &str = "6861953f6973b622d3a50b970dfe9dfb";
const ACTION_ID: &str = "73fa776833e56a0d1d6c4de553c7db2e";

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same form as a later release may write it: every map has one more key, with a nested value. This includes the
/// facts of a batch and their bodies.
fn later(bytes: &[u8]) -> Vec<u8> {
    fn extend(value: &mut Cbor) {
        match value {
            Cbor::Map(entries) => {
                for (key, value) in entries.iter_mut() {
                    match (key.as_text(), value) {
                        (Some("b"), Cbor::Bytes(body)) if body.first().is_some_and(|head| head >> 5 == 5) => {
                            *body = later(body);
                        }
                        (Some("q"), Cbor::Array(facts)) => {
                            let facts = facts.iter_mut().filter_map(Cbor::as_bytes_mut);
                            facts.for_each(|fact| *fact = later(fact));
                        }
                        (_, value) => extend(value),
                    }
                }
                let value = Cbor::Array(vec![Cbor::Float(0.5), Cbor::Map(vec![("k".into(), Cbor::Null)])]);
                entries.push(("later".into(), value));
            }
            Cbor::Array(items) => items.iter_mut().for_each(extend),
            _ => {}
        }
    }
    let mut value: Cbor = ciborium::from_reader(bytes).unwrap();
    extend(&mut value);
    let mut bytes = Vec::new();
    ciborium::into_writer(&value, &mut bytes).unwrap();
    bytes
}

/// A stored profile with its CRC-32.
fn summed(bytes: &[u8]) -> Vec<u8> {
    let sum = crc32fast::hash(&[one().as_bytes(), bytes].concat());
    [bytes, &sum.to_be_bytes()].concat()
}

/// The same for a KV value.
fn later_value(key: &str, value: &str) -> String {
    frame::framed(&value[..2], key, &later(&frame::inside(value)))
}

fn one() -> VisitorId {
    VisitorId::mint(NOW, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
}

fn two() -> VisitorId {
    VisitorId::mint(NOW + 60_000, [17, 18, 19, 20, 21, 22, 23, 24, 25, 26])
}

fn alt(key: u8, first: u8) -> AltHash {
    let mut bytes = [key; 16];
    for (byte, value) in bytes.iter_mut().skip(1).zip(first..) {
        *byte = value;
    }
    AltHash(bytes)
}

fn session_one() -> SessionId {
    SessionId::mint(NOW, [1, 2, 3, 4])
}

fn tenant() -> TenantId {
    "pub".parse().unwrap()
}

fn key() -> RingKey {
    let mut secret = [0; 32];
    for (byte, value) in secret.iter_mut().zip(0u8..) {
        *byte = value;
    }
    RingKey { id: 5, stage: KeyStage::Active, secret: secret.into() }
}

fn insertion() -> InsertionId {
    let mut id = [0; 16];
    id.iter_mut().zip(0x60..).for_each(|(byte, value)| *byte = value);
    InsertionId(id)
}

fn segments() -> Vec<(SegmentId, SegmentState)> {
    vec![(SegmentId(8_457), SegmentState::held(HourStamp(71_000), [(2, -7)])), (SegmentId(9), SegmentState::Removed)]
}

fn attributes() -> Vec<(String, Option<AttributeValue>)> {
    vec![("shoe_size".to_owned(), Some(AttributeValue::Integer(42))), ("vip".to_owned(), None)]
}

/// The profile of the golden facts.
fn counted() -> Profile {
    let [facts @ .., _] = all_facts();
    Profile::of(&facts)
}

fn entity() -> AdEntity {
    AdEntity { ad: 70_000, ad_group: 3, campaign: 2, advertiser: 1 }
}

fn fact(n: u8, at: Millis, what: FactKind) -> Fact {
    let received = NOW + u64::from(n) * 1_000;
    Fact { position: 0, id: FactId::from_bytes([n; 16]), visitor: one(), received, at: received - at, what }
}

fn all_facts() -> [Fact; 8] {
    let id = AlternateId { kind: MEMBER, hash: alt(1, 0xa1) };
    let track = |name: &str, value: Option<i64>, properties: Option<&str>| FactKind::Track {
        name: name.to_owned(),
        value: value.map(Micros::new),
        properties: properties.map(str::to_owned),
        order: None,
    };
    [
        fact(1, 0, FactKind::Page { session: session_one() }),
        fact(2, 0, FactKind::Alias { id, also: vec![alt(2, 0xb1)], proven: true }),
        fact(3, 500, track(PURCHASE, Some(250_000_000), Some(r#"{"sku":"x"}"#))),
        fact(4, 0, track("signup", None, None)),
        fact(5, 0, FactKind::Withdrawal),
        fact(
            6,
            0,
            FactKind::Action {
                insertion: insertion(),
                action_type: ActionType(1),
                view_type: ViewType(4),
                entity: entity(),
            },
        ),
        fact(7, 0, FactKind::Segments { writes: segments() }),
        fact(8, 0, FactKind::Attributes { writes: attributes() }),
    ]
}

/// Facts about the visitor that are no activity of it.
fn facts_about() -> [Fact; 6] {
    let id = AlternateId { kind: MEMBER, hash: alt(1, 0xa1) };
    let of_id = FactKind::Erasure { scope: ErasureScope::Person, id: Some(id), also: vec![alt(2, 0xb1)] };
    [
        fact(9, 0, FactKind::Cancellation { id }),
        fact(10, 0, of_id),
        fact(11, 0, FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() }),
        fact(12, 0, FactKind::Exposure { experiment: 70_000, arm: 2 }),
        fact(13, 0, FactKind::OfferCode { campaign: 70_000, number: 300 }),
        fact(
            14,
            0,
            FactKind::Evidence { id, also: Vec::new(), weight: EvidenceWeight(700), source: EvidenceSource::Device },
        ),
    ]
}

fn batch() -> FactBatch {
    let [page, _, _, _, withdrawal, ..] = all_facts();
    FactBatch { tenant: tenant(), facts: vec![page, withdrawal] }
}

fn snapshot() -> Snapshot {
    let version = |counter| SnapshotVersion { restore: 0, counter };
    let totals = ProfileTotals { pages: 4, sessions: 2, ..ProfileTotals::default() };
    let missing = MissingParts::SEGMENTS.union(MissingParts::EVENTS);
    let sibling = SubProfile::pack(version(6), &SubContent { totals, missing, ..SubContent::default() });
    let own = counted().sub_profile(version(7), true);
    Snapshot {
        version: version(7),
        visitor: one(),
        unique: vec![alt(1, 0xa1), alt(2, 0xb1)],
        membership: Membership {
            epoch: Epoch(9),
            devices: 3,
            admits: [one(), two()].into(),
            unsure: [two()].into(),
            cuts: [(VisitorId::mint(NOW, [0; 10]), VisitorCut { at: NOW + 9_000, gone: true })].into(),
        },
        profiles: [(one(), own), (two(), sibling)].into(),
        best: None,
    }
}

fn stored() -> StoredValue {
    StoredValue::Snapshot(Box::new(snapshot()))
}

fn request() -> SyncRequest {
    SyncRequest {
        edge: "edge-1".to_owned(),
        batch: [0xee; 16],
        facts: vec![facts::encode_batch(&batch())],
        applied: vec![17, 18],
        drain: 100,
        lost: 2,
        dead: 1,
        filtered: [0; 3],
        read: vec![ReadResult { entry: 17, sha256: Some([0xdd; 32]) }, ReadResult { entry: 18, sha256: None }],
    }
}

fn response() -> SyncResponse {
    let rejected = |batch, index, code: &str, message: &str| RejectedFact {
        batch,
        index,
        code: code.to_owned(),
        message: message.to_owned(),
    };
    let publish = |entry, key: &str, version, value: Option<&str>, due| KvWrite {
        entry,
        key: key.to_owned(),
        version,
        value: value.map(str::to_owned),
        due,
    };
    SyncResponse {
        accepted: 2,
        duplicate: 1,
        rejected: vec![
            rejected(0, Some(1), "too_old", "received more than 30 days ago"),
            rejected(1, None, "malformed", "not of the form"),
        ],
        publish: vec![
            publish(17, VKEY, SnapshotVersion { restore: 0, counter: 7 }, Some(TOMBSTONE), NOW + 6_000),
            publish(18, AKEY, SnapshotVersion { restore: 1, counter: 8 }, None, NOW + 7_000),
        ],
        pending: 3,
        catalogue: Some("c-42".to_owned()),
        verify: vec![VerifyRequest { entry: 19, key: VKEY.to_owned() }],
    }
}

fn identity() -> IdentityCookie {
    IdentityCookie {
        visitor: one(),
        written: NOW,
        tag: Some(alt(1, 0xa1)),
        covered: vec![0xdead_beef],
        earlier: vec![(alt(2, 0xb1), two())],
        pending: vec![two()],
        login: Some((NOW, 0x0102_0304_0506_0708)),
    }
}

fn ledger() -> Ledger {
    let session = SessionId::mint(NOW + 3_600_000, [5, 6, 7, 8]);
    Ledger {
        visitor: one(),
        highest: SnapshotVersion { restore: 0, counter: 7 },
        session: Some((session, NOW + 5_000)),
        pages: vec![
            LaterPage { received: NOW + 1_000, short: 0x1122_3344_5566_7788, session: session_one() },
            LaterPage { received: NOW + 5_000, short: 0x99, session },
        ],
        reserved: Vec::new(),
        exposed: Exposures::default(),
        offer_codes: HeldOfferCodes::default(),
    }
}

fn reserving() -> Ledger {
    let placed = |hash, entity, view_type, minutes| PlacedInsertion {
        insertion: InsertionHash([hash; 6]),
        entity,
        view_type: ViewType(view_type),
        minute: Minute(Minute::at(NOW).0 + minutes),
    };
    let ad = AdEntity { ad: 70_000, ad_group: 3, campaign: 2, advertiser: 1 };
    let house = AdEntity::default();
    Ledger { reserved: vec![placed(0xa1, ad, 4, 0), placed(0xa2, house, 0, 0), placed(0xa3, ad, 4, 9)], ..ledger() }
}

#[test]
fn the_keys_of_the_kv() {
    assert_eq!(snapshot_key(&tenant(), one()), VKEY);
    assert_eq!(lookup_key(&tenant(), AlternateId { kind: MEMBER, hash: alt(1, 0xa1) }), AKEY);
    assert_eq!(attributes_key(&tenant(), 0), CKEY);
    assert_eq!(one().to_string(), V1);
}

#[test]
fn one_fact_of_each_kind() {
    let goldens = [PAGE, ALIAS, PURCHASE_FACT, TRACK, WITHDRAWAL, ACTION, SEGMENTS, ATTRIBUTES];
    let about = [CANCELLATION, ERASURE, ERASURE_OF_ONE, EXPOSURE, OFFER_CODE, EVIDENCE];
    let all = all_facts().into_iter().zip(goldens).chain(facts_about().into_iter().zip(about));
    for (fact, golden) in all {
        let fact = &fact;
        assert_eq!(to_hex(&facts::encode_one(fact)), golden, "{fact:?}");
        assert_eq!(&facts::decode_one(&hex(golden)).unwrap(), fact);
        assert_eq!(&facts::decode_one(&later(&hex(golden))).unwrap(), fact);
    }
}

#[test]
fn a_batch_of_facts() {
    assert_eq!(to_hex(&facts::encode_batch(&batch())), BATCH);
    assert_eq!(facts::decode_batch(&hex(BATCH)).unwrap(), batch());
    assert_eq!(facts::decode_batch(&later(&hex(BATCH))).unwrap(), batch());
}

#[test]
fn a_stored_profile() {
    let mut expected = counted();
    assert_eq!(profile::encode_profile(one(), &expected), summed(&hex(PROFILE)));
    let parts = expected.take_parts();
    assert_eq!(to_hex(&parts.events.pack()), EVENTS);
    assert_eq!(profile::decode_events(&hex(EVENTS)).unwrap(), parts.events);
    let expected = expected.with_parts(ProfileParts { events: VisitorEvents::default(), ..parts });
    assert_eq!(profile::decode_profile(one(), &summed(&hex(PROFILE))).unwrap(), expected);
    assert_eq!(profile::decode_profile(one(), &summed(&later(&hex(PROFILE)))).unwrap(), expected);
    // Damaged bytes never decode to other sums, and a profile never decodes for another visitor.
    let other = VisitorId::mint(NOW, [9; 10]);
    assert_eq!(profile::decode_profile(other, &summed(&hex(PROFILE))).err(), Some(WireError::Checksum));
    let whole = summed(&hex(PROFILE));
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(profile::decode_profile(one(), &flipped).err(), Some(WireError::Checksum), "bit {bit}");
    }
}

#[test]
fn a_snapshot_and_a_tombstone() {
    assert_eq!(kv::encode_stored(VKEY, &stored()).unwrap(), SNAPSHOT);
    assert_eq!(kv::encode_stored(VKEY, &StoredValue::Tombstone).unwrap(), TOMBSTONE);
    assert_eq!(kv::decode_stored(VKEY, one(), SNAPSHOT.as_bytes()).unwrap(), stored());
    assert_eq!(kv::decode_stored(VKEY, one(), later_value(VKEY, SNAPSHOT).as_bytes()).unwrap(), stored());
    let best = Some(BestSendTime { utc_hour_of_week: 107, confidence: 80 });
    let reached = StoredValue::Snapshot(Box::new(Snapshot { best, ..snapshot() }));
    let value = kv::encode_stored(VKEY, &reached).unwrap();
    // One more key: the packed best send time.
    let mut inner = [&frame::inside(SNAPSHOT)[..], b"\x61b\x19\x6b\x50"].concat();
    inner[0] += 1;
    assert_eq!(to_hex(&frame::inside(&value)), to_hex(&inner));
    assert_eq!(kv::decode_stored(VKEY, one(), value.as_bytes()).unwrap(), reached);
    assert_eq!(kv::decode_stored(VKEY, one(), TOMBSTONE.as_bytes()).unwrap(), StoredValue::Tombstone);
}

#[test]
fn attributes_of_a_fact_and_of_a_snapshot() {
    let refused = |value: &str| facts::decode_one(&hex(&ATTRIBUTES.replace("420254", value))).err();
    // An integer cut into one of no kind; a text instead of bytes.
    assert_eq!(["4202d4", "420754"].map(refused), [Some(WireError::Range); 2]);
    assert_eq!(refused("620254"), Some(WireError::Malformed));
    let mut map = AttributeMap::default();
    map.write(NameToken(51), WriteStamp { at: NOW, order: 9 }, Some(AttributeValue::Integer(42)));
    map.write(NameToken(0), WriteStamp { at: NOW, order: 9 }, None);
    let totals = ProfileTotals { pages: 4, sessions: 2, ..ProfileTotals::default() };
    let content = SubContent { totals, segments: vec![1, 2], attributes: map.pack(), ..SubContent::default() };
    let sub = SubProfile::pack(SnapshotVersion::default(), &content);
    assert_eq!(to_hex(sub.packed()), ATTRIBUTED);
    assert_eq!((sub.content().unwrap(), sub.totals()), (content, totals));
    assert_eq!(sub.attributes().unwrap().to_map(), Some(map));
    // A reader of the previous release ignores the flag and the bytes after its own parts.
    let mut before = sub.packed().to_vec();
    before.iter_mut().take(1).for_each(|flags| *flags &= !16);
    let before = SubProfile::from_packed(SnapshotVersion::default(), before.into());
    assert_eq!((before.totals(), before.segments().is_some()), (totals, sub.segments().is_some()));
}

#[test]
fn a_model() {
    let mut weights = vec![0; 2_048];
    (weights[1_024], weights[1_028]) = (-2, 300);
    let quality = Quality {
        examples: 200,
        positives: 7,
        loss_ppm: 100_000,
        base_loss_ppm: 150_000,
        auc_ppm: 700_000,
        calibration_error_ppm: 3,
    };
    let model = Model {
        bits: 11,
        trained_ms: 300,
        expires_ms: 1_000,
        segments: vec![SegmentId(3), SegmentId(200)],
        click: Part { intercept: -5, scale: 10, weights, quality: Some(quality) },
        conversion: Part::default(),
        price: Part { intercept: 65_536, scale: 10, weights: vec![1; 2_048], quality: None },
        spread: 7,
    };
    let golden = MODEL.join(&"02".repeat(2_048));
    assert_eq!(to_hex(&wire_model::encode_model(&model)), golden);
    assert_eq!(wire_model::decode_model(&hex(&golden)), Ok(model));
}

#[test]
fn the_kv_value_of_a_model() {
    let (key, published) = (model_key(&"pub".parse().unwrap()), SnapshotVersion { restore: 2, counter: 7 });
    let model = Model { bits: 11, trained_ms: 300, expires_ms: 1_000, ..Model::default() };
    let golden = MODEL_VALUE;
    assert_eq!(catalogue::encode_model(&key, published, &wire_model::encode_model(&model)), golden);
    for value in [golden.to_owned(), later_value(&key, golden)] {
        assert_eq!(catalogue::decode_model(&key, value.as_bytes()), Ok((published, model.clone())));
    }
    for end in 0..golden.len() {
        let flipped =
            [&golden.as_bytes()[..end], &[golden.as_bytes()[end] ^ 1], &golden.as_bytes()[end + 1..]].concat();
        for bad in [&golden.as_bytes()[..end], &flipped] {
            assert!(catalogue::decode_model(&key, bad).is_err(), "at {end}");
        }
    }
}

#[test]
fn exposures_of_a_snapshot() {
    let exposure = |arm, at, mixed| FirstExposure { arm, at, mixed };
    let exposures: Exposures =
        [(3, exposure(2, NOW, false)), (70_000, exposure(1, NOW + 1, true))].into_iter().collect();
    let totals = ProfileTotals { pages: 4, sessions: 2, ..ProfileTotals::default() };
    let content = SubContent { totals, exposures: exposures.pack(), ..SubContent::default() };
    let sub = SubProfile::pack(SnapshotVersion::default(), &content);
    assert_eq!(to_hex(sub.packed()), EXPOSED);
    assert_eq!((sub.content().unwrap(), sub.exposures()), (content.clone(), exposures.clone()));
    // The part follows the attributes; a snapshot of the previous release has none.
    let both = SubProfile::pack(SnapshotVersion::default(), &SubContent { attributes: vec![0], ..content });
    assert_eq!(both.exposures(), exposures);
    assert!(SubProfile::from_packed(SnapshotVersion::default(), hex(ATTRIBUTED).into()).exposures().is_empty());
    // A reader of that release ignores the flag and the bytes after its own parts.
    let before = SubProfile::from_packed(SnapshotVersion::default(), hex(&EXPOSED.replacen("20", "00", 1)).into());
    assert_eq!((before.totals(), before.exposures()), (totals, Exposures::default()));
    // Cut exposures read as none, and leave the other parts intact.
    for end in 5..sub.packed().len() {
        let cut = SubProfile::from_packed(SnapshotVersion::default(), sub.packed()[..end].to_vec().into());
        assert_eq!((cut.totals(), cut.exposures()), (totals, Exposures::default()));
    }
}

#[test]
fn offer_codes_of_a_snapshot() {
    let offer_codes: HeldOfferCodes = [
        (3, offer_codes::HeldOfferCode { number: 5, at: NOW }),
        (70_000, offer_codes::HeldOfferCode { number: 300, at: NOW + 1 }),
    ]
    .into_iter()
    .collect();
    let totals = ProfileTotals { pages: 4, sessions: 2, ..ProfileTotals::default() };
    let content = SubContent { totals, offer_codes: offer_codes.pack(), ..SubContent::default() };
    let sub = SubProfile::pack(SnapshotVersion::default(), &content);
    assert_eq!(to_hex(sub.packed()), GOT);
    assert_eq!((sub.content().unwrap(), sub.offer_codes()), (content.clone(), offer_codes.clone()));
    // The part follows attributes and exposures.
    let exposures: Exposures = [(3, FirstExposure { arm: 2, at: NOW, mixed: false })].into_iter().collect();
    let all = SubContent { attributes: vec![0], exposures: exposures.pack(), ..content };
    let all = SubProfile::pack(SnapshotVersion::default(), &all);
    assert_eq!((all.offer_codes(), all.exposures()), (offer_codes, exposures));
    for end in 5..sub.packed().len() {
        let cut = SubProfile::from_packed(SnapshotVersion::default(), sub.packed()[..end].to_vec().into());
        assert_eq!((cut.totals(), cut.offer_codes()), (totals, HeldOfferCodes::default()));
    }
}

#[test]
fn event_times_of_a_snapshot() {
    let (now, mut events) = (Minute::at(NOW), VisitorEvents::default());
    for (name, ago) in [(fact::PAGE, 0), (fact::PAGE, 0), (fact::PAGE, 3), (fact::PAGE, 50_000), (PURCHASE, 1_440)] {
        events.add(name, Minute(now.0 - ago));
    }
    let since = Minute(now.0 - 44_640);
    let totals = ProfileTotals { pages: 4, purchases: 1, ..ProfileTotals::default() };
    let content = SubContent { totals, recent: events.pack_recent(since), ..SubContent::default() };
    let sub = SubProfile::pack(SnapshotVersion::default(), &content);
    assert_eq!(to_hex(sub.packed()), RECENT);
    let often = |of: &SubProfile, name, minutes| of.within(name, Minute(now.0 - minutes), Minute(now.0 + 1));
    assert_eq!(sub.content(), Some(content.clone()));
    assert_eq!(
        [0, 3, 44_640].map(|minutes| often(&sub, fact::PAGE, minutes)),
        [2, 3, 3].map(|n| Some(EventCount::Exactly(n)))
    );
    assert_eq!(often(&sub, fact::PAGE, 60_000), Some(EventCount::AtLeast(3)));
    assert_eq!(
        [1_439, 1_440].map(|minutes| often(&sub, PURCHASE, minutes)),
        [0, 1].map(|n| Some(EventCount::Exactly(n)))
    );
    assert_eq!(often(&sub, "saved", 0), None);
    // The part follows all others. A snapshot of the previous release lacks it, and a reader of that release ignores
    // it.
    let offer_codes: HeldOfferCodes = [(3, offer_codes::HeldOfferCode { number: 5, at: NOW })].into_iter().collect();
    let all = SubContent { attributes: vec![0], offer_codes: offer_codes.pack(), ..content };
    let all = SubProfile::pack(SnapshotVersion::default(), &all);
    assert_eq!((all.offer_codes(), often(&all, fact::PAGE, 3)), (offer_codes, Some(EventCount::Exactly(3))));
    let before = SubProfile::from_packed(SnapshotVersion::default(), hex(GOT).into());
    assert_eq!(often(&before, fact::PAGE, 3), Some(EventCount::AtLeast(0)));
    let reader = SubProfile::from_packed(SnapshotVersion::default(), hex(&RECENT.replacen("8001", "00", 1)).into());
    assert_eq!((reader.totals(), reader.offer_codes()), (totals, HeldOfferCodes::default()));
    for end in 6..sub.packed().len() {
        let cut = SubProfile::from_packed(SnapshotVersion::default(), sub.packed()[..end].to_vec().into());
        assert_eq!((cut.totals(), often(&cut, fact::PAGE, 3)), (totals, Some(EventCount::AtLeast(0))));
    }
}

#[test]
fn rows_calls_and_answers_of_an_offer_object() {
    let call = offer_codes::OfferCall {
        tenant: tenant(),
        campaign: 300,
        limit: 50_000,
        range: 15,
        asked: 2,
        again: true,
        own: one(),
        members: vec![one(), two()],
    };
    let given = GivenOfferCode { number: 300, holder: two() };
    assert_eq!(to_hex(&wire_offers::encode_call(&call)), OFFERS_CALL);
    assert_eq!(wire_offers::decode_call(&hex(OFFERS_CALL)), Some(call.clone()));
    assert_eq!(wire_offers::decode_call(&later(&hex(OFFERS_CALL))), Some(call.clone()));
    for (answer, golden) in [(None, OFFERS_NO_ANSWER), (Some(given), OFFERS_ANSWER)] {
        assert_eq!(to_hex(&wire_offers::encode_answer(answer)), golden);
        assert_eq!(wire_offers::decode_answer(&hex(golden)), Some(answer));
        assert_eq!(wire_offers::decode_answer(&later(&hex(golden))), Some(answer));
    }
    let (one, two) = (one(), two());
    assert_eq!(wire_offers::stock_keys(&call), ["stock".to_owned(), one.to_string(), two.to_string()]);
    let (stock, rows) = (
        OfferCodeStock { given: 7, empty: 100 },
        OfferCodeRows::from_iter([(one, VisitorOfferCodes::Asked), (two, VisitorOfferCodes::Given(given))]),
    );
    let lines = format!("{OFFERS_STOCK}\n{OFFERS_ASKED}\n{OFFERS_GIVEN}");
    assert_eq!(wire_offers::decode_rows(&call, lines.as_bytes()), Some((stock, rows.clone())));
    assert_eq!(wire_offers::decode_rows(&call, b""), Some((OfferCodeStock::default(), OfferCodeRows::new())));
    assert_eq!(
        wire_offers::decode_rows(&call, format!("{OFFERS_STOCK}\n\n").as_bytes()),
        Some((stock, OfferCodeRows::new()))
    );
    let writes: OfferCodeWrites = rows.into_iter().map(|(visitor, row)| (visitor, Some(row))).collect();
    assert_eq!(
        wire_offers::encode_rows(stock, &writes),
        format!("stock {OFFERS_STOCK}\n{one} {OFFERS_ASKED}\n{two} {OFFERS_GIVEN}")
    );
    assert_eq!(
        wire_offers::encode_rows(stock, &OfferCodeWrites::from_iter([(one, None)])),
        format!("stock {OFFERS_STOCK}\n{one} ")
    );
    for golden in [OFFERS_CALL, OFFERS_NO_ANSWER, OFFERS_ANSWER].map(hex) {
        let none =
            |bytes: &[u8]| wire_offers::decode_call(bytes).is_none() && wire_offers::decode_answer(bytes).is_none();
        assert!((0..golden.len()).all(|end| none(&golden[..end])));
        assert!(none(&[golden.as_slice(), &[0]].concat()));
    }
    let with = |row: &str| format!("{OFFERS_STOCK}\n{row}");
    for bad in [
        "7".to_owned(),
        OFFERS_STOCK[1..].to_owned(),
        with("asked"),
        with(&OFFERS_GIVEN[..9]),
        with(&OFFERS_GIVEN[1..]),
    ] {
        assert_eq!(wire_offers::decode_rows(&call, bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn rows_calls_and_answers_of_a_strict_cap_object() {
    let entry = CapEntry { entity: entity(), minute: Minute(299), confirmed: true, keep: 1_440 };
    let insertion = InsertionHash([7; 6]);
    let object = CapObject {
        latest: Minute(300),
        epoch: Epoch(5),
        forward: Some(one()),
        has_entries: true,
        entries: [(insertion, entry)].into_iter().collect(),
        full_until: Minute(0),
    };
    assert_eq!(to_hex(&wire_strict::encode_object(&object)), STRICT_OBJECT);
    assert_eq!(wire_strict::decode_object(&hex(STRICT_OBJECT)), Some(object));
    let window = TimeWindow { interval: 1, unit: WindowUnit::Days };
    let claim = CapClaim {
        candidates: vec![Candidate {
            entity: entity(),
            caps: vec![StrictCap { level: AdLevel::Campaign, limit: 3, window }],
        }],
        wanted: vec![WantedPlacement { insertion, choices: vec![0] }],
        seen: vec![SeenImpression { insertion: InsertionHash([8; 6]), entity: entity(), minute: Minute(299) }],
    };
    let links = Some(KnownLinks { epoch: Epoch(5), members: vec![one(), two()] });
    let claim = CapCall { to: two(), links, entries: Entries::new(), ask: CapRequest::Claim(claim) };
    let confirm = CapCall { to: two(), links: None, entries: Entries::new(), ask: CapRequest::Confirm(insertion) };
    for (call, golden) in [(claim, STRICT_CLAIM), (confirm, STRICT_CONFIRM)] {
        assert_eq!(to_hex(&wire_strict::encode_call(&tenant(), &call)), golden);
        assert_eq!(wire_strict::decode_call(&hex(golden)), Some((tenant(), call)));
    }
    let answer = Answer { granted: [(insertion, CapEntry { confirmed: false, ..entry })].into_iter().collect() };
    assert_eq!(to_hex(&wire_strict::encode_answer(&answer)), STRICT_ANSWER);
    assert_eq!(wire_strict::decode_answer(&hex(STRICT_ANSWER)), Some(answer));
    // Bytes that are cut, extended or of another form are refused.
    for golden in [STRICT_OBJECT, STRICT_CLAIM, STRICT_CONFIRM, STRICT_ANSWER].map(hex) {
        let none = |bytes: &[u8]| {
            wire_strict::decode_object(bytes).is_none()
                && wire_strict::decode_call(bytes).is_none()
                && wire_strict::decode_answer(bytes).is_none()
        };
        assert!((1..golden.len()).all(|end| none(&golden[..end])));
        assert_eq!(golden[1..4], [0x61, b'f', 1]);
        assert!(none(&[golden.as_slice(), &[0]].concat()) && none(&[&golden[..3], &[2], &golden[4..]].concat()));
    }
}

#[test]
fn a_catalogue_and_the_pointer_to_it() {
    let tenant = "pub".parse().unwrap();
    let (at, current) = (catalogue_key(&tenant, 3), pointer_key(&tenant));
    let digest: catalogue::Digest = std::array::from_fn(|i| 0xd0 + u8::try_from(i).unwrap());
    let pointer =
        catalogue::CataloguePointer { published: SnapshotVersion { restore: 2, counter: 7 }, version: 3, digest };
    assert_eq!(catalogue::encode_pointer(&current, &pointer), POINTER);
    for value in [POINTER.to_owned(), later_value(&current, POINTER)] {
        assert_eq!(catalogue::decode_pointer(&current, value.as_bytes()), Ok(pointer));
    }
    let document = br#"{"ad":[]}"#;
    assert_eq!(catalogue::encode_document(&at, &digest, document).unwrap(), DOCUMENT);
    for value in [DOCUMENT.to_owned(), later_value(&at, DOCUMENT)] {
        assert_eq!(catalogue::decode_document(&at, &digest, value.as_bytes()).unwrap(), document.as_slice());
    }
    // Bytes that are cut or changed in one byte are refused.
    for (value, end) in [POINTER, DOCUMENT].into_iter().flat_map(|value| (0..value.len()).map(move |end| (value, end)))
    {
        let flipped = [&value.as_bytes()[..end], &[value.as_bytes()[end] ^ 1], &value.as_bytes()[end + 1..]].concat();
        for bad in [&value.as_bytes()[..end], &flipped] {
            assert!(catalogue::decode_pointer(&current, bad).is_err(), "{value} at {end}");
            assert!(catalogue::decode_document(&at, &digest, bad).is_err(), "{value} at {end}");
        }
    }
}

#[test]
fn a_page_of_names() {
    let page = [("shoe_size".to_owned(), ValueKind::Integer), ("vip".to_owned(), ValueKind::Bool)];
    assert_eq!(kv::encode_names(CKEY, &page).unwrap(), NAMES);
    assert_eq!(kv::decode_names(CKEY, NAMES.as_bytes()).unwrap(), page);
    assert_eq!(kv::decode_names("c:pub:attributes:1", NAMES.as_bytes()), Err(WireError::Checksum));
    assert_eq!(kv::decode_names(CKEY, LOOKUP.as_bytes()), Err(WireError::UnknownForm));
    assert_eq!(kv::encode_names(CKEY, &[page[0].clone(), page[0].clone()]), Err(WireError::Range));
    // The longest page can be decoded; a longer one is not encoded.
    let name = |n: usize| (format!("{n:a>64}", n = format!("_{n}")), ValueKind::Date);
    let full: Vec<_> = (0..limits::ATTRIBUTE_PAGE).map(name).collect();
    let value = kv::encode_names(CKEY, &full).unwrap();
    assert!((limits::KV_VALUE_CHARS - 8..=limits::KV_VALUE_CHARS).contains(&value.len()), "{}", value.len());
    assert_eq!(kv::decode_names(CKEY, value.as_bytes()).unwrap(), full);
    let over: Vec<_> = (0..=limits::ATTRIBUTE_PAGE).map(name).collect();
    assert_eq!(kv::encode_names(CKEY, &over), Err(WireError::Range));
}

#[test]
fn a_lookup() {
    assert_eq!(kv::encode_lookup(AKEY, &[two(), one()]).unwrap(), LOOKUP);
    for text in [LOOKUP.to_owned(), later_value(AKEY, LOOKUP)] {
        assert_eq!(kv::decode_lookup(AKEY, text.as_bytes()).unwrap(), [two(), one()]);
    }
}

#[test]
fn a_sync_and_its_answer() {
    assert_eq!(to_hex(&sync::encode_request(&request())), REQUEST);
    assert_eq!(to_hex(&sync::encode_response(&response())), RESPONSE);
    for bytes in [hex(REQUEST), later(&hex(REQUEST))] {
        // A batch is a form of its own, and a later release may add keys to it.
        let read = sync::decode_request(&bytes).unwrap();
        let batches: Vec<_> = read.facts.iter().map(|batch| facts::decode_batch(batch).unwrap()).collect();
        assert_eq!(batches, [batch()]);
        assert_eq!(SyncRequest { facts: request().facts, ..read }, request());
    }
    let filtering = SyncRequest { edge: "e".to_owned(), filtered: [300, 2, 1], ..SyncRequest::default() };
    assert_eq!(to_hex(&sync::encode_request(&filtering)), FILTERING);
    for bytes in [hex(FILTERING), later(&hex(FILTERING))] {
        assert_eq!(sync::decode_request(&bytes).unwrap(), filtering);
    }
    for bytes in [hex(RESPONSE), later(&hex(RESPONSE))] {
        assert_eq!(sync::decode_response(&bytes).unwrap(), response());
    }
}

#[test]
fn all_cookies() {
    assert_eq!(to_hex(&cookies::encode_identity(&identity())), IDENTITY_PAYLOAD);
    let without = IdentityCookie { login: None, ..identity() };
    assert_eq!(to_hex(&cookies::encode_identity(&without)), IDENTITY_WITHOUT_LOGIN);
    assert_eq!(cookies::decode_identity(&hex(IDENTITY_WITHOUT_LOGIN)).unwrap(), without);
    assert_eq!(to_hex(&cookies::encode_ledger(&ledger())), LEDGER);
    for bytes in [hex(IDENTITY_PAYLOAD), later(&hex(IDENTITY_PAYLOAD))] {
        assert_eq!(cookies::decode_identity(&bytes).unwrap(), identity());
    }
    for bytes in [hex(LEDGER), later(&hex(LEDGER))] {
        assert_eq!(cookies::decode_ledger(&bytes).unwrap(), ledger());
    }
    assert_eq!(to_hex(&cookies::encode_ledger(&reserving())), RESERVING);
    assert_eq!(cookies::decode_ledger(&hex(RESERVING)).unwrap(), reserving());
    let exposed = [(3, FirstExposure { arm: 2, at: NOW, mixed: false })].into_iter().collect();
    let exposing = Ledger { exposed, ..reserving() };
    let offer_codes: HeldOfferCodes = [(3, offer_codes::HeldOfferCode { number: 5, at: NOW })].into_iter().collect();
    let getting = Ledger { offer_codes, ..exposing.clone() };
    for (ledger, golden) in [(exposing, EXPOSING), (getting, GETTING)] {
        assert_eq!(to_hex(&cookies::encode_ledger(&ledger)), golden);
        assert_eq!(cookies::decode_ledger(&hex(golden)).unwrap(), ledger);
    }
    let running = RunningSession { visitor: one(), session: SessionId(0x0102_0304_0506_0708), last: NOW };
    assert_eq!(to_hex(&cookies::encode_session(&running)), SESSION);
    for bytes in [hex(SESSION), later(&hex(SESSION))] {
        assert_eq!(cookies::decode_session(&bytes).unwrap(), running);
    }
    let ring = KeyRing(vec![key()]);
    assert_eq!(cookie::seal_cookie(&ring, IDENTITY, &tenant(), &hex(IDENTITY_WITHOUT_LOGIN)).unwrap(), SEALED);
    let opened = cookie::open(&ring, IDENTITY, &tenant(), SEALED).unwrap();
    assert_eq!((opened.payload, opened.stale_key), (hex(IDENTITY_WITHOUT_LOGIN), false));
}

#[test]
fn hashes_and_macs() {
    let hashes = KeyRing(vec![key()]).hash_alternate(MEMBER, "123");
    assert_eq!(hashes.iter().map(AltHash::to_string).collect::<Vec<_>>(), [ALT123]);
    assert_eq!(sync_auth::sign_sync(&key(), NOW, b"body"), SYNC_MAC);
    assert_eq!(FactId::of_message(one(), "m-1").to_string(), MESSAGE);
    assert_eq!(FactId::of_withdrawal(one()).to_string(), WITHDRAWAL_ID);
    assert_eq!(FactId::of_erasure(one()).to_string(), ERASURE_ID);
    assert_eq!(FactId::of_erasure(one()).receipt(), RECEIPT);
    assert_eq!(FactId::of_action(one(), insertion(), 1, 4, NOW).to_string(), ACTION_ID);
    assert_eq!(FactId::of_offer_code(one(), 300, 7).to_string(), OFFER_CODE_ID);
}

type Reads = fn(&[u8]) -> Option<WireError>;

/// Every CBOR form with its decoder.
fn forms() -> [(&'static str, Reads); 16] {
    [
        (BATCH, |b| facts::decode_batch(b).err()),
        (ALIAS, |b| facts::decode_one(b).err()),
        (ATTRIBUTES, |b| facts::decode_one(b).err()),
        (CANCELLATION, |b| facts::decode_one(b).err()),
        (ERASURE, |b| facts::decode_one(b).err()),
        (EXPOSURE, |b| facts::decode_one(b).err()),
        (OFFER_CODE, |b| facts::decode_one(b).err()),
        (EVIDENCE, |b| facts::decode_one(b).err()),
        (PROFILE, |b| profile::decode_profile(one(), &summed(b)).err()),
        (REQUEST, |b| sync::decode_request(b).err()),
        (RESPONSE, |b| sync::decode_response(b).err()),
        (IDENTITY_PAYLOAD, |b| cookies::decode_identity(b).err()),
        (LEDGER, |b| cookies::decode_ledger(b).err()),
        (RESERVING, |b| cookies::decode_ledger(b).err()),
        (GETTING, |b| cookies::decode_ledger(b).err()),
        (SESSION, |b| cookies::decode_session(b).err()),
    ]
}

#[test]
fn another_form_number_is_refused_by_its_name() {
    for (golden, reads) in forms() {
        let mut bytes = hex(golden);
        assert_eq!(bytes[1..4], [0x61, b'f', 1], "{golden}");
        bytes[3] = 2;
        assert_eq!(reads(&bytes), Some(WireError::UnknownForm), "{golden}");
        // The rest of a form of another number is ignored.
        assert_eq!(reads(&[0xa2, 0x61, b'f', 0x18, 200, 0x61, b'i', 0x80]), Some(WireError::UnknownForm), "{golden}");
        // The number must come first.
        assert_eq!(reads(&[0xa2, 0x61, b'i', 0x80, 0x61, b'f', 1]), Some(WireError::Malformed), "{golden}");
    }
    let mut inner = frame::inside(SNAPSHOT);
    inner[3] = 2;
    let value = frame::framed("s1", VKEY, &inner);
    assert_eq!(kv::decode_stored(VKEY, one(), value.as_bytes()), Err(WireError::UnknownForm));
    let value = frame::framed("s2", VKEY, &frame::inside(SNAPSHOT));
    assert_eq!(kv::decode_stored(VKEY, one(), value.as_bytes()), Err(WireError::UnknownForm));
    let value = frame::framed("l2", AKEY, &frame::inside(LOOKUP));
    assert_eq!(kv::decode_lookup(AKEY, value.as_bytes()), Err(WireError::UnknownForm));
}

#[test]
fn every_cut_and_every_byte_too_many_is_refused() {
    for (golden, reads) in forms() {
        let bytes = hex(golden);
        assert_eq!(reads(&bytes), None);
        for end in 0..bytes.len() {
            assert!(reads(&bytes[..end]).is_some(), "{golden} cut at {end}");
        }
        assert_eq!(reads(&[bytes.as_slice(), &[0xf6]].concat()), Some(WireError::Malformed));
    }
}

#[test]
fn no_flipped_bit_of_a_form_makes_it_panic() {
    for (golden, reads) in forms() {
        let bytes = hex(golden);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = reads(&flipped);
        }
    }
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_kv_value_is_refused() {
    let stored = |value: &[u8]| kv::decode_stored(VKEY, one(), value).is_ok();
    let lookup = |value: &[u8]| kv::decode_lookup(AKEY, value).is_ok();
    type IsRead<'a> = &'a dyn Fn(&[u8]) -> bool;
    let names = |value: &[u8]| kv::decode_names(CKEY, value).is_ok();
    let all = [(SNAPSHOT, &stored as IsRead<'_>), (TOMBSTONE, &stored), (LOOKUP, &lookup), (NAMES, &names)];
    for (golden, is_read) in all {
        let bytes = golden.as_bytes();
        assert!(is_read(bytes));
        for end in 0..bytes.len() {
            assert!(!is_read(&bytes[..end]), "{golden} cut at {end}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_read(&flipped), "bit {} of byte {} of {golden}", bit % 8, bit / 8);
        }
        assert!(!is_read(&[bytes, b"A"].concat()) && !is_read(&[bytes, b"="].concat()));
    }
}

#[test]
fn a_value_under_another_key_or_of_another_visitor_is_refused() {
    let other = snapshot_key(&tenant(), two());
    let elsewhere = snapshot_key(&"pub2".parse().unwrap(), one());
    for key in [&other, &elsewhere] {
        assert_eq!(kv::decode_stored(key, one(), SNAPSHOT.as_bytes()), Err(WireError::Checksum));
        assert_eq!(kv::decode_stored(key, one(), TOMBSTONE.as_bytes()), Err(WireError::Checksum));
    }
    assert_eq!(kv::decode_stored(VKEY, two(), SNAPSHOT.as_bytes()), Err(WireError::Range));
    assert_eq!(kv::decode_lookup(VKEY, LOOKUP.as_bytes()), Err(WireError::Checksum));
    assert_eq!(kv::decode_lookup(AKEY, SNAPSHOT.as_bytes()), Err(WireError::UnknownForm));
}

#[test]
fn what_no_reader_would_take_is_not_written() {
    let many = |n: u8| (0..n).map(|i| VisitorId::mint(NOW, [i; 10]));
    let refused = |change: &dyn Fn(&mut Snapshot)| {
        let mut changed = snapshot();
        change(&mut changed);
        kv::encode_stored(VKEY, &StoredValue::Snapshot(Box::new(changed))).err()
    };
    assert_eq!(refused(&|_| {}), None);
    assert_eq!(refused(&|s| s.unique = vec![alt(1, 1); limits::KEYS_A_PURPOSE + 1]), Some(WireError::Range));
    assert_eq!(refused(&|s| s.profiles.retain(|v, _| *v != one())), Some(WireError::Range));
    assert_eq!(refused(&|s| s.membership.admits.retain(|v| *v != one())), Some(WireError::Range));
    assert_eq!(refused(&|s| s.membership.admits.extend(many(60))), Some(WireError::Range));
    let cut = VisitorCut { at: NOW, gone: false };
    assert_eq!(refused(&|s| s.membership.cuts.extend(many(65).map(|v| (v, cut)))), Some(WireError::Range));
    let visitors: Vec<VisitorId> = many(4).collect();
    assert_eq!(kv::encode_lookup(AKEY, &visitors), Err(WireError::Range));
    // The largest value that may be written can be decoded.
    let mut largest = snapshot();
    largest.membership.admits.extend(many(49));
    let own = largest.profiles[&one()].clone();
    largest.profiles.extend(many(49).map(|v| (v, own.clone())));
    let largest = StoredValue::Snapshot(Box::new(largest));
    let text = kv::encode_stored(VKEY, &largest).unwrap();
    assert_eq!(kv::decode_stored(VKEY, one(), text.as_bytes()).unwrap(), largest);
}
