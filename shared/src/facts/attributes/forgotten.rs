//! Names that the origin gives to tokens after their own name was taken back. No page, file or administrator can write
//! under such a name.

use super::NameToken;
use crate::base::ids::Millis;

/// Prefix of the names of tokens that `forget` took back.
const FORGOTTEN: &str = "_forgotten.";
/// Prefix of the names of tokens that `retype` replaced.
const RETIRED: &str = "_retired.";
/// Prefix of the names of tokens that replace another one after `retype` has converted every stored value.
const PENDING: &str = "_pending.";

/// State of a token after its name was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgottenName {
    /// Stored profiles may still hold values of the token.
    Leaving,
    /// The last value left the store at this time; snapshots in the KV and at the edge may still hold values.
    Resting(Millis),
    /// No values remain; the next new name gets the token.
    Free,
}

impl ForgottenName {
    /// Name of a token in this state.
    #[must_use]
    pub fn name(self, token: NameToken) -> String {
        match self {
            Self::Leaving => format!("{FORGOTTEN}leaving.{}", token.0),
            Self::Resting(since) => format!("{FORGOTTEN}{since}.{}", token.0),
            Self::Free => format!("{FORGOTTEN}free.{}", token.0),
        }
    }

    /// The state that a name stands for; `None` for any other name.
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

/// Whether only the origin may assign this name.
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
