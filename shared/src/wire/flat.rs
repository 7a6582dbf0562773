//! The catalogue document inside its KV value ([`super::catalogue`]). Unknown keys are refused, because ignoring a
//! restriction would show an ad to people that it excludes.

use crate::base::ids::Micros;
use bytestring::ByteString;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::cbor::{self, FormBounds};
use super::parts::{self, WindowForm};
use super::{WireError, filter};
use crate::ads::catalogue::{Bid, FlatAd, FlatAdvertiser, FlatCampaign, FlatCatalogue, FlatGroup, RowHead};
use crate::base::limits;
use crate::facts::actions::{ActionType, TimeWindow};
use crate::facts::offer_codes::RecipientLimit;
use crate::targeting::experiment::Experiment;

const FORM: u8 = 1;
/// The bytes are bounded where they are decompressed; an item has at least one byte.
const FLAT: FormBounds = FormBounds { bytes: limits::CATALOGUE_BYTES, items: limits::CATALOGUE_BYTES, levels: 12 };

/// [`FlatCatalogue`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatForm {
    #[serde(rename = "f")]
    form: u8,
    /// In the form of the catalogue's source document.
    #[serde(rename = "x", default, skip_serializing_if = "Vec::is_empty")]
    experiments: Vec<Experiment>,
    #[serde(rename = "q", default, skip_serializing_if = "Vec::is_empty")]
    questions: Vec<CapQuestionForm>,
    /// Each in the form of [`filter`], with bounds of its own.
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    filters: Vec<ByteBuf>,
    #[serde(rename = "l", default, skip_serializing_if = "Vec::is_empty")]
    caps: Vec<Vec<CapForm>>,
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<Vec<SizeForm>>,
    #[serde(rename = "v", default, skip_serializing_if = "Vec::is_empty")]
    advertisers: Vec<AdvertiserForm>,
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    campaigns: Vec<CampaignForm>,
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<GroupForm>,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    ads: Vec<AdForm>,
}

/// The count of a person's actions that caps need.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CapQuestionForm {
    #[serde(rename = "v")]
    action_type: u8,
    #[serde(rename = "w")]
    window: WindowForm,
}

/// A cap: the index of its question, and the limit.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CapForm {
    #[serde(rename = "q")]
    question: u32,
    #[serde(rename = "m")]
    limit: u32,
}

/// A size, in pixels.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeForm {
    #[serde(rename = "w")]
    width: u32,
    #[serde(rename = "h")]
    height: u32,
}

/// [`RowHead`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadForm {
    #[serde(rename = "i")]
    id: ByteString,
    #[serde(rename = "c")]
    code: u32,
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    caps: Option<u32>,
    #[serde(rename = "x", skip_serializing_if = "Option::is_none")]
    arm: Option<ArmForm>,
}

/// An arm: the index of its experiment, and its code.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmForm {
    #[serde(rename = "x")]
    experiment: u32,
    #[serde(rename = "a")]
    arm: u8,
}

/// [`FlatAdvertiser`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdvertiserForm {
    #[serde(rename = "h")]
    head: HeadForm,
    #[serde(rename = "r", default, skip_serializing_if = "std::ops::Not::not")]
    repeats: bool,
}

/// [`FlatCampaign`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CampaignForm {
    #[serde(rename = "h")]
    head: HeadForm,
    #[serde(rename = "v")]
    advertiser: u32,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    target: Option<u32>,
    #[serde(rename = "s")]
    starts: u64,
    #[serde(rename = "e")]
    ends: u64,
    #[serde(rename = "b")]
    bid: BidForm,
    #[serde(rename = "r", default, skip_serializing_if = "std::ops::Not::not")]
    roadblock: bool,
    #[serde(rename = "k", default, skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    #[serde(rename = "p", default, skip_serializing_if = "std::ops::Not::not")]
    paced: bool,
    #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
    recipients: Option<RecipientsForm>,
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    categories: Vec<u32>,
}

/// [`Bid`].
#[derive(Serialize, Deserialize)]
enum BidForm {
    #[serde(rename = "m")]
    CpmMicros(i64),
    #[serde(rename = "c")]
    CpcMicros(i64),
    #[serde(rename = "a")]
    CpaMicros(i64),
    #[serde(rename = "s")]
    SharePpm(i64),
}

/// [`RecipientLimit`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipientsForm {
    #[serde(rename = "m")]
    limit: u32,
    #[serde(rename = "s")]
    share: u16,
}

/// [`FlatGroup`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupForm {
    #[serde(rename = "h")]
    head: HeadForm,
    #[serde(rename = "c")]
    campaign: u32,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    target: Option<u32>,
}

/// [`FlatAd`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdForm {
    #[serde(rename = "h")]
    head: HeadForm,
    #[serde(rename = "g")]
    group: u32,
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    sizes: Option<u32>,
    #[serde(rename = "c")]
    creative: ByteString,
    #[serde(rename = "l")]
    landing: ByteString,
}

/// Encodes a catalogue.
#[must_use]
pub fn encode_catalogue(flat: &FlatCatalogue) -> Vec<u8> {
    cbor::encode(&FlatForm::from(flat))
}

/// Decodes a catalogue. A reference to a missing row is refused.
///
/// # Errors
/// [`WireError`] for an invalid document.
pub fn decode_catalogue(bytes: &[u8]) -> Result<FlatCatalogue, WireError> {
    cbor::decode::<FlatForm>(bytes, FORM, FLAT)?.try_into()
}

impl From<&FlatCatalogue> for FlatForm {
    fn from(flat: &FlatCatalogue) -> Self {
        let FlatCatalogue { experiments, questions, filters, caps, sizes, advertisers, campaigns, groups, ads } = flat;
        let question = |(action_type, window): &(ActionType, TimeWindow)| CapQuestionForm {
            action_type: action_type.0,
            window: (*window).into(),
        };
        let cap = |(question, limit): &(u32, u32)| CapForm { question: *question, limit: *limit };
        let size = |[width, height]: &[u32; 2]| SizeForm { width: *width, height: *height };
        Self {
            form: FORM,
            experiments: experiments.clone(),
            questions: questions.iter().map(question).collect(),
            filters: filters.iter().map(|filter| ByteBuf::from(filter::encode_filter(filter))).collect(),
            caps: caps.iter().map(|caps| caps.iter().map(cap).collect()).collect(),
            sizes: sizes.iter().map(|sizes| sizes.iter().map(size).collect()).collect(),
            advertisers: advertisers.iter().map(AdvertiserForm::from).collect(),
            campaigns: campaigns.iter().map(CampaignForm::from).collect(),
            groups: groups.iter().map(GroupForm::from).collect(),
            ads: ads.iter().map(AdForm::from).collect(),
        }
    }
}

impl TryFrom<FlatForm> for FlatCatalogue {
    type Error = WireError;

    fn try_from(form: FlatForm) -> Result<Self, WireError> {
        const ROWS: usize = limits::CATALOGUE_ROWS;
        let questions = parts::read_list(form.questions, limits::CAP_QUESTIONS, |form| {
            Ok((ActionType(form.action_type), TimeWindow::try_from(form.window)?))
        })?;
        let filters = parts::read_list(form.filters, 2 * ROWS, |bytes| filter::decode_filter(&bytes))?;
        let caps = parts::read_list(form.caps, 4 * ROWS, |caps| {
            some(caps, limits::CAPS, |cap| Ok((check_index(cap.question, questions.len())?, cap.limit)))
        })?;
        let sizes = parts::read_list(form.sizes, ROWS, |sizes| {
            some(sizes, limits::SIZES, |size| Ok([size.width, size.height]))
        })?;
        let rows = RowCounts { caps: caps.len(), experiments: form.experiments.len(), filters: filters.len() };
        let advertisers = parts::read_list(form.advertisers, ROWS, |form| {
            Ok(FlatAdvertiser { head: rows.head(form.head)?, repeats: form.repeats })
        })?;
        let campaigns = parts::read_list(form.campaigns, ROWS, |form| rows.campaign(form, advertisers.len()))?;
        let groups = parts::read_list(form.groups, ROWS, |form| {
            let (head, campaign) = (rows.head(form.head)?, check_index(form.campaign, campaigns.len())?);
            Ok(FlatGroup { head, campaign, target: check_optional_index(form.target, filters.len())? })
        })?;
        let ads = parts::read_list(form.ads, ROWS, |form| {
            let (head, group) = (rows.head(form.head)?, check_index(form.group, groups.len())?);
            let sizes = check_optional_index(form.sizes, sizes.len())?;
            Ok(FlatAd { head, group, sizes, creative: form.creative, landing: form.landing })
        })?;
        let experiments = form.experiments;
        Ok(Self { experiments, questions, filters, caps, sizes, advertisers, campaigns, groups, ads })
    }
}

impl From<&RowHead> for HeadForm {
    fn from(RowHead { id, code, caps, arm }: &RowHead) -> Self {
        let arm = arm.map(|(experiment, arm)| ArmForm { experiment, arm });
        Self { id: id.clone(), code: *code, caps: *caps, arm }
    }
}

impl From<&FlatAdvertiser> for AdvertiserForm {
    fn from(FlatAdvertiser { head, repeats }: &FlatAdvertiser) -> Self {
        Self { head: head.into(), repeats: *repeats }
    }
}

impl From<&FlatCampaign> for CampaignForm {
    fn from(campaign: &FlatCampaign) -> Self {
        Self {
            head: (&campaign.head).into(),
            advertiser: campaign.advertiser,
            target: campaign.target,
            starts: campaign.runs.start,
            ends: campaign.runs.end,
            bid: campaign.bid.into(),
            roadblock: campaign.roadblock,
            strict: campaign.strict,
            paced: campaign.paced,
            recipients: campaign.recipients.map(|RecipientLimit { limit, share }| RecipientsForm { limit, share }),
            categories: campaign.categories.clone(),
        }
    }
}

impl From<Bid> for BidForm {
    fn from(bid: Bid) -> Self {
        match bid {
            Bid::CpmMicros(micros) => Self::CpmMicros(micros.get()),
            Bid::CpcMicros(micros) => Self::CpcMicros(micros.get()),
            Bid::CpaMicros(micros) => Self::CpaMicros(micros.get()),
            Bid::SharePpm(share) => Self::SharePpm(share),
        }
    }
}

impl TryFrom<BidForm> for Bid {
    type Error = WireError;

    fn try_from(form: BidForm) -> Result<Self, WireError> {
        let bid = match form {
            BidForm::CpmMicros(micros) => Self::CpmMicros(Micros::new(micros)),
            BidForm::CpcMicros(micros) => Self::CpcMicros(Micros::new(micros)),
            BidForm::CpaMicros(micros) => Self::CpaMicros(Micros::new(micros)),
            BidForm::SharePpm(share) => Self::SharePpm(share),
        };
        if bid.is_within() { Ok(bid) } else { Err(WireError::Range) }
    }
}

impl TryFrom<RecipientsForm> for RecipientLimit {
    type Error = WireError;

    fn try_from(RecipientsForm { limit, share }: RecipientsForm) -> Result<Self, WireError> {
        let recipients = Self { limit, share };
        if recipients.is_within() { Ok(recipients) } else { Err(WireError::Range) }
    }
}

impl From<&FlatGroup> for GroupForm {
    fn from(FlatGroup { head, campaign, target }: &FlatGroup) -> Self {
        Self { head: head.into(), campaign: *campaign, target: *target }
    }
}

impl From<&FlatAd> for AdForm {
    fn from(FlatAd { head, group, sizes, creative, landing }: &FlatAd) -> Self {
        let (creative, landing) = (creative.clone(), landing.clone());
        Self { head: head.into(), group: *group, sizes: *sizes, creative, landing }
    }
}

/// Lengths of the lists that rows refer to by index.
#[derive(Clone, Copy)]
struct RowCounts {
    caps: usize,
    experiments: usize,
    filters: usize,
}

impl RowCounts {
    fn head(self, form: HeadForm) -> Result<RowHead, WireError> {
        let arm = form.arm.map(|arm| Ok((check_index(arm.experiment, self.experiments)?, arm.arm))).transpose()?;
        Ok(RowHead { id: form.id, code: form.code, caps: check_optional_index(form.caps, self.caps)?, arm })
    }

    fn campaign(self, form: CampaignForm, advertisers: usize) -> Result<FlatCampaign, WireError> {
        Ok(FlatCampaign {
            head: self.head(form.head)?,
            advertiser: check_index(form.advertiser, advertisers)?,
            target: check_optional_index(form.target, self.filters)?,
            runs: form.starts..form.ends,
            bid: form.bid.try_into()?,
            roadblock: form.roadblock,
            strict: form.strict,
            paced: form.paced,
            recipients: form.recipients.map(RecipientLimit::try_from).transpose()?,
            categories: parts::read_list(form.categories, limits::CATEGORIES, Ok)?,
        })
    }
}

/// A list with 1 to `most` entries.
fn some<F, T>(forms: Vec<F>, most: usize, read: impl FnMut(F) -> Result<T, WireError>) -> Result<Vec<T>, WireError> {
    if forms.is_empty() { Err(WireError::Range) } else { parts::read_list(forms, most, read) }
}

/// Checks that an index is within a list of `count` entries.
fn check_index(index: u32, count: usize) -> Result<u32, WireError> {
    if (index as usize) < count { Ok(index) } else { Err(WireError::Range) }
}

fn check_optional_index(at: Option<u32>, count: usize) -> Result<Option<u32>, WireError> {
    at.map(|at| check_index(at, count)).transpose()
}
