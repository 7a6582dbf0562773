//! Flips a bit in every byte of a snapshot's parts, with a valid checksum: each result is refused or harmless to every
//! reader.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use causeway_shared::base::ids::{Epoch, FactId, InsertionId, SessionId, SnapshotVersion, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::actions::{
    ActionCounter, ActionDimension, ActionQuestion, ActionType, AdAction, AdEntity, DimensionFilter, InsertionHash,
    ViewType, ViewTypes, group_actions,
};
use causeway_shared::facts::attributes::{AttributeValue, NameToken};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{KnownVisitor, Profile, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::kv;
use causeway_shared::wire::kv_keys::snapshot_key;

const NOW: u64 = 1_800_000_000_000;

fn visitor() -> VisitorId {
    VisitorId::mint(NOW, [7; 10])
}

fn fact(n: u8, what: FactKind) -> Fact {
    let received = NOW + u64::from(n) * 3_600_000;
    Fact { position: 0, id: FactId::from_bytes([n; 16]), visitor: visitor(), received, at: received, what }
}

/// Pages, actions of several days, segments with and without attributes, and attributes of every kind.
fn whole() -> SubProfile {
    let mut profile = Profile::default();
    for n in 0..60u8 {
        let code = u32::from(n % 7);
        let entity = AdEntity { ad: code, ad_group: code / 2, campaign: code / 4, advertiser: 1 };
        let (action_type, view_type) = (ActionType(1 + n % 2), ViewType(n % 3));
        profile.fold(&fact(n, FactKind::Action { insertion: InsertionId([n; 16]), action_type, view_type, entity }));
    }
    profile.fold(&fact(61, FactKind::Page { session: SessionId(9) }));
    let state = |n: u32| match n % 3 {
        0 => SegmentState::Removed,
        1 => SegmentState::held(HourStamp(70_000 + n), []),
        _ => SegmentState::held(HourStamp(71_000), [(1, -5), (2, 1 << 30)]),
    };
    let writes = (0..40).map(|n| (SegmentId(n * 301), state(n))).collect();
    profile.fold(&fact(62, FactKind::Segments { writes }));
    let values = [r"true", r"-7", r"2.5", r#""Oslo""#, r#""2001-02-03""#, r#"["a","b"]"#];
    let value = |text: &&str| AttributeValue::from_json(&serde_json::from_str(text).unwrap()).unwrap();
    let writes = (0u16..).zip(values.iter().map(value)).map(|(n, value)| (NameToken(n * 90), Some(value)));
    let said = fact(63, FactKind::Attributes { writes: Vec::new() });
    profile.assign(&said, writes.chain([(NameToken(7), None)]));
    profile.sub_profile(SnapshotVersion { restore: 0, counter: 5 }, true)
}

/// Calls every read method.
fn read(sub: &SubProfile) {
    let _ = (sub.totals(), sub.names(), sub.content(), sub.is_named(), sub.holds(NOW, 1));
    if let Some(segments) = sub.segments() {
        assert!(segments.iter().count() <= limits::SEGMENTS);
        let _ = segments.to_map();
    }
    if let Some(attributes) = sub.attributes() {
        assert!(attributes.iter().count() <= limits::ATTRIBUTES);
        let _ = (attributes.to_map(), attributes.get(NameToken(90)));
    }
    if let Some(actions) = sub.actions() {
        assert!(actions.iter().count() <= limits::ACTIONS);
        let question = ActionQuestion {
            action_types: &[ActionType(1)],
            view_types: ViewTypes::All,
            from: Minute(0),
            to: Minute(u32::MAX),
        };
        let entity = |ad| AdEntity { ad, ad_group: ad, campaign: ad, advertiser: ad };
        let counter = ActionCounter::new((0..8).map(entity));
        let most = u32::try_from(actions.len()).unwrap();
        assert!(counter.count(&[actions], &question).flatten().all(|count| count <= most));
        assert!(counter.count(&[actions, actions], &question).flatten().all(|count| count <= most));
        let _ = group_actions(
            &[actions],
            &DimensionFilter::default(),
            &[ActionDimension::ActionType, ActionDimension::ViewType],
            Minute(0),
            Minute(9),
        );
    }
    let _ = KnownVisitor::from_sub(sub.clone()).join(KnownVisitor::from_sub(whole())).totals();
}

fn snapshot(sub: SubProfile) -> StoredValue {
    let membership = Membership { epoch: Epoch(3), devices: 1, admits: [visitor()].into(), ..Membership::default() };
    let version = sub.version();
    let profiles = [(visitor(), sub)].into_iter().collect();
    let unique = Vec::new();
    StoredValue::Snapshot(Box::new(Snapshot { version, visitor: visitor(), unique, membership, profiles, best: None }))
}

#[test]
fn a_bit_flipped_in_every_byte_of_a_profile_is_rejected_or_harmless() {
    let good = whole();
    read(&good);
    assert!(good.actions().is_some() && good.segments().is_some() && good.attributes().is_some());
    let key = snapshot_key(&"pub".parse().unwrap(), visitor());
    let mut accepted = 0;
    for bit in 0..good.packed().len() * 8 {
        let mut bytes = good.packed().to_vec();
        bytes.iter_mut().skip(bit / 8).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
        // A snapshot with a valid checksum: the damage happened before it was encoded.
        let stored = snapshot(SubProfile::from_packed(good.version(), bytes.into()));
        let value = kv::encode_stored(&key, &stored).unwrap();
        if let Ok(StoredValue::Snapshot(found)) = kv::decode_stored(&key, visitor(), value.as_bytes()) {
            found.profiles.values().for_each(read);
            accepted += 1;
        }
    }
    assert!(accepted > 0, "the profile is read where it lies, not when the snapshot is");
}

#[test]
fn a_profile_cut_anywhere_is_rejected_or_harmless() {
    let good = whole();
    for end in 0..good.packed().len() {
        let bytes = good.packed().get(..end).unwrap_or_default().to_vec();
        let cut = SubProfile::from_packed(good.version(), bytes.into());
        assert_eq!(cut.content(), None, "cut at {end}");
        read(&cut);
    }
}

#[test]
fn the_insertions_of_a_profile_are_told_apart() {
    let actions: Vec<AdAction> = whole().actions().unwrap().iter().collect();
    let insertions: std::collections::BTreeSet<InsertionHash> = actions.iter().map(|a| a.insertion).collect();
    assert_eq!((actions.len(), insertions.len()), (60, 60));
}
