//! Names that the origin gives to tokens whose own name was taken back. No page, file or administrator can write under one.

use super::NameToken;
use crate::base::ids::Millis;

/// Start of the names of tokens that `forget` took back.
const FORGOTTEN: &str = "_forgotten.";
/// Start of the names of tokens that `retype` replaced.
const RETIRED: &str = "_retired.";
/// Start of the names of tokens that will replace another one, once `retype` has converted every stored value.
const PENDING: &str = "_pending.";

/// How far a token is whose name was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgottenName {
    /// Profiles in the store may still hold values of the token.
    Leaving,
    /// The last value left the store at this time; the KV and the edge may hold snapshots with older values.
    Resting(Millis),
    /// No value is left: the next new name gets the token.
    Free,
}

impl ForgottenName {
    /// The name that a token has in this state.
    #[must_use]
    pub fn name(self, token: NameToken) -> String {
        match self {
            Self::Leaving => format!("{FORGOTTEN}leaving.{}", token.0),
            Self::Resting(since) => format!("{FORGOTTEN}{since}.{}", token.0),
            Self::Free => format!("{FORGOTTEN}free.{}", token.0),
        }
    }

    /// The state that a name stands for; `None` for every other name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (state, _) = name.strip_prefix(FORGOTTEN)?.split_once('.')?;
        match state {
            "leaving" => Some(Self::Leaving),
            "free" => Some(Self::Free),
            since => since.parse().ok().map(Self::Resting),
        }
    }
}

/// Whether a name is one of those that the origin alone gives.
#[must_use]
pub fn name_is_reserved(name: &str) -> bool {
    [FORGOTTEN, RETIRED, PENDING].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::attributes::name_is_good;

    #[test]
    fn each_state_has_a_name_of_its_own_that_can_be_stored_and_read_again() {
        let states = [ForgottenName::Leaving, ForgottenName::Resting(Millis::MAX), ForgottenName::Free];
        for state in states {
            let name = state.name(NameToken(u16::MAX));
            assert!(name_is_good(&name) && name_is_reserved(&name), "{name}");
            assert_eq!(ForgottenName::parse(&name), Some(state), "{name}");
        }
        for other in ["free.3", "_forgotten", "_forgotten.3", "_forgotten.soon.3", "_retired.3.age"] {
            assert_eq!(ForgottenName::parse(other), None, "{other}");
        }
    }
}
