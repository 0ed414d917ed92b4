//! Ratio of a measured value to its target, compared and multiplied without rounding.

use std::cmp::Ordering;
use std::fmt;

use super::nanos::{ONE, rounded};
use super::rules::Tolerances;

/// Product of several factors, as 256 bits; saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Product {
    high: u128,
    low: u128,
}

impl Product {
    const MAX: Self = Self { high: u128::MAX, low: u128::MAX };

    fn new(factors: &[u128]) -> Self {
        factors.iter().fold(Self { high: 0, low: 1 }, |product, factor| product.times(*factor))
    }

    fn times(self, factor: u128) -> Self {
        let (carry, low) = multiply(self.low, factor);
        let high = self.high.checked_mul(factor).and_then(|high| high.checked_add(carry));
        high.map_or(Self::MAX, |high| Self { high, low })
    }

    fn nearest(self) -> f64 {
        self.high as f64 * 2_f64.powi(128) + self.low as f64
    }
}

/// Upper and lower half of a product.
fn multiply(a: u128, b: u128) -> (u128, u128) {
    let halves = |number: u128| (number >> 64, number & u128::from(u64::MAX));
    let ((a_high, a_low), (b_high, b_low)) = (halves(a), halves(b));
    let (first, second) = (a_high * b_low, a_low * b_high);
    let (middle, middle_carry) = first.overflowing_add(second);
    let (low, low_carry) = (a_low * b_low).overflowing_add(middle << 64);
    let high = a_high * b_high + (middle >> 64) + (u128::from(middle_carry) << 64) + u128::from(low_carry);
    (high, low)
}

/// Measured value by target value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    measured: Product,
    target: Product,
}

impl Ratio {
    /// Ratio of two products. None if the target is 0.
    pub fn new(measured: &[u128], target: &[u128]) -> Option<Self> {
        let target = Product::new(target);
        (target > Product::new(&[0])).then(|| Self { measured: Product::new(measured), target })
    }

    /// Side of the target on which the value is.
    pub fn side(self) -> Ordering {
        self.measured.cmp(&self.target)
    }

    /// Whether 1 − down ≤ ratio ≤ 1 + up.
    pub fn is_within(self, tolerances: &Tolerances) -> bool {
        let measured = self.measured.times(ONE);
        measured >= self.target.times(ONE.saturating_sub(tolerances.down.size()))
            && measured <= self.target.times(ONE + tolerances.up.size())
    }

    /// Ratio × factor, rounded up; at most `i32::MAX`.
    pub fn ceil_of(self, factor: u32) -> i32 {
        let wanted = self.measured.times(u128::from(factor));
        let (mut low, mut high) = (0_i32, i32::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.target.times(u128::from(middle.unsigned_abs())) >= wanted {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rounded(self.measured.nearest() / self.target.nearest()))
    }
}
