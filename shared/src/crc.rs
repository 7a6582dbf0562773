//! CRC-32 (IEEE 802.3, its bits reflected), eight bytes a step and by one small table: large ones would have to come into the
//! processor's cache anew for each request.

/// What the polynomial gives for each byte.
static TABLE: [u32; 256] = table();

/// The checksum of these parts, one behind the other.
#[must_use]
pub fn crc32(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(!0, |sum, part| more(sum, part))
}

/// x^300 + x^155 + x^117 + x^89 + 1 is a multiple of the polynomial: a bit adds what four do that come 145, 183, 211 and 300
/// later, and each word can be left out for bits of the five that follow it (S. Russell, "Chorba: A novel CRC32
/// implementation", 2024).
fn more(sum: u32, bytes: &[u8]) -> u32 {
    let words = bytes.len().saturating_sub(AHEAD) / 8;
    if words == 0 {
        return bytes.iter().fold(sum, bytewise);
    }
    let (words, rest) = bytes.split_at(words * 8);
    let mut ahead = [u64::from(sum), 0, 0, 0, 0];
    for word in words.as_chunks().0 {
        let [first, second, third, fourth, fifth] = ahead;
        let word = u64::from_le_bytes(*word) ^ first;
        ahead = [
            second,
            third ^ (word << 17) ^ (word << 55),
            fourth ^ (word >> 47) ^ (word >> 9) ^ (word << 19),
            fifth ^ (word >> 45) ^ (word << 44),
            word >> 20,
        ];
    }
    let (near, far) = rest.split_at(AHEAD);
    let ahead = ahead.map(u64::to_le_bytes);
    let sum = near.iter().zip(ahead.as_flattened()).fold(0, |sum, (byte, add)| bytewise(sum, &(byte ^ add)));
    far.iter().fold(sum, bytewise)
}

/// As far as the bits of a word reach, in bytes.
const AHEAD: usize = 40;

fn bytewise(sum: u32, byte: &u8) -> u32 {
    let [low, ..] = sum.to_le_bytes();
    (sum >> 8) ^ TABLE.get(usize::from(low ^ byte)).copied().unwrap_or_default()
}

#[expect(clippy::indexing_slicing, reason = "done when it is compiled")]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256_u32 {
        let (mut sum, mut bit) = (byte, 0);
        while bit < 8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
            bit += 1;
        }
        table[byte as usize] = sum;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_standard_s_however_it_is_cut() {
        // The check value that catalogues of CRCs give, and that of 32 zero bytes.
        assert_eq!(crc32(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!((crc32(&[&[0; 32]]), crc32(&[])), (0x190a_55ad, 0));
        let bytes: Vec<u8> = (0..200_u8).map(|n| n.wrapping_mul(151)).collect();
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
