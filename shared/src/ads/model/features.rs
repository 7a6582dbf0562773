//! What models look at, and where each feature's weight is. The trainer and the scorer both take features from here.
//!
//! Features of few values have places of their own; the others – ads and what they belong to, segments, view type with
//! campaign – share the places behind them by hashing (Weinberger et al., "Feature hashing for large scale multitask
//! learning", 2009).

use crate::base::random;
use crate::base::time::{EPOCH_MS, Minute};
use crate::facts::actions::{AdEntity, AdLevel, TimeWindow, ViewType, WindowUnit};
use crate::facts::segments::SegmentId;
use crate::profiles::activity::{self, hour_of_week};

/// Windows that impressions are counted in.
pub const IMPRESSIONS: usize = 3;
/// The window that clicks are counted in, of [`windows`].
pub const CLICKED: usize = 2;
/// Buckets of a count.
pub const BUCKETS: usize = 16;
/// The windows, in days of UTC, today among them.
const DAYS: [u32; IMPRESSIONS] = [1, 7, 30];
/// Groups of persons by their browsers: 1, 2, 3, 4, and 5 or more.
const DEVICES: u32 = 5;

/// What may be there in front of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFeature {
    /// The hour of the week in UTC, from Monday's first: 0 to 167.
    HourOfWeek(u8),
    /// The hour of the day in UTC: 0 to 23.
    HourOfDay(u8),
    /// The person's browsers: 1 to 5, which stands for more too.
    Devices(u8),
    /// The [`bucket`] of the minutes since the person's last action; 0 for none in 30 days.
    Recency(u8),
    /// The kind of placement.
    ViewType(ViewType),
    /// The [`bucket`] of how often the person saw ads of a level's entity.
    Impressions {
        /// In which of [`windows`].
        window: u8,
        /// At which level.
        level: AdLevel,
        /// How often.
        bucket: u8,
    },
    /// The [`bucket`] of how often it clicked them.
    Clicks {
        /// At which level.
        level: AdLevel,
        /// How often.
        bucket: u8,
    },
    /// The ad, or what it belongs to, by its code.
    Entity(AdLevel, u32),
    /// A segment the person is in.
    Segment(SegmentId),
    /// A campaign on a kind of placement.
    Cross(ViewType, u32),
}

// Where the features of few values begin.
const HOUR_OF_WEEK: u16 = 0;
const HOUR_OF_DAY: u16 = HOUR_OF_WEEK + activity::HOURS as u16;
const DEVICE: u16 = HOUR_OF_DAY + 24;
const RECENCY: u16 = DEVICE + DEVICES as u16 + 1;
const VIEW_TYPE: u16 = RECENCY + BUCKETS as u16;
const IMPRESSION: u16 = VIEW_TYPE + 256;
const CLICK: u16 = IMPRESSION + (IMPRESSIONS * 4 * BUCKETS) as u16;
/// Where the hashed ones begin.
const HASHED: u16 = 1_024;
const _: () = assert!(CLICK as usize + 4 * BUCKETS <= HASHED as usize);

impl ModelFeature {
    /// The place of its weight among two to the power of `bits`, which is one of [`super::BITS`].
    #[must_use]
    pub fn place(self, bits: u8) -> u16 {
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

/// Of the sort in the highest byte and its number.
fn hashed(sort: u64, number: u64, bits: u8) -> u16 {
    let hash = random::finish((sort << 56 | number).wrapping_add(random::GAMMA));
    let places = (1u64 << bits.min(15)).saturating_sub(u64::from(HASHED));
    // The upper half of a 64-bit product: even over any number of places.
    let place = ((hash >> 32) * places) >> 32;
    HASHED.saturating_add(u16::try_from(place).unwrap_or_default())
}

/// The bucket of a count: 0, 1, 2 to 3, 4 to 7 and so on; 16,384 and more are one, the last of [`BUCKETS`].
#[must_use]
pub fn bucket(count: u32) -> u8 {
    u8::try_from((u32::BITS - count.leading_zeros()).min(BUCKETS as u32 - 1)).unwrap_or_default()
}

/// The windows that impressions are counted in, and clicks in the longest: whole days of UTC, up to before this minute,
/// since the order within a minute is not stored.
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

/// Features of the person, but for its segments.
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

/// Features of where the ad would be.
pub(super) fn of_placement(view_type: ViewType, campaign: u32) -> [ModelFeature; 2] {
    [ModelFeature::ViewType(view_type), ModelFeature::Cross(view_type, campaign)]
}

/// What one impression's features are, as small as they can be kept: for a trainer that holds millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImpressionFeatures {
    /// When.
    pub minute: Minute,
    /// On which kind of placement.
    pub view_type: ViewType,
    /// The person's browsers.
    pub devices: u8,
    /// The minutes since its last action, as [`bucket`].
    pub recency: u8,
    /// The [`bucket`]s of impressions by window and level and then of clicks by level, two to a byte.
    pub fatigue: [u8; (IMPRESSIONS + 1) * 2],
}

impl ImpressionFeatures {
    /// Packs what a [`super::Scorer`] would be asked.
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

    /// Adds the places of all its features, with the ad's, but for segments.
    pub fn places(&self, entity: AdEntity, bits: u8, to: &mut Vec<u16>) {
        let Self { minute, view_type, devices, recency, fatigue } = *self;
        let mut put = |feature: ModelFeature| to.push(feature.place(bits));
        of_moment(minute).into_iter().for_each(&mut put);
        [ModelFeature::Devices(devices), ModelFeature::Recency(recency)].into_iter().for_each(&mut put);
        of_ad(entity).into_iter().for_each(&mut put);
        of_placement(view_type, entity.campaign).into_iter().for_each(&mut put);
        let halves = fatigue.iter().flat_map(|pair| [pair & 15, pair >> 4]);
        (0..).zip(halves).for_each(|(number, bucket)| put(of_count(number, bucket)));
    }
}

/// All features of counts: by window, then level, then bucket; the clicks' behind the impressions'.
pub(super) fn fatigue() -> impl Iterator<Item = ModelFeature> {
    (0..(IMPRESSIONS + 1) * 4).flat_map(|number| (0..16).map(move |bucket| of_count(number, bucket)))
}

/// A count's feature, by the place of its window and level.
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
