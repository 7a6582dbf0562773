//! Counts of a person's, or one visitor's, actions on ads, ad groups, campaigns or advertisers. Facts of acknowledged
//! syncs are counted at once, because reads join the store with the backlog.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::{
    self, ActionCounter, ActionQuestion, ActionType, AdEntity, AdLevel, DimensionFilter, TimeWindow, ViewType,
    ViewTypes, WindowUnit, group_actions,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::campaigns::catalogue;
use crate::profiles::buckets::packed_actions;
use crate::store::StoreError;
use crate::store::tenants::{TenantContext, no_word};
use crate::views::read::{self, ActionParts, StoreView};

/// Most ids in one request.
const IDS: usize = 10_000;

/// A question for counts of actions by id.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CountRequest {
    /// Visitor whose person is counted.
    #[schema(format = "uuid")]
    pub visitor: String,
    /// Names of action types.
    pub actions: Vec<String>,
    /// Names of view types. Default: all.
    pub view_types: Option<Vec<String>>,
    /// Window of time.
    pub last: CountWindow,
    /// Level of the ids.
    pub level: LevelName,
    /// Ads, ad groups, campaigns or advertisers.
    #[schema(max_items = 10000)]
    pub ids: Vec<EntityName>,
    /// Count the visitor alone and not its person.
    #[serde(default)]
    pub own: bool,
}

/// An entity, by its code or by its id in the current or an earlier catalogue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub enum EntityName {
    /// Code of the entity.
    Code(u32),
    /// Id of the entity.
    Id(String),
}

/// A window of time: the newest buckets of a unit, or two times in whole minutes.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, untagged)]
pub enum CountWindow {
    /// The newest buckets of a unit, with the current one.
    Window {
        /// Number of buckets.
        #[schema(minimum = 1)]
        interval: u32,
        /// Size of a bucket.
        unit: UnitName,
    },
    /// A span of time.
    Range {
        /// Start.
        #[schema(value_type = u64)]
        from_ms: Millis,
        /// End, which is not part of the span.
        #[schema(value_type = u64)]
        to_ms: Millis,
    },
}

/// A unit of time.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnitName {
    /// Minutes.
    Minutes,
    /// Hours in UTC.
    Hours,
    /// Days in UTC.
    Days,
}

/// A level of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, ToSchema)]
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

/// Reason why a count failed.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A field is invalid: its name and the problem.
    #[error("{1}")]
    Field(&'static str, String),
    /// No fact of the visitor was received.
    #[error("visitor not found: no fact of it was received")]
    Unknown,
}

/// Counts the actions on each id.
///
/// # Errors
/// [`CountError`].
pub fn count_actions(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    ask: &CountRequest,
    now: Millis,
) -> Result<BTreeMap<EntityName, u32>, CountError> {
    let visitor = visitor_of(&ask.visitor)?;
    if ask.ids.len() > IDS {
        return Err(field_error("ids", &format!("too many ids: {IDS} at most")));
    }
    let words = &tenant.config.vocabulary;
    let action_types: Option<Vec<ActionType>> = ask.actions.iter().map(|name| words.action_type(name)).collect();
    let action_types = action_types.ok_or_else(|| field_error("actions", &no_word("action_type")))?;
    let types: Option<Vec<ViewType>> = ask.view_types.iter().flatten().map(|name| words.view_type(name)).collect();
    let types = types.ok_or_else(|| field_error("view_types", &no_word("view_type")))?;
    let (from, to) = ask.last.range(now).ok_or_else(|| field_error("last", "invalid interval: expected 1 or more"))?;
    let actions = actions_of(view, tenant, visitor, ask.own, from, to)?;
    let read = actions.parts.iter().map(|bytes| packed_actions(bytes)).collect::<Result<Vec<_>, _>>()?;
    let view_types = if ask.view_types.is_some() { ViewTypes::Only(&types) } else { ViewTypes::All };
    let question = ActionQuestion { action_types: &action_types, view_types, from, to };
    let level = ask.level.level();
    let codes = codes_of(view, tenant, ask.level, &ask.ids)?;
    let candidate = |id: &u32| AdEntity { ad: *id, ad_group: *id, campaign: *id, advertiser: *id };
    let counter = ActionCounter::new(codes.iter().map(candidate));
    let at = |counts: actions::Counts| counts.get(level as usize).copied().unwrap_or_default();
    let counted: Vec<u32> = if actions.disjoint {
        counter.count_disjoint(&read, &question).map(at).collect()
    } else {
        counter.count(&read, &question).map(at).collect()
    };
    Ok(ask.ids.iter().cloned().zip(counted).collect())
}

/// Codes of entities of one level.
fn codes_of<'a>(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    level: LevelName,
    names: impl IntoIterator<Item = &'a EntityName>,
) -> Result<Vec<u32>, CountError> {
    let unknown =
        || field_error("ids", "unknown id: no version of the tenant's catalogue has one of these ids at that level");
    let code = |name: &EntityName| match name {
        EntityName::Code(code) => Ok(*code),
        EntityName::Id(id) => catalogue::code(view.conn, tenant.no, level.name(), id)?.ok_or_else(unknown),
    };
    names.into_iter().map(code).collect()
}

/// A question for counts of actions by group.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRequest {
    /// Visitor whose person is counted.
    #[schema(format = "uuid")]
    pub visitor: String,
    /// Names of action types. Default: all.
    pub actions: Option<Vec<String>>,
    /// Names of view types. Default: all.
    pub view_types: Option<Vec<String>>,
    /// Entities by level: an action counts if its entity of each named level is one of these.
    #[serde(default)]
    #[schema(value_type = BTreeMap<LevelName, Vec<EntityName>>)]
    pub ids: BTreeMap<LevelName, BTreeSet<EntityName>>,
    /// Dimensions of the groups. Default: none, which gives one sum.
    #[serde(default)]
    #[schema(max_items = 6, value_type = Vec<String>, example = json!(["campaign", "action"]))]
    pub by: Vec<DimensionName>,
    /// Window of time.
    pub last: CountWindow,
    /// Count the visitor alone and not its person.
    #[serde(default)]
    pub own: bool,
}

/// Dimension of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DimensionName {
    /// Action type.
    Action,
    /// View type.
    ViewType,
    /// Codes of a level.
    #[serde(untagged)]
    Level(LevelName),
}

/// A group of actions with its count. It has a field for each dimension of the question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct GroupRow {
    /// Action type, by name; its code where the vocabulary has no name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub action: Option<EntityName>,
    /// Code of the view type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub view_type: Option<u32>,
    /// Code of the ad.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ad: Option<u32>,
    /// Code of the ad group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ad_group: Option<u32>,
    /// Code of the campaign.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub campaign: Option<u32>,
    /// Code of the advertiser.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub advertiser: Option<u32>,
    /// Number of the actions.
    pub count: u64,
}

/// The groups with their counts, in the order of their codes. Action types are named; view types and entities are
/// codes.
///
/// # Errors
/// [`CountError`].
pub fn list_groups(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    ask: &GroupRequest,
    now: Millis,
) -> Result<Vec<GroupRow>, CountError> {
    let visitor = visitor_of(&ask.visitor)?;
    let words = &tenant.config.vocabulary;
    let mut filter = DimensionFilter::default();
    if let Some(names) = &ask.actions {
        let codes = filter_codes(names, ("actions", "action_type"), |name| {
            words.action_type(name).map(|action_type| action_type.0)
        })?;
        filter.0.push((actions::ActionDimension::ActionType, codes));
    }
    if let Some(names) = &ask.view_types {
        let codes = filter_codes(names, ("view_types", "view_type"), |name| words.view_type(name).map(|of| of.0))?;
        filter.0.push((actions::ActionDimension::ViewType, codes));
    }
    for (level, names) in &ask.ids {
        let codes = codes_of(view, tenant, *level, names)?.into_iter().collect();
        filter.0.push((actions::ActionDimension::Entity(level.level()), codes));
    }
    let by: Vec<actions::ActionDimension> = ask.by.iter().map(|dimension| dimension.dimension()).collect();
    if by.len() > DIMENSIONS {
        return Err(CountError::Field("by", format!("too many dimensions: {DIMENSIONS} at most")));
    }
    let (from, to) = ask.last.range(now).ok_or_else(|| field_error("last", "invalid interval: expected 1 or more"))?;
    let actions = actions_of(view, tenant, visitor, ask.own, from, to)?;
    let read = actions.parts.iter().map(|bytes| packed_actions(bytes)).collect::<Result<Vec<_>, _>>()?;
    let found = group_actions(&read, &filter, &by, from, to).map_err(|e| CountError::Field("by", e.to_string()))?;
    Ok(found.into_iter().map(|(codes, count)| group_row(tenant, &ask.by, &codes, count)).collect())
}

/// Number of dimensions: the action type, the view type and four levels.
const DIMENSIONS: usize = 6;

fn group_row(tenant: &TenantContext, by: &[DimensionName], codes: &[u32], count: u64) -> GroupRow {
    let mut row = GroupRow { count, ..GroupRow::default() };
    for (dimension, &code) in by.iter().zip(codes) {
        match dimension {
            DimensionName::Action => {
                let word = u8::try_from(code).ok().and_then(|code| tenant.config.vocabulary.name_of(ActionType(code)));
                row.action = Some(word.map_or(EntityName::Code(code), |name| EntityName::Id(name.to_owned())));
            }
            DimensionName::ViewType => row.view_type = Some(code),
            DimensionName::Level(LevelName::Ad) => row.ad = Some(code),
            DimensionName::Level(LevelName::AdGroup) => row.ad_group = Some(code),
            DimensionName::Level(LevelName::Campaign) => row.campaign = Some(code),
            DimensionName::Level(LevelName::Advertiser) => row.advertiser = Some(code),
        }
    }
    row
}

fn filter_codes(
    names: &[String],
    (of, table): (&'static str, &str),
    code: impl Fn(&str) -> Option<u8>,
) -> Result<BTreeSet<u32>, CountError> {
    let unknown = || field_error(of, &no_word(table));
    names.iter().map(|name| code(name).map(u32::from).ok_or_else(unknown)).collect()
}

fn field_error(name: &'static str, message: &str) -> CountError {
    CountError::Field(name, message.to_owned())
}

fn visitor_of(text: &str) -> Result<VisitorId, CountError> {
    text.parse().map_err(|_| field_error("visitor", "invalid visitor id: expected a UUID of version 7"))
}

impl DimensionName {
    fn dimension(self) -> actions::ActionDimension {
        match self {
            Self::Action => actions::ActionDimension::ActionType,
            Self::ViewType => actions::ActionDimension::ViewType,
            Self::Level(level) => actions::ActionDimension::Entity(level.level()),
        }
    }
}

/// Actions of a visitor, or of all visitors of its person, from one minute until before another.
fn actions_of(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    visitor: VisitorId,
    own: bool,
    from: Minute,
    to: Minute,
) -> Result<ActionParts, CountError> {
    let found = read::load_visitor(view, tenant.no, visitor)?.ok_or(CountError::Unknown)?;
    if own {
        return Ok(read::load_actions(view, &found, from, to)?);
    }
    let mut all = ActionParts { parts: Vec::new(), disjoint: true };
    let members = read::load_members(view, &found, limits::PERSON_VISITORS)?;
    for member in &members {
        let of = read::load_actions(view, member, from, to)?;
        // Two buckets of one visitor never share an action, but two visitors may.
        all.disjoint &= of.disjoint && (all.parts.is_empty() || of.parts.is_empty());
        all.parts.extend(of.parts);
    }
    Ok(all)
}

impl CountWindow {
    fn range(self, now: Millis) -> Option<(Minute, Minute)> {
        match self {
            Self::Window { interval: 0, .. } => None,
            Self::Window { interval, unit } => Some(TimeWindow { interval, unit: unit.unit() }.range(Minute::at(now))),
            Self::Range { from_ms, to_ms } => Some((Minute::at(from_ms), Minute::at(to_ms))),
        }
    }
}

impl UnitName {
    fn unit(self) -> WindowUnit {
        match self {
            Self::Minutes => WindowUnit::Minutes,
            Self::Hours => WindowUnit::Hours,
            Self::Days => WindowUnit::Days,
        }
    }
}

impl LevelName {
    fn name(self) -> &'static str {
        match self {
            Self::Ad => "ad",
            Self::AdGroup => "ad_group",
            Self::Campaign => "campaign",
            Self::Advertiser => "advertiser",
        }
    }

    fn level(self) -> AdLevel {
        match self {
            Self::Ad => AdLevel::Ad,
            Self::AdGroup => AdLevel::AdGroup,
            Self::Campaign => AdLevel::Campaign,
            Self::Advertiser => AdLevel::Advertiser,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, impression, visitor};

    fn ask(of: VisitorId, more: &str) -> CountRequest {
        let text = format!(
            r#"{{"visitor": "{of}", "actions": ["impression"], "last": {{"interval": 7, "unit": "days"}}, "level": "campaign", "ids": [2, 9]{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn acknowledged_actions_are_counted_over_the_person() {
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
        let of = |counts: [(u32, u32); 2]| BTreeMap::from(counts.map(|(code, count)| (EntityName::Code(code), count)));
        let count = |more: &str| count_actions(&StoreView::folded(&origin.conn), &known, &ask(a, more), NOW).unwrap();
        assert_eq!(count(""), of([(2, 3), (9, 0)]));
        assert_eq!(count(r#", "own": true"#), of([(2, 2), (9, 0)]));
        assert_eq!(count(r#", "view_types": []"#), of([(2, 0), (9, 0)]));
    }

    #[test]
    fn actions_are_grouped_by_any_dimension_over_one_time_range() {
        let mut origin = Origin::new();
        let facts = [
            impression(visitor(1), 1, NOW),
            impression(visitor(1), 2, NOW),
            impression(visitor(1), 3, NOW - 86_400_000),
        ];
        origin.send("demo", &facts);
        let known = origin.tenant("demo").clone();
        let ask = |more: &str| -> Result<serde_json::Value, CountError> {
            let text = format!(r#"{{"visitor": "{}", "last": {{"interval": 2, "unit": "days"}}{more}}}"#, visitor(1));
            list_groups(&StoreView::folded(&origin.conn), &known, &serde_json::from_str(&text).unwrap(), NOW)
                .map(crate::testing::as_json)
        };
        assert_eq!(ask("").unwrap(), serde_json::json!([{ "count": 3 }]));
        let by = ask(r#", "by": ["campaign", "action", "view_type"]"#).unwrap();
        assert_eq!(by, serde_json::json!([{ "campaign": 2, "action": "impression", "view_type": 1, "count": 3 }]));
        assert_eq!(ask(r#", "actions": ["click"]"#).unwrap(), serde_json::json!([]));
        assert_eq!(
            ask(r#", "ids": { "ad": [4], "advertiser": [1, 9] }"#).unwrap(),
            serde_json::json!([{ "count": 3 }])
        );
        assert_eq!(ask(r#", "ids": { "ad": [5] }"#).unwrap(), serde_json::json!([]));
        let code = "INSERT INTO catalogue_codes (tenant, sort, id, code) VALUES (?1, 'ad', 'a-17', 4), (?1, 'campaign', 'a-17', 9)";
        origin.conn.execute(code, [known.no.0]).unwrap();
        let named = |more: &str| {
            let text = format!(r#"{{"visitor": "{}", "last": {{"interval": 2, "unit": "days"}}, {more}}}"#, visitor(1));
            let view = StoreView::folded(&origin.conn);
            count_actions(&view, &known, &serde_json::from_str(&text).unwrap(), NOW)
                .map(|counts| serde_json::to_value(counts).unwrap())
        };
        let both = named(r#""actions": ["impression"], "level": "ad", "ids": ["a-17", 4, 5]"#).unwrap();
        assert_eq!(both, serde_json::json!({ "a-17": 3, "4": 3, "5": 0 }), "each as it was asked for");
        assert!(matches!(named(r#""actions": [], "level": "ad", "ids": ["b-1"]"#), Err(CountError::Field("ids", _))));
        assert_eq!(ask(r#", "ids": { "ad": ["a-17"] }"#).unwrap(), serde_json::json!([{ "count": 3 }]));
        assert!(matches!(ask(r#", "actions": ["frown"]"#), Err(CountError::Field("actions", _))));
        assert!(matches!(
            ask(r#", "by": ["ad", "ad", "ad", "ad", "ad", "ad", "ad"]"#),
            Err(CountError::Field("by", _))
        ));
    }

    #[test]
    fn what_is_not_of_its_form_is_named() {
        let origin = Origin::new();
        let known = origin.rules.tenants.by_name("demo").unwrap().clone();
        let field = |ask: CountRequest| match count_actions(&StoreView::folded(&origin.conn), &known, &ask, NOW) {
            Err(CountError::Field(name, _)) => name,
            Err(CountError::Unknown) => "unknown",
            _ => "none",
        };
        let good = || ask(visitor(1), "");
        assert_eq!(field(good()), "unknown");
        assert_eq!(field(CountRequest { visitor: "x".to_owned(), ..good() }), "visitor");
        assert_eq!(field(CountRequest { actions: vec!["seen".to_owned()], ..good() }), "actions");
        assert_eq!(field(CountRequest { view_types: Some(vec!["x".to_owned()]), ..good() }), "view_types");
        assert_eq!(
            field(CountRequest { last: CountWindow::Window { interval: 0, unit: UnitName::Days }, ..good() }),
            "last"
        );
        assert_eq!(field(CountRequest { ids: vec![EntityName::Code(1); IDS + 1], ..good() }), "ids");
    }
}
