//! Hostile bytes; the edge's tests use this module too.
#![expect(clippy::indexing_slicing, reason = "a test may fail")]

use bolero::TypeGenerator;

/// One change to valid bytes.
#[derive(Debug, Clone, TypeGenerator)]
pub(crate) enum Damage {
    Set(u16, u8),
    Flip(u16, u8),
    Cut(u16),
    Insert(u16, u8),
    Repeat(u16, u8),
}

/// Random bytes, or valid bytes with damage.
#[derive(Debug, Clone, TypeGenerator)]
pub(crate) enum Hostile {
    Random(Vec<u8>),
    Damaged(u8, Vec<Damage>),
}

impl Hostile {
    pub(crate) fn bytes(&self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let (seed, damages) = match self {
            Self::Random(bytes) => return bytes.clone(),
            Self::Damaged(seed, damages) => (seed, damages),
        };
        let mut bytes = seeds[usize::from(*seed) % seeds.len()].clone();
        for damage in damages.iter().take(1 + usize::from(seed / 64)) {
            let len = bytes.len();
            if len == 0 {
                break;
            }
            let place = |at: &u16| usize::from(*at) % len;
            match damage {
                Damage::Set(at, byte) => bytes[place(at)] = *byte,
                Damage::Flip(at, bit) => bytes[place(at)] ^= 1 << (bit % 8),
                Damage::Cut(at) => bytes.truncate(place(at)),
                Damage::Insert(at, byte) => bytes.insert(place(at), *byte),
                Damage::Repeat(at, length) => {
                    let piece: Vec<u8> = bytes.iter().skip(place(at)).take(usize::from(*length)).copied().collect();
                    let end = place(at);
                    bytes.splice(end..end, piece);
                }
            }
        }
        bytes
    }
}
