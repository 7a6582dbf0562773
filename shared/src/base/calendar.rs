//! Dates and moments in the Gregorian calendar, read from texts and written as texts.

use crate::base::limits;

/// Days since 1970-01-01 of a text `YYYY-MM-DD`; `None` for another form and outside of [`limits::DATE_DAYS`].
pub(crate) fn date_of(text: &str) -> Option<i32> {
    let &[a, b, c, d, b'-', e, f, b'-', g, h] = text.as_bytes() else { return None };
    let days = days_of(digits(&[a, b, c, d])?, digits(&[e, f])?, digits(&[g, h])?);
    let days = i32::try_from(days).ok().filter(|days| limits::DATE_DAYS.contains(days))?;
    // A 30th of February would count as a day of March, whose text is another one.
    (date_text(days) == text).then_some(days)
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |number, b| b.is_ascii_digit().then(|| number * 10 + i64::from(b - b'0')))
}

/// Days since 1970-01-01 in the Gregorian calendar. Years begin in March here, so that a leap day is the last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
        - 719_469
}

/// The inverse of [`date_of`]: the text `YYYY-MM-DD` of days since 1970-01-01. Four hundred years have 146,097 days.
pub(crate) fn date_text(days: i32) -> String {
    let days = i64::from(days) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (carry, month) = if month < 10 { (0, month + 3) } else { (1, month - 9) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + carry)
}

/// Milliseconds since 1970 of a date and time with its offset (RFC 3339, 5.6); `None` for another form. Fractions
/// below a millisecond are cut, and a leap second counts as the second after it.
pub(crate) fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let days = i64::from(date_of(date)?);
    let (clock, rest) = rest.split_at_checked(9)?;
    let &[b'T' | b't', h1, h2, b':', m1, m2, b':', s1, s2] = clock.as_bytes() else { return None };
    let hour = two_digits(h1, h2, 23)?;
    let seconds = (hour * 60 + two_digits(m1, m2, 59)?) * 60 + two_digits(s1, s2, 60)?;
    let (millis, offset) = split_fraction(rest)?;
    let minutes = match offset.as_bytes() {
        b"Z" | b"z" => 0,
        &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let minutes = two_digits(h1, h2, 23)? * 60 + two_digits(m1, m2, 59)?;
            if sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    Some((days * 86_400 + seconds - minutes * 60) * 1_000 + millis)
}

/// The milliseconds of a fraction, 0 without one, and the rest of the text.
fn split_fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = digits.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = digits.split_at_checked(end).filter(|_| end > 0)?;
    let millis = digits.bytes().chain(*b"00").take(3).fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some((millis, rest))
}

fn two_digits(high: u8, low: u8, most: i64) -> Option<i64> {
    let both = high.is_ascii_digit() && low.is_ascii_digit();
    let number = i64::from(high.wrapping_sub(b'0')) * 10 + i64::from(low.wrapping_sub(b'0'));
    (both && number <= most).then_some(number)
}
