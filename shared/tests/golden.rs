//! Golden bytes: the forms on every wire stand still, an edge one release older or newer than the origin works,
//! and what was cut, changed or put under another key is refused.
//!
//! The bytes were written by hand from the forms' description (RFC 8949, RFC 2104, CRC-32 of IEEE 802.3), not
//! taken from the encoders.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

#[expect(dead_code, reason = "each file takes its part")]
mod common;
#[path = "common/frame.rs"]
mod frame;

use causeway_shared::actions::{Entity, InsertionHash, Level, Unit, Verb, ViewType, Window};
use causeway_shared::attributes::{AttributeMap, Kind, Token, Value};
use causeway_shared::cookie::{self, IDENTITY};
use causeway_shared::events::{Events, Often};
use causeway_shared::experiment::{Exposure, Exposures};
use causeway_shared::fact::{Fact, PURCHASE, Scope, What};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::ids::{
    AltHash, AlternateId, Epoch, FactId, InsertionId, Millis, SessionId, TenantId, Version, VisitorId,
};
use causeway_shared::keys::{Key, KeyRing, Stage};
use causeway_shared::kv::{attributes_key, catalogue_key, lookup_key, model_key, pointer_key, snapshot_key};
use causeway_shared::ledger::{Ledger, Reservation};
use causeway_shared::membership::{Cut, Membership};
use causeway_shared::model::{Model, Part, Quality};
use causeway_shared::person::{Source, Weight};
use causeway_shared::profile::{Beyond, Content, Parts, Profile, SubProfile, Totals};
use causeway_shared::rhythm::BestTime;
use causeway_shared::segments::{SegmentId, Stamp, State};
use causeway_shared::strict::{
    Answer, Ask, Call, Candidate, Claim, Entries, Entry, Links, Object, Seen, StrictCap, Wanted,
};
use causeway_shared::time::{HourStamp, Minute};
use causeway_shared::units::{self, Given, Row, Rows, Stock, Units, Writes};
use causeway_shared::view::{Snapshot, Stored};
use causeway_shared::wire::facts::FactBatch;
use causeway_shared::wire::model as wire_model;
use causeway_shared::wire::strict as wire_strict;
use causeway_shared::wire::sync::{Publish, Read, Rejected, SyncRequest, SyncResponse, Verify};
use causeway_shared::wire::units as wire_units;
use causeway_shared::wire::{WireError, catalogue, cookies, facts, kv, profile, sync};
use causeway_shared::{fact, limits, sync_auth};
use common::{MEMBER, NOW};

const PAGE: &str = "8550010101010101010101010101010101015001a3185c50007102830405060708090a1b000001a3185c53e80082001b01c9\
     c38001020304";
const ALIAS: &str = "8550020202020202020202020202020202025001a3185c50007102830405060708090a1b000001a3185c57d0008501015001\
     a1a2a3a4a5a6a7a8a9aaabacadaeaff5815002b1b2b3b4b5b6b7b8b9babbbcbdbebf";
const PURCHASE_FACT: &str = "8550030303030303030303030303030303035001a3185c50007102830405060708090a1b000001a3185c5bb81901f4840268\
     70757263686173651a0ee6b2806b7b22736b75223a2278227d";
const TRACK: &str = "8550040404040404040404040404040404045001a3185c50007102830405060708090a1b000001a3185c5fa0008402667369\
     676e7570f6f6";
const WITHDRAWAL: &str =
    "8550050505050505050505050505050505055001a3185c50007102830405060708090a1b000001a3185c6388008103";
const BATCH: &str = "830163707562828550010101010101010101010101010101015001a3185c50007102830405060708090a1b000001a3185c53\
     e80082001b01c9c380010203048550050505050505050505050505050505055001a3185c50007102830405060708090a1b00\
     0001a3185c6388008103";
const EVENTS: &str = "000604706167650001c09384040870757263686173650001c0938404067369676e75700001c0938404";
const PROFILE: &str = "8a0101011a0ee6b280811b01c9c38001020304821b000001a3185c53e81b000001a3185c6b588f001b000001a3185c53e81b\
     01010101010101011b000001a3185c57d01b02020202020202021b000001a3185c5bb81b03030303030303031b000001a318\
     5c5fa01b04040404040404041b000001a3185c63881b05050505050505051b000001a3185c67701b06060606060606061b00\
     0001a3185c6b581b0707070707070707582701010101780b01000000e001002ed1bad9245200000104701101000300000002\
     0000000100000058250203d8aa040109804202000000000000000001040101020d01d8d6f1c2b134878e9c380002426803";
const SNAPSHOT: &str = "s1mogEsYcBggAHUAGjGFxQAHECgwQFBgcICQqCUAGhoqOkpaanqKmqq6ytrq9QArGys7S1tre4ubq7vL2+v4MJA1cBoxhcUABwAIAAAA\
     AAAAAAqObxwrE0AVkBBwGjGFxQAHECgwQFBgcICQoAB9sBjwEnAQEBAXgLAQAAAOABAC7RutkkUgAAAQRwEQEAAwAAAAIAAAABAAAAJQ\
     ID2KoEAQmAQgIAAAAAAAAAAAEEAQECDQHY1vHCsTSHjpw4AAIBAQGAyrXuAein8cKxNPAuAQHJw4ABAgMEAAfop/HCsTQBAQEBAQEBAd\
     Cv8cKxNAICAgICAgICuLfxwrE0AwMDAwMDAwOgv/HCsTQEBAQEBAQEBIjH8cKxNAUFBQUFBQUF8M7xwrE0BgYGBgYGBgbY1vHCsTQHBw\
     cHBwcHBw0AAAHAk4QEAAHAk4QEAaMYXTpgcRKTFBUWFxgZGgAGBQAEAgAA9Q";
const TOMBSTONE: &str = "t1HFKfOA";
/// Up to the weights of the price, all of which are 1, and what is behind them.
const MODEL: [&str; 2] =
    ["010bac02e8070203c501090a01c80107a08d06f09309e0dc2a03020280080303d804000000008080080a0001", "0e"];
const STRICT_OBJECT: &str = "01ac02050101a3185c50007102830405060708090a0101070707070707f0a204030201ab0201a00b00";
const STRICT_CLAIM: &str = "010370756201a3185d3a607112931415161718191a01050201a3185c50007102830405060708090a01a3185d3a607112931415\
     161718191a000101f0a20403020101020301020107070707070701000108080808080\
     8f0a204030201ab02";
const STRICT_CONFIRM: &str = "010370756201a3185d3a607112931415161718191a000000070707070707";
const STRICT_ANSWER: &str = "0101070707070707f0a204030201ab0200a00b";
const LOOKUP: &str = "l1mZ1QnoIBglABoxhdOmBxEpMUFRYXGBkaUAGjGFxQAHECgwQFBgcICQo";
const VKEY: &str = "v:pub:01a3185c-5000-7102-8304-05060708090a";
const AKEY: &str = "a:pub:1:01a1a2a3a4a5a6a7a8a9aaabacadaeaf";
const REQUEST: &str = "890166656467652d3150eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee81586e830163707562828550010101010101010101010101\
     010101015001a3185c50007102830405060708090a1b000001a3185c53e80082001b01c9c380010203048550050505050505\
     050505050505050505055001a3185c50007102830405060708090a1b000001a3185c63880081038211121864020182821158\
     20dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd8212f6";
const REQUEST_BEFORE: &str = "880166656467652d3150eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee81586e830163707562828550010101010101010101010101\
     010101015001a3185c50007102830405060708090a1b000001a3185c53e80082001b01c9c380010203048550050505050505\
     050505050505050505055001a3185c50007102830405060708090a1b000001a3185c638800810382111218640201";
const RESPONSE: &str = "880102018284000167746f6f5f6f6c64781e7265636569766564206d6f7265207468616e20333020646179732061676f8401\
     f6696d616c666f726d65646f6e6f74206f662074686520666f726d828511782a763a7075623a30316133313835632d353030\
     302d373130322d383330342d30353036303730383039306182000768743148464b664f411b000001a3185c67708512782861\
     3a7075623a313a3031613161326133613461356136613761386139616161626163616461656166820108f61b000001a3185c\
     6b580364632d3432818213782a763a7075623a30316133313835632d353030302d373130322d383330342d30353036303730\
     3830393061";
const RESPONSE_BEFORE: &str = "870102018284000167746f6f5f6f6c64781e7265636569766564206d6f7265207468616e20333020646179732061676f8401\
     f6696d616c666f726d65646f6e6f74206f662074686520666f726d828511782a763a7075623a30316133313835632d353030\
     302d373130322d383330342d30353036303730383039306182000768743148464b664f411b000001a3185c67708512782861\
     3a7075623a313a3031613161326133613461356136613761386139616161626163616461656166820108f61b000001a3185c\
     6b580364632d3432";
const IDENTITY_PAYLOAD: &str = "88015001a3185c50007102830405060708090a1b000001a3185c50005001a1a2a3a4a5a6a7a8a9aaabacadaeaf811adeadbe\
     ef81825002b1b2b3b4b5b6b7b8b9babbbcbdbebf5001a3185d3a607112931415161718191a815001a3185d3a607112931415\
     161718191a821b000001a3185c50001b0102030405060708";
const IDENTITY_WITHOUT_LOGIN: &str = "87015001a3185c50007102830405060708090a1b000001a3185c50005001a1a2a3a4a5a6a7a8a9aaabacadaeaf811adeadbe\
     ef81825002b1b2b3b4b5b6b7b8b9babbbcbdbebf5001a3185d3a607112931415161718191a815001a3185d3a607112931415\
     161718191a";
const LEDGER: &str = "87015001a3185c50007102830405060708090a8200071b000001a3185c638800821b01c9c3bc050607081b01c9c380010203\
     04861b1122334455667788190fa00118990000";
const RESERVING: &str = "88015001a3185c50007102830405060708090a8200071b000001a3185c638800821b01c9c3bc050607081b01c9c380010203\
     04861b1122334455667788190fa00118990000582ae989820202f0a20403020100000000a1a1a1a1a1a1040009a2a2a2a2a2\
     a2000109a3a3a3a3a3a3040000";
const SEALED: &str = "v1.5.hwFQAaMYXFAAcQKDBAUGBwgJChsAAAGjGFxQAFABoaKjpKWmp6ipqqusra6vgRrerb7vgYJQArGys7S1tre4ubq7vL2-v1A\
     BoxhdOmBxEpMUFRYXGBkagVABoxhdOmBxEpMUFRYXGBka.uH7kqEGGIxfFAKmcJhyRog";
const ALT123: &str = "057592e7813c8e6bebfb95109a9d6a41";
const SYNC_MAC: &str = "PrXFwJbe9-ZEXJasUSK21T9Fe3FBe6UEcv2MPOjo9lI";
const MESSAGE: &str = "e5d5fa1dfd288c8e25ef928e6a1c48db";
const WITHDRAWAL_ID: &str = "d740980137898c0f3dd86a945305e1cb";
const ERASURE_ID: &str = "b46bdf72274f8ab9deb2c183cfbdae8e";
const RECEIPT: &str = "b46bdf72-274f-8ab9-deb2-c183cfbdae8e";
const V1: &str = "01a3185c-5000-7102-8304-05060708090a";
const ACTION: &str = "8550060606060606060606060606060606065001a3185c50007102830405060708090a1b000001a3185c6770008804506061\
     62636465666768696a6b6c6d6e6f01041a00011170030201";
const SEGMENTS: &str = "8550070707070707070707070707070707075001a3185c50007102830405060708090a1b000001a3185c6b58008205828419\
     21091a0001155802268109";
const CANCELLATION: &str = "8550090909090909090909090909090909095001a3185c50007102830405060708090a1b000001a3185c7328008307015001\
     a1a2a3a4a5a6a7a8a9aaabacadaeaf";
const ERASURE: &str = "85500a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a5001a3185c50007102830405060708090a1b000001a3185c7710008308f58301\
     5001a1a2a3a4a5a6a7a8a9aaabacadaeaf815002b1b2b3b4b5b6b7b8b9babbbcbdbebf";
const ERASURE_OF_ONE: &str =
    "85500b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b5001a3185c50007102830405060708090a1b000001a3185c7af8008308f4f6";
const EXPOSURE: &str = "85500c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c5001a3185c50007102830405060708090a1b000001a3185c7ee00083091a00011170\
     02";
const UNIT: &str = "85500d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d5001a3185c50007102830405060708090a1b000001a3185c82c800830a1a0001117019\
     012c";
const EVIDENCE: &str = "85500e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e5001a3185c50007102830405060708090a1b000001a3185c86b000850b015001a1\
     a2a3a4a5a6a7a8a9aaabacadaeaf1902bc05";
const ATTRIBUTES: &str = "8550080808080808080808080808080808085001a3185c50007102830405060708090a1b000001a3185c6f400082068282697368\
     6f655f73697a654202548263766970f6";
const NAMES: &str = "n1D2FyCQIJc2hvZV9zaXplAgN2aXAB";
const CKEY: &str = "c:pub:attributes:0";
const POINTER: &str = "p1A0a2U4QBggIHA1DQ0dLT1NXW19jZ2tvc3d7f";
const LATER_POINTER: &str = "p1T1rQv4UBgwIHZWxhdGVyA1DQ0dLT1NXW19jZ2tvc3d7fZWxhdGVy";
const MODEL_VALUE: [&str; 2] =
    ["w1qkKW74MBggIHVAELrALoBwAAAAAAAAAAAAAAAAAA", "w1J+lbbIQBggIHVAELrALoBwAAAAAAAAAAAAAAAAAAZWxhdGVy"];
const DOCUMENT: &str = "k10mlZWoQBUNDR0tPU1dbX2Nna29zd3t8JSpB7ImFkIjpbXX0";
const LATER_DOCUMENT: &str = "k1Ex+y/YUBUNDR0tPU1dbX2Nna29zd3t8JSpB7ImFkIjpbXX1lbGF0ZXI";
const ATTRIBUTED: &str = "18020102040200001002060000320202540180a0f1c2b13409";
const EXPOSED: &str = "20040200001203\
     0480a0f1c2b134eda2040381a0f1c2b134";
const RECENT: &str = "8001040001001080adff010002bab9050500000180a305";
const GOT: &str = "40040200001303\
     0580a0f1c2b134eda204ac0281a0f1c2b134";
const UNIT_ID: &str = "6861953f6973b622d3a50b970dfe9dfb";
const ACTION_ID: &str = "73fa776833e56a0d1d6c4de553c7db2e";
const LATER_BATCH: &str = "840163707562848650010101010101010101010101010101015001a3185c50007102830405060708090a1b000001a3185c53\
     e80083001b01c9c38001020304656c61746572656c617465728650020202020202020202020202020202025001a3185c5000\
     7102830405060708090a1b000001a3185c57d0008601015001a1a2a3a4a5a6a7a8a9aaabacadaeaff5815002b1b2b3b4b5b6\
     b7b8b9babbbcbdbebf656c61746572656c617465728650030303030303030303030303030303035001a3185c500071028304\
     05060708090a1b000001a3185c5bb81901f485026870757263686173651a0ee6b2806b7b22736b75223a2278227d656c6174\
     6572656c617465728650050505050505050505050505050505055001a3185c50007102830405060708090a1b000001a3185c\
     6388008203656c61746572656c61746572656c61746572";
const LATER_PROFILE: &str = "8b0101011a0ee6b280811b01c9c38001020304831b000001a3185c53e81b000001a3185c6b58656c617465728f001b000001\
     a3185c53e81b01010101010101011b000001a3185c57d01b02020202020202021b000001a3185c5bb81b0303030303030303\
     1b000001a3185c5fa01b04040404040404041b000001a3185c63881b05050505050505051b000001a3185c67701b06060606\
     060606061b000001a3185c6b581b0707070707070707582701010101780b01000000e001002ed1bad9245200000104701101\
     0003000000020000000100000058250203d8aa040109804202000000000000000001040101020d01d8d6f1c2b134878e9c38\
     0002426803656c61746572";
const LATER_SNAPSHOT: &str = "s1FLkgSokBgwAHZWxhdGVyUAGjGFxQAHECgwQFBgcICQqCUAGhoqOkpaanqKmqq6ytrq9QArGys7S1tre4ubq7vL2\
     +v4QJA1cBoxhcUABwAIAAAAAAAAAAqObxwrE0AWVsYXRlclkBAgGjGFxQAHECgwQFBgcICQoAB9EBDycBAQEBeAsBAAAA4AEALtG62SRSAAABBHARA\
     QADAAAAAgAAAAEAAAAlAgPYqgQBCYBCAgAAAAAAAAAAAQQBAQINAdjW8cKxNIeOnDgAAgEBAYDKte4B6KfxwrE08C4BAcnDgAECAwQAB+in8cKxNAE\
     BAQEBAQEB0K/xwrE0AgICAgICAgK4t/HCsTQDAwMDAwMDA6C/8cKxNAQEBAQEBAQEiMfxwrE0BQUFBQUFBQXwzvHCsTQGBgYGBgYGBtjW8cKxNAcHB\
     wcHBwcHbGF0ZXIBoxhdOmBxEpMUFRYXGBkaAAYKAAQCAABsYXRlcvUZa1BlbGF0ZXI";
const LATER_LOOKUP: &str = "l1Jl6OG4MBglABoxhdOmBxEpMUFRYXGBkaUAGjGFxQAHECgwQFBgcICQplbGF0ZXI";
const LATER_REQUEST: &str = "8a0166656467652d3150eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee81586e830163707562828550010101010101010101010101\
     010101015001a3185c50007102830405060708090a1b000001a3185c53e80082001b01c9c380010203048550050505050505\
     050505050505050505055001a3185c50007102830405060708090a1b000001a3185c63880081038211121864020182831158\
     20dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd656c617465728312f6656c61746572656c\
     61746572";
const LATER_RESPONSE: &str = "890102018285000167746f6f5f6f6c64781e7265636569766564206d6f7265207468616e20333020646179732061676f656c\
     617465728501f6696d616c666f726d65646f6e6f74206f662074686520666f726d656c61746572828611782a763a7075623a\
     30316133313835632d353030302d373130322d383330342d303530363037303830393061830007656c617465726874314846\
     4b664f411b000001a3185c6770656c6174657286127828613a7075623a313a30316131613261336134613561366137613861\
     39616161626163616461656166830108656c61746572f61b000001a3185c6b58656c617465720364632d3432818313782a76\
     3a7075623a30316133313835632d353030302d373130322d383330342d303530363037303830393061656c61746572656c61\
     746572";
const LATER_IDENTITY: &str = "89015001a3185c50007102830405060708090a1b000001a3185c50005001a1a2a3a4a5a6a7a8a9aaabacadaeaf811adeadbe\
     ef81835002b1b2b3b4b5b6b7b8b9babbbcbdbebf5001a3185d3a607112931415161718191a656c61746572815001a3185d3a\
     607112931415161718191a821b000001a3185c50001b0102030405060708656c61746572";
const LATER_LEDGER: &str = "8b015001a3185c50007102830405060708090a830007656c617465721b000001a3185c638800821b01c9c3bc050607081b01\
     c9c38001020304861b1122334455667788190fa00118990000404040656c61746572";

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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

fn key() -> Key {
    let mut secret = [0; 32];
    for (byte, value) in secret.iter_mut().zip(0u8..) {
        *byte = value;
    }
    Key { id: 5, stage: Stage::Active, secret: secret.into() }
}

fn insertion() -> InsertionId {
    let mut id = [0; 16];
    id.iter_mut().zip(0x60..).for_each(|(byte, value)| *byte = value);
    InsertionId(id)
}

fn segments() -> Vec<(SegmentId, State)> {
    vec![(SegmentId(8_457), State::held(HourStamp(71_000), [(2, -7)])), (SegmentId(9), State::Removed)]
}

fn attributes() -> Vec<(String, Option<Value>)> {
    vec![("shoe_size".to_owned(), Some(Value::Integer(42))), ("vip".to_owned(), None)]
}

/// What the profile and its snapshot are of.
fn counted() -> Profile {
    let [facts @ .., _] = all_facts();
    Profile::of(&facts)
}

fn entity() -> Entity {
    Entity { ad: 70_000, ad_group: 3, campaign: 2, advertiser: 1 }
}

fn fact(n: u8, at: Millis, what: What) -> Fact {
    let received = NOW + u64::from(n) * 1_000;
    Fact { id: FactId::from_bytes([n; 16]), visitor: one(), received, at: received - at, what }
}

fn all_facts() -> [Fact; 8] {
    let id = AlternateId { kind: MEMBER, hash: alt(1, 0xa1) };
    let track = |name: &str, value, properties: Option<&str>| What::Track {
        name: name.to_owned(),
        value,
        properties: properties.map(str::to_owned),
    };
    [
        fact(1, 0, What::Page { session: session_one() }),
        fact(2, 0, What::Alias { id, also: vec![alt(2, 0xb1)], proven: true }),
        fact(3, 500, track(PURCHASE, Some(250_000_000), Some(r#"{"sku":"x"}"#))),
        fact(4, 0, track("signup", None, None)),
        fact(5, 0, What::Withdrawal),
        fact(6, 0, What::Action { insertion: insertion(), verb: Verb(1), view_type: ViewType(4), entity: entity() }),
        fact(7, 0, What::Segments { writes: segments() }),
        fact(8, 0, What::Attributes { writes: attributes() }),
    ]
}

/// Facts that say nothing of what the visitor did.
fn facts_about() -> [Fact; 6] {
    let id = AlternateId { kind: MEMBER, hash: alt(1, 0xa1) };
    let of_id = What::Erasure { scope: Scope::Person, id: Some(id), also: vec![alt(2, 0xb1)] };
    [
        fact(9, 0, What::Cancellation { id }),
        fact(10, 0, of_id),
        fact(11, 0, What::Erasure { scope: Scope::Visitor, id: None, also: Vec::new() }),
        fact(12, 0, What::Exposure { experiment: 70_000, arm: 2 }),
        fact(13, 0, What::Unit { campaign: 70_000, number: 300 }),
        fact(14, 0, What::Evidence { id, also: Vec::new(), weight: Weight(700), source: Source::Device }),
    ]
}

fn batch() -> FactBatch {
    let [page, _, _, _, withdrawal, ..] = all_facts();
    FactBatch { tenant: tenant(), facts: vec![page, withdrawal] }
}

fn snapshot() -> Snapshot {
    let version = |counter| Version { restore: 0, counter };
    let totals = Totals { pages: 4, sessions: 2, ..Totals::default() };
    let sibling = SubProfile::pack(version(6), &Content { totals, ..Content::default() });
    let own = counted().sub_profile(version(7), true);
    Snapshot {
        version: version(7),
        visitor: one(),
        unique: vec![alt(1, 0xa1), alt(2, 0xb1)],
        membership: Membership {
            epoch: Epoch(9),
            devices: 3,
            admits: [one(), two()].into(),
            cuts: [(VisitorId::mint(NOW, [0; 10]), Cut { at: NOW + 9_000, gone: true })].into(),
        },
        profiles: [(one(), own), (two(), sibling)].into(),
        best: None,
        truncated: true,
    }
}

fn stored() -> Stored {
    Stored::Snapshot(Box::new(snapshot()))
}

fn request() -> SyncRequest {
    SyncRequest {
        edge: "edge-1".to_owned(),
        batch: [0xee; 16],
        facts: vec![facts::encode(&batch())],
        applied: vec![17, 18],
        drain: 100,
        lost: 2,
        dead: 1,
        read: vec![Read { entry: 17, sha256: Some([0xdd; 32]) }, Read { entry: 18, sha256: None }],
    }
}

fn response() -> SyncResponse {
    let rejected = |batch, index, code: &str, message: &str| Rejected {
        batch,
        index,
        code: code.to_owned(),
        message: message.to_owned(),
    };
    let publish = |entry, key: &str, version, value: Option<&str>, due| Publish {
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
            publish(17, VKEY, Version { restore: 0, counter: 7 }, Some(TOMBSTONE), NOW + 6_000),
            publish(18, AKEY, Version { restore: 1, counter: 8 }, None, NOW + 7_000),
        ],
        pending: 3,
        catalogue: Some("c-42".to_owned()),
        verify: vec![Verify { entry: 19, key: VKEY.to_owned() }],
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
        highest: Version { restore: 0, counter: 7 },
        session: Some((session, NOW + 5_000)),
        pages: vec![
            Beyond { received: NOW + 1_000, short: 0x1122_3344_5566_7788, session: session_one() },
            Beyond { received: NOW + 5_000, short: 0x99, session },
        ],
        reserved: Vec::new(),
        exposed: Exposures::default(),
        units: Units::default(),
    }
}

fn reserving() -> Ledger {
    let placed = |hash, entity, view_type, minutes| Reservation {
        insertion: InsertionHash([hash; 6]),
        entity,
        view_type: ViewType(view_type),
        minute: Minute(Minute::at(NOW).0 + minutes),
    };
    let ad = Entity { ad: 70_000, ad_group: 3, campaign: 2, advertiser: 1 };
    let house = Entity::default();
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
    let about = [CANCELLATION, ERASURE, ERASURE_OF_ONE, EXPOSURE, UNIT, EVIDENCE];
    let all = all_facts().into_iter().zip(goldens).chain(facts_about().into_iter().zip(about));
    for (fact, golden) in all {
        let fact = &fact;
        assert_eq!(to_hex(&facts::encode_one(fact)), golden, "{fact:?}");
        assert_eq!(&facts::decode_one(&hex(golden)).unwrap(), fact);
    }
}

#[test]
fn a_batch_of_facts() {
    assert_eq!(to_hex(&facts::encode(&batch())), BATCH);
    assert_eq!(facts::decode(&hex(BATCH)).unwrap(), batch());
    let later = facts::decode(&hex(LATER_BATCH)).unwrap();
    let [page, alias, purchase, _, withdrawal, ..] = all_facts();
    assert_eq!(later, FactBatch { tenant: tenant(), facts: vec![page, alias, purchase, withdrawal] });
}

#[test]
fn a_stored_profile() {
    let mut expected = counted();
    assert_eq!(to_hex(&profile::encode(&expected)), PROFILE);
    let parts = expected.take_parts();
    assert_eq!(to_hex(&parts.events.pack()), EVENTS);
    assert_eq!(profile::events(&hex(EVENTS)).unwrap(), parts.events);
    let expected = expected.with_parts(Parts { events: Events::default(), ..parts });
    assert_eq!(profile::decode(&hex(PROFILE)).unwrap(), expected);
    assert_eq!(profile::decode(&hex(LATER_PROFILE)).unwrap(), expected);
}

#[test]
fn a_snapshot_and_a_tombstone() {
    assert_eq!(kv::encode_stored(VKEY, &stored()).unwrap(), SNAPSHOT);
    assert_eq!(kv::encode_stored(VKEY, &Stored::Tombstone).unwrap(), TOMBSTONE);
    assert_eq!(kv::decode_stored(VKEY, one(), SNAPSHOT.as_bytes()).unwrap(), stored());
    let Stored::Snapshot(mut later) = kv::decode_stored(VKEY, one(), LATER_SNAPSHOT.as_bytes()).unwrap() else {
        panic!("a snapshot")
    };
    // Sub-profiles stay as they came, with what a newer release added; what they say is the same.
    for (_, sub) in later.profiles.iter_mut() {
        *sub = SubProfile::pack(sub.version(), &sub.content().unwrap());
    }
    let best = Some(BestTime { utc_hour_of_week: 107, confidence: 80 });
    let mut held = Snapshot { best, ..snapshot() };
    for (_, sub) in held.profiles.iter_mut() {
        // It was written before a snapshot said when events were.
        *sub = SubProfile::pack(sub.version(), &Content { recent: Vec::new(), ..sub.content().unwrap() });
    }
    assert_eq!(*later, held);
    assert_eq!(kv::decode_stored(VKEY, one(), TOMBSTONE.as_bytes()).unwrap(), Stored::Tombstone);
}

#[test]
fn s4_08_attributes_of_a_fact_and_of_a_snapshot() {
    // A later release's write has more than name and value.
    let later = ATTRIBUTES.replace("8263766970f6", "8363766970f6656c61746572");
    assert_eq!(facts::decode_one(&hex(&later)).unwrap(), all_facts()[7]);
    let refused = |value: &str| facts::decode_one(&hex(&ATTRIBUTES.replace("420254", value))).err();
    // An integer cut, of two forms, of no kind; a text instead of bytes.
    assert_eq!(["4102", "4302d400", "420754"].map(refused), [Some(WireError::Range); 3]);
    assert_eq!(refused("620254"), Some(WireError::Malformed));
    let mut map = AttributeMap::default();
    map.write(Token(51), Stamp { at: NOW, source: 9 }, Some(Value::Integer(42)));
    map.write(Token(0), Stamp { at: NOW, source: 9 }, None);
    let totals = Totals { pages: 4, sessions: 2, ..Totals::default() };
    let content = Content { totals, segments: vec![1, 2], attributes: map.pack(), ..Content::default() };
    let sub = SubProfile::pack(Version::default(), &content);
    assert_eq!(to_hex(sub.packed()), ATTRIBUTED);
    assert_eq!((sub.content().unwrap(), sub.totals()), (content, totals));
    assert_eq!(sub.attributes().unwrap().to_map(), Some(map));
    // A reader of the release before knows nothing of the flag, and nothing of what lies behind.
    let mut before = sub.packed().to_vec();
    before.iter_mut().take(1).for_each(|flags| *flags &= !16);
    let before = SubProfile::from_packed(Version::default(), before.into());
    assert_eq!((before.totals(), before.segments().is_some()), (totals, sub.segments().is_some()));
}

#[test]
fn s1_09_a_model() {
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
    assert_eq!(to_hex(&wire_model::encode(&model)), golden);
    assert_eq!(wire_model::decode(&hex(&golden)), Ok(model));
}

#[test]
fn s1_09_a_models_value_in_the_kv() {
    let (key, published) = (model_key(&"pub".parse().unwrap()), Version { restore: 2, counter: 7 });
    let model = Model { bits: 11, trained_ms: 300, expires_ms: 1_000, ..Model::default() };
    let [golden, later] = MODEL_VALUE;
    assert_eq!(catalogue::encode_model(&key, published, &wire_model::encode(&model)), golden);
    for value in [golden, later] {
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
fn s4_06_exposures_of_a_snapshot() {
    let exposure = |arm, at, mixed| Exposure { arm, at, mixed };
    let exposures: Exposures =
        [(3, exposure(2, NOW, false)), (70_000, exposure(1, NOW + 1, true))].into_iter().collect();
    let totals = Totals { pages: 4, sessions: 2, ..Totals::default() };
    let content = Content { totals, exposures: exposures.pack(), ..Content::default() };
    let sub = SubProfile::pack(Version::default(), &content);
    assert_eq!(to_hex(sub.packed()), EXPOSED);
    assert_eq!((sub.content().unwrap(), sub.exposures()), (content.clone(), exposures.clone()));
    // Behind attributes; a snapshot of the release before has none.
    let both = SubProfile::pack(Version::default(), &Content { attributes: vec![0], ..content });
    assert_eq!(both.exposures(), exposures);
    assert!(SubProfile::from_packed(Version::default(), hex(ATTRIBUTED).into()).exposures().is_empty());
    // A reader of that release knows nothing of the flag, and nothing of what lies behind.
    let before = SubProfile::from_packed(Version::default(), hex(&EXPOSED.replacen("20", "00", 1)).into());
    assert_eq!((before.totals(), before.exposures()), (totals, Exposures::default()));
    // What is cut is none, and takes nothing else with it.
    for end in 5..sub.packed().len() {
        let cut = SubProfile::from_packed(Version::default(), sub.packed()[..end].to_vec().into());
        assert_eq!((cut.totals(), cut.exposures()), (totals, Exposures::default()));
    }
}

#[test]
fn s4_07_units_of_a_snapshot() {
    let units: Units = [(3, units::Unit { number: 5, at: NOW }), (70_000, units::Unit { number: 300, at: NOW + 1 })]
        .into_iter()
        .collect();
    let totals = Totals { pages: 4, sessions: 2, ..Totals::default() };
    let content = Content { totals, units: units.pack(), ..Content::default() };
    let sub = SubProfile::pack(Version::default(), &content);
    assert_eq!(to_hex(sub.packed()), GOT);
    assert_eq!((sub.content().unwrap(), sub.units()), (content.clone(), units.clone()));
    // Behind attributes and exposures.
    let exposures: Exposures = [(3, Exposure { arm: 2, at: NOW, mixed: false })].into_iter().collect();
    let all = Content { attributes: vec![0], exposures: exposures.pack(), ..content };
    let all = SubProfile::pack(Version::default(), &all);
    assert_eq!((all.units(), all.exposures()), (units, exposures));
    for end in 5..sub.packed().len() {
        let cut = SubProfile::from_packed(Version::default(), sub.packed()[..end].to_vec().into());
        assert_eq!((cut.totals(), cut.units()), (totals, Units::default()));
    }
}

#[test]
fn s4_05_when_events_were_of_a_snapshot() {
    let (now, mut events) = (Minute::at(NOW), Events::default());
    for (name, ago) in [(fact::PAGE, 0), (fact::PAGE, 0), (fact::PAGE, 3), (fact::PAGE, 50_000), (PURCHASE, 1_440)] {
        events.add(name, Minute(now.0 - ago));
    }
    let since = Minute(now.0 - 44_640);
    let totals = Totals { pages: 4, purchases: 1, ..Totals::default() };
    let content = Content { totals, recent: events.pack_recent(since), ..Content::default() };
    let sub = SubProfile::pack(Version::default(), &content);
    assert_eq!(to_hex(sub.packed()), RECENT);
    let often = |of: &SubProfile, name, minutes| of.within(name, Minute(now.0 - minutes), Minute(now.0 + 1));
    assert_eq!(sub.content(), Some(content.clone()));
    assert_eq!(
        [0, 3, 44_640].map(|minutes| often(&sub, fact::PAGE, minutes)),
        [2, 3, 3].map(|n| Some(Often::Exactly(n)))
    );
    assert_eq!(often(&sub, fact::PAGE, 60_000), Some(Often::AtLeast(3)));
    assert_eq!([1_439, 1_440].map(|minutes| often(&sub, PURCHASE, minutes)), [0, 1].map(|n| Some(Often::Exactly(n))));
    assert_eq!(often(&sub, "saved", 0), None);
    // Behind all others; a snapshot of the release before says nothing of it, and a reader of it passes over it.
    let units: Units = [(3, units::Unit { number: 5, at: NOW })].into_iter().collect();
    let all = Content { attributes: vec![0], units: units.pack(), ..content };
    let all = SubProfile::pack(Version::default(), &all);
    assert_eq!((all.units(), often(&all, fact::PAGE, 3)), (units, Some(Often::Exactly(3))));
    let before = SubProfile::from_packed(Version::default(), hex(GOT).into());
    assert_eq!(often(&before, fact::PAGE, 3), Some(Often::AtLeast(0)));
    let reader = SubProfile::from_packed(Version::default(), hex(&RECENT.replacen("8001", "00", 1)).into());
    assert_eq!((reader.totals(), reader.units()), (totals, Units::default()));
    for end in 6..sub.packed().len() {
        let cut = SubProfile::from_packed(Version::default(), sub.packed()[..end].to_vec().into());
        assert_eq!((cut.totals(), often(&cut, fact::PAGE, 3)), (totals, Some(Often::AtLeast(0))));
    }
}

#[test]
fn s4_07_what_an_object_of_a_limited_offer_stores_is_asked_and_answers() {
    let call = units::Call {
        tenant: tenant(),
        campaign: 300,
        limit: 50_000,
        range: 15,
        asked: 2,
        again: true,
        own: one(),
        members: vec![one(), two()],
    };
    let (given, first, second) =
        (Given { number: 300, holder: two() }, to_hex(one().as_bytes()), to_hex(two().as_bytes()));
    let golden = format!("0103707562ac02d086030f0201{first}02{first}{second}");
    assert_eq!(to_hex(&wire_units::encode_call(&call)), golden);
    assert_eq!(wire_units::decode_call(&hex(&golden)), Some(call.clone()));
    for (answer, golden) in [(None, "01".to_owned()), (Some(given), format!("01ac02{second}"))] {
        assert_eq!(to_hex(&wire_units::encode_answer(answer)), golden);
        assert_eq!(wire_units::decode_answer(&hex(&golden)), Some(answer));
    }
    let (one, two) = (one(), two());
    assert_eq!(wire_units::keys(&call), ["stock".to_owned(), one.to_string(), two.to_string()]);
    let (stock, rows) =
        (Stock { given: 7, empty: 100 }, Rows::from_iter([(one, Row::Asked), (two, Row::Given(given))]));
    let lines = format!("7 100\nasked\n300 {two}");
    assert_eq!(wire_units::decode_rows(&call, lines.as_bytes()), Some((stock, rows.clone())));
    assert_eq!(wire_units::decode_rows(&call, b""), Some((Stock::default(), Rows::new())));
    assert_eq!(wire_units::decode_rows(&call, b"7 100\n\n"), Some((stock, Rows::new())));
    let writes: Writes = rows.into_iter().map(|(visitor, row)| (visitor, Some(row))).collect();
    assert_eq!(wire_units::encode_rows(stock, &writes), format!("stock 7 100\n{one} asked\n{two} 300 {two}"));
    assert_eq!(wire_units::encode_rows(stock, &Writes::from_iter([(one, None)])), format!("stock 7 100\n{one} "));
    let forms = |bytes: &[u8]| wire_units::decode_call(bytes).is_none() && wire_units::decode_answer(bytes).is_none();
    for end in 0..golden.len() / 2 {
        assert!(end == 1 || forms(&hex(&golden[..2 * end])), "cut after {end}");
    }
    for bad in ["7", "7 x", "7 100\n300", "7 100\n300 nobody", "7 100\nAsked"] {
        assert_eq!(wire_units::decode_rows(&call, bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn s3_05_what_an_object_of_strict_caps_stores_is_asked_and_answers() {
    let entry = Entry { entity: entity(), minute: Minute(299), confirmed: true, keep: 1_440 };
    let insertion = InsertionHash([7; 6]);
    let object = Object {
        latest: Minute(300),
        epoch: Epoch(5),
        forward: Some(one()),
        told: true,
        entries: [(insertion, entry)].into_iter().collect(),
        full_until: Minute(0),
    };
    assert_eq!(to_hex(&wire_strict::encode_object(&object)), STRICT_OBJECT);
    assert_eq!(wire_strict::decode_object(&hex(STRICT_OBJECT)), Some(object));
    let window = Window { interval: 1, unit: Unit::Days };
    let claim = Claim {
        candidates: vec![Candidate {
            entity: entity(),
            caps: vec![StrictCap { level: Level::Campaign, limit: 3, window }],
        }],
        wanted: vec![Wanted { insertion, choices: vec![0] }],
        seen: vec![Seen { insertion: InsertionHash([8; 6]), entity: entity(), minute: Minute(299) }],
    };
    let links = Some(Links { epoch: Epoch(5), members: vec![one(), two()] });
    let claim = Call { to: two(), links, entries: Entries::new(), ask: Ask::Claim(claim) };
    let confirm = Call { to: two(), links: None, entries: Entries::new(), ask: Ask::Confirm(insertion) };
    for (call, golden) in [(claim, STRICT_CLAIM), (confirm, STRICT_CONFIRM)] {
        assert_eq!(to_hex(&wire_strict::encode_call(&tenant(), &call)), golden);
        assert_eq!(wire_strict::decode_call(&hex(golden)), Some((tenant(), call)));
    }
    let answer = Answer { granted: [(insertion, Entry { confirmed: false, ..entry })].into_iter().collect() };
    assert_eq!(to_hex(&wire_strict::encode_answer(&answer)), STRICT_ANSWER);
    assert_eq!(wire_strict::decode_answer(&hex(STRICT_ANSWER)), Some(answer));
    // Cut anywhere, longer, or of another form it is none of them.
    for golden in [STRICT_OBJECT, STRICT_CLAIM, STRICT_CONFIRM, STRICT_ANSWER].map(hex) {
        let none = |bytes: &[u8]| {
            wire_strict::decode_object(bytes).is_none()
                && wire_strict::decode_call(bytes).is_none()
                && wire_strict::decode_answer(bytes).is_none()
        };
        assert!((1..golden.len()).all(|end| none(&golden[..end])));
        assert!(none(&[golden.as_slice(), &[0]].concat()) && none(&[&[2], &golden[1..]].concat()));
    }
}

#[test]
fn a_catalogue_and_the_pointer_to_it() {
    let tenant = "pub".parse().unwrap();
    let (at, current) = (catalogue_key(&tenant, 3), pointer_key(&tenant));
    let digest: catalogue::Digest = std::array::from_fn(|i| 0xd0 + u8::try_from(i).unwrap());
    let pointer = catalogue::Pointer { published: Version { restore: 2, counter: 7 }, version: 3, digest };
    assert_eq!(catalogue::encode_pointer(&current, &pointer), POINTER);
    for value in [POINTER, LATER_POINTER] {
        assert_eq!(catalogue::decode_pointer(&current, value.as_bytes()), Ok(pointer));
    }
    let document = br#"{"ad":[]}"#;
    assert_eq!(catalogue::encode_document(&at, &digest, document).unwrap(), DOCUMENT);
    for value in [DOCUMENT, LATER_DOCUMENT] {
        assert_eq!(catalogue::decode_document(&at, &digest, value.as_bytes()).unwrap(), document.as_slice());
    }
    // Cut anywhere, or changed in one place, it is none.
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
fn s4_09_a_page_of_names() {
    let page = [("shoe_size".to_owned(), Kind::Integer), ("vip".to_owned(), Kind::Bool)];
    assert_eq!(kv::encode_names(CKEY, &page).unwrap(), NAMES);
    assert_eq!(kv::decode_names(CKEY, NAMES.as_bytes()).unwrap(), page);
    assert_eq!(kv::decode_names("c:pub:attributes:1", NAMES.as_bytes()), Err(WireError::Checksum));
    assert_eq!(kv::decode_names(CKEY, LOOKUP.as_bytes()), Err(WireError::UnknownForm));
    assert_eq!(kv::encode_names(CKEY, &[page[0].clone(), page[0].clone()]), Err(WireError::Range));
    // The longest page is read again, one longer is not written.
    let name = |n: usize| (format!("{n:a>64}", n = format!("_{n}")), Kind::Date);
    let full: Vec<_> = (0..limits::ATTRIBUTE_PAGE).map(name).collect();
    let value = kv::encode_names(CKEY, &full).unwrap();
    assert!((limits::KV_VALUE_CHARS - 2..=limits::KV_VALUE_CHARS).contains(&value.len()), "{}", value.len());
    assert_eq!(kv::decode_names(CKEY, value.as_bytes()).unwrap(), full);
    let over: Vec<_> = (0..=limits::ATTRIBUTE_PAGE).map(name).collect();
    assert_eq!(kv::encode_names(CKEY, &over), Err(WireError::Range));
}

#[test]
fn a_lookup() {
    assert_eq!(kv::encode_lookup(AKEY, &[two(), one()]).unwrap(), LOOKUP);
    for text in [LOOKUP, LATER_LOOKUP] {
        assert_eq!(kv::decode_lookup(AKEY, text.as_bytes()).unwrap(), [two(), one()]);
    }
}

#[test]
fn a_sync_and_its_answer() {
    assert_eq!(to_hex(&sync::encode_request(&request())), REQUEST);
    assert_eq!(to_hex(&sync::encode_response(&response())), RESPONSE);
    for text in [REQUEST, LATER_REQUEST] {
        assert_eq!(sync::decode_request(&hex(text)).unwrap(), request());
    }
    for text in [RESPONSE, LATER_RESPONSE] {
        assert_eq!(sync::decode_response(&hex(text)).unwrap(), response());
    }
    // Of the release before nothing was read back.
    assert_eq!(sync::decode_request(&hex(REQUEST_BEFORE)).unwrap(), SyncRequest { read: Vec::new(), ..request() });
    assert_eq!(
        sync::decode_response(&hex(RESPONSE_BEFORE)).unwrap(),
        SyncResponse { verify: Vec::new(), ..response() }
    );
}

#[test]
fn both_cookies() {
    assert_eq!(to_hex(&cookies::encode_identity(&identity())), IDENTITY_PAYLOAD);
    let without = IdentityCookie { login: None, ..identity() };
    assert_eq!(to_hex(&cookies::encode_identity(&without)), IDENTITY_WITHOUT_LOGIN);
    assert_eq!(cookies::decode_identity(&hex(IDENTITY_WITHOUT_LOGIN)).unwrap(), without);
    assert_eq!(to_hex(&cookies::encode_ledger(&ledger())), LEDGER);
    for text in [IDENTITY_PAYLOAD, LATER_IDENTITY] {
        assert_eq!(cookies::decode_identity(&hex(text)).unwrap(), identity());
    }
    for text in [LEDGER, LATER_LEDGER] {
        assert_eq!(cookies::decode_ledger(&hex(text)).unwrap(), ledger());
    }
    assert_eq!(to_hex(&cookies::encode_ledger(&reserving())), RESERVING);
    assert_eq!(cookies::decode_ledger(&hex(RESERVING)).unwrap(), reserving());
    // Experiment 3, arm 2, not mixed, the time.
    let exposed = [(3, Exposure { arm: 2, at: NOW, mixed: false })].into_iter().collect();
    let (exposing, text) = (Ledger { exposed, ..reserving() }, format!("89{}48030480a0f1c2b134", &RESERVING[2..]));
    assert_eq!(to_hex(&cookies::encode_ledger(&exposing)), text);
    assert_eq!(cookies::decode_ledger(&hex(&text)).unwrap(), exposing);
    // Campaign 3, number 5, the time; behind exposures, or behind none.
    let units: Units = [(3, units::Unit { number: 5, at: NOW })].into_iter().collect();
    let (had, none) = ("48030480a0f1c2b134", "40");
    for (ledger, exposed) in [(exposing, had), (reserving(), none)] {
        let text = format!("8a{}{exposed}48030580a0f1c2b134", &RESERVING[2..]);
        let ledger = Ledger { units: units.clone(), ..ledger };
        assert_eq!(to_hex(&cookies::encode_ledger(&ledger)), text);
        assert_eq!(cookies::decode_ledger(&hex(&text)).unwrap(), ledger);
    }
    let ring = KeyRing(vec![key()]);
    assert_eq!(cookie::seal(&ring, IDENTITY, &tenant(), &hex(IDENTITY_WITHOUT_LOGIN)).unwrap(), SEALED);
    let opened = cookie::open(&ring, IDENTITY, &tenant(), SEALED).unwrap();
    assert_eq!((opened.payload, opened.stale_key), (hex(IDENTITY_WITHOUT_LOGIN), false));
}

#[test]
fn hashes_and_macs() {
    let hashes = KeyRing(vec![key()]).hash_alternate(MEMBER, "123");
    assert_eq!(hashes.iter().map(AltHash::to_string).collect::<Vec<_>>(), [ALT123]);
    assert_eq!(sync_auth::sign(&key(), NOW, b"body"), SYNC_MAC);
    assert_eq!(FactId::of_message(one(), "m-1").to_string(), MESSAGE);
    assert_eq!(FactId::of_withdrawal(one()).to_string(), WITHDRAWAL_ID);
    assert_eq!(FactId::of_erasure(one()).to_string(), ERASURE_ID);
    assert_eq!(FactId::of_erasure(one()).receipt(), RECEIPT);
    assert_eq!(FactId::of_action(one(), insertion(), 1, 4, NOW).to_string(), ACTION_ID);
    assert_eq!(FactId::of_unit(one(), 300, 7).to_string(), UNIT_ID);
}

type Reads = fn(&[u8]) -> Option<WireError>;

/// Every form in CBOR with its decoder, and whether its first field is the number of the form.
fn forms() -> [(&'static str, Reads, bool); 14] {
    [
        (BATCH, |b| facts::decode(b).err(), true),
        (ALIAS, |b| facts::decode_one(b).err(), false),
        (ATTRIBUTES, |b| facts::decode_one(b).err(), false),
        (CANCELLATION, |b| facts::decode_one(b).err(), false),
        (ERASURE, |b| facts::decode_one(b).err(), false),
        (EXPOSURE, |b| facts::decode_one(b).err(), false),
        (UNIT, |b| facts::decode_one(b).err(), false),
        (EVIDENCE, |b| facts::decode_one(b).err(), false),
        (PROFILE, |b| profile::decode(b).err(), true),
        (REQUEST, |b| sync::decode_request(b).err(), true),
        (RESPONSE, |b| sync::decode_response(b).err(), true),
        (IDENTITY_PAYLOAD, |b| cookies::decode_identity(b).err(), true),
        (LEDGER, |b| cookies::decode_ledger(b).err(), true),
        (RESERVING, |b| cookies::decode_ledger(b).err(), true),
    ]
}

#[test]
fn another_form_number_is_refused_by_its_name() {
    for (golden, reads, numbered) in forms().into_iter().filter(|(_, _, numbered)| *numbered) {
        let mut bytes = hex(golden);
        assert_eq!((numbered, bytes[1]), (true, 1));
        bytes[1] = 2;
        assert_eq!(reads(&bytes), Some(WireError::UnknownForm), "{golden}");
    }
    let mut inner = frame::inside(SNAPSHOT);
    inner[1] = 2;
    let value = frame::framed("s1", VKEY, &inner);
    assert_eq!(kv::decode_stored(VKEY, one(), value.as_bytes()), Err(WireError::UnknownForm));
    let value = frame::framed("s2", VKEY, &frame::inside(SNAPSHOT));
    assert_eq!(kv::decode_stored(VKEY, one(), value.as_bytes()), Err(WireError::UnknownForm));
    let value = frame::framed("l2", AKEY, &frame::inside(LOOKUP));
    assert_eq!(kv::decode_lookup(AKEY, value.as_bytes()), Err(WireError::UnknownForm));
}

#[test]
fn every_cut_and_every_byte_too_many_is_refused() {
    for (golden, reads, _) in forms() {
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
    for (golden, reads, _) in forms() {
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
        kv::encode_stored(VKEY, &Stored::Snapshot(Box::new(changed))).err()
    };
    assert_eq!(refused(&|_| {}), None);
    assert_eq!(refused(&|s| s.unique = vec![alt(1, 1); limits::KEYS_A_PURPOSE + 1]), Some(WireError::Range));
    assert_eq!(refused(&|s| s.profiles.retain(|v, _| *v != one())), Some(WireError::Range));
    assert_eq!(refused(&|s| s.membership.admits.retain(|v| *v != one())), Some(WireError::Range));
    assert_eq!(refused(&|s| s.membership.admits.extend(many(60))), Some(WireError::Range));
    let cut = Cut { at: NOW, gone: false };
    assert_eq!(refused(&|s| s.membership.cuts.extend(many(65).map(|v| (v, cut)))), Some(WireError::Range));
    let visitors: Vec<VisitorId> = many(4).collect();
    assert_eq!(kv::encode_lookup(AKEY, &visitors), Err(WireError::Range));
    // The largest that may be written is read again.
    let mut largest = snapshot();
    largest.membership.admits.extend(many(49));
    let own = largest.profiles[&one()].clone();
    largest.profiles.extend(many(49).map(|v| (v, own.clone())));
    let largest = Stored::Snapshot(Box::new(largest));
    let text = kv::encode_stored(VKEY, &largest).unwrap();
    assert_eq!(kv::decode_stored(VKEY, one(), text.as_bytes()).unwrap(), largest);
}
