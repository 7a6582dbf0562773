//! The ads of the market: 50 advertisers of two campaigns of two ads each, paid for by click, by purchase and by impression.

use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::ids::{SnapshotVersion, TenantId};
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::wire::catalogue as wire;
use causeway_shared::wire::catalogue::CataloguePointer;
use causeway_shared::wire::flat;
use causeway_shared::wire::kv_keys;
use serde_json::{Value, json};

use crate::dice::Dice;

/// Advertisers.
pub const ADVERTISERS: usize = 50;
/// Ads in all.
pub const ADS: usize = ADVERTISERS * 4;

/// What is paid for, in the currency.
#[derive(Debug, Clone, Copy)]
pub enum Paid {
    /// A click.
    Click(f64),
    /// A purchase after a click.
    Purchase(f64),
    /// An impression.
    Impression(f64),
}

/// What nobody knows of an ad.
#[derive(Debug, Clone, Copy)]
pub struct Ad {
    /// What is paid for.
    pub paid: Paid,
    /// How much more often it is clicked than others.
    pub appeal: f64,
    /// How much more often who clicked it buys.
    pub closing: f64,
}

/// All ads, by their codes from 1 on: the advertiser of a code is [`advertiser`].
#[must_use]
pub fn draw(dice: &mut Dice) -> Vec<Ad> {
    let mut ads = Vec::with_capacity(ADS);
    for campaign in 0..ADVERTISERS * 2 {
        let paid = match campaign % 10 {
            0..7 => Paid::Click(0.1 + 0.5 * dice.unit()),
            7 | 8 => Paid::Purchase(2.0 + 8.0 * dice.unit()),
            _ => Paid::Impression((0.3 + 0.7 * dice.unit()) / 1_000.0),
        };
        for _ in 0..2 {
            ads.push(Ad { paid, appeal: dice.lognormal(0.4), closing: dice.lognormal(0.4) });
        }
    }
    ads
}

/// The advertiser of an ad's code, from 0 on.
#[must_use]
pub fn advertiser(code: usize) -> usize {
    code.saturating_sub(1) / 4
}

/// The catalogue. With a `shuffle` nothing is bid and the order of choice is drawn: an ad at random of those that may be
/// placed is that of a drawn order which comes first.
#[must_use]
pub fn catalogue(ads: &[Ad], mut shuffle: Option<&mut Dice>) -> Value {
    let cap = json!([{ "action": "impression", "limit": 4, "window": { "interval": 1, "unit": "days" } }]);
    let micros = |amount: f64| json!((amount * 1_000_000.0).round());
    let whole = |value: Value| json!(value.as_f64().unwrap_or_default().round().max(0.0) as i64);
    let mut campaigns = Vec::new();
    for (place, ad) in ads.iter().enumerate().step_by(2) {
        let code = place / 2 + 1;
        let bid = match ad.paid {
            Paid::Click(amount) => json!({ "cpc_micros": whole(micros(amount)) }),
            Paid::Purchase(amount) => json!({ "cpa_micros": whole(micros(amount)) }),
            Paid::Impression(amount) => json!({ "cpm_micros": whole(micros(amount * 1_000.0)) }),
        };
        let bid = if shuffle.is_some() { Value::Null } else { bid };
        let advertiser = format!("v{}", advertiser(place + 1) + 1);
        let mut row = json!({ "id": format!("c{code}"), "code": code, "advertiser": advertiser, "caps": cap });
        if let (Some(fields), false) = (row.as_object_mut(), bid.is_null()) {
            fields.insert("bid".to_owned(), bid);
        }
        campaigns.push(row);
    }
    let groups = (1..=ads.len() / 2).map(|n| json!({ "id": format!("g{n}"), "code": n, "campaign": format!("c{n}") }));
    let ad = |place: usize| {
        let weight = shuffle.as_deref_mut().map_or(1, |dice| dice.below(1_000_000));
        json!({ "id": format!("a{}", place + 1), "code": place + 1, "ad_group": format!("g{}", place / 2 + 1),
            "creative": {}, "landing": "https://shop.example/", "weight": weight })
    };
    json!({
        "advertiser": (1..=ADVERTISERS).map(|n| json!({ "id": format!("v{n}"), "code": n })).collect::<Value>(),
        "campaign": campaigns, "ad_group": groups.collect::<Value>(), "ad": (0..ads.len()).map(ad).collect::<Value>(),
    })
}

/// The values that put a catalogue in force at an edge by itself: the pointer's and the version's.
///
/// # Errors
/// Why it cannot be.
pub fn in_force(tenant: &TenantId, document: Value) -> Result<[(String, String); 2], String> {
    let catalogue: Catalogue = serde_json::from_value(document).map_err(|e| e.to_string())?;
    let flat = catalogue.flat(&NameDictionary::default(), &Vocabulary::default()).map_err(|all| format!("{all:?}"))?;
    let (pointer, version, digest) = (kv_keys::pointer_key(tenant), kv_keys::catalogue_key(tenant, 1), [7; 16]);
    let published = SnapshotVersion { restore: 0, counter: 1 };
    let value = wire::encode_document(&version, &digest, &flat::encode_catalogue(&flat)).map_err(|e| e.to_string())?;
    let pointed = wire::encode_pointer(&pointer, &CataloguePointer { published, version: 1, digest });
    Ok([(pointer, pointed), (version, value)])
}
