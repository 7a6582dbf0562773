//! Value of an ad in front of a person: the price of a thousand impressions, or the model's expectation of it if the
//! advertiser pays for clicks or conversions.

use crate::ads::catalogue::{Bid, CompiledCatalogue};
use crate::ads::model::features::{self, IMPRESSIONS};
use crate::ads::model::{AdScore, Fatigue, Model, PersonFeatures, PersonScore, Score, Scorer};
use crate::base::ids::{Micros, Millis};
use crate::base::time::Minute;
use crate::facts::actions::{ActionQuestion, ActionType, ViewType, ViewTypes};
use crate::targeting::filter::FilterSubject;

use super::DecidedPerson;

/// Default click rate without a model: one click per thousand impressions, in billionths.
pub const CTR_PPB: u32 = 1_000_000;
/// Default conversion rate without a model: one conversion per hundred clicks, in billionths.
pub const CVR_PPB: u32 = 10_000_000;
/// Default value of a conversion without a model: ten units of currency, in micros.
pub const PRICE_MICROS: Micros = Micros::new(10_000_000);

/// A model prepared for the ads of one catalogue; prepared once, when either is loaded.
#[derive(Debug, Clone)]
pub struct ModelScores {
    scorer: Scorer,
    /// Scores in the order of [`CompiledCatalogue::offers`].
    ads: Vec<AdScore>,
    used: std::ops::Range<Millis>,
}

impl ModelScores {
    /// Prepares a model; `None` if the model is invalid.
    #[must_use]
    pub fn new(model: &Model, catalogue: &CompiledCatalogue) -> Option<Self> {
        let scorer = Scorer::new(model)?;
        let ads = catalogue.offers.iter().map(|offer| scorer.ad(offer.entity)).collect();
        Some(Self { scorer, ads, used: model.used() })
    }
}

/// Values of ads in one call.
pub(super) struct AdWorth<'a> {
    catalogue: &'a CompiledCatalogue,
    predicting: Option<CallPredictor<'a>>,
}

struct CallPredictor<'a> {
    scores: &'a ModelScores,
    person: PersonScore,
    /// Counts by window, then by index of the catalogue's counter; clicks last. Empty without a person.
    counts: Vec<Vec<u32>>,
}

impl<'a> AdWorth<'a> {
    pub(super) fn new(
        catalogue: &'a CompiledCatalogue,
        scores: Option<&'a ModelScores>,
        person: Option<&DecidedPerson<'_>>,
        subject: &FilterSubject<'_>,
        now: Millis,
    ) -> Self {
        let needs_model = catalogue.terms.iter().any(|terms| !matches!(terms.bid, Bid::CpmMicros(_)));
        let scores = scores.filter(|scores| needs_model && scores.used.contains(&now));
        Self { catalogue, predicting: scores.map(|scores| CallPredictor::new(catalogue, scores, person, subject, now)) }
    }

    /// Value of a thousand impressions of an ad, in micros.
    pub(super) fn of(&self, bid: Bid, place: usize, view_type: ViewType) -> u64 {
        let score = || Some(self.predicting.as_ref()?.score(self.catalogue, place, view_type));
        // A thousand times a rate in billionths is a rate in millionths.
        let for_clicks =
            |paid: Micros, score: Option<Score>| paid.part(score.map_or(CTR_PPB, Score::ctr_ppb).into(), 1_000_000);
        let for_conversions = |paid: Micros, score: Option<Score>| {
            for_clicks(paid, score).part(score.map_or(CVR_PPB, Score::cvr_ppb).into(), 1_000_000_000)
        };
        let worth: Micros = match bid {
            Bid::CpmMicros(micros) => micros,
            Bid::CpcMicros(micros) => for_clicks(micros, score()),
            Bid::CpaMicros(micros) => for_conversions(micros, score()),
            Bid::SharePpm(share) => {
                let score = score();
                for_conversions(score.map_or(PRICE_MICROS, Score::price_micros).part(share, 1_000_000), score)
            }
        };
        worth.unsigned()
    }
}

impl<'a> CallPredictor<'a> {
    fn new(
        catalogue: &CompiledCatalogue,
        scores: &'a ModelScores,
        person: Option<&DecidedPerson<'_>>,
        subject: &FilterSubject<'_>,
        now: Millis,
    ) -> Self {
        let minute = Minute::at(now);
        let actions = person.map(|person| person.actions.as_slice()).unwrap_or_default();
        let features = PersonFeatures {
            now: minute,
            devices: subject.person.map_or(1, |person| person.devices),
            segments: subject.person.map(|person| person.segments).unwrap_or_default(),
            last: actions.iter().filter_map(|actions| actions.last_before(minute)).max(),
        };
        let windows = features::windows(minute);
        let longest = windows.iter().copied().last();
        let counted = windows.map(|window| (ActionType::IMPRESSION, window)).into_iter();
        let counted = counted.chain(longest.map(|window| (ActionType::CLICK, window)));
        let tally = |(action_type, (from, to)): (ActionType, (Minute, Minute))| {
            let question = ActionQuestion { action_types: &[action_type], view_types: ViewTypes::All, from, to };
            catalogue.counter.tally_rows(actions, &question)
        };
        let counts = if actions.is_empty() { Vec::new() } else { counted.map(tally).collect() };
        Self { scores, person: scores.scorer.person(&features), counts }
    }

    fn score(&self, catalogue: &CompiledCatalogue, place: usize, view_type: ViewType) -> Score {
        let places = catalogue.counter.places(place).unwrap_or_default();
        let counts = |which: usize| match self.counts.get(which) {
            Some(counts) => places.map(|place| counts.get(place as usize).copied().unwrap_or(0)),
            None => [0; 4],
        };
        let fatigue = Fatigue { impressions: std::array::from_fn(counts), clicks: counts(IMPRESSIONS) };
        let ad = self.scores.ads.get(place).copied().unwrap_or_default();
        self.scores.scorer.score(self.person, &ad, view_type, &fatigue)
    }
}
