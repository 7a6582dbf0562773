//! Reading numbers of any width out of the text form that all IAB strings share.
//!
//! Each character of `A-Z a-z 0-9 - _` stands for six bits, the first is the most significant. A length need
//! not be a whole number of bytes, so this is not quite base64url. The text is read where it lies.

/// A position in a text of six-bit characters. Copying it marks the place.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitReader<'a> {
    text: &'a [u8],
    /// In bits from the start.
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Starts at the first bit; `None` if the text is empty or has a character of another alphabet.
    pub(super) fn new(text: &'a str) -> Option<Self> {
        let text = text.as_bytes();
        let fits = !text.is_empty() && text.iter().all(|c| sextet(*c).is_some());
        fits.then_some(Self { text, at: 0 })
    }

    /// The next `count` bits (32 at most) as a number; `None` past the end.
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

    /// The next bit.
    pub(super) fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)? == 1)
    }

    /// Passes over `count` bits; `None` past the end.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.within(count)?;
        Some(())
    }

    /// A Fibonacci-coded number (GPP, "Fibonacci Encoding"): a bit a Fibonacci number 1, 2, 3, 5, 8 …, until
    /// two set bits follow each other. At least 1; `None` past the end or from 2^16 on.
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

/// The first `count` bits of a text as a text of their own, followed by `zeros` zero characters.
pub(super) fn prefix(text: &str, count: usize, zeros: usize) -> Option<String> {
    let (whole, rest) = (count / 6, count % 6);
    let mut prefix = String::with_capacity(whole + 1 + zeros);
    prefix.push_str(text.get(..whole)?);
    if rest > 0 {
        let six = sextet(*text.as_bytes().get(whole)?)?;
        let kept = six >> (6 - rest) << (6 - rest);
        prefix.push(char::from(*ALPHABET.get(usize::from(kept))?));
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
