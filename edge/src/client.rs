//! Where a request comes from, and on what kind of device: as the platform and the browser say. Nothing of it is kept.

/// What filters may ask of it (`geo.*`, `device.*`). What is not known is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Client<'a> {
    /// Two capitals of ISO 3166-1.
    pub(crate) country: Option<&'a str>,
    /// The code of ISO 3166-2 behind the country's: 1 to 3 letters and digits.
    pub(crate) region: Option<&'a str>,
    pub(crate) class: Option<&'static str>,
    pub(crate) os: Option<&'static str>,
    pub(crate) browser: Option<&'static str>,
}

/// Words of user agents with what they stand for; the first that is there counts, as browsers also name those that they
/// want to be taken for (MDN, "Browser detection using the user agent string"). An iPad that asks for desktop pages says it
/// is a Mac.
type Words = &'static [(&'static str, &'static str)];

const OS: Words = &[
    ("iPhone", "ios"),
    ("iPad", "ios"),
    ("iPod", "ios"),
    ("Android", "android"),
    ("Windows", "windows"),
    ("CrOS", "chromeos"),
    ("Macintosh", "macos"),
    ("Linux", "linux"),
];
const BROWSER: Words = &[
    ("EdgA/", "edge"),
    ("EdgiOS/", "edge"),
    ("Edg/", "edge"),
    ("OPR/", "opera"),
    ("SamsungBrowser/", "samsung"),
    ("FxiOS/", "firefox"),
    ("Firefox/", "firefox"),
    ("CriOS/", "chrome"),
    ("Chrome/", "chrome"),
    ("Safari/", "safari"),
];
const CLASS: Words = &[
    ("TV", "tv"),
    ("iPad", "tablet"),
    ("Tablet", "tablet"),
    ("Mobi", "mobile"),
    ("Android", "tablet"),
    ("Windows", "desktop"),
    ("CrOS", "desktop"),
    ("Macintosh", "desktop"),
    ("X11", "desktop"),
];

impl<'a> Client<'a> {
    /// By country and region, a space between them, and the user agent.
    pub(crate) fn of(place: &'a str, agent: &str) -> Self {
        let (country, region) = place.split_once(' ').unwrap_or((place, ""));
        // `XX` is the platform's word for a country it does not know.
        let is_country = |code: &&str| code.len() == 2 && code.bytes().all(|b| b.is_ascii_uppercase()) && *code != "XX";
        let is_region = |code: &&str| (1..=3).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric());
        let country = Some(country).filter(is_country);
        let region = Some(region).filter(is_region).filter(|_| country.is_some());
        let first = |words: Words| words.iter().find(|(word, _)| agent.contains(word)).map(|(_, name)| *name);
        Self { country, region, class: first(CLASS), os: first(OS), browser: first(BROWSER) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_what_their_user_agents_say() {
        for (agent, class, os, browser) in [
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
                "mobile",
                "ios",
                "safari",
            ),
            (
                "Mozilla/5.0 (iPad; CPU OS 12_5 like Mac OS X) AppleWebKit/605.1.15 CriOS/112.0 Mobile/15E148 Safari/604.1",
                "tablet",
                "ios",
                "chrome",
            ),
            (
                "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36",
                "mobile",
                "android",
                "chrome",
            ),
            (
                "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Safari/537.36",
                "tablet",
                "android",
                "samsung",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0",
                "desktop",
                "windows",
                "edge",
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15",
                "desktop",
                "macos",
                "safari",
            ),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "desktop", "linux", "firefox"),
            (
                "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 OPR/120.0",
                "desktop",
                "chromeos",
                "opera",
            ),
            (
                "Mozilla/5.0 (SMART-TV; Linux; Tizen 7.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/94.0 Safari/537.36",
                "tv",
                "linux",
                "chrome",
            ),
        ] {
            let client = Client::of("", agent);
            assert_eq!((client.class, client.os, client.browser), (Some(class), Some(os), Some(browser)), "{agent}");
        }
        assert_eq!(Client::of("", "curl/8.5"), Client::default());
    }

    #[test]
    fn a_place_is_what_the_platform_says_or_nothing() {
        let place = |place| {
            let Client { country, region, .. } = Client::of(place, "");
            (country, region)
        };
        assert_eq!(place("DE BE"), (Some("DE"), Some("BE")));
        for one in ["DE", "DE ", "DE tooLong", "DE B E"] {
            assert_eq!(place(one), (Some("DE"), None), "{one}");
        }
        for nothing in ["", " ", "XX BE", "T1 BE", "de BE", "DEU BE", " BE"] {
            assert_eq!(place(nothing), (None, None), "{nothing}");
        }
    }
}
