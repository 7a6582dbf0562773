//! Answers about audiences and sends, as the admin side and the command line print them.

use std::num::NonZeroU32;
use std::time::Duration;

use causeway_shared::audience::estimate::IntervalValue;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::materialized::MaterializedAudience;
use super::query::{ExactCount, SampleReport};
use super::send::{Send, SendTerms, SendTotals};
use crate::store::tenants::Tenants;

/// Probability that an interval holds the true value.
const CONFIDENCE: f64 = 0.95;

/// An estimate of the people who match a filter, from a random sample.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EstimateAnswer {
    /// Most likely number of people.
    pub estimate: u64,
    /// Least and greatest number of people, with the confidence.
    pub interval: [u64; 2],
    /// Most likely share of all people, from 0 to 1.
    pub share: f64,
    /// Least and greatest share of all people, with the confidence.
    pub share_interval: [f64; 2],
    /// Probability that an interval holds the true value.
    pub confidence: f64,
    /// Half the width of the interval of the share.
    pub precision: f64,
    /// Whether the estimate is the last of the call.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// People in the sample.
    pub sample_size: u64,
    /// People in the sample who match.
    pub found: u64,
    /// All people of the tenant.
    pub population: u64,
    /// First bucket of the sample, and the bucket after the last one.
    pub buckets: [u16; 2],
    /// People of the tenant whose rows cannot be read. They are left out, or count as no match.
    pub unreadable: u64,
    /// Time up to which committed data is in the estimate.
    pub as_of_ms: u64,
    /// Duration of the call until now.
    pub seconds: f64,
    /// The measure over the people who match. Absent where the call names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub measure: Option<MeasureEstimate>,
}

/// An estimate of a measure over the people who match a filter.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MeasureEstimate {
    /// Name of the measure.
    pub name: String,
    /// Sum over the people who match; null where the sample has too few of them.
    pub total: Option<MeasureFigure>,
    /// Mean over the people who match; null where the sample has too few of them.
    pub mean: Option<MeasureFigure>,
}

/// A value with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MeasureFigure {
    /// Most likely value.
    pub value: f64,
    /// Least and greatest value, with the confidence of the estimate.
    pub interval: [f64; 2],
}

impl MeasureFigure {
    fn of(figure: IntervalValue) -> Self {
        Self { value: figure.value, interval: [figure.low, figure.high] }
    }
}

impl SampleReport {
    /// The estimate after `took`; `measure` is the name of the measure.
    #[must_use]
    pub fn to_answer(&self, measure: Option<&str>, took: Duration) -> EstimateAnswer {
        let size = self.look.size();
        EstimateAnswer {
            estimate: size.people,
            interval: [size.least, size.most],
            share: size.share.value,
            share_interval: [size.share.low, size.share.high],
            confidence: CONFIDENCE,
            precision: size.share.half_width(),
            is_final: self.is_last,
            sample_size: self.look.sampled(),
            found: self.look.found(),
            population: self.look.population(),
            buckets: [self.buckets.0, self.buckets.1],
            unreadable: self.unreadable,
            as_of_ms: self.as_of,
            seconds: took.as_secs_f64(),
            measure: measure.map(|name| MeasureEstimate {
                name: name.to_owned(),
                total: self.look.total(&self.moments).map(MeasureFigure::of),
                mean: self.look.mean(&self.moments).map(MeasureFigure::of),
            }),
        }
    }
}

/// The exact number of people who match a filter.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MemberCount {
    /// People who match.
    pub count: u64,
    /// All people of the tenant.
    pub population: u64,
    /// People of the tenant whose rows cannot be read. They are left out.
    pub unreadable: u64,
    /// Time up to which committed data is in the count.
    pub as_of_ms: u64,
    /// Duration of the call.
    pub seconds: f64,
}

impl ExactCount {
    /// The count after `took`.
    #[must_use]
    pub fn to_answer(self, took: Duration) -> MemberCount {
        let Self { count, population, unreadable, as_of } = self;
        MemberCount { count, population, unreadable, as_of_ms: as_of, seconds: took.as_secs_f64() }
    }
}

/// A materialised audience.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AudienceAnswer {
    /// Tenant of the audience.
    pub tenant: Option<String>,
    /// Segment that stores the audience.
    pub segment: u32,
    /// Filter of the people. Null after the audience was dropped: the next run removes its members from the segment.
    #[schema(value_type = Option<Object>)]
    pub filter: Option<Value>,
    /// Hours for which a write keeps a member in the segment.
    pub hours: u32,
    /// Hours between two refreshes; 0 without a timer.
    pub every_hours: u32,
    /// Time of the next refresh; null where only a call refreshes the audience.
    pub due_ms: Option<u64>,
    /// Time of the last refresh; null before the first.
    pub refreshed_ms: Option<u64>,
    /// Members at the last refresh.
    pub members: u64,
}

impl MaterializedAudience {
    /// The audience as the admin side and the command line report it.
    #[must_use]
    pub fn describe(&self, tenants: &Tenants) -> AudienceAnswer {
        AudienceAnswer {
            tenant: tenants.by_no(self.tenant).ok().map(|known| known.config.name.clone()),
            segment: self.segment.0,
            filter: self.filter.as_ref().and_then(|text| serde_json::from_str(text).ok()),
            hours: self.hours,
            every_hours: self.every_hours.map_or(0, NonZeroU32::get),
            due_ms: self.due,
            refreshed_ms: self.refreshed,
            members: self.members,
        }
    }
}

/// A send, and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SendAnswer {
    /// Tenant of the send.
    pub tenant: Option<String>,
    /// Name of the send.
    pub name: String,
    /// Filter of the people.
    #[schema(value_type = Object)]
    pub filter: Option<Value>,
    /// People that the send is to draw.
    pub count: u32,
    /// Experiment to whose arms the people are assigned.
    pub experiment: Option<String>,
    /// Whether the send calls the webhook of the tenant.
    pub webhook: bool,
    /// Most people delivered per second; 0 without a limit.
    pub per_second: u32,
    /// Time of the request.
    pub requested_ms: u64,
    /// People that were drawn: fewer than `count` where fewer match the filter; null before they are drawn.
    pub chosen: Option<u32>,
    /// People that were delivered.
    pub delivered: u32,
    /// People in the control, who get no delivery.
    pub control: u32,
    /// People that withdrew or were erased after the draw.
    pub gone: u32,
    /// People that turned out to be the same person as an earlier one.
    pub merged: u32,
    /// People that no longer matched the filter.
    pub left: u32,
    /// People that the send did not reach yet; null before the draw.
    pub waits: Option<u32>,
    /// Time at which the send continues, later where the webhook asks for that; null after the end.
    pub due_ms: Option<u64>,
    /// Last obstacle; `stopped` after a stop.
    pub error: Option<String>,
    /// Reason of an empty draw, where `chosen` is 0.
    pub reason: Option<String>,
}

impl Send {
    /// The send as the admin side and the command line report it.
    #[must_use]
    pub fn describe(&self, tenants: &Tenants) -> SendAnswer {
        let SendTerms { count, experiment, webhook, per_second, .. } = &self.terms;
        let SendTotals { delivered, control, gone, merged, left } = self.sums;
        let (error, reason) = if self.chosen == Some(0) { (None, &self.error) } else { (self.error.as_ref(), &None) };
        SendAnswer {
            tenant: tenants.by_no(self.tenant).ok().map(|known| known.config.name.clone()),
            name: self.name.clone(),
            filter: serde_json::from_str(&self.terms.filter).ok(),
            count: *count,
            experiment: experiment.clone(),
            webhook: *webhook,
            per_second: per_second.map_or(0, NonZeroU32::get),
            requested_ms: self.asked,
            chosen: self.chosen,
            delivered,
            control,
            gone,
            merged,
            left,
            waits: self.chosen.map(|chosen| chosen.saturating_sub(self.next)),
            due_ms: self.due,
            error: error.cloned(),
            reason: reason.clone(),
        }
    }
}

/// A line of the people who match a filter.
#[derive(Debug, ToSchema)]
#[expect(
    dead_code,
    reason = "describes the lines that `MemberFormat::one` writes, a million of them without a serializer"
)]
pub struct MemberLine {
    /// Master of the person: its oldest visitor.
    #[schema(format = "uuid")]
    person: String,
}

/// A line of the best send times.
#[derive(Debug, ToSchema)]
#[expect(
    dead_code,
    reason = "describes the lines that `format_moments` writes, a million of them without a serializer"
)]
pub struct SendMomentLine {
    /// Master of the person: its oldest visitor.
    #[schema(format = "uuid")]
    person: String,
    /// The moment.
    at_ms: u64,
    /// The moment on the person's clock.
    #[schema(example = "2027-01-15T20:00")]
    local: String,
    /// Time zone of the person.
    time_zone: String,
    /// Whether the moment is in the person's best hour of the week. Otherwise the window holds none of it, and the
    /// moment is in the best hour of the window.
    best: bool,
    /// Origin of the best hour: the activity of the `person`, or that of the whole `population`.
    source: String,
    /// Probability, in per cent, that the person is most active in the best hour; 0 where the source is the population.
    #[schema(minimum = 0, maximum = 99)]
    confidence: u8,
}
