//! A tenant's words for action types and view types, and their codes. A code is permanent: codes are append-only and
//! never reused.

use serde::{Deserialize, Serialize};

use crate::base::problems::ConfigProblem;
use crate::facts::actions::{ActionType, ViewType};

/// Most words of each sort; a code has one byte.
const WORDS: usize = 255;

/// The action types and view types in `catalogue.toml`. The action types `impression` (1) and `click` (2) are built in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Vocabulary {
    /// Further action types, with codes from 3 on.
    #[serde(rename = "action_type", default, skip_serializing_if = "Vec::is_empty")]
    pub action_types: Vec<VocabularyWord>,
    /// View types, with codes from 1 on.
    #[serde(rename = "view_type", default, skip_serializing_if = "Vec::is_empty")]
    pub view_types: Vec<VocabularyWord>,
}

/// A word with its code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VocabularyWord {
    /// The word: 1 to 32 characters of `a-z`, `0-9` and `_`.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[a-z0-9_]{1,32}$")))]
    pub name: String,
    /// The code, at most 255.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 255)))]
    pub code: u8,
}

const BUILT_IN: [(&str, ActionType); 2] = [("impression", ActionType::IMPRESSION), ("click", ActionType::CLICK)];

impl Vocabulary {
    /// Whether the tenant has no words of its own.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.action_types.is_empty() && self.view_types.is_empty()
    }

    /// The action type of a name.
    #[must_use]
    pub fn action_type(&self, name: &str) -> Option<ActionType> {
        let built_in = BUILT_IN.into_iter().find(|(own, _)| *own == name).map(|(_, action_type)| action_type);
        built_in.or_else(|| code_of(&self.action_types, name).map(ActionType))
    }

    /// The name of an action type.
    #[must_use]
    pub fn name_of(&self, action_type: ActionType) -> Option<&str> {
        let built_in = BUILT_IN.into_iter().find(|(_, own)| *own == action_type).map(|(name, _)| name);
        built_in
            .or_else(|| self.action_types.iter().find(|word| word.code == action_type.0).map(|word| word.name.as_str()))
    }

    /// The view type of a name.
    #[must_use]
    pub fn view_type(&self, name: &str) -> Option<ViewType> {
        code_of(&self.view_types, name).map(ViewType)
    }

    /// All problems of the vocabulary; `at` is its path in the document.
    #[must_use]
    pub fn problems(&self, at: &str) -> Vec<ConfigProblem> {
        let mut found = words_problems(&self.action_types, &format!("{at}.action_type"), 3);
        found.extend(words_problems(&self.view_types, &format!("{at}.view_type"), 1));
        for (i, word) in self.action_types.iter().enumerate() {
            if BUILT_IN.iter().any(|(name, _)| *name == word.name) {
                let message = format!("`{}` is built in: leave it out", word.name);
                found.push(ConfigProblem { path: format!("{at}.action_type[{i}].name"), message });
            }
        }
        found
    }
}

fn code_of(words: &[VocabularyWord], name: &str) -> Option<u8> {
    words.iter().find(|word| word.name == name).map(|word| word.code)
}

fn words_problems(words: &[VocabularyWord], at: &str, least: u8) -> Vec<ConfigProblem> {
    let mut found = Vec::new();
    let mut say = |path: String, message: String| found.push(ConfigProblem { path, message });
    if words.len() > WORDS {
        say(at.to_owned(), format!("at most {WORDS} words are allowed"));
    }
    for (i, word) in words.iter().enumerate().take(WORDS) {
        let before = words.get(..i).unwrap_or_default();
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if word.name.is_empty() || word.name.len() > 32 || !word.name.bytes().all(fits) {
            say(format!("{at}[{i}].name"), "must have 1 to 32 characters of a-z, 0-9 and _".to_owned());
        }
        if before.iter().any(|other| other.name == word.name) {
            say(format!("{at}[{i}].name"), format!("`{}` is used twice: choose another name", word.name));
        }
        if word.code < least || before.iter().any(|other| other.code == word.code) {
            say(format!("{at}[{i}].code"), format!("must be a number from {least} to 255 that no other word has"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &str, code: u8) -> VocabularyWord {
        VocabularyWord { name: name.to_owned(), code }
    }

    #[test]
    fn a_tenant_adds_action_types_to_the_two_built_in_ones() {
        let vocabulary = Vocabulary { action_types: vec![word("hide", 3)], view_types: vec![word("home", 1)] };
        assert_eq!(vocabulary.problems("catalogue"), []);
        let action_types = ["impression", "click", "hide", "save"].map(|name| vocabulary.action_type(name));
        assert_eq!(action_types, [Some(ActionType(1)), Some(ActionType(2)), Some(ActionType(3)), None]);
        assert_eq!(
            [1, 3, 9].map(|code| vocabulary.name_of(ActionType(code))),
            [Some("impression"), Some("hide"), None]
        );
        assert_eq!((vocabulary.view_type("home"), vocabulary.view_type("")), (Some(ViewType(1)), None));
    }

    #[test]
    fn everything_wrong_is_named_with_its_place() {
        let action_types = vec![word("click", 3), word("Save", 2), word("a", 3), word("a", 4)];
        let vocabulary = Vocabulary { action_types, view_types: vec![word("home", 0), word("", 1)] };
        let paths: Vec<String> = vocabulary.problems("c").into_iter().map(|p| p.path).collect();
        let expected = [
            "c.action_type[1].name",
            "c.action_type[1].code",
            "c.action_type[2].code",
            "c.action_type[3].name",
            "c.view_type[0].code",
            "c.view_type[1].name",
            "c.action_type[0].name",
        ];
        assert_eq!(paths, expected);
    }
}
