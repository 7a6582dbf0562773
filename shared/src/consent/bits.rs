//! Reader for numbers of any width in the text form that all IAB strings share.
//!
//! Each character of `A-Z a-z 0-9 - _` stands for six bits, most significant first. A string need not be a whole number
//! of bytes, so that base64url decoders do not fit. The text is read in place.

/// A position in a text of six-bit characters. A copy remembers the position.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitReader<'a> {
    text: &'a [u8],
    /// Position in bits from the start.
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Reader at the first bit; `None` if the text is empty or has a character outside the alphabet.
    pub(super) fn new(text: &'a str) -> Option<Self> {
        let text = text.as_bytes();
        let fits = !text.is_empty() && text.iter().all(|c| sextet(*c).is_some());
        fits.then_some(Self { text, at: 0 })
    }

    /// Reads the next `count` bits (at most 32) as a number; `None` past the end.
    pub(super) fn take(&mut self, count: usize) -> Option<u32> {
        debug_assert!(count <= 32, "a number of more than 32 bits");
        let end = self.within(count)?;
        let mut value = 0;
        while self.at < end {
            let offset = self.at % 6;
            let here = (6 - offset).min(end - self.at);
            let six = u32::from(sextet(*self.text.get(self.at / 6)?)?);
            value = value << here | (six >> (6 - offset - here) & ((1 << here) - 1));
            self.at += here;
        }
        Some(value)
    }

    /// Reads one bit.
    pub(super) fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)? == 1)
    }

    /// Skips `count` bits; `None` past the end.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.within(count)?;
        Some(())
    }

    /// Reads a Fibonacci-coded number (GPP, "Fibonacci Encoding"): one bit for each Fibonacci number 1, 2, 3, 5, 8 …,
    /// ended by two set bits in a row. At least 1; `None` past the end or for 2^16 and above.
    pub(super) fn fibonacci(&mut self) -> Option<u32> {
        let (mut this, mut next) = (1u32, 2u32);
        let mut value = 0;
        let mut last = false;
        while this < 1 << 16 {
            let bit = self.flag()?;
            if bit && last {
                return Some(value);
            }
            if bit {
                value += this;
            }
            last = bit;
            (this, next) = (next, this + next);
        }
        None
    }

    fn within(&self, count: usize) -> Option<usize> {
        let end = self.at.checked_add(count)?;
        (end <= self.text.len() * 6).then_some(end)
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The first `count` bits of a text as a new text, followed by `zeros` zero characters.
pub(super) fn prefix(text: &str, count: usize, zeros: usize) -> Option<String> {
    let (whole, rest) = (count / 6, count % 6);
    let mut prefix = String::with_capacity(whole + 1 + zeros);
    prefix.push_str(text.get(..whole)?);
    if rest > 0 {
        let six = sextet(*text.as_bytes().get(whole)?)?;
        let masked = six >> (6 - rest) << (6 - rest);
        prefix.push(char::from(*ALPHABET.get(usize::from(masked))?));
    }
    prefix.extend(std::iter::repeat_n('A', zeros));
    Some(prefix)
}

fn sextet(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}
