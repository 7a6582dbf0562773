//! A set of rows of a partition: a list while it is small, one bit per row above that, as in a container of Roaring
//! (Chambi et al. 2016). Rows are only appended; they leave when the partition is packed.

use super::numbers::room;

/// Up to this number of rows are a list with two bytes each; a larger set is stored as bits.
const FEW: usize = 1_024;

/// A set of rows, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowSet {
    Few(Vec<u16>),
    Many(Vec<u8>),
}

impl RowSet {
    pub(super) const NONE: Self = Self::Few(Vec::new());

    /// Appends a row, which must be greater than all others.
    pub(super) fn push(&mut self, row: u16) {
        match self {
            Self::Few(rows) if rows.len() < FEW => {
                room(rows);
                rows.push(row);
            }
            Self::Few(rows) => {
                let mut bits = Vec::new();
                rows.iter().for_each(|row| set(&mut bits, *row));
                set(&mut bits, row);
                *self = Self::Many(bits);
            }
            Self::Many(bits) => set(bits, row),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let (few, many) = match self {
            Self::Few(rows) => (rows.as_slice(), [].as_slice()),
            Self::Many(bits) => ([].as_slice(), bits.as_slice()),
        };
        let of_byte = |(from, byte): (u16, &u8)| {
            let byte = *byte;
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| from + bit)
        };
        few.iter().copied().chain((0..=u16::MAX).step_by(8).zip(many).flat_map(of_byte))
    }

    /// Writes 1 for each row of the set and leaves all other entries unchanged.
    pub(super) fn mark(&self, out: &mut [u8]) {
        match self {
            Self::Few(rows) => {
                for row in rows {
                    out.iter_mut().skip((*row).into()).take(1).for_each(|out| *out = 1);
                }
            }
            Self::Many(bits) => {
                let (eights, rest) = out.as_chunks_mut::<8>();
                for (eight, byte) in eights.iter_mut().zip(bits) {
                    *eight = (u64::from_le_bytes(*eight) | spread(*byte)).to_le_bytes();
                }
                let last = spread(bits.get(eights.len()).copied().unwrap_or_default()).to_le_bytes();
                rest.iter_mut().zip(last).for_each(|(out, bit)| *out |= bit);
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Few(rows) => rows.capacity() * 2,
            Self::Many(bits) => bits.capacity(),
        }
    }
}

fn set(bits: &mut Vec<u8>, row: u16) {
    let at = usize::from(row / 8);
    if bits.len() <= at {
        room(bits);
        bits.resize(at + 1, 0);
    }
    bits.iter_mut().skip(at).take(1).for_each(|byte| *byte |= 1 << (row % 8));
}

/// Spreads the bits of a byte over eight bytes, lowest bit first.
fn spread(byte: u8) -> u64 {
    // Each copy of the byte keeps one bit; adding 0x7f carries it into the top bit if it is set.
    let own = (u64::from(byte) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    (own.wrapping_add(0x007f_7f7f_7f7f_7f7f) | own) >> 7 & 0x0101_0101_0101_0101
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bytes_bits_are_spread() {
        for byte in 0..=u8::MAX {
            let expected: [u8; 8] = std::array::from_fn(|bit| byte >> bit & 1);
            assert_eq!(spread(byte).to_le_bytes(), expected, "{byte}");
        }
    }

    proptest! {
        #[test]
        fn rows_are_those_that_were_pushed(gaps in prop::collection::vec(1..40_u16, 0..1_600), length in 0..70_000_usize) {
            let (mut rows, mut plain, mut next) = (RowSet::NONE, Vec::new(), 0_u16);
            for gap in gaps {
                rows.push(next);
                plain.push(next);
                next = next.saturating_add(gap);
            }
            prop_assert_eq!(rows.iter().collect::<Vec<_>>(), plain.clone());
            let mut out = vec![0; length];
            rows.mark(&mut out);
            let marked = |row: usize| u8::from(u16::try_from(row).is_ok_and(|row| plain.binary_search(&row).is_ok()));
            prop_assert_eq!(out, (0..length).map(marked).collect::<Vec<u8>>());
        }
    }
}
