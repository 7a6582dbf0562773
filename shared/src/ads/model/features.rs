//! Features of models, and the index of each feature's weight. The trainer and the scorer both use this module.
//!
//! Features with few values have indexes of their own. Ads, their parents, segments, and pairs of view type and
//! campaign share the indexes after them by hashing (Weinberger et al., "Feature hashing for large scale multitask
//! learning", 2009).

use crate::base::random;
use crate::base::time::{EPOCH_MS, Minute};
use crate::facts::actions::{AdEntity, AdLevel, TimeWindow, ViewType, WindowUnit};
use crate::facts::segments::SegmentId;
use crate::profiles::activity::{self, hour_of_week};

/// Number of windows in which impressions are counted.
pub const IMPRESSIONS: usize = 3;
/// The one of [`windows`] in which clicks are counted.
pub const CLICKED: usize = 2;
/// Number of buckets of a count.
pub const BUCKETS: usize = 16;
/// Lengths of the windows in UTC days, including today.
const DAYS: [u32; IMPRESSIONS] = [1, 7, 30];
/// Groups of people by number of devices: 1, 2, 3, 4, and 5 or more.
const DEVICES: u32 = 5;

/// A feature that a model may have a weight for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFeature {
    /// The hour of the week in UTC, from Monday 00:00: 0 to 167.
    HourOfWeek(u8),
    /// The hour of the day in UTC: 0 to 23.
    HourOfDay(u8),
    /// The person's devices: 1 to 5, where 5 means 5 or more.
    Devices(u8),
    /// The [`bucket`] of the minutes since the person's last action; 0 for none in 30 days.
    Recency(u8),
    /// The view type of the placement.
    ViewType(ViewType),
    /// The [`bucket`] of the number of impressions of an entity's ads.
    Impressions {
        /// The index of the window in [`windows`].
        window: u8,
        /// The entity's level.
        level: AdLevel,
        /// The bucket.
        bucket: u8,
    },
    /// The [`bucket`] of the number of clicks on an entity's ads.
    Clicks {
        /// The entity's level.
        level: AdLevel,
        /// The bucket.
        bucket: u8,
    },
    /// The ad or one of its parents, by code.
    Entity(AdLevel, u32),
    /// A segment of the person.
    Segment(SegmentId),
    /// A view type together with a campaign.
    Cross(ViewType, u32),
}

// First indexes of the features with few values.
const HOUR_OF_WEEK: u16 = 0;
const HOUR_OF_DAY: u16 = HOUR_OF_WEEK + activity::HOURS as u16;
const DEVICE: u16 = HOUR_OF_DAY + 24;
const RECENCY: u16 = DEVICE + DEVICES as u16 + 1;
const VIEW_TYPE: u16 = RECENCY + BUCKETS as u16;
const IMPRESSION: u16 = VIEW_TYPE + 256;
const CLICK: u16 = IMPRESSION + (IMPRESSIONS * 4 * BUCKETS) as u16;
/// First index of the hashed features.
const HASHED: u16 = 1_024;
const _: () = assert!(CLICK as usize + 4 * BUCKETS <= HASHED as usize);

impl ModelFeature {
    /// The index of its weight, less than two to the power of `bits`, which is within [`super::BITS`].
    #[must_use]
    pub fn index(self, bits: u8) -> u16 {
        let at = |start: u16, number: u8| start + u16::from(number);
        let of_level = |level: AdLevel, bucket: u8| level as u16 * BUCKETS as u16 + u16::from(bucket);
        match self {
            Self::HourOfWeek(hour) => at(HOUR_OF_WEEK, hour),
            Self::HourOfDay(hour) => at(HOUR_OF_DAY, hour),
            Self::Devices(count) => at(DEVICE, count),
            Self::Recency(bucket) => at(RECENCY, bucket),
            Self::ViewType(ViewType(code)) => at(VIEW_TYPE, code),
            Self::Impressions { window, level, bucket } => {
                IMPRESSION + u16::from(window) * 4 * BUCKETS as u16 + of_level(level, bucket)
            }
            Self::Clicks { level, bucket } => CLICK + of_level(level, bucket),
            Self::Entity(level, code) => hashed(1 + level as u64, code.into(), bits),
            Self::Segment(SegmentId(id)) => hashed(5, id.into(), bits),
            Self::Cross(ViewType(code), campaign) => hashed(6, u64::from(code) << 32 | u64::from(campaign), bits),
        }
    }
}

/// The index of a hashed feature, from its sort (in the highest byte) and its number.
fn hashed(sort: u64, number: u64, bits: u8) -> u16 {
    let hash = random::finish((sort << 56 | number).wrapping_add(random::GAMMA));
    let places = (1u64 << bits.min(15)).saturating_sub(u64::from(HASHED));
    // The upper half of a 64-bit product is evenly distributed over any number of indexes.
    let index = ((hash >> 32) * places) >> 32;
    HASHED.saturating_add(u16::try_from(index).unwrap_or_default())
}

/// The bucket of a count: 0, 1, 2 to 3, 4 to 7 and so on. Counts of at least 16,384 share the last of [`BUCKETS`].
#[must_use]
pub fn bucket(count: u32) -> u8 {
    u8::try_from((u32::BITS - count.leading_zeros()).min(BUCKETS as u32 - 1)).unwrap_or_default()
}

/// The windows in which impressions are counted; clicks are counted in the longest. They begin at a UTC day and end
/// before the current minute, because the order within a minute is not stored.
#[must_use]
pub fn windows(now: Minute) -> [(Minute, Minute); IMPRESSIONS] {
    DAYS.map(|interval| (TimeWindow { interval, unit: WindowUnit::Days }.range(now).0, now))
}

/// Features of the moment.
pub(super) fn of_moment(now: Minute) -> [ModelFeature; 2] {
    let hour = hour_of_week(EPOCH_MS + u64::from(now.0) * 60_000);
    let of_week = u8::try_from(hour).unwrap_or_default();
    [ModelFeature::HourOfWeek(of_week), ModelFeature::HourOfDay(of_week % 24)]
}

/// Features of the person, except its segments.
pub(super) fn of_person(now: Minute, devices: u32, last: Option<Minute>) -> [ModelFeature; 2] {
    let (from, to) = windows(now)[CLICKED];
    let last = last.filter(|last| (from..to).contains(last));
    let devices = u8::try_from(devices.clamp(1, DEVICES)).unwrap_or(1);
    [ModelFeature::Devices(devices), ModelFeature::Recency(last.map_or(0, |last| bucket(now.0 - last.0)))]
}

/// Features of the ad.
pub(super) fn of_ad(entity: AdEntity) -> [ModelFeature; 4] {
    AdLevel::ALL.map(|level| ModelFeature::Entity(level, entity.at(level)))
}

/// Features of the placement.
pub(super) fn of_placement(view_type: ViewType, campaign: u32) -> [ModelFeature; 2] {
    [ModelFeature::ViewType(view_type), ModelFeature::Cross(view_type, campaign)]
}

/// Features of one impression in a compact form, for a trainer that holds millions of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImpressionFeatures {
    /// Minute of the impression.
    pub minute: Minute,
    /// View type of the placement.
    pub view_type: ViewType,
    /// Number of the person's devices.
    pub devices: u8,
    /// The [`bucket`] of the minutes since the person's last action.
    pub recency: u8,
    /// [`bucket`]s of impressions by window and level, then of clicks by level; two per byte.
    pub fatigue: [u8; (IMPRESSIONS + 1) * 2],
}

impl ImpressionFeatures {
    /// Packs the inputs of [`super::Scorer::score`].
    #[must_use]
    pub fn new(person: &super::PersonFeatures<'_>, view_type: ViewType, fatigue: &super::Fatigue) -> Self {
        let mut moment = Self { minute: person.now, view_type, ..Self::default() };
        for feature in of_person(person.now, person.devices, person.last) {
            match feature {
                ModelFeature::Devices(devices) => moment.devices = devices,
                ModelFeature::Recency(recency) => moment.recency = recency,
                _ => {}
            }
        }
        let counts = fatigue.impressions.iter().chain([&fatigue.clicks]);
        let pairs = counts.flat_map(|[a, b, c, d]| [bucket(*a) | bucket(*b) << 4, bucket(*c) | bucket(*d) << 4]);
        moment.fatigue.iter_mut().zip(pairs).for_each(|(to, pair)| *to = pair);
        moment
    }

    /// Appends the weight indexes of all its features, the ad's included, segments excluded.
    pub fn places(&self, entity: AdEntity, bits: u8, to: &mut Vec<u16>) {
        let Self { minute, view_type, devices, recency, fatigue } = *self;
        let mut put = |feature: ModelFeature| to.push(feature.index(bits));
        of_moment(minute).into_iter().for_each(&mut put);
        [ModelFeature::Devices(devices), ModelFeature::Recency(recency)].into_iter().for_each(&mut put);
        of_ad(entity).into_iter().for_each(&mut put);
        of_placement(view_type, entity.campaign).into_iter().for_each(&mut put);
        let halves = fatigue.iter().flat_map(|pair| [pair & 15, pair >> 4]);
        (0..).zip(halves).for_each(|(number, bucket)| put(of_count(number, bucket)));
    }
}

/// All count features, by window, then level, then bucket; those of clicks follow those of impressions.
pub(super) fn fatigue() -> impl Iterator<Item = ModelFeature> {
    (0..(IMPRESSIONS + 1) * 4).flat_map(|number| (0..16).map(move |bucket| of_count(number, bucket)))
}

/// The feature of a count; `number` is window times 4 plus level.
fn of_count(number: usize, bucket: u8) -> ModelFeature {
    let level = match number % 4 {
        0 => AdLevel::Ad,
        1 => AdLevel::AdGroup,
        2 => AdLevel::Campaign,
        _ => AdLevel::Advertiser,
    };
    match number / 4 {
        window @ ..IMPRESSIONS => {
            ModelFeature::Impressions { window: u8::try_from(window).unwrap_or_default(), level, bucket }
        }
        _ => ModelFeature::Clicks { level, bucket },
    }
}
