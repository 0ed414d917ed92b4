//! Parses Kubernetes quantities: `250m`, `1.5Gi`, `2e3`.
//!
//! Owns the grammar of `resource.Quantity` and its rounding. Works on decimal digits, never on floats: two nodes that
//! differ by one byte must not compare equal.

use thiserror::Error;

use crate::words::quoted;

/// Maximum length of a quantity, in characters. Quantities of the API server are far shorter.
pub const MAX_CHARS: usize = 64;

/// Maximum exponent. Larger ones do not change a result: with at most [`MAX_CHARS`] digits the value already saturates
/// or rounds to one.
const MAX_EXPONENT: i64 = 128;

/// Maximum size of a quantity of Kubernetes, in billionths.
pub const MAX_NANOS: i128 = i64::MAX as i128 * 1_000_000_000;

/// Reason why a string is not a quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// The text is empty.
    #[error("an empty quantity: write a number such as 500m, 2 or 1.5Gi")]
    Empty,
    /// The text is longer than [`MAX_CHARS`], so the message omits it.
    #[error("a quantity of {chars} characters: the limit is {MAX_CHARS}")]
    TooLong { chars: usize },
    /// The part before the suffix is not a decimal number.
    #[error("{} is not a quantity: it does not start with a number such as 2 or 1.5", quoted(text))]
    Number { text: String },
    /// The number has an unknown suffix.
    #[error(
        "{} is not a quantity: unknown suffix {}; known are n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and e3",
        quoted(text),
        quoted(suffix)
    )]
    Suffix { text: String, suffix: String },
}

/// Parses an amount of CPU, in millicores.
///
/// Fractions of a millicore round away from zero, as in Kubernetes; values outside of `i64` saturate.
pub fn cpu_millis(text: &str) -> Result<i64, QuantityError> {
    parse(text).map(|quantity| quantity.scaled(3))
}

/// Parses an amount of memory or storage, in bytes.
///
/// Fractions of a byte round away from zero, as in Kubernetes; values outside of `i64` saturate.
pub fn bytes(text: &str) -> Result<i64, QuantityError> {
    parse(text).map(|quantity| quantity.scaled(0))
}

/// Parses a plain number or a quantity to the nearest finite number: `5`, `-0.25`, `900m`, `1e3`, `2Gi`. Refuses `NaN`
/// and `Inf`.
pub fn number(text: &str) -> Result<f64, QuantityError> {
    parse(text).map(|quantity| quantity.nearest())
}

/// Parses a plain number or a quantity, in billionths.
///
/// Smaller fractions round away from zero, and values outside of ±(2⁶³ − 1) saturate, both as in Kubernetes.
pub fn nanos(text: &str) -> Result<i128, QuantityError> {
    parse(text).map(|quantity| quantity.scaled_within(9, MAX_NANOS))
}

/// Renders an amount of CPU, in millicores, as a quantity.
pub fn show_millis(millis: i64) -> String {
    if millis % 1000 == 0 { (millis / 1000).to_string() } else { format!("{millis}m") }
}

/// Renders a number of billionths as a decimal number, exactly.
pub fn show_nanos(nanos: i128) -> String {
    let (size, one) = (nanos.unsigned_abs(), 1_000_000_000);
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, rest) = (size / one, size % one);
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
}

/// Renders an amount of memory, in bytes, as a quantity: in the largest binary unit in which it is a whole number or at
/// least ten, rounded down.
pub fn show_bytes(bytes: i64) -> String {
    let units = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let unit = units.into_iter().find(|(_, power)| {
        let whole = bytes >> power;
        whole >= 10 || (whole > 0 && whole << power == bytes)
    });
    unit.map_or_else(|| bytes.to_string(), |(unit, power)| format!("{}{unit}", bytes >> power))
}

/// `0.digits * 10^point * 2^doublings`, with a sign. Exact for any number of digits.
struct Quantity {
    negative: bool,
    digits: Vec<u8>,
    point: i64,
    doublings: u32,
}

/// Factor of a suffix.
struct SuffixFactor {
    exponent: i64,
    doublings: u32,
}

impl Quantity {
    /// The value times `10^decimals`, rounded away from zero, saturating.
    fn scaled(&self, decimals: i64) -> i64 {
        // One more than the maximum, which is the size of the minimum. The clamp makes the conversion exact.
        let limit = i128::from(i64::MAX) + 1;
        self.scaled_within(decimals, limit).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The value times `10^decimals`, rounded away from zero, of at most this size. The limit is below 2¹⁰⁰.
    fn scaled_within(&self, decimals: i64, limit: i128) -> i128 {
        let point = self.point.saturating_add(decimals);
        let mut whole = self.whole_part(point, limit);
        let mut fraction = self.fraction_part(point);
        for _ in 0..self.doublings {
            whole = (whole * 2 + i128::from(double(&mut fraction))).min(limit);
        }
        if fraction.iter().any(|digit| *digit != 0) {
            whole = (whole + 1).min(limit);
        }
        if self.negative { -whole } else { whole }
    }

    /// The nearest float. Always finite: there are at most [`MAX_CHARS`] digits, and the exponent is at most
    /// [`MAX_EXPONENT`].
    fn nearest(&self) -> f64 {
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let size: f64 = format!("0.{digits}e{}", self.point).parse().unwrap_or(0.0);
        let size = size * (1_u64 << self.doublings) as f64;
        if self.negative { -size } else { size }
    }

    /// The digits before the decimal point, at most the limit.
    fn whole_part(&self, point: i64, limit: i128) -> i128 {
        let mut whole = 0_i128;
        for index in 0..point {
            let digit = usize::try_from(index).ok().and_then(|index| self.digits.get(index)).copied().unwrap_or(0);
            whole = (whole * 10 + i128::from(digit)).min(limit);
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

fn scale(suffix: &str) -> Option<SuffixFactor> {
    let decimal = |exponent| Some(SuffixFactor { exponent, doublings: 0 });
    let binary = |doublings| Some(SuffixFactor { exponent: 0, doublings });
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
mod tests;
