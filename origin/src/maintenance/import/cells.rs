//! The cells of a CSV line (RFC 4180). A quoted cell keeps its blanks, like a JSON text. A cell without quotes is
//! trimmed.

use std::borrow::Cow;

const UNCLOSED: &str = "a quote is not closed: a row is one line, and no cell may contain a line break";
const AFTER_QUOTE: &str = "the closing quote of a cell must be followed by a comma or the end of the line";

/// Splits a line into cells.
///
/// # Errors
/// A description of the fault in the quotes.
pub(super) fn split_cells(text: &str) -> Result<Vec<Cow<'_, str>>, &'static str> {
    // Quotes are rare in ids and numbers.
    if !text.contains('"') {
        return Ok(text.split(',').map(|cell| cell.trim().into()).collect());
    }
    // An odd number of quotes means that a cell has a line break and the line is only a part of it.
    if !text.matches('"').count().is_multiple_of(2) {
        return Err(UNCLOSED);
    }
    let (mut cells, mut rest) = (Vec::new(), text);
    loop {
        let Some(quoted) = rest.trim_start().strip_prefix('"') else {
            let (plain, tail) = rest.split_once(',').map_or((rest, None), |(plain, tail)| (plain, Some(tail)));
            cells.push(plain.trim().into());
            let Some(tail) = tail else { return Ok(cells) };
            rest = tail;
            continue;
        };
        let (value, tail) = unquote_cell(quoted).ok_or(UNCLOSED)?;
        cells.push(value);
        match tail.trim_start().strip_prefix(',') {
            Some(tail) => rest = tail,
            None if tail.trim().is_empty() => return Ok(cells),
            None => return Err(AFTER_QUOTE),
        }
    }
}

/// The value of a cell after its opening quote, and the rest after its closing one; `None` if the quote is not closed.
fn unquote_cell(quoted: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut value = Cow::Borrowed("");
    let mut rest = quoted;
    loop {
        let (part, tail) = rest.split_once('"')?;
        if value.is_empty() {
            value = Cow::Borrowed(part);
        } else {
            value.to_mut().push_str(part);
        }
        // Two quotes in a row stand for one.
        let Some(after_pair) = tail.strip_prefix('"') else { return Some((value, tail)) };
        value.to_mut().push('"');
        rest = after_pair;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_cell_keeps_its_blanks_and_one_without_quotes_does_not() {
        assert_eq!(split_cells(" a ,b,, c").unwrap(), ["a", "b", "", "c"]);
        assert_eq!(split_cells(" a ,\" b \", c ,\"\"").unwrap(), ["a", " b ", "c", ""]);
        assert_eq!(split_cells(" \" a, b \" ,\t\" \"").unwrap(), [" a, b ", " "]);
        assert_eq!(split_cells("\"say \"\"x\"\" \",\"\"\"\",\"\"\"\"\"\"").unwrap(), ["say \"x\" ", "\"", "\"\""]);
        assert_eq!(split_cells("\"a\",").unwrap(), ["a", ""]);
    }

    #[test]
    fn a_quote_within_a_cell_without_quotes_is_text() {
        assert_eq!(split_cells("a \"b\" c ,\"d\"").unwrap(), ["a \"b\" c", "d"]);
    }

    #[test]
    fn a_quote_that_is_not_closed_or_has_text_behind_it_is_refused() {
        assert_eq!(split_cells("a,\"b,c"), Err(UNCLOSED));
        assert_eq!(split_cells("a\"b,\"c"), Err(UNCLOSED));
        assert_eq!(split_cells("a,\"b\"\",\"c"), Err(AFTER_QUOTE));
        assert_eq!(split_cells("event\""), Err(UNCLOSED));
        assert_eq!(split_cells("a,\"b\" c,d"), Err(AFTER_QUOTE));
    }
}
