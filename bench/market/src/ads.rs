//! The ads of the market: 50 advertisers with two campaigns of two ads each, paid by click, by purchase or by
//! impression.

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

/// Number of advertisers.
pub const ADVERTISERS: usize = 50;
/// Number of ads.
pub const ADS: usize = ADVERTISERS * 4;

/// The price of a paid action, in units of the currency.
#[derive(Debug, Clone, Copy)]
pub enum Paid {
    /// Price of a click.
    Click(f64),
    /// Price of a purchase after a click.
    Purchase(f64),
    /// Price of an impression.
    Impression(f64),
}

/// The hidden properties of an ad, which the product does not know.
#[derive(Debug, Clone, Copy)]
pub struct Ad {
    /// The paid action and its price.
    pub paid: Paid,
    /// Factor of the ad on the click rate.
    pub appeal: f64,
    /// Factor of the ad on the purchase rate after a click.
    pub closing: f64,
}

/// All ads in the order of their codes, which begin with 1; [`advertiser`] is the advertiser of a code.
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

/// The index of the advertiser of an ad's code, from 0.
#[must_use]
pub fn advertiser(code: usize) -> usize {
    code.saturating_sub(1) / 4
}

/// The catalogue. With a `shuffle` there are no bids and the weights are a random order, so that the choice is the
/// first eligible ad of that order, which is a random eligible ad.
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

/// The KV values that make a catalogue the current one of an edge without an origin: the pointer and the version.
///
/// # Errors
/// The reason why the catalogue is refused.
pub fn in_force(tenant: &TenantId, document: Value) -> Result<[(String, String); 2], String> {
    let catalogue: Catalogue = serde_json::from_value(document).map_err(|e| e.to_string())?;
    let flat = catalogue.flat(&NameDictionary::default(), &Vocabulary::default()).map_err(|all| format!("{all:?}"))?;
    let (pointer, version, digest) = (kv_keys::pointer_key(tenant), kv_keys::catalogue_key(tenant, 1), [7; 16]);
    let published = SnapshotVersion { restore: 0, counter: 1 };
    let value = wire::encode_document(&version, &digest, &flat::encode_catalogue(&flat)).map_err(|e| e.to_string())?;
    let pointed = wire::encode_pointer(&pointer, &CataloguePointer { published, version: 1, digest });
    Ok([(pointer, pointed), (version, value)])
}
