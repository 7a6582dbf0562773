//! A client's location and device, as the platform and the browser report them. Neither is stored.

/// A client's location and device, for the filters `geo.*` and `device.*`. `None` is absent, not unknown: the platform
/// was asked and has no value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClientInfo<'a> {
    /// The country: two capital letters of ISO 3166-1.
    pub(crate) country: Option<&'a str>,
    /// The region: the part of its ISO 3166-2 code after the country, 1 to 3 letters and digits.
    pub(crate) region: Option<&'a str>,
    pub(crate) class: Option<&'static str>,
    pub(crate) os: Option<&'static str>,
    pub(crate) browser: Option<&'static str>,
}

/// Words of user agents, each with its meaning. The first word of a list that occurs in the user agent counts, because
/// browsers also name the browsers that they imitate (MDN, "Browser detection using the user agent string"). An iPad
/// that requests desktop pages reports a Mac.
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
    // Fire TV, Roku, Chromecast and consoles do not name TV (their makers' lists of user agents).
    (" AFT", "tv"),
    ("CrKey", "tv"),
    ("Roku", "tv"),
    ("BRAVIA", "tv"),
    ("Web0S", "tv"),
    ("NetCast", "tv"),
    ("Viera", "tv"),
    ("PlayStation", "tv"),
    ("Xbox", "tv"),
    ("iPad", "tablet"),
    ("Tablet", "tablet"),
    ("Mobi", "mobile"),
    ("Android", "tablet"),
    ("Windows", "desktop"),
    ("CrOS", "desktop"),
    ("Macintosh", "desktop"),
    ("X11", "desktop"),
];

impl<'a> ClientInfo<'a> {
    /// The client at this location (country and region, separated by a space) with this user agent.
    pub(crate) fn of(place: &'a str, agent: &str) -> Self {
        let (country, region) = place.split_once(' ').unwrap_or((place, ""));
        // `XX` is the platform's code for an unknown country.
        let is_country = |code: &&str| code.len() == 2 && code.bytes().all(|b| b.is_ascii_uppercase()) && *code != "XX";
        let is_region = |code: &&str| (1..=3).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric());
        let country = Some(country).filter(is_country);
        let region = Some(region).filter(is_region).filter(|_| country.is_some());
        let first = |words: Words| words.iter().find(|(word, _)| agent.contains(word)).map(|(_, name)| *name);
        Self { country, region, class: first(CLASS), os: first(OS), browser: first(BROWSER) }
    }
}

/// The network of an address: an IPv4 /24 or an IPv6 /48. Rate limits of anonymous clients count by it.
#[must_use]
pub fn network_of(address: &str) -> String {
    if !address.contains(':') {
        return address.split('.').take(3).collect::<Vec<_>>().join(".");
    }
    let (first, rest) = address.split_once("::").unwrap_or((address, ""));
    let groups = |side: &str| side.split(':').filter(|group| !group.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let (mut all, rest) = (groups(first), groups(rest));
    if address.contains("::") {
        let left_out = 8_usize.saturating_sub(all.len() + rest.len());
        all.extend(std::iter::repeat_n("0".to_owned(), left_out));
    }
    all.into_iter().chain(rest).take(3).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_recognised_by_their_user_agents() {
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
            let client = ClientInfo::of("", agent);
            assert_eq!((client.class, client.os, client.browser), (Some(class), Some(os), Some(browser)), "{agent}");
        }
        assert_eq!(ClientInfo::of("", "curl/8.5"), ClientInfo::default());
    }

    #[test]
    fn addresses_of_one_network_share_a_name() {
        for (address, network) in [
            ("203.0.113.7", "203.0.113"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1"),
            ("2001:db8::1", "2001:db8:0"),
            ("::1", "0:0:0"),
            ("2001:db8:7::", "2001:db8:7"),
            ("", ""),
        ] {
            assert_eq!(network_of(address), network, "{address}");
        }
    }

    #[test]
    fn a_location_that_is_not_of_its_form_is_unknown() {
        let place = |place| {
            let ClientInfo { country, region, .. } = ClientInfo::of(place, "");
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
