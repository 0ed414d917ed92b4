//! Tests of quantities.

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
// A difference of one byte in 2^60 is visible, so no float was involved.
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

#[rstest]
#[case(0, "0")]
#[case(1023, "1023")]
#[case(12_345, "12Ki")]
#[case(64 << 20, "64Mi")]
#[case(8 << 30, "8Gi")]
#[case((8 << 30) + (1 << 29), "8704Mi")]
#[case(i64::MAX, "8191Pi")]
fn bytes_are_shown_in_binary_units(#[case] value: i64, #[case] expected: &str) {
    assert_eq!(show_bytes(value), expected);
}

#[rstest]
#[case(0, "0")]
#[case(250, "250m")]
#[case(2000, "2")]
#[case(1500, "1500m")]
fn cpu_is_shown_in_cores_or_millicores(#[case] value: i64, #[case] expected: &str) {
    assert_eq!(show_millis(value), expected);
}

#[rstest]
#[case(0, "0")]
#[case(1, "0.000000001")]
#[case(400_000, "0.0004")]
#[case(-1_500_000_000, "-1.5")]
#[case(-1, "-0.000000001")]
#[case(67_108_864_000_000_000, "67108864")]
#[case(MAX_NANOS, "9223372036854775807")]
fn billionths_are_shown_as_a_decimal_number(#[case] value: i128, #[case] expected: &str) {
    assert_eq!(show_nanos(value), expected);
    assert_eq!(nanos(expected), Ok(value));
}
