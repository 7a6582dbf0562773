//! Browsers and their users: pages with parallel slots, several tabs, deleted and copied cookies, wrong clocks, members
//! that share a browser, and consent that is withdrawn and given again.

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::keys::proof;
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::setup::{self, Plan};

/// The Causeway cookies of a browser.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jar {
    /// `__Host-cw_id`.
    pub identity: Option<String>,
    /// `__Host-cw_recent`.
    pub ledger: Option<String>,
    /// `__Host-cw_session`.
    pub session: Option<String>,
    /// Ads that this browser's answers have placed for its current visitor, as far as these cookies know: indexes into
    /// the list of [`crate::check::caps`]. A user that changes browsers takes none of them along.
    pub placed: Vec<usize>,
    /// The visitor of the latest answers.
    pub of: Option<String>,
}

impl Jar {
    /// The `Cookie` header.
    #[must_use]
    pub fn header(&self) -> String {
        let pair = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}={value}"));
        [
            pair("__Host-cw_id", &self.identity),
            pair("__Host-cw_recent", &self.ledger),
            pair("__Host-cw_session", &self.session),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("; ")
    }

    /// Takes one `Set-Cookie` header.
    pub fn set(&mut self, header: &str) {
        let pair = header.split(';').next().unwrap_or_default();
        let Some((name, value)) = pair.split_once('=') else { return };
        let value = (!value.is_empty()).then(|| value.to_owned());
        match name {
            "__Host-cw_id" => self.identity = value,
            "__Host-cw_recent" => self.ledger = value,
            "__Host-cw_session" => self.session = value,
            _ => {}
        }
    }
}

/// One browser on the pages of one tenant.
#[derive(Debug, Clone)]
pub struct Browser {
    /// Index of the tenant.
    pub tenant: usize,
    /// Its current cookies.
    pub jar: Jar,
    /// Earlier cookies, which a bot or a restored browser profile may bring back.
    pub old: Vec<Jar>,
    /// The member that is logged in.
    pub member: Option<u64>,
    /// A partner's id that its pages send without a proof.
    pub partner: Option<u64>,
    /// Whether it sends `Sec-GPC: 1`.
    pub gpc: bool,
    /// Offset of its clock in milliseconds.
    pub skew_ms: i64,
    /// Impression and click addresses of ads that it was shown.
    pub shown: Vec<String>,
    /// A call of events that must be sent again.
    pub again: Option<BrowserCall>,
    /// The visitor of the latest answer, and the token that names it.
    pub named: Option<(VisitorId, String)>,
    /// Calls of events that the tag holds back, each with the time of its creation; some were already sent once.
    pub held: Vec<(Millis, BrowserCall)>,
    /// Number of message ids used so far.
    pub messages: u64,
}

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `POST /v1/decide`.
    Decide,
    /// `POST /v1/events`.
    Events,
    /// The address of an impression or a click.
    Pixel,
    /// `GET /v1/me`.
    Me,
    /// `DELETE /v1/me`.
    Erase,
}

/// A call of a browser.
#[derive(Debug, Clone)]
pub struct BrowserCall {
    /// Its kind.
    pub kind: Kind,
    /// Its path.
    pub path: String,
    /// Its body.
    pub body: Vec<u8>,
    /// The member whose proof it carries.
    pub member: Option<u64>,
    /// The visitor of all events of the call, and the token that names it.
    pub owner: Option<(VisitorId, String)>,
}

impl Browser {
    /// A new browser without cookies.
    #[must_use]
    pub fn new(plan: &Plan, dice: &mut Dice) -> Self {
        let day = 86_400_000;
        let skew = if plan.skewed_browsers { dice.below(6 * day).cast_signed() - 3 * day.cast_signed() } else { 0 };
        Self {
            tenant: usize::from(dice.chance(150)),
            jar: Jar::default(),
            old: Vec::new(),
            member: None,
            partner: dice.chance(200).then(|| dice.below(2)),
            gpc: false,
            skew_ms: skew,
            shown: Vec::new(),
            again: None,
            named: None,
            held: Vec::new(),
            messages: 0,
        }
    }

    /// Two people exchange browsers: each finds the other's cookies and stays logged in as itself.
    pub fn swap(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.member, &mut other.member);
        std::mem::swap(&mut self.partner, &mut other.partner);
    }

    /// Random changes of cookies, login and consent before the next call.
    pub fn change(&mut self, plan: &Plan, dice: &mut Dice) {
        if plan.odd_cookies && dice.chance(15) {
            self.old.push(self.jar.clone());
            self.jar = Jar::default();
        } else if plan.odd_cookies && dice.chance(20) && !self.old.is_empty() {
            self.jar = self.old.swap_remove(dice.place(self.old.len()));
        } else if plan.odd_cookies && dice.chance(20) {
            self.old.push(self.jar.clone());
        }
        if plan.settled_ms > 0 {
            return;
        }
        let login = match plan {
            Plan { kiosk: true, .. } => 1_000,
            Plan { shared_browsers: true, .. } => 150,
            _ => 60,
        };
        if dice.chance(login) && (self.member.is_none() || plan.shared_browsers) {
            self.member = Some(dice.below(plan.members));
        } else if dice.chance(30) {
            self.member = None;
        }
        if plan.withdrawals && dice.chance(if self.gpc { 200 } else { 10 }) {
            self.gpc = !self.gpc;
        }
    }

    /// The next call of the browser.
    pub fn ask(&mut self, now: Millis, plan: &Plan, dice: &mut Dice) -> BrowserCall {
        if let Some(asked) = self.again.take_if(|_| dice.chance(700)).or_else(|| self.release(now, dice)) {
            return asked;
        }
        if now < setup::BEGIN + plan.settled_ms {
            let body = self.page_body(now, Vec::new(), true, self.member);
            return BrowserCall {
                kind: Kind::Decide,
                path: "/v1/decide".to_owned(),
                body,
                member: self.member,
                owner: None,
            };
        }
        if plan.kiosk && dice.chance(700) {
            return self.page(now, dice);
        }
        match dice.below(100) {
            0..20 if !self.shown.is_empty() => {
                let path = self.shown.swap_remove(dice.place(self.shown.len()));
                if dice.chance(100) {
                    self.shown.push(path.clone());
                }
                BrowserCall { kind: Kind::Pixel, path, body: Vec::new(), member: None, owner: None }
            }
            20..40 => {
                let asked = self.events(now, dice);
                if dice.chance(300) {
                    self.held.push((now, asked));
                    return self.page(now, dice);
                }
                asked
            }
            40..45 => BrowserCall {
                kind: Kind::Me,
                path: "/v1/me".to_owned(),
                body: Vec::new(),
                member: self.member,
                owner: None,
            },
            45 if plan.erasures && dice.chance(400) => BrowserCall {
                kind: Kind::Erase,
                path: "/v1/me".to_owned(),
                body: Vec::new(),
                member: self.member,
                owner: None,
            },
            _ => self.page(now, dice),
        }
    }

    /// A page with one to four slots.
    fn page(&self, now: Millis, dice: &mut Dice) -> BrowserCall {
        let slots: Vec<Value> = (0..dice.between(1, 4)).map(|n| json!({ "id": format!("slot-{n}") })).collect();
        let body = self.page_body(now, slots, dice.chance(900), self.member);
        BrowserCall { kind: Kind::Decide, path: "/v1/decide".to_owned(), body, member: self.member, owner: None }
    }

    /// The body of a page's call.
    #[must_use]
    pub fn page_body(&self, now: Millis, slots: Vec<Value>, page_view: bool, member: Option<u64>) -> Vec<u8> {
        let mut user = json!({ "ids": {}, "proofs": {} });
        if let Some(member) = member {
            user["ids"]["member"] = json!(name_of(member));
            user["proofs"]["member"] = json!(proof_of(member, self.tenant, now));
        }
        if let Some(partner) = self.partner.filter(|_| page_view) {
            user["ids"]["partner"] = json!(format!("partner-{partner}"));
        }
        json!({ "placements": slots, "user": user, "page_view": page_view, "explain": true }).to_string().into_bytes()
    }

    /// Releases a call that the tag has held back, in any order; some calls stay and are sent again later. Calls are
    /// dropped well before the token that names their visitor expires.
    fn release(&mut self, now: Millis, dice: &mut Dice) -> Option<BrowserCall> {
        self.held.retain(|(made, _)| made + limits::VISITOR_TOKEN_LIFE_MS / 2 > now);
        if self.held.is_empty() || !dice.chance(100) {
            return None;
        }
        let index = dice.place(self.held.len());
        if dice.chance(300) { self.held.get(index).cloned() } else { Some(self.held.swap_remove(index)) }
            .map(|(_, asked)| asked)
    }

    /// One to three events, some of which are sent twice; most name the visitor that they happened to.
    fn events(&mut self, now: Millis, dice: &mut Dice) -> BrowserCall {
        let named = self.named.clone().filter(|_| dice.chance(800));
        let at = now.saturating_add_signed(self.skew_ms).saturating_sub(dice.below(60_000));
        let mut events: Vec<Value> = Vec::new();
        for _ in 0..dice.between(1, 3) {
            self.messages += 1;
            let id = format!("m{}", self.messages);
            let mut event = match dice.below(4) {
                0 => {
                    json!({ "type": "track", "name": "purchase", "properties": { "value_micros": dice.below(9_000_000) } })
                }
                1 => {
                    json!({ "type": "segments", "set": [{ "segment": dice.below(20), "expires_ms": now + 40 * 86_400_000 }] })
                }
                2 => json!({ "type": "segments", "remove": [dice.below(20)] }),
                _ => json!({ "type": "page" }),
            };
            event["id"] = json!(id);
            event["visitor_token"] = json!(named.as_ref().map(|(_, token)| token));
            if event["type"] != "page" {
                event["at_ms"] = json!(at);
            }
            if dice.chance(100) {
                events.push(event.clone());
            }
            // Some calls remove, in their next event, the segment that they set.
            let taken_back = event["set"][0]["segment"].as_u64().filter(|segment| segment % 3 == 0);
            events.push(event);
            if let Some(segment) = taken_back {
                let id = format!("m{}-back", self.messages);
                let token = named.as_ref().map(|(_, token)| token);
                events.push(json!({
                    "type": "segments", "remove": [segment], "id": id, "visitor_token": token, "at_ms": at,
                }));
            }
        }
        let body = Value::Array(events).to_string().into_bytes();
        BrowserCall { kind: Kind::Events, path: "/v1/events".to_owned(), body, member: None, owner: named }
    }
}

/// A member's id at the publisher.
#[must_use]
pub fn name_of(member: u64) -> String {
    format!("m-{member}")
}

/// The publisher's proof for a member.
#[must_use]
pub fn proof_of(member: u64, tenant: usize, now: Millis) -> String {
    let now_s = now / 1_000;
    let signed =
        proof::sign_hs256(&setup::proof_key(), &name_of(member), &setup::tenant(tenant), now_s - 60, now_s + 3_600);
    signed.unwrap_or_default()
}
