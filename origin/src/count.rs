//! Counts: how often a person, or one visitor, acted on ads, groups, campaigns or advertisers (S3.7). What an
//! acknowledged sync brought is in the store, and so is counted at once (S3.10).

use std::collections::BTreeMap;

use causeway_shared::actions::{
    Counter, Entity, Level, PackedActions, Question, Unit, Verb, ViewType, ViewTypes, Window,
};
use causeway_shared::ids::{Millis, VisitorId};
use causeway_shared::limits;
use causeway_shared::time::Minute;
use rusqlite::Connection;
use serde::Deserialize;

use crate::read;
use crate::store::StoreError;
use crate::tenants::Known;

/// Ids asked for at once.
const IDS: usize = 10_000;

/// What is asked, as the admin side takes it.
#[derive(Debug, Clone, Deserialize)]
pub struct Ask {
    /// Whose actions.
    pub visitor: String,
    /// Verbs, by name.
    pub actions: Vec<String>,
    /// View types, by name; all when left out.
    pub view_types: Option<Vec<String>>,
    /// Over which time.
    pub last: Last,
    /// Of which level the ids are.
    pub level: LevelName,
    /// Codes of ads, ad groups, campaigns or advertisers.
    pub ids: Vec<u32>,
    /// Whether the visitor alone is counted, not its person.
    #[serde(default)]
    pub own: bool,
}

/// A window, or two times in milliseconds since the Unix epoch, counted in whole minutes.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub enum Last {
    /// The last buckets of a unit, the running one among them.
    Window {
        /// How many, 1 or more.
        interval: u32,
        /// Their size.
        unit: UnitName,
    },
    /// From a time to before another.
    Range {
        /// From.
        from_ms: Millis,
        /// To, not itself counted.
        to_ms: Millis,
    },
}

/// Names of units.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitName {
    /// Minutes.
    Minutes,
    /// Hours of UTC.
    Hours,
    /// Days of UTC.
    Days,
}

/// Names of levels.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LevelName {
    /// Ads.
    Ad,
    /// Ad groups.
    AdGroup,
    /// Campaigns.
    Campaign,
    /// Advertisers.
    Advertiser,
}

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A field is not of its form: which, and what is wrong with it.
    #[error("{1}")]
    Field(&'static str, String),
    /// No fact of the visitor ever came.
    #[error("no fact of that visitor ever came")]
    Unknown,
}

/// The count of each id.
///
/// # Errors
/// [`CountError`].
pub fn counts(conn: &Connection, tenant: &Known, ask: &Ask, now: Millis) -> Result<BTreeMap<u32, u32>, CountError> {
    let field = |name, message: &str| CountError::Field(name, message.to_owned());
    let visitor: VisitorId =
        ask.visitor.parse().map_err(|_| field("visitor", "a visitor id is a UUID of version 7"))?;
    if ask.ids.len() > IDS {
        return Err(field("ids", &format!("{IDS} ids at most")));
    }
    let words = &tenant.config.vocabulary;
    let verbs: Option<Vec<Verb>> = ask.actions.iter().map(|name| words.verb(name)).collect();
    let verbs = verbs.ok_or_else(|| field("actions", "the tenant's catalogue has no verb of one of these names"))?;
    let types: Option<Vec<ViewType>> = ask.view_types.iter().flatten().map(|name| words.view_type(name)).collect();
    let types = types.ok_or_else(|| field("view_types", "the catalogue has no view type of one of these names"))?;
    let (from, to) = ask.last.range(now).ok_or_else(|| field("last", "an interval is 1 or more"))?;
    let packed = actions(conn, tenant, visitor, ask.own)?;
    let read: Vec<PackedActions<'_>> = packed.iter().filter_map(|bytes| PackedActions::read(bytes)).collect();
    let view_types = if ask.view_types.is_some() { ViewTypes::Only(&types) } else { ViewTypes::All };
    let question = Question { verbs: &verbs, view_types, from, to };
    let level = ask.level.level();
    let candidate = |id: &u32| Entity { ad: *id, ad_group: *id, campaign: *id, advertiser: *id };
    let mut counter = Counter::new(ask.ids.iter().map(candidate));
    let counted = counter.count(&read, &question).map(|counts| counts.get(level as usize).copied().unwrap_or_default());
    Ok(ask.ids.iter().copied().zip(counted).collect())
}

/// The packed actions of the visitor, or of each of its person's.
fn actions(conn: &Connection, tenant: &Known, visitor: VisitorId, own: bool) -> Result<Vec<Vec<u8>>, CountError> {
    let found = read::visitor(conn, tenant.no, visitor)?.ok_or(CountError::Unknown)?;
    if own {
        return Ok(vec![found.profile.actions().pack()]);
    }
    let members = read::members(conn, found.person, limits::PERSON_VISITORS)?;
    Ok(members.iter().map(|member| member.profile.actions().pack()).collect())
}

impl Last {
    fn range(self, now: Millis) -> Option<(Minute, Minute)> {
        match self {
            Self::Window { interval: 0, .. } => None,
            Self::Window { interval, unit } => Some(Window { interval, unit: unit.unit() }.range(Minute::at(now))),
            Self::Range { from_ms, to_ms } => Some((Minute::at(from_ms), Minute::at(to_ms))),
        }
    }
}

impl UnitName {
    fn unit(self) -> Unit {
        match self {
            Self::Minutes => Unit::Minutes,
            Self::Hours => Unit::Hours,
            Self::Days => Unit::Days,
        }
    }
}

impl LevelName {
    fn level(self) -> Level {
        match self {
            Self::Ad => Level::Ad,
            Self::AdGroup => Level::AdGroup,
            Self::Campaign => Level::Campaign,
            Self::Advertiser => Level::Advertiser,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, impression, visitor};

    fn ask(of: VisitorId, more: &str) -> Ask {
        let text = format!(
            r#"{{"visitor": "{of}", "actions": ["impression"], "last": {{"interval": 7, "unit": "days"}}, "level": "campaign", "ids": [2, 9]{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn s3_10_what_is_acknowledged_is_counted_over_the_person() {
        let mut origin = Origin::new();
        let (a, b) = (visitor(1), visitor(2));
        let facts = [
            impression(a, 1, NOW),
            impression(a, 2, NOW),
            impression(b, 3, NOW),
            origin.login(a, 10, NOW, "ann"),
            origin.login(b, 11, NOW, "ann"),
        ];
        assert_eq!(origin.send("demo", &facts).accepted, 5);
        let known = origin.rules.tenants.by_name("demo").unwrap().clone();
        let count = |more: &str| counts(&origin.conn, &known, &ask(a, more), NOW).unwrap();
        assert_eq!(count(""), BTreeMap::from([(2, 3), (9, 0)]));
        assert_eq!(count(r#", "own": true"#), BTreeMap::from([(2, 2), (9, 0)]));
        assert_eq!(count(r#", "view_types": []"#), BTreeMap::from([(2, 0), (9, 0)]));
    }

    #[test]
    fn what_is_not_of_its_form_is_named() {
        let origin = Origin::new();
        let known = origin.rules.tenants.by_name("demo").unwrap().clone();
        let field = |ask: Ask| match counts(&origin.conn, &known, &ask, NOW) {
            Err(CountError::Field(name, _)) => name,
            Err(CountError::Unknown) => "unknown",
            _ => "none",
        };
        let good = || ask(visitor(1), "");
        assert_eq!(field(good()), "unknown");
        assert_eq!(field(Ask { visitor: "x".to_owned(), ..good() }), "visitor");
        assert_eq!(field(Ask { actions: vec!["seen".to_owned()], ..good() }), "actions");
        assert_eq!(field(Ask { view_types: Some(vec!["x".to_owned()]), ..good() }), "view_types");
        assert_eq!(field(Ask { last: Last::Window { interval: 0, unit: UnitName::Days }, ..good() }), "last");
        assert_eq!(field(Ask { ids: vec![1; IDS + 1], ..good() }), "ids");
    }
}
