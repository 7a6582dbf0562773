//! The catalogue as a decision needs it: the ads in the order of their choice, each with all caps that bind it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Ad, CapMode, CapRule, Catalogue};
use crate::actions::{Cap, Entity, Level, Verb, Window};
use crate::vocabulary::Vocabulary;

/// A catalogue without problems, compiled. Made once, read by every decision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Compiled {
    /// The ads by weight, the heaviest first, then by code.
    pub offers: Vec<Offer>,
    /// What the caps ask of a person's actions, each pair once.
    pub questions: Vec<(Verb, Window)>,
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
    /// Whether its campaign's caps are strict, and there is one on impressions, which alone can be.
    pub strict: bool,
    /// All caps that bind it, from the ad up.
    pub bounds: Vec<Bound>,
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
}

impl Compiled {
    /// Compiles a catalogue. An ad whose parents or verbs are not there, which [`Catalogue::problems`] refuses, is left out.
    #[must_use]
    pub fn new(catalogue: &Catalogue, words: &Vocabulary) -> Self {
        let mut compiled = Self::default();
        let mut ads: Vec<&Ad> = catalogue.ads.iter().collect();
        ads.sort_by_key(|ad| (std::cmp::Reverse(ad.weight), ad.code));
        for ad in ads {
            if let Some(offer) = compiled.offer(catalogue, words, ad) {
                compiled.by_code.insert(ad.code, compiled.offers.len());
                compiled.has_strict |= offer.strict;
                compiled.offers.push(offer);
            }
        }
        compiled
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

    fn offer(&mut self, catalogue: &Catalogue, words: &Vocabulary, ad: &Ad) -> Option<Offer> {
        let group = catalogue.ad_groups.iter().find(|group| group.id == ad.ad_group)?;
        let campaign = catalogue.campaigns.iter().find(|campaign| campaign.id == group.campaign)?;
        let advertiser = catalogue.advertisers.iter().find(|advertiser| advertiser.id == campaign.advertiser)?;
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
        Some(Bound { level, cap, question })
    }
}

impl Offer {
    /// Whether it fits one of these sizes, or either names none.
    #[must_use]
    pub fn fits(&self, sizes: &[[u32; 2]]) -> bool {
        self.sizes.is_empty() || sizes.is_empty() || self.sizes.iter().any(|size| sizes.contains(size))
    }
}
