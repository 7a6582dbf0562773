//! Declared programs: user agents that are answered and not counted.
//!
//! The words follow what the IAB/ABC International Spiders and Bots List and the lists of monitoring services share. A word
//! matches anywhere in the user agent, without regard to case. HTTP clients of publishers' own servers (curl, okhttp) are
//! no bots. `docs/DEPLOY.md` lists the words; a test keeps both the same.

/// Words of user agents that declare a program.
pub(crate) const WORDS: [&str; 46] = [
    // Crawlers and search engines.
    "bot",
    "crawl",
    "spider",
    "slurp",
    "archiver",
    "scrapy",
    "googleother",
    "google-inspectiontool",
    "google-extended",
    "google-read-aloud",
    "googleweblight",
    "mediapartners-google",
    "apis-google",
    "feedfetcher",
    "chatgpt-user",
    "claude-user",
    "claude-web",
    "perplexity-user",
    "cohere-ai",
    // Link previews.
    "facebookexternalhit",
    "preview",
    "whatsapp/",
    "embedly",
    "slack-imgproxy",
    "vkshare",
    // Measurement and monitoring.
    "lighthouse",
    "ptst/",
    "gtmetrix",
    "pagespeed",
    "speedcurve",
    "monitor",
    "pingdom",
    "statuscake",
    "uptime",
    "site24x7",
    "datadog",
    "synthetic",
    "catchpoint",
    "checkly",
    "dynatrace",
    // Driven browsers.
    "headlesschrome",
    "phantomjs",
    "puppeteer",
    "playwright",
    "selenium",
    "webdriver",
];

/// Whether the user agent declares a program.
pub(crate) fn is_declared_bot(agent: &str) -> bool {
    let agent = agent.as_bytes();
    let is_word =
        |at: &[u8], word: &str| at.get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()));
    // Cubot is a maker of phones.
    let is_phone = |before: &[u8]| before.last_chunk::<2>().is_some_and(|cu| cu.eq_ignore_ascii_case(b"cu"));
    (0..agent.len())
        .filter_map(|from| agent.split_at_checked(from))
        .any(|(before, at)| WORDS.iter().any(|word| is_word(at, word) && !(*word == "bot" && is_phone(before))))
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
        ];
        for agent in programs {
            assert!(is_declared_bot(&agent), "{agent}");
        }
        let people = [
            format!("{chrome} Mobile Safari/537.36"),
            "Mozilla/5.0 (Linux; Android 13; CUBOT NOTE 50) AppleWebKit/537.36".to_owned(),
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
