//! An encoder for consent strings.

use crate::consent::bits::{BitReader, prefix};

/// Bits in the order in which they were written.
#[derive(Default, Clone)]
pub(super) struct Writer(Vec<bool>);

impl Writer {
    pub(super) fn put(&mut self, value: u64, width: usize) -> &mut Self {
        self.0.extend((0..width).rev().map(|bit| value >> bit & 1 == 1));
        self
    }

    /// One bit for each id from 1 to `width`.
    pub(super) fn field(&mut self, ids: &[u8], width: u8) -> &mut Self {
        self.0.extend((1..=width).map(|id| ids.contains(&id)));
        self
    }

    pub(super) fn fibonacci(&mut self, value: u32) -> &mut Self {
        let mut numbers = vec![1u32, 2];
        while numbers[numbers.len() - 1] <= value {
            numbers.push(numbers[numbers.len() - 1] + numbers[numbers.len() - 2]);
        }
        let mut rest = value;
        let mut code: Vec<bool> = Vec::new();
        for number in numbers.iter().rev() {
            let takes = *number <= rest;
            if takes {
                rest -= number;
            }
            if takes || !code.is_empty() {
                code.push(takes);
            }
        }
        self.0.extend(code.iter().rev());
        self.put(1, 1)
    }

    pub(super) fn vendors(&mut self, vendors: &Vendors) -> &mut Self {
        match vendors {
            Vendors::Field(ids) => {
                let greatest = ids.iter().max().copied().unwrap_or(0);
                self.put(u64::from(greatest), 16).put(0, 1);
                self.0.extend((1..=greatest).map(|id| ids.contains(&id)));
                self
            }
            Vendors::Ranges(ranges) => {
                let greatest = ranges.iter().map(|r| r.1).max().unwrap_or(0);
                self.put(u64::from(greatest), 16).put(1, 1).ranges(ranges)
            }
        }
    }

    pub(super) fn ranges(&mut self, ranges: &[(u16, u16)]) -> &mut Self {
        self.put(ranges.len() as u64, 12);
        for (start, end) in ranges {
            if start == end {
                self.put(0, 1).put(u64::from(*start), 16);
            } else {
                self.put(1, 1);
                self.put(u64::from(*start), 16).put(u64::from(*end), 16);
            }
        }
        self
    }

    /// Six bits per character, padded with zeros.
    pub(super) fn text(&self) -> String {
        let alphabet: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain("-_".chars()).collect();
        let six = |bits: &[bool]| (0..6).fold(0, |v, i| v * 2 + usize::from(bits.get(i) == Some(&true)));
        self.0.chunks(6).map(|bits| alphabet[six(bits)]).collect()
    }
}

#[derive(Clone, Debug)]
pub(super) enum Vendors {
    Field(Vec<u16>),
    Ranges(Vec<(u16, u16)>),
}

/// Purpose, type, ranges of vendors.
pub(super) type Restriction = (u64, u64, Vec<(u16, u16)>);

/// Fields of a TC string; all other fields are zero or have a plausible value.
#[derive(Clone)]
pub(super) struct Tcf<'a> {
    pub(super) version: u64,
    pub(super) policy: u64,
    /// Time of creation, in tenths of a second.
    pub(super) created: u64,
    pub(super) service_specific: u64,
    pub(super) purposes: &'a [u8],
    pub(super) interests: &'a [u8],
    pub(super) vendors: Vendors,
    pub(super) vendor_interests: Vendors,
    pub(super) restrictions: Vec<Restriction>,
    /// Segment of disclosed vendors.
    pub(super) disclosed: Option<Vendors>,
}

impl Tcf<'_> {
    /// Full consent for a tenant with the default purposes and vendor 755, under TCF 2.3.
    pub(super) fn consenting() -> Tcf<'static> {
        Tcf {
            version: 2,
            policy: 5,
            created: 17_900_000_000,
            service_specific: 1,
            purposes: &[1, 2, 3, 4, 7],
            interests: &[],
            vendors: Vendors::Field(vec![2, 6, 755, 800]),
            vendor_interests: Vendors::Field(vec![]),
            restrictions: vec![],
            disclosed: Some(Vendors::Ranges(vec![(1, 900)])),
        }
    }

    pub(super) fn core(&self) -> String {
        let mut core = Writer::default();
        core.put(self.version, 6);
        // Created, LastUpdated, in tenths of a second; CmpId, CmpVersion, ConsentScreen.
        core.put(self.created, 36).put(self.created, 36);
        core.put(31, 12).put(640, 12).put(1, 6);
        // ConsentLanguage EN, VendorListVersion.
        core.put(4, 6).put(13, 6).put(126, 12);
        core.put(self.policy, 6);
        core.put(self.service_specific, 1).put(0, 1).put(0, 12);
        core.field(self.purposes, 24).field(self.interests, 24);
        // PurposeOneTreatment, PublisherCC DE.
        core.put(0, 1).put(3, 6).put(4, 6);
        core.vendors(&self.vendors).vendors(&self.vendor_interests);
        core.put(self.restrictions.len() as u64, 12);
        for (purpose, kind, vendors) in &self.restrictions {
            core.put(*purpose, 6).put(*kind, 2).ranges(vendors);
        }
        core.text()
    }

    pub(super) fn text(&self) -> String {
        match &self.disclosed {
            None => self.core(),
            Some(vendors) => format!("{}.{}", self.core(), segment(1, vendors)),
        }
    }
}

pub(super) fn segment(kind: u64, vendors: &Vendors) -> String {
    Writer::default().put(kind, 3).vendors(vendors).text()
}

/// A Canadian string: express and implied purposes, express and implied vendors.
pub(super) fn canadian(express: &[u8], implied: &[u8], vendors: [&[u16]; 2]) -> String {
    let mut core = Writer::default();
    core.put(1, 6);
    core.put(17_900_000_000, 36).put(17_900_000_000, 36);
    core.put(31, 12).put(640, 12).put(1, 6);
    core.put(4, 6).put(13, 6).put(126, 12).put(2, 6);
    core.put(0, 1).put(0, 12);
    core.field(express, 24).field(implied, 24);
    core.vendors(&Vendors::Field(vendors[0].to_vec()));
    core.vendors(&Vendors::Field(vendors[1].to_vec()));
    core.text()
}

/// A GPP string of sections in order of id; each id is one item of the header.
pub(super) fn gpp(sections: &[(u32, &str)]) -> String {
    let mut header = Writer::default();
    header.put(3, 6).put(1, 6).put(sections.len() as u64, 12);
    let mut last = 0;
    for (id, _) in sections {
        header.put(0, 1).fibonacci(id - last);
        last = *id;
    }
    let mut text = header.text();
    for (_, section) in sections {
        text.push('~');
        text.push_str(section);
    }
    text
}

#[test]
fn what_is_written_is_read() {
    let mut writer = Writer::default();
    for value in 1..2_000 {
        writer.fibonacci(value);
    }
    writer.put(0xfeed_beef, 32).put(5, 3);
    let text = writer.text();
    let mut bits = BitReader::new(&text).unwrap();
    for value in 1..2_000 {
        assert_eq!(bits.fibonacci(), Some(value));
    }
    assert_eq!(bits.take(32), Some(0xfeed_beef));
    assert_eq!(bits.take(3), Some(5));
    assert!(bits.skip(6).is_none());
}

#[test]
fn a_prefix_keeps_its_bits_and_no_more() {
    assert_eq!(prefix("____", 13, 2).as_deref(), Some("__gAA"));
    assert_eq!(prefix("____", 12, 0).as_deref(), Some("__"));
    assert_eq!(prefix("__", 13, 0), None);
}

#[test]
fn examples_of_the_specification_come_out() {
    assert_eq!(gpp(&[(2, "a")]), "DBABM~a");
    assert_eq!(gpp(&[(2, "a"), (6, "b")]), "DBACNY~a~b");
}
