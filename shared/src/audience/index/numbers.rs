//! Columns with one number per row, in as few bytes as the rows of a partition need. Tests run over whole columns
//! without branches.

use std::ops::RangeInclusive;

/// A column. A row may have no number ([`NumberColumn::get`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NumberColumn {
    /// The number of code 1. Code 0 means no number.
    pub(super) base: i64,
    pub(super) codes: CodeColumn,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum CodeColumn {
    /// No row has a number.
    #[default]
    Nothing,
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    /// The numbers themselves, and 1 for each row that has one.
    Eight(Vec<i64>, Vec<u8>),
}

/// Width of a code.
trait CodeWidth: Copy + Ord + Default + TryFrom<u64> + Into<u64> {
    const MOST: u64;
}

impl CodeWidth for u8 {
    const MOST: u64 = u8::MAX as u64;
}

impl CodeWidth for u16 {
    const MOST: u64 = u16::MAX as u64;
}

impl CodeWidth for u32 {
    const MOST: u64 = u32::MAX as u64;
}

impl NumberColumn {
    /// No row has a number.
    pub(super) const NONE: Self = Self { base: 0, codes: CodeColumn::Nothing };

    /// The number of a row.
    pub(super) fn get(&self, row: usize) -> Option<i64> {
        let number = |code: u64| (code > 0).then(|| self.number(code));
        match &self.codes {
            CodeColumn::Nothing => None,
            CodeColumn::One(codes) => number((*codes.get(row)?).into()),
            CodeColumn::Two(codes) => number((*codes.get(row)?).into()),
            CodeColumn::Four(codes) => number((*codes.get(row)?).into()),
            CodeColumn::Eight(numbers, there) => numbers.get(row).copied().filter(|_| there.get(row) == Some(&1)),
        }
    }

    /// Writes the number of a row. Rows between the column's end and this row get no number.
    pub(super) fn put(&mut self, row: usize, number: Option<i64>) {
        if !self.try_put(row, number)
            && let Some(number) = number
        {
            self.widen(number);
            self.try_put(row, Some(number));
        }
    }

    /// `false` if the number does not fit the current base and width.
    fn try_put(&mut self, row: usize, number: Option<i64>) -> bool {
        // Code 1 is the base.
        let code = match number {
            Some(number) => u64::try_from(i128::from(number) - i128::from(self.base) + 1).ok().filter(|code| *code > 0),
            None => Some(0),
        };
        match &mut self.codes {
            CodeColumn::Nothing => number.is_none(),
            CodeColumn::One(codes) => put_code(codes, row, code),
            CodeColumn::Two(codes) => put_code(codes, row, code),
            CodeColumn::Four(codes) => put_code(codes, row, code),
            CodeColumn::Eight(numbers, there) => {
                put_at(numbers, row, number.unwrap_or_default());
                put_at(there, row, number.is_some().into());
                true
            }
        }
    }

    /// Widens the column for a number, with equal slack on both sides as far as the width allows.
    fn widen(&mut self, number: i64) {
        let old: Vec<Option<i64>> = (0..self.len()).map(|row| self.get(row)).collect();
        let all = || old.iter().flatten().copied().chain([number]);
        let (least, most) = (all().min().unwrap_or(number), all().max().unwrap_or(number));
        let span = most.abs_diff(least);
        let width = [u8::MOST, u16::MOST, u32::MOST].into_iter().find(|codes| span < *codes);
        let slack = width.map_or(0, |codes| (codes - 1 - span) / 2);
        self.base = least.saturating_sub_unsigned(slack);
        self.codes = match width {
            Some(u8::MOST) => CodeColumn::One(Vec::new()),
            Some(u16::MOST) => CodeColumn::Two(Vec::new()),
            Some(_) => CodeColumn::Four(Vec::new()),
            None => CodeColumn::Eight(Vec::new(), Vec::new()),
        };
        for (row, number) in old.into_iter().enumerate() {
            self.try_put(row, number);
        }
    }

    fn len(&self) -> usize {
        match &self.codes {
            CodeColumn::Nothing => 0,
            CodeColumn::One(codes) => codes.len(),
            CodeColumn::Two(codes) => codes.len(),
            CodeColumn::Four(codes) => codes.len(),
            CodeColumn::Eight(numbers, _) => numbers.len(),
        }
    }

    /// Memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        match &self.codes {
            CodeColumn::Nothing => 0,
            CodeColumn::One(codes) => codes.capacity(),
            CodeColumn::Two(codes) => codes.capacity() * 2,
            CodeColumn::Four(codes) => codes.capacity() * 4,
            CodeColumn::Eight(numbers, there) => numbers.capacity() * 8 + there.capacity(),
        }
    }

    /// Removes the rows whose flag is `false`.
    pub(super) fn retain(&mut self, stays: &[bool]) {
        match &mut self.codes {
            CodeColumn::Nothing => {}
            CodeColumn::One(codes) => retain(codes, stays),
            CodeColumn::Two(codes) => retain(codes, stays),
            CodeColumn::Four(codes) => retain(codes, stays),
            CodeColumn::Eight(numbers, there) => {
                retain(numbers, stays);
                retain(there, stays);
            }
        }
    }

    /// Writes for each row 1 if its number is in the range and 0 if not; `absent` if it has no number.
    pub(super) fn within(&self, range: &RangeInclusive<i64>, absent: bool, out: &mut [u8]) {
        let code = |number: i64| i128::from(number) - i128::from(self.base) + 1;
        let (least, most) = (code(*range.start()), code(*range.end()));
        let rest = match &self.codes {
            CodeColumn::Nothing => 0,
            CodeColumn::One(codes) => within(codes, least, most, absent, out),
            CodeColumn::Two(codes) => within(codes, least, most, absent, out),
            CodeColumn::Four(codes) => within(codes, least, most, absent, out),
            CodeColumn::Eight(numbers, there) => {
                let (least, most, absent) = (*range.start(), *range.end(), u8::from(absent));
                for ((out, number), there) in out.iter_mut().zip(numbers).zip(there) {
                    let inside = u8::from(*number >= least) & u8::from(*number <= most);
                    *out = (there & inside) | ((1 - there) & absent);
                }
                numbers.len()
            }
        };
        out.iter_mut().skip(rest).for_each(|out| *out = absent.into());
    }

    /// Writes for each row the result of `of` for its number.
    pub(super) fn each(&self, of: impl Fn(Option<i64>) -> u8, out: &mut [u8]) {
        let said = |code: u64| of((code > 0).then(|| self.number(code)));
        let rest = match &self.codes {
            CodeColumn::Nothing => 0,
            CodeColumn::One(codes) => {
                let table: [u8; 256] = std::array::from_fn(|code| said(code as u64));
                // The table covers all codes, so that no bounds check is necessary.
                let at = |code: u64| table.get(usize::from(code as u8)).copied().unwrap_or_default();
                map_codes(codes, at, out)
            }
            CodeColumn::Two(codes) => map_codes(codes, said, out),
            CodeColumn::Four(codes) => map_codes(codes, said, out),
            CodeColumn::Eight(numbers, there) => {
                for ((out, number), there) in out.iter_mut().zip(numbers).zip(there) {
                    *out = of((*there == 1).then_some(*number));
                }
                numbers.len()
            }
        };
        let absent = of(None);
        out.iter_mut().skip(rest).for_each(|out| *out = absent);
    }

    fn number(&self, code: u64) -> i64 {
        self.base.wrapping_add_unsigned(code - 1)
    }
}

fn put_code<C: CodeWidth>(codes: &mut Vec<C>, row: usize, code: Option<u64>) -> bool {
    let Some(code) = code.and_then(|code| C::try_from(code).ok()) else { return false };
    put_at(codes, row, code);
    true
}

fn put_at<T: Copy + Default>(all: &mut Vec<T>, row: usize, value: T) {
    if all.len() <= row {
        room(all);
        all.resize(row + 1, T::default());
    }
    all.iter_mut().skip(row).take(1).for_each(|at| *at = value);
}

/// Makes room for one more entry and for an eighth of the current length: the default growth by two leaves half the
/// memory unused.
pub(super) fn room<T>(all: &mut Vec<T>) {
    if all.len() == all.capacity() {
        all.reserve_exact(all.len() / 8 + 4);
    }
}

pub(super) fn retain<T>(all: &mut Vec<T>, stays: &[bool]) {
    let mut stays = stays.iter();
    all.retain(|_| stays.next().is_some_and(|stays| *stays));
}

fn within<C: CodeWidth>(codes: &[C], least: i128, most: i128, absent: bool, out: &mut [u8]) -> usize {
    let clamped = |code: i128| u64::try_from(code.clamp(0, C::MOST.into())).unwrap_or_default();
    let is_empty = most < 1 || least > i128::from(C::MOST) || least > most;
    // Code 0 means no number: it lies outside the range or is one end of it.
    let (least, most) = match (is_empty, absent) {
        (true, false) => (1, 0),
        (true, true) => (0, 0),
        (false, false) => (clamped(least).max(1), clamped(most)),
        (false, true) if least <= 1 => (0, clamped(most)),
        (false, true) => {
            let (least, most) = (clamped(least), clamped(most));
            return map_codes(codes, |code| u8::from(code == 0 || (least..=most).contains(&code)), out);
        }
    };
    let (Ok(least), Ok(most)) = (C::try_from(least), C::try_from(most)) else { return 0 };
    for (out, code) in out.iter_mut().zip(codes) {
        *out = u8::from(*code >= least) & u8::from(*code <= most);
    }
    codes.len()
}

fn map_codes<C: CodeWidth>(codes: &[C], said: impl Fn(u64) -> u8, out: &mut [u8]) -> usize {
    out.iter_mut().zip(codes).for_each(|(out, code)| *out = said((*code).into()));
    codes.len()
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number() -> impl Strategy<Value = Option<i64>> {
        let near = prop_oneof![-3..300_i64, 0..70_000_i64, -5_000_000_000..5_000_000_000_i64, any::<i64>()];
        let edges = prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(i64::MAX - 1), Just(0)];
        prop_oneof![1 => Just(None), 6 => near.prop_map(Some), 1 => edges.prop_map(Some)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn a_column_holds_what_was_put_last_and_tests_say_what_numbers_do(
            puts in prop::collection::vec((0..40_usize, number()), 0..60),
            (a, b, absent) in (number(), number(), any::<bool>()),
            stays in prop::collection::vec(any::<bool>(), 40),
        ) {
            let (mut column, mut plain) = (NumberColumn::default(), [None; 40]);
            for (row, number) in puts {
                column.put(row, number);
                plain[row] = number;
            }
            for (row, number) in plain.iter().enumerate() {
                prop_assert_eq!(column.get(row), *number);
            }
            let range = a.unwrap_or(i64::MIN)..=b.unwrap_or(i64::MAX);
            let (mut out, mut each) = ([7_u8; 40], [7_u8; 40]);
            column.within(&range, absent, &mut out);
            let said = |number: Option<i64>| u8::from(number.map_or(absent, |number| range.contains(&number)));
            column.each(said, &mut each);
            prop_assert_eq!(out, plain.map(said));
            prop_assert_eq!(each, out);
            column.retain(&stays);
            let stayed: Vec<Option<i64>> = plain.into_iter().zip(&stays).filter(|(_, stay)| **stay).map(|(n, _)| n).collect();
            for (row, number) in stayed.into_iter().enumerate() {
                prop_assert_eq!(column.get(row), number);
            }
        }
    }
}
