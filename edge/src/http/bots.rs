//! Declared bots: user agents whose requests are answered but not counted.
//!
//! The words are name parts that the list `crawler-user-agents` (MIT) and the IAB/ABC International Spiders and Bots
//! List have in common. Six in seven programs of the former that are not HTTP clients contain one of them. A word
//! matches anywhere in the user agent except in the model of a phone, without regard to case. HTTP clients of
//! publishers' own servers (curl, okhttp) are not bots. `docs/DEPLOY.md` lists the words; a test compares the two
//! lists.

use std::sync::LazyLock;

/// Words of user agents that declare a program.
pub(crate) const WORDS: [&str; 129] = [
    // Crawlers and search engines.
    "bot",
    "crawl",
    "spider",
    "slurp",
    "archiv",
    "scrap",
    "indexer",
    "harvest",
    "heritrix",
    "nutch",
    "httrack",
    "sitemap",
    "yandexmetrika",
    "yandexdirect",
    "google-",
    "-google",
    "googleother",
    "googleagent",
    "google favicon",
    "googleweblight",
    "bytedance",
    "ichiro",
    "coccoc/",
    "daum/",
    "anthropic-ai",
    "cohere-ai",
    "img2dataset",
    "chatgpt-user",
    "claude-user",
    "claude-web",
    "perplexity-user",
    "mistralai-user",
    "gemini-deep-research",
    // Link previews, feeds, and checks of links.
    "externalhit",
    "meta-external",
    "facebookcatalog",
    "preview",
    "whatsapp/",
    "embedly",
    "iframely",
    "opengraph",
    "onebox",
    "unfurl",
    "slack-imgproxy",
    "imageproxy",
    "image proxy",
    "flipboardproxy",
    "vkshare",
    "feedburner",
    "fetcher",
    "parser",
    "extractor",
    "validator",
    "linkcheck",
    "link check",
    "checker",
    // Measurement and monitoring.
    "lighthouse",
    "ptst/",
    "gtmetrix",
    "pagespeed",
    "speedcurve",
    "dareboost",
    "monitor",
    "pinger",
    "pingdom",
    "nodeping",
    "freshping",
    "newrelic",
    "statuscake",
    "uptime",
    "uptrends",
    "updown",
    "hetrix",
    "panopta",
    "alertsite",
    "site24x7",
    "datadog",
    "synthetic",
    "catchpoint",
    "checkly",
    "dynatrace",
    "rigor",
    "appinsights",
    "healthcheck",
    "kube-probe",
    "nagios",
    "zabbix",
    "solarwinds",
    // Audits of sites and of ads, and vulnerability scanners.
    "analyzer",
    "auditor",
    "siteaudit",
    "semrush",
    "ahrefs",
    "screaming frog",
    "sitebulb",
    "siteimprove",
    "proximic",
    "admantx",
    "pulsepoint",
    "brandverity",
    "scanner",
    "netcraft",
    "censys",
    "zgrab",
    "masscan",
    "nmap",
    "nikto",
    "sqlmap",
    "nessus",
    "openvas",
    "acunetix",
    "wpscan",
    "virustotal",
    // Automated browsers.
    "headless",
    "phantomjs",
    "slimerjs",
    "casperjs",
    "puppeteer",
    "playwright",
    "cypress",
    "selenium",
    "webdriver",
    "htmlunit",
    "jsdom",
    "wkhtmlto",
    "prerender",
    "screenshot",
    "ghost inspector",
    // The address of the program's operator.
    "+http",
];

/// The words by their first byte, so that each position of a user agent is compared with few of them.
static WORDS_BY_FIRST_BYTE: LazyLock<[Vec<&str>; 256]> = LazyLock::new(|| {
    let mut words = [const { Vec::new() }; 256];
    for word in WORDS {
        if let Some(words) = word.bytes().next().and_then(|first| words.get_mut(usize::from(first))) {
            words.push(word);
        }
    }
    words
});

/// Browsers for people that write `compatible;` as bots do.
const COMPATIBLE_BROWSERS: [&str; 4] = ["msie", "trident", "konqueror", "netfront"];

/// Whether the user agent declares a program.
pub(crate) fn is_declared_bot(agent: &str) -> bool {
    let agent = agent.to_ascii_lowercase();
    let (before, after) = around_model(&agent);
    let is_compatible =
        || agent.contains("compatible;") && !COMPATIBLE_BROWSERS.iter().any(|word| agent.contains(word));
    has_word(before) || has_word(after) || is_compatible()
}

/// Whether a text in lower case contains one of the words.
fn has_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    // Cubot is a maker of phones.
    let is_phone =
        |from: usize, word: &str| word == "bot" && bytes.get(..from).is_some_and(|text| text.ends_with(b"cu"));
    bytes.iter().enumerate().any(|(from, first)| {
        let words = WORDS_BY_FIRST_BYTE.get(usize::from(*first)).map_or(&[][..], Vec::as_slice);
        let is_here = |word: &str| bytes.get(from..).is_some_and(|text| text.starts_with(word.as_bytes()));
        words.iter().any(|word| is_here(word) && !is_phone(from, word))
    })
}

/// The parts of a user agent in lower case before and after the model of an Android device, because a model may have a
/// bot's name. The model follows the version and, if there is one, the language. A name with a version is a program,
/// not a model.
fn around_model(agent: &str) -> (&str, &str) {
    let whole = (agent, "");
    let Some((_, rest)) = agent.split_once("android") else { return whole };
    let mut parts = rest.split_inclusive([';', ')']);
    if parts.next().is_none_or(|version| !version.ends_with(';')) {
        return whole;
    }
    let is_language = |part: &str| {
        let mut letters = part.trim_matches([' ', ';']).split(['-', '_']);
        letters.next().is_some_and(|language| language.len() == 2) && letters.all(|region| region.len() <= 4)
    };
    let Some(model) = parts.find(|part| !is_language(part)) else { return whole };
    let name = model.split(" build/").next().unwrap_or(model);
    if name.contains('/') {
        return whole;
    }
    let after: usize = parts.map(str::len).sum();
    let split = agent.split_at_checked(agent.len() - after - model.len());
    split.map_or(whole, |(before, rest)| (before, rest.get(model.len()..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_programs_are_bots_and_people_s_browsers_are_not() {
        let chrome =
            "Mozilla/5.0 (Linux; Android 11; moto g power) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0";
        let programs = [
            format!("{chrome} Mobile Safari/537.36 Chrome-Lighthouse"),
            format!("{chrome} Mobile Safari/537.36 (compatible; GoogleOther)"),
            format!("{chrome} Safari/537.36 PTST/240815.143212"),
            format!("{chrome} Safari/537.36 DatadogSynthetics"),
            format!("{chrome} Safari/537.36 (compatible; Google-InspectionTool/1.0;)"),
            "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)".to_owned(),
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/138.0.0.0"
                .to_owned(),
            "WhatsApp/2.23.20.0".to_owned(),
            format!("{chrome} Safari/537.36 NewRelicPinger/1.0 (1234567)"),
            "Mozilla/5.0 (compatible; YandexMetrika/2.0)".to_owned(),
            "YandexMetrika/3.0".to_owned(),
            "meta-externalfetcher/1.1".to_owned(),
            "meta-externalagent/1.1".to_owned(),
            "AhrefsSiteAudit/6.1".to_owned(),
            format!("{chrome} Safari/537.36; Example/1.0 (+https://example.com/about)"),
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko; compatible; Example)".to_owned(),
            // A bot that imitates a phone, and one at the position of a model.
            "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (compatible; Googlebot/2.1)"
                .to_owned(),
            "Mozilla/5.0 (Linux; Android 9; ExampleBot/1.0) AppleWebKit/537.36".to_owned(),
            "Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 Mobile Safari/537.36 (Example; Bytespider)".to_owned(),
        ];
        for agent in programs {
            assert!(is_declared_bot(&agent), "{agent}");
        }
        let people = [
            format!("{chrome} Mobile Safari/537.36"),
            "Mozilla/5.0 (Linux; Android 13; CUBOT NOTE 50) AppleWebKit/537.36".to_owned(),
            "Mozilla/5.0 (Linux; Android 13; Robot X1 Build/TP1A.220624.014) AppleWebKit/537.36 Chrome/138.0.0.0".to_owned(),
            "Mozilla/5.0 (Linux; U; Android 4.4; de-DE; Robot X1) AppleWebKit/534.30".to_owned(),
            "Mozilla/5.0 (Linux; Android 12; Spider Monitor 7; wv) AppleWebKit/537.36 Chrome/138.0.0.0".to_owned(),
            "Dalvik/2.1.0 (Linux; U; Android 13; CUBOT P80 Build/TP1A.220624.014)".to_owned(),
            "ExampleApp/3.1 (CUBOT P80; Android 13)".to_owned(),
            "Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.2; Trident/6.0)".to_owned(),
            "Mozilla/5.0 (Android 15; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0".to_owned(),
            "Mozilla/5.0 (Linux; Android".to_owned(),
            "Mozilla/5.0 (Linux; Android 9;".to_owned(),
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Version/18.5 Mobile DuckDuckGo/7".to_owned(),
            "Mozilla/5.0 (Linux; Android 9; AFTMM) AppleWebKit/537.36 (KHTML, like Gecko) Silk/108.4.4".to_owned(),
            "curl/8.5.0".to_owned(),
            String::new(),
        ];
        for agent in people {
            assert!(!is_declared_bot(&agent), "{agent}");
        }
    }

    #[test]
    fn the_guide_lists_the_words() {
        let guide = include_str!("../../../docs/DEPLOY.md");
        let listed = guide.split_once("Declared programs: ").and_then(|(_, rest)| rest.split_once('.'));
        let listed = listed.map(|(list, _)| list.replace('`', "").replace('\n', " "));
        assert_eq!(listed.as_deref(), Some(WORDS.join(", ").as_str()));
    }
}
