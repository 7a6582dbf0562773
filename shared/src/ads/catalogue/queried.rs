//! The data of people that a catalogue reads; a snapshot stores it with priority over all other data.

use std::collections::BTreeSet;

use super::flat::{FlatCatalogue, RowHead};
use crate::base::limits;
use crate::facts::actions::AdLevel;
use crate::profiles::profile::QueriedNames;
use crate::targeting::filter::FilterField;

impl FlatCatalogue {
    /// The attributes and segments that its filters name, and the actions that its caps count. If there are more
    /// segments than [`limits::SNAPSHOT_QUERIED`], negated ones come first.
    #[must_use]
    pub fn queried(&self) -> QueriedNames {
        let mut queried = QueriedNames::default();
        let mut positive = BTreeSet::new();
        for filter in &self.filters {
            filter.each_field(|field, is_negated, segments| match field {
                FilterField::Attribute(token, _) => _ = queried.attributes.insert(token.0),
                FilterField::Segments if is_negated => queried.segments.extend(segments),
                FilterField::Segments => positive.extend(segments),
                _ => {}
            });
        }
        for id in positive {
            if queried.segments.len() >= limits::SNAPSHOT_QUERIED {
                break;
            }
            queried.segments.insert(id);
        }
        let heads = |level| -> Box<dyn Iterator<Item = &RowHead> + '_> {
            match level {
                AdLevel::Ad => Box::new(self.ads.iter().map(|ad| &ad.head)),
                AdLevel::AdGroup => Box::new(self.groups.iter().map(|group| &group.head)),
                AdLevel::Campaign => Box::new(self.campaigns.iter().map(|campaign| &campaign.head)),
                AdLevel::Advertiser => Box::new(self.advertisers.iter().map(|advertiser| &advertiser.head)),
            }
        };
        for level in AdLevel::ALL {
            for head in heads(level) {
                let caps = head.caps.and_then(|place| self.caps.get(place as usize));
                for (question, _) in caps.into_iter().flatten() {
                    if let Some((action_type, _)) = self.questions.get(*question as usize) {
                        queried.add_cap(*action_type, level, head.code);
                    }
                }
            }
        }
        queried
    }
}
