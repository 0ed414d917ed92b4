//! Numbers of the stored form: three characters each, for 0 and from a billionth to ten billion, with an error below
//! 0.01 %.

/// Digits: those of base64 for addresses.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Number of characters of a number.
const LENGTH: usize = 3;

/// Steps in which a number doubles.
const STEPS: f64 = 4096.0;

/// Exponent of the smallest number above 0, to base 2.
const SMALLEST: f64 = -30.0;

/// Codes of a missing number and of 0. Larger codes are logarithms.
const MISSING: u32 = 0;
const ZERO: u32 = 1;
const MAX_CODE: u32 = (1 << 18) - 1;

fn code(number: f64) -> u32 {
    let steps = ((number.log2() - SMALLEST) * STEPS).round();
    // The comparison is false for NaN and for the logarithm of 0.
    if steps >= 0.0 { (steps.min(f64::from(MAX_CODE)) as u32 + ZERO + 1).min(MAX_CODE) } else { ZERO }
}

fn number(code: u32) -> Option<f64> {
    match code {
        MISSING => None,
        ZERO => Some(0.0),
        code => Some((f64::from(code - ZERO - 1) / STEPS + SMALLEST).exp2()),
    }
}

/// The nearest number that can be stored.
pub(super) fn stored(value: f64) -> f64 {
    number(code(value)).unwrap_or(0.0)
}

/// Writes numbers. Reading them returns the same if they are as [`stored`] returns them.
pub(super) fn write<'a>(numbers: impl Iterator<Item = &'a Option<f64>>) -> String {
    let mut text = String::new();
    for value in numbers {
        let code = value.map_or(MISSING, code);
        for shift in [12, 6, 0] {
            text.push(char::from(DIGITS[(code >> shift & 63) as usize]));
        }
    }
    text
}

/// Reads numbers; None if the text is not a list of them.
pub(super) fn read(text: &str) -> Option<Vec<Option<f64>>> {
    let digits: Option<Vec<u32>> =
        text.bytes().map(|byte| Some(DIGITS.iter().position(|digit| *digit == byte)? as u32)).collect();
    let digits = digits?;
    if digits.len() % LENGTH != 0 {
        return None;
    }
    Some(
        digits
            .chunks_exact(LENGTH)
            .map(|digits| number(digits.iter().fold(0, |code, digit| code << 6 | digit)))
            .collect(),
    )
}
