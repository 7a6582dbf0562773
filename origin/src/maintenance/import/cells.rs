//! The cells of a line of CSV (RFC 4180). A quoted cell is taken as it is, with the blanks in it, as text of JSON is; of
//! a cell without quotes the blanks around it are left out.

use std::borrow::Cow;

const UNCLOSED: &str = "a quote is not closed: a line is a row, and no cell has a line break";
const BEHIND: &str = "behind the closing quote of a cell there is neither a comma nor the end of the line";

/// The cells of a line.
///
/// # Errors
/// What is wrong with its quotes.
pub(super) fn split_cells(text: &str) -> Result<Vec<Cow<'_, str>>, &'static str> {
    // Quotes are rare in ids and numbers.
    if !text.contains('"') {
        return Ok(text.split(',').map(|cell| cell.trim().into()).collect());
    }
    // One without its pair is of a cell with a line break, of which this is a part.
    if !text.matches('"').count().is_multiple_of(2) {
        return Err(UNCLOSED);
    }
    let (mut cells, mut rest) = (Vec::new(), text);
    loop {
        let Some(quoted) = rest.trim_start().strip_prefix('"') else {
            let (plain, behind) = rest.split_once(',').map_or((rest, None), |(plain, behind)| (plain, Some(behind)));
            cells.push(plain.trim().into());
            let Some(behind) = behind else { return Ok(cells) };
            rest = behind;
            continue;
        };
        let (value, behind) = unquote_cell(quoted).ok_or(UNCLOSED)?;
        cells.push(value);
        match behind.trim_start().strip_prefix(',') {
            Some(behind) => rest = behind,
            None if behind.trim().is_empty() => return Ok(cells),
            None => return Err(BEHIND),
        }
    }
}

/// The value of a cell behind its opening quote, and what is behind its closing one; `None` where it has none.
fn unquote_cell(quoted: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut value = Cow::Borrowed("");
    let mut rest = quoted;
    loop {
        let (part, behind) = rest.split_once('"')?;
        if value.is_empty() {
            value = Cow::Borrowed(part);
        } else {
            value.to_mut().push_str(part);
        }
        // Two of them are one of the value.
        let Some(behind_pair) = behind.strip_prefix('"') else { return Some((value, behind)) };
        value.to_mut().push('"');
        rest = behind_pair;
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
        assert_eq!(split_cells("a,\"b\"\",\"c"), Err(BEHIND));
        assert_eq!(split_cells("event\""), Err(UNCLOSED));
        assert_eq!(split_cells("a,\"b\" c,d"), Err(BEHIND));
    }
}
