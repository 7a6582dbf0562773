//! The catalogue as a decision needs it: the ads in the order of their choice, each with all caps that bind it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Ad, Advertiser, Bid, Campaign, CapMode, CapRule, Catalogue, Targets};
use crate::actions::{Cap, Counter, Entity, Level, Verb, Window};
use crate::attributes::Dictionary;
use crate::experiment::Experiment;
use crate::filter::{self, Filter, Index, Matches};
use crate::ids::Millis;
use crate::vocabulary::Vocabulary;

/// A catalogue without problems, compiled. Made once, read by every decision.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// The ads by weight, the heaviest first, then by code.
    pub offers: Vec<Offer>,
    /// What their campaigns agreed on, in the order of the catalogue's.
    pub terms: Vec<Terms>,
    /// Their ad groups that have ads, in the order of the catalogue's.
    pub groups: Vec<Group>,
    /// The different filters of campaigns and ad groups, each once.
    pub targets: Index,
    /// What the caps ask of a person's actions, each pair once.
    pub questions: Vec<(Verb, Window)>,
    /// Counts for all ads, in their order.
    pub counter: Counter,
    /// What is tested.
    pub experiments: Vec<Experiment>,
    by_code: BTreeMap<u32, usize>,
    has_strict: bool,
}

/// An ad that may be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Its code, and those of what it belongs to.
    pub entity: Entity,
    /// The ids at [`Level::ALL`].
    pub ids: [String; 4],
    /// What the page shows.
    pub creative: Value,
    /// Where a click leads.
    pub landing: String,
    /// The sizes it comes in; empty for any.
    pub sizes: Vec<[u32; 2]>,
    /// The place of its campaign's in [`Compiled::terms`].
    pub terms: usize,
    /// The place of its ad group in [`Compiled::groups`].
    pub group: usize,
    /// Whether its campaign's caps are strict, and there is one on impressions, which alone can be.
    pub strict: bool,
    /// All caps that bind it, from the ad up.
    pub bounds: Vec<Bound>,
}

/// The ads of one ad group: what they share is asked once for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// The place of its campaign's in [`Compiled::terms`].
    pub terms: usize,
    /// The places in [`Compiled::targets`] of the filters that must all match.
    pub targets: Vec<usize>,
    /// The places of its ads in [`Compiled::offers`].
    pub offers: Vec<u32>,
}

impl Group {
    /// Whether its filters are among those that match.
    #[must_use]
    pub fn is_for(&self, matches: &Matches) -> bool {
        self.targets.iter().all(|target| matches.contains(*target))
    }
}

/// What a campaign's advertiser agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// From when on its ads are placed, and from when on not any more.
    pub runs: std::ops::Range<Millis>,
    /// What is paid for what.
    pub bid: Bid,
    /// Whether its ads fill all placements of a page, or none.
    pub roadblock: bool,
    /// Whether one page may show several ads of its advertiser.
    pub repeats: bool,
    /// What it competes in, by numbers that stand for the names.
    pub categories: Vec<usize>,
}

/// A cap at one of an ad's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Of what.
    pub level: Level,
    /// How much.
    pub cap: Cap,
    /// The place of its verb and window in [`Compiled::questions`].
    pub question: usize,
    /// The place in [`Compiled::counter`] of what is counted.
    pub place: u32,
}

impl Compiled {
    /// Compiles a catalogue without names of attributes; one whose filters need them places nothing.
    #[must_use]
    pub fn new(catalogue: &Catalogue, words: &Vocabulary) -> Self {
        let targets = catalogue.targets("", &Dictionary::default(), words);
        targets.map(|targets| Self::with_targets(catalogue, words, &targets)).unwrap_or_default()
    }

    /// Compiles a catalogue whose filters are parsed. An ad whose parents or verbs are not there, which
    /// [`Catalogue::problems`] refuses, is left out.
    #[must_use]
    pub fn with_targets<'a>(catalogue: &'a Catalogue, words: &Vocabulary, targets: &Targets) -> Self {
        let mut compiled = Self { experiments: catalogue.experiments.clone(), ..Self::default() };
        let (by_id, mut names) = (ById::of(catalogue), Places::default());
        let advertiser = |id: &String| catalogue.advertisers.get(*by_id.advertisers.get(id.as_str())?);
        let mut agreed = |campaign: &'a Campaign| terms(campaign, advertiser(&campaign.advertiser), &mut names);
        compiled.terms = catalogue.campaigns.iter().map(&mut agreed).collect();
        let mut filters = Places::default();
        let mut place = |filter: &Option<Filter>| filter.clone().map(|filter| filters.of(filter));
        let of_campaigns: Vec<Option<usize>> = targets.campaigns.iter().map(&mut place).collect();
        let of_groups: Vec<Option<usize>> = targets.groups.iter().map(&mut place).collect();
        compiled.targets = Index::new(&filters.all.into_iter().map(Some).collect::<Vec<_>>());
        // By the place of an ad group in the catalogue.
        let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
        let mut ads: Vec<&Ad> = catalogue.ads.iter().collect();
        ads.sort_by_key(|ad| (std::cmp::Reverse(ad.weight), ad.code));
        for ad in ads {
            let Some(parents) = by_id.parents(ad) else { continue };
            let Some(offer) = compiled.offer(catalogue, words, ad, &parents) else { continue };
            let at = |all: &[Option<usize>], place: usize| all.get(place).copied().flatten();
            let targets = [at(&of_campaigns, parents.campaign), at(&of_groups, parents.group)];
            let new = || Group {
                terms: parents.campaign,
                targets: targets.into_iter().flatten().collect(),
                offers: Vec::new(),
            };
            let place = compiled.offers.len();
            groups.entry(parents.group).or_insert_with(new).offers.extend(u32::try_from(place));
            compiled.by_code.insert(ad.code, place);
            compiled.has_strict |= offer.strict;
            compiled.offers.push(offer);
        }
        compiled.groups = groups.into_values().collect();
        compiled.counter = Counter::new(compiled.offers.iter().map(|offer| offer.entity));
        compiled.number();
        compiled
    }

    /// Tells each offer where its group is and its bounds where they are counted.
    fn number(&mut self) {
        for (number, group) in self.groups.iter().enumerate() {
            for place in &group.offers {
                self.offers.iter_mut().skip(*place as usize).take(1).for_each(|offer| offer.group = number);
            }
        }
        for (place, offer) in self.offers.iter_mut().enumerate() {
            let places = self.counter.places(place).unwrap_or_default();
            for bound in &mut offer.bounds {
                bound.place =
                    Level::ALL.into_iter().zip(places).find(|(level, _)| *level == bound.level).map_or(0, |at| at.1);
            }
        }
    }

    /// The ad of a code.
    #[must_use]
    pub fn ad(&self, code: u32) -> Option<&Offer> {
        self.offers.get(self.place_of(code)?)
    }

    /// Whether any ad is under strict caps.
    #[must_use]
    pub fn has_strict(&self) -> bool {
        self.has_strict
    }

    /// The place in [`Self::offers`] of a code's ad.
    #[must_use]
    pub fn place_of(&self, code: u32) -> Option<usize> {
        self.by_code.get(&code).copied()
    }

    fn offer(&mut self, catalogue: &Catalogue, words: &Vocabulary, ad: &Ad, parents: &Parents) -> Option<Offer> {
        let group = catalogue.ad_groups.get(parents.group)?;
        let campaign = catalogue.campaigns.get(parents.campaign)?;
        let advertiser = catalogue.advertisers.get(parents.advertiser)?;
        let caps = [&ad.caps, &group.caps, &campaign.caps, &advertiser.caps];
        let rules = Level::ALL.into_iter().zip(caps).flat_map(|(level, caps)| caps.iter().map(move |cap| (level, cap)));
        let bounds = rules.map(|(level, rule)| self.bound(level, rule, words)).collect::<Option<Vec<_>>>()?;
        let capped = bounds.iter().any(|bound| bound.cap.verb == Verb::IMPRESSION);
        Some(Offer {
            entity: Entity { ad: ad.code, ad_group: group.code, campaign: campaign.code, advertiser: advertiser.code },
            ids: [&ad.id, &group.id, &campaign.id, &advertiser.id].map(Clone::clone),
            creative: ad.creative.clone(),
            landing: ad.landing.clone(),
            sizes: ad.sizes.clone(),
            terms: parents.campaign,
            group: 0,
            strict: campaign.cap_mode == CapMode::Strict && capped,
            bounds,
        })
    }

    fn bound(&mut self, level: Level, rule: &CapRule, words: &Vocabulary) -> Option<Bound> {
        let cap = Cap { verb: words.verb(&rule.action)?, limit: rule.limit, window: rule.window };
        let asked = (cap.verb, cap.window);
        let question = self.questions.iter().position(|question| *question == asked).unwrap_or_else(|| {
            self.questions.push(asked);
            self.questions.len() - 1
        });
        Some(Bound { level, cap, question, place: 0 })
    }
}

fn terms<'a>(campaign: &'a Campaign, of: Option<&Advertiser>, names: &mut Places<&'a str>) -> Terms {
    let moment = |text: &Option<String>| text.as_ref().and_then(|text| u64::try_from(filter::rfc3339(text)?).ok());
    Terms {
        runs: moment(&campaign.starts).unwrap_or(0)..moment(&campaign.ends).unwrap_or(Millis::MAX),
        bid: campaign.bid.unwrap_or(Bid::CpmMicros(0)),
        roadblock: campaign.roadblock,
        repeats: of.is_some_and(|advertiser| advertiser.repeats),
        categories: campaign.categories.iter().map(|name| names.of(name.as_str())).collect(),
    }
}

/// Values, each once, and where each is.
#[derive(Debug)]
struct Places<T> {
    all: Vec<T>,
    of: BTreeMap<T, usize>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { all: Vec::new(), of: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Places<T> {
    fn of(&mut self, value: T) -> usize {
        if let Some(place) = self.of.get(&value) {
            return *place;
        }
        self.of.insert(value.clone(), self.all.len());
        self.all.push(value);
        self.all.len() - 1
    }
}

/// The rows of a catalogue by their ids.
struct ById<'a> {
    advertisers: BTreeMap<&'a str, usize>,
    /// With the ids of their advertisers.
    campaigns: BTreeMap<&'a str, (usize, &'a str)>,
    /// With the ids of their campaigns.
    groups: BTreeMap<&'a str, (usize, &'a str)>,
}

/// The places of the rows that an ad belongs to.
struct Parents {
    group: usize,
    campaign: usize,
    advertiser: usize,
}

impl<'a> ById<'a> {
    fn of(catalogue: &'a Catalogue) -> Self {
        let campaigns = catalogue.campaigns.iter().map(|c| (c.id.as_str(), c.advertiser.as_str())).enumerate();
        let groups = catalogue.ad_groups.iter().map(|g| (g.id.as_str(), g.campaign.as_str())).enumerate();
        Self {
            advertisers: catalogue.advertisers.iter().enumerate().map(|(i, a)| (a.id.as_str(), i)).collect(),
            campaigns: campaigns.map(|(i, (id, parent))| (id, (i, parent))).collect(),
            groups: groups.map(|(i, (id, parent))| (id, (i, parent))).collect(),
        }
    }

    fn parents(&self, ad: &Ad) -> Option<Parents> {
        let (group, of) = *self.groups.get(ad.ad_group.as_str())?;
        let (campaign, of) = *self.campaigns.get(of)?;
        Some(Parents { group, campaign, advertiser: *self.advertisers.get(of)? })
    }
}

impl Offer {
    /// Whether it fits one of these sizes, or either names none.
    #[must_use]
    pub fn fits(&self, sizes: &[[u32; 2]]) -> bool {
        self.sizes.is_empty() || sizes.is_empty() || self.sizes.iter().any(|size| sizes.contains(size))
    }
}
