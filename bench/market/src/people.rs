//! The people: what they like, what tires them, and when they click and buy. Nothing of it is told to anybody.

use crate::ads::{ADVERTISERS, Ad, advertiser};
use crate::dice::Dice;

/// Clicks of impressions on average, where nothing speaks for or against it.
const CTR: f64 = 0.02;
/// Purchases of clicks.
const CVR: f64 = 0.05;
/// What each impression of the same ad leaves of the next one's chance, and of the same campaign.
const TIRED: (f64, f64) = (0.75, 0.93);
/// Days after which an impression is forgotten.
const FORGOTTEN: u32 = 7;
/// Advertisers that a person likes, and how much more it clicks those and less the others.
const LIKED: (usize, f64, f64) = (4, 6.0, 0.6);

/// One person.
#[derive(Debug, Clone)]
pub struct Person {
    /// Its number as a member, if it is one.
    pub member: Option<usize>,
    /// How many browsers it uses.
    pub browsers: usize,
    /// Whether it gives permission.
    pub permits: bool,
    liked: [u8; LIKED.0],
    /// What it saw: ad, campaign and day.
    seen: Vec<(u16, u16, u32)>,
}

impl Person {
    /// Draws the person of a number.
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

    /// Looks at an ad: gives whether it is clicked.
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

    /// Whether it buys what it clicked.
    pub fn buys(&self, code: usize, ad: &Ad, dice: &mut Dice) -> bool {
        let taste = if self.likes(code) { 1.5 } else { 1.0 };
        dice.chance(CVR * ad.closing * taste)
    }
}
