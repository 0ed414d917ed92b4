//! Figures of a simulation: capacity that was missing, and capacity that was not needed.

use std::ops::AddAssign;

use super::load::STEP_SECONDS;

/// Capacity over time, in replicas × seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Provisioning {
    /// Demand that exceeded the ready replicas.
    pub shortage: f64,
    /// The same beyond the tolerance of the default rule, 10 % of the ready replicas: the share that is due to late
    /// replicas and not to the tolerance.
    pub late: f64,
    /// Ready replicas that exceeded the demand.
    pub surplus: f64,
    /// Replicas that were asked for.
    pub capacity: f64,
    pub demand: f64,
    pub seconds: f64,
    /// Seconds in which the demand exceeded the ready replicas.
    pub short_seconds: f64,
    /// Seconds in which a forecast was trusted.
    pub trusted_seconds: f64,
}

/// Tolerance of the default rule.
const TOLERANCE: f64 = 0.1;

impl Provisioning {
    /// Adds a step.
    pub(super) fn add(&mut self, demand: f64, ready: i32, replicas: i32, is_trusted: bool) {
        let seconds = STEP_SECONDS as f64;
        let ready = f64::from(ready);
        self.shortage += seconds * (demand - ready).max(0.0);
        self.late += seconds * (demand - (1.0 + TOLERANCE) * ready).max(0.0);
        self.surplus += seconds * (ready - demand).max(0.0);
        self.capacity += seconds * f64::from(replicas);
        self.demand += seconds * demand;
        self.seconds += seconds;
        self.short_seconds += if demand > ready { seconds } else { 0.0 };
        self.trusted_seconds += if is_trusted { seconds } else { 0.0 };
    }
}

impl AddAssign for Provisioning {
    fn add_assign(&mut self, other: Self) {
        self.shortage += other.shortage;
        self.late += other.late;
        self.surplus += other.surplus;
        self.capacity += other.capacity;
        self.demand += other.demand;
        self.seconds += other.seconds;
        self.short_seconds += other.short_seconds;
        self.trusted_seconds += other.trusted_seconds;
    }
}
