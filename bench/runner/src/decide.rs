//! `decide`: decisions on three placements for a person with a thousand segments and a thousand actions, in native code
//! and in WebAssembly, compared with a naive decision that checks each ad; and the load of a catalogue in a new
//! isolate.

use std::collections::BTreeMap;
use std::hint::black_box;

use anyhow::{Context as _, Result, ensure};
use causeway_bench_wasm::decide::{self, Deciding, Loading};
use causeway_bench_wasm::filters;
use causeway_shared::ads::catalogue::{Bid, CandidateAd, Catalogue, CompiledCatalogue, Targets};
use causeway_shared::ads::decision::Placement;
use causeway_shared::ads::model::features::windows;
use causeway_shared::ads::model::{Fatigue, PersonFeatures, Scorer};
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::{ActionType, AdAction, AdLevel};
use causeway_shared::targeting::filter::FilterSubject;
use clap::Args;

use crate::report::{self, Bar, Line, median, time};
use crate::stop::Stop;
use crate::wasm::Node;

const BENCH: &str = "decide";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds, in which all sides take turns; medians over the rounds are reported.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Number of decisions in a round.
    #[arg(long, default_value_t = 500)]
    times: u32,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let mut node = Node::start()?;
    for (ads, native, wasm) in [(1_000, 60.0, Some(100.0)), (10_000, 200.0, None)] {
        decided(options, &mut node, ads, (native, wasm), json, stop)?;
    }
    loaded(options, &mut node, 10_000, json, stop)
}

fn decided(
    options: &Options,
    node: &mut Node,
    ads: u32,
    (most, most_in_wasm): (f64, Option<f64>),
    json: bool,
    stop: &Stop,
) -> Result<()> {
    let deciding = Deciding::new(ads);
    let naive = Naive::new(&deciding, ads.into())?;
    let expected = naive.decide();
    ensure!(deciding.decide() == expected, "{:?} instead of the naive {expected:?}", deciding.decide());
    ensure!(expected.iter().all(Option::is_some), "a placement is left empty: {expected:?}");
    let answer = deciding.run(1);
    let (mut natives, mut wasms, mut each) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=options.rounds {
        stop.check()?;
        let native = time(options.times, || drop(black_box(deciding.decide())));
        let (in_wasm, wasm) = node.ask("decide", ads, options.times)?;
        ensure!(in_wasm == answer, "{answer} natively, {in_wasm} in WebAssembly");
        let one_by_one = time(options.times.div_ceil(200), || drop(black_box(naive.decide())));
        if round > 0 {
            natives.push(native);
            wasms.push(wasm);
            each.push(one_by_one);
        }
    }
    let [native, wasm, each] = [natives, wasms, each].map(median);
    let line = |name: &str, value, peer, bar| {
        let case = format!("{ads} ads, {name}");
        report::print(&Line { bench: BENCH, case, value, unit: "us", peer, bar }, json);
    };
    line("native", native, None, Some(Bar::AtMost(most)));
    line("native", native, Some(("one by one".to_owned(), each)), None);
    line("WebAssembly", wasm, None, most_in_wasm.map(Bar::AtMost));
    line("WebAssembly", wasm, Some(("native".to_owned(), native)), None);
    Ok(())
}

fn loaded(options: &Options, node: &mut Node, ads: u32, json: bool, stop: &Stop) -> Result<()> {
    let loading = Loading::new(ads);
    ensure!(loading.run(1) == ads, "the catalogue is not read");
    let (mut natives, mut wasms) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        stop.check()?;
        natives.push(time(1, || assert!(black_box(loading.run(1)) > 0)) / 1e3);
        let (offers, wasm) = node.ask("load", ads, 1)?;
        ensure!(offers == ads, "{offers} ads in WebAssembly");
        wasms.push(wasm / 1e3);
    }
    let [native, wasm] = [natives, wasms].map(median);
    let print = |case: String, value, unit, peer, bar| {
        report::print(&Line { bench: BENCH, case, value, unit, peer, bar }, json);
    };
    let case = format!("load of {ads} ads, WebAssembly");
    print(case.clone(), wasm, "ms", None, Some(Bar::AtMost(20.0)));
    print(case, wasm, "ms", Some(("native".to_owned(), native)), None);
    print(format!("{ads} ads in the KV"), f64::from(loading.length()) / 1e6, "MB", None, Some(Bar::AtMost(1.0)));
    Ok(())
}

/// The same decision by the written rules, one ad after the other, without an index.
struct Naive<'a> {
    deciding: &'a Deciding,
    catalogue: Catalogue,
    targets: Targets,
    actions: Vec<AdAction>,
    scorer: Scorer,
    groups: BTreeMap<String, usize>,
    campaigns: BTreeMap<String, usize>,
}

impl<'a> Naive<'a> {
    fn new(deciding: &'a Deciding, ads: u64) -> Result<Self> {
        let catalogue: Catalogue = serde_json::from_value(decide::document(ads))?;
        let (names, words) = (filters::names(), filters::words());
        ensure!(catalogue.problems("", &words).is_empty(), "{:?}", catalogue.problems("", &words).first());
        let targets = catalogue.targets("", &names, &words).ok().context("the targeting is not taken")?;
        let scorer = Scorer::new(&decide::model()).context("the model is not sound")?;
        let actions = decide::actions(deciding.catalogue()).iter().collect();
        let groups = catalogue.ad_groups.iter().enumerate().map(|(i, group)| (group.id.clone(), i)).collect();
        let campaigns = catalogue.campaigns.iter().enumerate().map(|(i, campaign)| (campaign.id.clone(), i)).collect();
        Ok(Self { deciding, catalogue, targets, actions, scorer, groups, campaigns })
    }

    fn decide(&self) -> Vec<Option<(usize, u64)>> {
        let CompiledCatalogue { offers, .. } = self.deciding.catalogue();
        let mut page: Vec<&CandidateAd> = Vec::new();
        let each = Deciding::placements().map(|placement| {
            let may = offers.iter().enumerate().filter(|(_, offer)| self.may(offer, &placement, &page));
            let worth = may.map(|(place, offer)| (place, self.worth(offer, &placement)));
            let best = worth
                .filter(|(_, worth)| *worth >= placement.floor_micros)
                .min_by_key(|(place, worth)| (std::cmp::Reverse(*worth), *place));
            page.extend(best.and_then(|(place, _)| offers.get(place)));
            best
        });
        each.to_vec()
    }

    fn may(&self, offer: &CandidateAd, placement: &Placement<'_>, page: &[&CandidateAd]) -> bool {
        let compiled = self.deciding.catalogue();
        let [_, group, campaign, advertiser] = &offer.ids;
        let categories = |id: &str| {
            let campaign = self.campaigns.get(id).and_then(|place| self.catalogue.campaigns.get(*place));
            campaign.map(|campaign| campaign.categories.as_slice()).unwrap_or_default()
        };
        let beside = |placed: &&CandidateAd| {
            let competes = placed.ids[2] != *campaign
                && categories(&placed.ids[2]).iter().any(|category| categories(campaign).contains(category));
            placed.ids[3] == *advertiser || competes
        };
        let described = self.deciding.described();
        let subject = FilterSubject { view_type: placement.view_type, ..Deciding::subject(&described) };
        let target = self.groups.get(&**group).and_then(|place| self.targets.groups.get(*place)?.as_ref());
        compiled.fits(offer, placement.sizes)
            && !page.iter().any(beside)
            && target.is_none_or(|filter| filter.matches(&subject))
            && compiled.bounds(offer).all(|bound| {
                let (from, to) = bound.cap.window.range(Minute::at(decide::now()));
                bound.cap.admits(self.count(offer, bound.level, bound.cap.action_type, from, to))
            })
    }

    fn count(&self, offer: &CandidateAd, level: AdLevel, action_type: ActionType, from: Minute, to: Minute) -> u32 {
        let counts = |action: &&AdAction| {
            action.action_type == action_type
                && (from..to).contains(&action.minute)
                && action.entity.at(level) == offer.entity.at(level)
        };
        self.actions.iter().filter(counts).count() as u32
    }

    fn worth(&self, offer: &CandidateAd, placement: &Placement<'_>) -> u64 {
        let now = Minute::at(decide::now());
        let described = self.deciding.described();
        let person = described.person();
        let last = self.actions.iter().map(|action| action.minute).filter(|minute| *minute < now).max();
        let person = PersonFeatures { now, devices: person.devices, segments: person.segments, last };
        let of = |action_type, (from, to)| AdLevel::ALL.map(|level| self.count(offer, level, action_type, from, to));
        let windows = windows(now);
        let impressions = windows.map(|window| of(ActionType::IMPRESSION, window));
        let fatigue = Fatigue { impressions, clicks: of(ActionType::CLICK, windows[2]) };
        let (person, ad) = (self.scorer.person(&person), self.scorer.ad(offer.entity));
        let score = self.scorer.score(person, &ad, placement.view_type, &fatigue);
        let [ctr, cvr] = [score.ctr_ppb(), score.cvr_ppb()].map(u128::from);
        let campaign = self.campaigns.get(&*offer.ids[2]).and_then(|place| self.catalogue.campaigns.get(*place));
        let worth = match campaign.and_then(|campaign| campaign.bid) {
            Some(Bid::CpmMicros(micros)) => micros.unsigned().into(),
            Some(Bid::CpcMicros(micros)) => u128::from(micros.unsigned()) * ctr / 1_000_000,
            Some(Bid::CpaMicros(micros)) => u128::from(micros.unsigned()) * ctr / 1_000_000 * cvr / 1_000_000_000,
            Some(Bid::SharePpm(_)) | None => 0,
        };
        u64::try_from(worth).unwrap_or(u64::MAX)
    }
}
