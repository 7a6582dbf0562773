//! What becomes of ads, and why a placement gets none.

use crate::catalogue::Bound;

/// What became of one ad for one placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is placed.
    Won,
    /// It could have been: another is worth more, or comes before it in the catalogue's order.
    Outbid,
    /// It comes in none of the placement's sizes.
    Size,
    /// Its campaign has not begun yet, or is over.
    Dates,
    /// It is not meant for who looks at this.
    Targeting,
    /// It belongs to an arm of an experiment that the person is not in.
    Arm,
    /// It belongs to an arm of an experiment, and the person is in the control, which gets none of them.
    Holdout,
    /// Its campaign has a budget, and takes no part in this call.
    Pace,
    /// It is worth less than the placement asks.
    Floor,
    /// It is placed on this page already, or another of its advertiser's is.
    OnPage,
    /// What competes with it is placed on this page already.
    Competes,
    /// It fills all placements of a page, and there is one that it cannot fill; or another campaign fills them all.
    Roadblock,
    /// It has caps, or belongs to an arm, and there is nobody to count for.
    Nobody,
    /// Its caps are strict, and the person's object did not grant it.
    Refused,
    /// Its caps are strict, and no object was asked, or none answered.
    Unconfirmed,
    /// A cap binds, at so many of its action; the first from the ad up.
    Capped(Bound, u32),
}

impl Fate {
    /// A stable name for traces.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Outbid => "outbid",
            Self::Size => "size",
            Self::Dates => "dates",
            Self::Targeting => "targeting",
            Self::Arm => "arm",
            Self::Holdout => "holdout",
            Self::Pace => "pace",
            Self::Floor => "floor",
            Self::OnPage => "on_page",
            Self::Competes => "competes",
            Self::Roadblock => "roadblock",
            Self::Nobody => "nobody",
            Self::Unconfirmed => "unconfirmed",
            Self::Refused | Self::Capped(..) => "capped",
        }
    }
}

/// Why a placement gets no ad of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAd {
    /// There is none in it.
    NoCatalogue,
    /// None comes in the placement's sizes.
    NoSize,
    /// None that does is meant for who looks at this now, and worth what the placement asks.
    NoneMatches,
    /// All that are, are at a cap, were not granted, have caps and nobody to count for, or give way to what is on the page.
    AllCapped,
}

impl NoAd {
    /// A stable name for answers.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NoCatalogue => "no_catalogue",
            Self::NoSize => "no_size",
            Self::NoneMatches => "none_matches",
            Self::AllCapped => "all_capped",
        }
    }
}
