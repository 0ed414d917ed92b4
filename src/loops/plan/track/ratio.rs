//! Ratio of a measured value to its target, compared and multiplied without rounding.

use std::cmp::Ordering;
use std::fmt;

use num_bigint::BigUint;

use super::nanos::{Nanos, ONE, rounded};
use super::rules::Tolerances;

/// Measured value by target value.
#[derive(Clone, Debug)]
pub(super) struct Ratio {
    measured: BigUint,
    target: BigUint,
}

impl Ratio {
    /// Ratio of two products. None if the target is 0.
    pub fn new(measured: &[u128], target: &[u128]) -> Option<Self> {
        let product = |factors: &[u128]| factors.iter().product::<BigUint>();
        let (measured, target) = (product(measured), product(target));
        (target > BigUint::ZERO).then_some(Self { measured, target })
    }

    /// Side of the target on which the value is.
    pub fn side(&self) -> Ordering {
        self.measured.cmp(&self.target)
    }

    /// Whether 1 − down ≤ ratio ≤ 1 + up.
    pub fn is_within(&self, tolerances: &Tolerances) -> bool {
        let measured = &self.measured * ONE;
        measured >= &self.target * ONE.saturating_sub(tolerances.down.size())
            && measured <= &self.target * (ONE + tolerances.up.size())
    }

    /// Ratio × factor, in billionths.
    pub fn times(&self, factor: u32) -> Nanos {
        let billionths = &self.measured * factor * ONE / &self.target;
        Nanos::new(i128::try_from(billionths).unwrap_or(i128::MAX))
    }

    /// Ratio × factor, rounded up; at most `i32::MAX`.
    pub fn ceil_of(&self, factor: u32) -> i32 {
        let wanted = &self.measured * factor + &self.target - 1_u32;
        i32::try_from(wanted / &self.target).unwrap_or(i32::MAX)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let billionths = u128::try_from(&self.measured * ONE / &self.target).unwrap_or(u128::MAX);
        f.write_str(&rounded(billionths as f64 / ONE as f64))
    }
}
