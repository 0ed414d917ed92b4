//! The agent `congestion`: scores nodes by a factor that others publish, from 0 (none) to a maximum.

use super::sample::number;

/// The factor of a fully congested node, unless configured.
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

/// What a node's annotation says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Congestion {
    /// 0: none. Scores cut it to 0 to the maximum.
    Factor(f64),
    /// The text is no number. The node gets the worst score: an error must not attract pods.
    Malformed,
}

impl Congestion {
    pub const NONE: Self = Self::Factor(0.0);

    /// The factor that an annotation has. Without one, or with a blank one, there is no congestion.
    #[must_use]
    pub fn read(text: Option<&str>) -> Self {
        match text.map(str::trim) {
            None | Some("") => Self::NONE,
            Some(text) => number(text).map_or(Self::Malformed, Self::Factor),
        }
    }
}

impl CongestionRules {
    /// With this maximum; the default, if it is not a positive number.
    #[must_use]
    pub fn new(max: f64) -> Self {
        if max.is_finite() && max > 0.0 { Self { max } } else { Self::default() }
    }

    /// The congestion of a node, by its annotation, cut to the maximum.
    #[must_use]
    pub fn read(&self, text: Option<&str>) -> Congestion {
        match Congestion::read(text) {
            Congestion::Factor(factor) => Congestion::Factor(factor.clamp(0.0, self.max)),
            Congestion::Malformed => Congestion::Malformed,
        }
    }

    /// The score of a node, 0 to 10.
    #[must_use]
    pub fn score(&self, congestion: Congestion) -> f64 {
        match congestion {
            Congestion::Factor(factor) => 10.0 * (1.0 - factor / self.max).clamp(0.0, 1.0),
            Congestion::Malformed => 0.0,
        }
    }
}
