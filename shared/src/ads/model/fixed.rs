//! Fixed-point exponentials with identical results on every machine. Powers of two come from a table with linear
//! interpolation. The relative error is at most 1/60,000, and the function is monotonic.

use super::FRACTION;

/// 2 to the power of i/64, with 30 fractional bits.
const POWERS: [u32; 65] = [
    1_073_741_824,
    1_085_434_106,
    1_097_253_708,
    1_109_202_018,
    1_121_280_436,
    1_133_490_379,
    1_145_833_280,
    1_158_310_587,
    1_170_923_762,
    1_183_674_286,
    1_196_563_654,
    1_209_593_378,
    1_222_764_986,
    1_236_080_024,
    1_249_540_052,
    1_263_146_652,
    1_276_901_417,
    1_290_805_962,
    1_304_861_917,
    1_319_070_932,
    1_333_434_672,
    1_347_954_824,
    1_362_633_090,
    1_377_471_191,
    1_392_470_869,
    1_407_633_882,
    1_422_962_010,
    1_438_457_051,
    1_454_120_821,
    1_469_955_159,
    1_485_961_921,
    1_502_142_985,
    1_518_500_250,
    1_535_035_634,
    1_551_751_076,
    1_568_648_537,
    1_585_730_000,
    1_602_997_467,
    1_620_452_965,
    1_638_098_541,
    1_655_936_265,
    1_673_968_228,
    1_692_196_547,
    1_710_623_359,
    1_729_250_827,
    1_748_081_133,
    1_767_116_489,
    1_786_359_126,
    1_805_811_301,
    1_825_475_297,
    1_845_353_420,
    1_865_448_001,
    1_885_761_398,
    1_906_295_993,
    1_927_054_196,
    1_948_038_440,
    1_969_251_188,
    1_990_694_927,
    2_012_372_174,
    2_034_285_470,
    2_056_437_387,
    2_078_830_522,
    2_101_467_502,
    2_124_350_982,
    2_147_483_648,
];
/// The logarithm of e to the base 2, with 30 fractional bits.
const LOG2_E: i64 = 1_549_082_005;

/// The exponential of a number with [`FRACTION`] fractional bits, as a power of two and a factor from 1 to 2 with 30
/// fractional bits.
fn parts(number: i32) -> (i64, u64) {
    let power = (i64::from(number) * LOG2_E) >> 30;
    let within = power & ((1 << FRACTION) - 1);
    let index = usize::try_from(within >> 10).unwrap_or_default();
    let (low, high) = match POWERS.get(index..) {
        Some([low, high, ..]) => (u64::from(*low), u64::from(*high)),
        _ => (1 << 30, 1 << 30),
    };
    let rest = u64::try_from(within & 1_023).unwrap_or_default();
    (power >> FRACTION, low + (((high - low) * rest) >> 10))
}

/// The probability of a logit with [`FRACTION`] fractional bits, in parts of 1,000,000,000.
pub(super) fn probability(logit: i32) -> u32 {
    const ONE: u64 = 1 << 32;
    const PPB: u64 = 1_000_000_000;
    // The exponential of a number of at most 0 is at most 1.
    let (power, factor) = parts(-logit.saturating_abs());
    let small = (factor << 2).checked_shr(u32::try_from(-power).unwrap_or(u32::MAX)).unwrap_or(0);
    let share = if logit < 0 { small } else { ONE };
    u32::try_from(share * PPB / (ONE + small)).unwrap_or(u32::MAX)
}

/// The exponential of a number with [`FRACTION`] fractional bits, rounded down and saturating at `i64::MAX`.
pub(super) fn exponential(number: i32) -> i64 {
    let (power, factor) = parts(number);
    let value = match u32::try_from(power) {
        Ok(power @ 0..=30) => factor >> (30 - power),
        Ok(power @ 31..=61) => factor << (power - 30),
        Ok(_) => return i64::MAX,
        Err(_) => 0,
    };
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_logistic_function_and_never_fall() {
        let mut before = 0;
        for logit in (-20 << FRACTION..=20 << FRACTION).step_by(97) {
            let exact = 1e9 / (1.0 + (-f64::from(logit) / 65_536.0).exp());
            let found = probability(logit);
            assert!((f64::from(found) - exact).abs() <= exact * 3e-5 + 2.0, "{logit}: {found}, {exact}");
            assert!(found >= before);
            before = found;
        }
        assert_eq!([i32::MIN, 0, i32::MAX].map(probability), [0, 500_000_000, 1_000_000_000]);
    }

    #[test]
    fn exponentials_are_those_of_e_and_never_fall() {
        let mut before = 0;
        for number in (-2 << FRACTION..=42 << FRACTION).step_by(101) {
            let exact = (f64::from(number) / 65_536.0).exp();
            let found = exponential(number);
            assert!((found as f64 - exact).abs() <= exact * 3e-5 + 1.0, "{number}: {found}, {exact}");
            assert!(found >= before);
            before = found;
        }
        assert_eq!([i32::MIN, 0, i32::MAX].map(exponential), [0, 1, i64::MAX]);
    }
}
