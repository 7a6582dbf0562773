//! The people: their preferences, their fatigue, their clicks and purchases. The product does not know these
//! properties.

use crate::ads::{ADVERTISERS, Ad, advertiser};
use crate::dice::Dice;

/// Base rate of clicks per impression.
const CTR: f64 = 0.02;
/// Base rate of purchases per click.
const CVR: f64 = 0.05;
/// Factors on the click rate for each earlier impression of the same ad, and of the same campaign.
const TIRED: (f64, f64) = (0.75, 0.93);
/// Days after which an impression has no effect.
const FORGOTTEN: u32 = 7;
/// Number of advertisers that a person likes, and the factors on the click rate of their ads and of all other ads.
const LIKED: (usize, f64, f64) = (4, 6.0, 0.6);

/// One person.
#[derive(Debug, Clone)]
pub struct Person {
    /// Number of the member; `None` for a person without a membership.
    pub member: Option<usize>,
    /// Number of browsers.
    pub browsers: usize,
    /// Whether the person gives permission.
    pub permits: bool,
    liked: [u8; LIKED.0],
    /// Seen impressions: ad, campaign and day.
    seen: Vec<(u16, u16, u32)>,
}

impl Person {
    /// Generates the person with a number.
    #[must_use]
    pub fn draw(number: usize, dice: &mut Dice) -> Self {
        let browsers = match dice.below(10) {
            0..4 => 1,
            4..8 => 2,
            _ => 3,
        };
        Self {
            member: dice.chance(0.7).then_some(number),
            browsers,
            permits: dice.chance(0.95),
            liked: std::array::from_fn(|_| u8::try_from(dice.below(ADVERTISERS)).unwrap_or_default()),
            seen: Vec::new(),
        }
    }

    fn likes(&self, code: usize) -> bool {
        self.liked.iter().any(|liked| usize::from(*liked) == advertiser(code))
    }

    /// Records an impression of an ad; returns whether the person clicks.
    pub fn look(&mut self, code: usize, ad: &Ad, day: u32, dice: &mut Dice) -> bool {
        let campaign = (code - 1) / 2;
        self.seen.retain(|(_, _, at)| at + FORGOTTEN > day);
        let count = |same: &dyn Fn(&(u16, u16, u32)) -> bool| {
            i32::try_from(self.seen.iter().filter(|seen| same(seen)).count()).unwrap_or(i32::MAX)
        };
        let of_ad = count(&|seen| usize::from(seen.0) == code);
        let of_campaign = count(&|seen| usize::from(seen.1) == campaign);
        let taste = if self.likes(code) { LIKED.1 } else { LIKED.2 };
        let chance = CTR * ad.appeal * taste * TIRED.0.powi(of_ad) * TIRED.1.powi(of_campaign);
        let numbers = (u16::try_from(code).unwrap_or_default(), u16::try_from(campaign).unwrap_or_default());
        self.seen.push((numbers.0, numbers.1, day));
        dice.chance(chance)
    }

    /// Whether the person buys after a click.
    pub fn buys(&self, code: usize, ad: &Ad, dice: &mut Dice) -> bool {
        let taste = if self.likes(code) { 1.5 } else { 1.0 };
        dice.chance(CVR * ad.closing * taste)
    }
}
