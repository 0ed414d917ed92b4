//! Parses Kubernetes quantities: `250m`, `1.5Gi`, `2e3`.
//!
//! Owns the grammar of `resource.Quantity` and its rounding; knows nothing of pods or nodes. Works
//! on decimal digits, never on floats: two nodes that differ by one byte must not compare equal.

use thiserror::Error;

/// Maximum length of a quantity, in characters. Those of the API server are far shorter.
pub const MAX_CHARS: usize = 64;

/// Larger exponents do not change a result: with at most [`MAX_CHARS`] digits such a value already saturates or rounds to one.
const MAX_EXPONENT: i64 = 128;

/// Larger than every `i64`, and within `i128` even after the 60 doublings of `Ei`.
const SATURATED: i128 = 1 << 64;

/// Why a string is not a quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// The text is empty.
    #[error("an empty quantity: write a number such as 500m, 2 or 1.5Gi")]
    Empty,
    /// Longer than [`MAX_CHARS`]; the text is left out for that reason.
    #[error("a quantity of {chars} characters: the limit is {MAX_CHARS}")]
    TooLong { chars: usize },
    /// The part before the suffix is not a decimal number.
    #[error("{text:?} is not a quantity: it does not start with a number such as 2 or 1.5")]
    Number { text: String },
    /// The number is followed by an unknown suffix.
    #[error(
        "{text:?} is not a quantity: unknown suffix {suffix:?}; known are n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and e3"
    )]
    Suffix { text: String, suffix: String },
}

/// Parses an amount of CPU, in millicores.
///
/// Fractions of a millicore round away from zero, as in Kubernetes; values outside of `i64` saturate.
///
/// # Errors
///
/// When `text` is longer than [`MAX_CHARS`] or is not a quantity.
pub fn cpu_millis(text: &str) -> Result<i64, QuantityError> {
    parse(text).map(|quantity| quantity.scaled(3))
}

/// Parses an amount of memory or storage, in bytes.
///
/// Fractions of a byte round away from zero, as in Kubernetes; values outside of `i64` saturate.
///
/// # Errors
///
/// When `text` is longer than [`MAX_CHARS`] or is not a quantity.
pub fn bytes(text: &str) -> Result<i64, QuantityError> {
    parse(text).map(|quantity| quantity.scaled(0))
}

/// Parses a plain number or a quantity to the nearest finite number: `5`, `-0.25`, `900m`, `1e3`, `2Gi`.
///
/// # Errors
///
/// When `text` is longer than [`MAX_CHARS`] or is not a quantity; `NaN` and `Inf` are not.
pub fn number(text: &str) -> Result<f64, QuantityError> {
    parse(text).map(|quantity| quantity.nearest())
}

/// `0.digits * 10^point * 2^doublings`, with a sign. Exact, however many digits there are.
struct Quantity {
    negative: bool,
    digits: Vec<u8>,
    point: i64,
    doublings: u32,
}

/// The factor of a suffix.
struct Scale {
    exponent: i64,
    doublings: u32,
}

impl Quantity {
    /// The value times `10^decimals`, rounded away from zero, saturating.
    fn scaled(&self, decimals: i64) -> i64 {
        let point = self.point.saturating_add(decimals);
        let mut whole = self.whole_part(point);
        let mut fraction = self.fraction_part(point);
        for _ in 0..self.doublings {
            whole = whole * 2 + i128::from(double(&mut fraction));
        }
        if fraction.iter().any(|digit| *digit != 0) {
            whole += 1;
        }
        let signed = if self.negative { -whole } else { whole };
        // The clamp makes the conversion exact.
        signed.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The nearest float. Finite: there are at most [`MAX_CHARS`] digits and as many zeros as [`MAX_EXPONENT`].
    fn nearest(&self) -> f64 {
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let size: f64 = format!("0.{digits}e{}", self.point).parse().unwrap_or(0.0);
        let size = size * (1_u64 << self.doublings) as f64;
        if self.negative { -size } else { size }
    }

    /// The digits before the decimal point, at most [`SATURATED`].
    fn whole_part(&self, point: i64) -> i128 {
        let mut whole = 0_i128;
        for index in 0..point {
            let digit = usize::try_from(index).ok().and_then(|index| self.digits.get(index)).copied().unwrap_or(0);
            whole = (whole * 10 + i128::from(digit)).min(SATURATED);
        }
        whole
    }

    /// The digits after the decimal point.
    fn fraction_part(&self, point: i64) -> Vec<u8> {
        // At most a few more than MAX_EXPONENT.
        let zeros = usize::try_from(point.saturating_neg()).unwrap_or(0);
        let skipped = usize::try_from(point).unwrap_or(0);
        let mut fraction = vec![0; zeros];
        fraction.extend(self.digits.iter().skip(skipped));
        fraction
    }
}

/// Doubles `0.digits` in place and returns the carry into the whole part, 0 or 1.
fn double(digits: &mut [u8]) -> u8 {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let twice = *digit * 2 + carry;
        *digit = twice % 10;
        carry = twice / 10;
    }
    carry
}

fn parse(text: &str) -> Result<Quantity, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    let chars = text.chars().count();
    if chars > MAX_CHARS {
        return Err(QuantityError::TooLong { chars });
    }
    let (negative, unsigned) = sign(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(QuantityError::Number { text: text.into() });
    }
    let scale = scale(suffix).ok_or_else(|| QuantityError::Suffix { text: text.into(), suffix: suffix.into() })?;
    // At most MAX_CHARS bytes of digits, so the length fits any integer.
    let point = whole.len() as i64 + scale.exponent;
    Ok(Quantity {
        negative,
        digits: whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect(),
        point,
        doublings: scale.doublings,
    })
}

/// Splits off a leading sign; true means negative.
fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn scale(suffix: &str) -> Option<Scale> {
    let decimal = |exponent| Some(Scale { exponent, doublings: 0 });
    let binary = |doublings| Some(Scale { exponent: 0, doublings });
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => decimal(exponent(suffix.strip_prefix(['e', 'E'])?)?),
    }
}

/// The number after `e`, clamped to [`MAX_EXPONENT`].
fn exponent(text: &str) -> Option<i64> {
    let (negative, digits) = sign(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.bytes().fold(0, |size, byte| (size * 10 + i64::from(byte - b'0')).min(MAX_EXPONENT));
    Some(if negative { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("0", 0)]
    #[case("-0", 0)]
    #[case("1", 1_000)]
    #[case("+2", 2_000)]
    #[case("250m", 250)]
    #[case("0.1", 100)]
    #[case(".5", 500)]
    #[case("5.", 5_000)]
    #[case("1.5", 1_500)]
    #[case("1500u", 2)]
    #[case("1n", 1)]
    #[case("0n", 0)]
    #[case("1000000n", 1)]
    #[case("1000001n", 2)]
    #[case("-1500u", -2)]
    #[case("2k", 2_000_000)]
    #[case("1e3", 1_000_000)]
    #[case("1E3", 1_000_000)]
    #[case("1e-3", 1)]
    #[case("1e+1", 10_000)]
    #[case("0.0001", 1)]
    #[case("9223372036854775807m", i64::MAX)]
    #[case("9223372036854775.807", i64::MAX)]
    #[case("9223372036854775806m", i64::MAX - 1)]
    #[case("9223372036854775807", i64::MAX)]
    #[case("-9E", i64::MIN)]
    #[case("-9223372036854775808m", i64::MIN)]
    fn reads_cpu_in_millicores(#[case] text: &str, #[case] expected: i64) {
        assert_eq!(cpu_millis(text), Ok(expected));
    }

    #[rstest]
    #[case("1Ki", 1 << 10)]
    #[case("1Mi", 1 << 20)]
    #[case("1Gi", 1 << 30)]
    #[case("1Ti", 1 << 40)]
    #[case("1Pi", 1 << 50)]
    #[case("1Ei", 1 << 60)]
    #[case("1.5Gi", 3 << 29)]
    #[case("0.1Ki", 103)]
    #[case("0.001Mi", 1_049)]
    #[case("-0.1Ki", -103)]
    #[case("7.5Ei", 15 << 59)]
    #[case("8Ei", i64::MAX)]
    #[case("-8Ei", i64::MIN)]
    #[case("1k", 1_000)]
    #[case("1M", 1_000_000)]
    #[case("1G", 1_000_000_000)]
    #[case("1T", 1_000_000_000_000)]
    #[case("1P", 1_000_000_000_000_000)]
    #[case("1E", 1_000_000_000_000_000_000)]
    #[case("128974848", 128_974_848)]
    #[case("129e6", 129_000_000)]
    #[case("128974848000m", 128_974_848)]
    #[case("1m", 1)]
    #[case("1001m", 2)]
    #[case("1e999999999999999999999999999999", i64::MAX)]
    #[case("0e999999999999999999999999999999", 0)]
    #[case("1e-99999999999999999999999999999", 1)]
    #[case("100000000000000000000000000000000000000000000000000e-50", 1)]
    #[case("0.00000000000000000000000000000000000000000000000001e50", 1)]
    #[case("99999999999999999999999999999999999999999999999999999999999999Ei", i64::MAX)]
    // One byte in 2^60 shows: nothing here went through a float.
    #[case("1152921504606846977", (1 << 60) + 1)]
    #[case("1.000000000000000000867361737988403547205962240695953369140625Ei", (1 << 60) + 1)]
    #[case("1.000000000000000000867361737988403547205962240695953369140626Ei", (1 << 60) + 2)]
    fn reads_memory_in_bytes(#[case] text: &str, #[case] expected: i64) {
        assert_eq!(bytes(text), Ok(expected));
    }

    #[rstest]
    #[case("5", 5.0)]
    #[case("-0.25", -0.25)]
    #[case("7.9", 7.9)]
    #[case("900m", 0.9)]
    #[case("1e3", 1000.0)]
    #[case("1.2345678901234567e+09", 1_234_567_890.123_456_7)]
    #[case("2Gi", 2_147_483_648.0)]
    #[case("0", 0.0)]
    fn reads_the_nearest_number(#[case] text: &str, #[case] expected: f64) {
        assert!((number(text).unwrap() - expected).abs() <= f64::EPSILON * expected.abs());
    }

    #[rstest]
    #[case("NaN")]
    #[case("Inf")]
    #[case("+Inf")]
    #[case("-inf")]
    #[case("infinity")]
    #[case("n/a")]
    #[case("true")]
    #[case(" 5")]
    #[case("")]
    fn no_number_is_none(#[case] text: &str) {
        assert!(number(text).is_err());
    }

    #[rstest]
    #[case("-")]
    #[case("+-1")]
    #[case(".")]
    #[case("1.1.1")]
    #[case(" 1")]
    #[case("Ki")]
    #[case("e3")]
    #[case("١")]
    fn refuses_what_is_no_number(#[case] text: &str) {
        assert_eq!(bytes(text), Err(QuantityError::Number { text: text.into() }));
    }

    #[rstest]
    #[case("1K", "K")]
    #[case("1ki", "ki")]
    #[case("1i", "i")]
    #[case("1 ", " ")]
    #[case("1e", "e")]
    #[case("1e-", "e-")]
    #[case("1e1.5", "e1.5")]
    #[case("1e3k", "e3k")]
    #[case("1mm", "mm")]
    #[case("1GB", "GB")]
    #[case("1µ", "µ")]
    fn refuses_an_unknown_suffix(#[case] text: &str, #[case] suffix: &str) {
        let error = QuantityError::Suffix { text: text.into(), suffix: suffix.into() };
        assert_eq!(bytes(text), Err(error));
    }

    #[test]
    fn bounds_its_input() {
        assert_eq!(bytes(""), Err(QuantityError::Empty));
        assert_eq!(bytes(&"1".repeat(64)), Ok(i64::MAX));
        assert_eq!(bytes(&"1".repeat(65)), Err(QuantityError::TooLong { chars: 65 }));
    }

    /// Renders `value` times `10^-decimals` with its decimal point.
    fn with_point(value: u64, decimals: usize) -> String {
        let digits = format!("{value:0>width$}", width = decimals + 1);
        let (whole, fraction) = digits.split_at(digits.len() - decimals);
        format!("{whole}.{fraction}")
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,80}", near in "[-+.0-9eEKMGTPinumk]{0,64}") {
            for text in [text, near] {
                let _ = (cpu_millis(&text), bytes(&text));
                prop_assert!(number(&text).is_ok() == bytes(&text).is_ok());
                prop_assert!(number(&text).is_ok_and(f64::is_finite) || bytes(&text).is_err());
            }
        }

        #[test]
        fn reads_back_a_whole_number(value: i64) {
            prop_assert_eq!(bytes(&value.to_string()), Ok(value));
            prop_assert_eq!(cpu_millis(&format!("{value}m")), Ok(value));
        }

        #[test]
        fn reads_the_same_amount_in_any_unit(value in 0..=i64::MAX as u64, decimals in 0_usize..12) {
            let divisor = 10_u64.pow(decimals as u32);
            let expected = value.div_ceil(divisor) as i64;
            let plain = with_point(value, decimals);
            prop_assert_eq!(bytes(&plain), Ok(expected));
            prop_assert_eq!(bytes(&format!("-{plain}")), Ok(-expected));
            prop_assert_eq!(bytes(&format!("{value}e-{decimals}")), Ok(expected));
            prop_assert_eq!(bytes(&format!("{plain}e3")), bytes(&format!("{plain}k")));
            prop_assert_eq!(cpu_millis(&plain), bytes(&format!("{plain}k")));
        }

        #[test]
        fn binary_suffixes_agree_with_shifts(value in 0_i64..1 << 20, power in 0_usize..5) {
            let suffix = ["", "Ki", "Mi", "Gi", "Ti"][power];
            prop_assert_eq!(bytes(&format!("{value}{suffix}")), Ok(value << (10 * power)));
            // The fraction of a binary unit, rounded up: 0.001 of it is 2^n / 1000.
            let thousandth = (i128::from(value) << (10 * power)).div_euclid(1000)
                + i128::from((i128::from(value) << (10 * power)) % 1000 != 0);
            let text = format!("{}{suffix}", with_point(value as u64, 3));
            prop_assert_eq!(bytes(&text).map(i128::from), Ok(thousandth));
        }

        #[test]
        fn is_monotone(
            a: i64, b: i64, decimals in 0_usize..25,
            suffix in prop::sample::select(vec!["n", "u", "m", "", "k", "E", "Ki", "Ei", "e7", "e-7"]),
        ) {
            let render = |value: i64| {
                let sign = if value < 0 { "-" } else { "" };
                format!("{sign}{}{suffix}", with_point(value.unsigned_abs(), decimals))
            };
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(bytes(&render(low))? <= bytes(&render(high))?);
            prop_assert!(cpu_millis(&render(low))? <= cpu_millis(&render(high))?);
        }
    }
}
