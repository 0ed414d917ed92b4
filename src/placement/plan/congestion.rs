//! The agent `congestion`: scores nodes by a congestion factor from 0 (none) to a maximum. Other tools publish the
//! factor as a node annotation.

use super::sample::number;

/// Default factor of a fully congested node.
const DEFAULT_MAX: f64 = 100.0;

/// Settings of the agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CongestionRules {
    max: f64,
}

impl Default for CongestionRules {
    fn default() -> Self {
        Self { max: DEFAULT_MAX }
    }
}

/// Congestion of a node according to its annotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Congestion {
    /// Congestion factor; 0 means no congestion. Scoring clamps it to the range from 0 to the maximum.
    Factor(f64),
    /// The text is not a number. The node gets the worst score, since an error must not attract pods.
    Malformed,
}

impl Congestion {
    pub const NONE: Self = Self::Factor(0.0);

    /// Parses the annotation. A missing or blank annotation means no congestion.
    pub fn read(text: Option<&str>) -> Self {
        match text.map(str::trim) {
            None | Some("") => Self::NONE,
            Some(text) => number(text).map_or(Self::Malformed, Self::Factor),
        }
    }
}

impl CongestionRules {
    /// Rules with this maximum, or with the default maximum if it is not a positive number.
    pub fn new(max: f64) -> Self {
        if max.is_finite() && max > 0.0 { Self { max } } else { Self::default() }
    }

    /// Parses the annotation and clamps the factor to the maximum.
    pub fn read(&self, text: Option<&str>) -> Congestion {
        match Congestion::read(text) {
            Congestion::Factor(factor) => Congestion::Factor(factor.clamp(0.0, self.max)),
            Congestion::Malformed => Congestion::Malformed,
        }
    }

    /// Score of a node, 0 to 10.
    pub fn score(&self, congestion: Congestion) -> f64 {
        match congestion {
            Congestion::Factor(factor) => 10.0 * (1.0 - factor / self.max).clamp(0.0, 1.0),
            Congestion::Malformed => 0.0,
        }
    }
}
