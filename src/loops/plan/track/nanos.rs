//! Exact numbers: billionths, as Kubernetes stores quantities. No operation overflows.

use std::fmt;
use std::iter::Sum;

use ganglion_core::quantity::{self, MAX_NANOS, QuantityError};

/// Number of billionths in one.
pub(super) const ONE: u128 = 1_000_000_000;

/// Number in billionths. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(i128);

impl Nanos {
    pub const ZERO: Self = Self(0);

    /// Clamps to the numbers that a quantity of Kubernetes can have.
    pub fn new(billionths: i128) -> Self {
        Self(billionths.clamp(-MAX_NANOS, MAX_NANOS))
    }

    pub fn from_whole(number: i64) -> Self {
        Self::new(i128::from(number) * ONE as i128)
    }

    pub fn from_millis(thousandths: i64) -> Self {
        Self::new(i128::from(thousandths) * 1_000_000)
    }

    /// Parses a number or a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        quantity::nanos(text).map(Self)
    }

    pub fn billionths(self) -> i128 {
        self.0
    }

    /// Number of billionths; 0 for negative numbers.
    pub(super) fn size(self) -> u128 {
        self.0.max(0).unsigned_abs()
    }

    pub fn is_positive(self) -> bool {
        self.0 > 0
    }
}

impl Sum for Nanos {
    /// A sum may be larger than a single number.
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        Self(numbers.fold(0, |sum, number| sum.saturating_add(number.0)))
    }
}

/// Rounds to three significant digits below 1000, and to a whole number otherwise.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rounded(self.0 as f64 / ONE as f64))
    }
}

/// Text with three significant digits below 1000, otherwise of a whole number.
pub(super) fn rounded(number: f64) -> String {
    let size = number.abs();
    if size >= 999.5 || size == 0.0 {
        return format!("{number:.0}");
    }
    // Digits before the first significant one. The smallest number is a billionth.
    let leading = size.log10().floor().max(-9.0) as i32;
    let decimals = usize::try_from(2 - leading).unwrap_or(0);
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
