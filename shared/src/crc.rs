//! CRC-32 (IEEE 802.3, its bits reflected), sixteen bytes a step. The tables are made when they are first needed: as data
//! they would be 16 KB of the edge's module, which no compression makes smaller.

use std::sync::OnceLock;

/// Of each byte what it adds to the sum, by how many bytes come behind it.
type Tables = [[u32; 256]; 16];

static TABLES: OnceLock<Tables> = OnceLock::new();

/// The checksum of these parts, one behind the other.
#[must_use]
pub fn crc32(parts: &[&[u8]]) -> u32 {
    let tables = TABLES.get_or_init(tables);
    !parts.iter().fold(!0, |sum, part| more(tables, sum, part))
}

fn more(tables: &Tables, sum: u32, bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<16>();
    let sum = chunks.iter().fold(sum, |sum, [a, b, c, d, ahead @ ..]| {
        // Twelve bytes do not wait for the sum so far, which is what a step takes.
        let ahead = tables.iter().rev().skip(4).zip(ahead).fold(0, |sum, (table, byte)| sum ^ of(table, *byte));
        let waiting = (sum ^ u32::from_le_bytes([*a, *b, *c, *d])).to_le_bytes();
        tables.iter().rev().zip(waiting).fold(ahead, |sum, (table, byte)| sum ^ of(table, byte))
    });
    let [table, ..] = tables;
    rest.iter().fold(sum, |sum, byte| (sum >> 8) ^ of(table, low(sum) ^ byte))
}

fn tables() -> Tables {
    let mut first = [0; 256];
    for (byte, entry) in (0..).zip(&mut first) {
        *entry = (0..8).fold(byte, |sum: u32, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()));
    }
    let (mut all, mut table) = ([first; 16], first);
    for further in all.iter_mut().skip(1) {
        table = table.map(|entry| (entry >> 8) ^ of(&first, low(entry)));
        *further = table;
    }
    all
}

fn of(table: &[u32; 256], byte: u8) -> u32 {
    table.get(usize::from(byte)).copied().unwrap_or_default()
}

fn low(sum: u32) -> u8 {
    let [low, ..] = sum.to_le_bytes();
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_standard_s_however_it_is_cut() {
        // The check value that catalogues of CRCs give, and that of 32 zero bytes.
        assert_eq!(crc32(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!((crc32(&[&[0; 32]]), crc32(&[])), (0x190a_55ad, 0));
        let bytes: Vec<u8> = (0..100_u8).map(|n| n.wrapping_mul(151)).collect();
        let whole = crc32(&[&bytes]);
        let bitwise = !bytes.iter().fold(!0_u32, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 })
        });
        assert_eq!(whole, bitwise);
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(crc32(&[head, tail]), whole, "{cut}");
        }
    }
}
