//! The report of `ganglion check`: whether a loop would work, point by point, and what it would do now.
//!
//! Must not know how the points are checked.

mod forecast;

pub use forecast::{Forecast, ProposedRung, forecast};
use ganglion_core::layout::paragraph;

/// Result of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    Passed,
    Failed,
    /// Not verifiable from here, or worth a closer look.
    Unsure,
}

/// Report on one loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The loop, as `namespace/name`.
    pub subject: String,
    points: Vec<(CheckState, String)>,
    /// Action that the loop would carry out now.
    pub now: Option<String>,
}

impl CheckReport {
    /// Creates an empty report.
    pub fn on(subject: String) -> Self {
        Self { subject, ..Self::default() }
    }

    pub fn passed(&mut self, words: impl Into<String>) {
        self.points.push((CheckState::Passed, words.into()));
    }

    pub fn failed(&mut self, words: impl Into<String>) {
        self.points.push((CheckState::Failed, words.into()));
    }

    pub fn unsure(&mut self, words: impl Into<String>) {
        self.points.push((CheckState::Unsure, words.into()));
    }

    /// Number of points in this state.
    pub fn count(&self, state: CheckState) -> usize {
        self.points.iter().filter(|(of, _)| *of == state).count()
    }

    /// Returns the report for a terminal, with the points in the order in which they were added.
    pub fn text(&self) -> String {
        let mut text = format!("ClosedLoop {}\n", self.subject);
        for (state, words) in &self.points {
            let mark = match state {
                CheckState::Passed => "  ok    ",
                CheckState::Failed => "  FAIL  ",
                CheckState::Unsure => "  ?     ",
            };
            text.push_str(&paragraph(mark, words));
        }
        if let Some(now) = &self.now {
            text.push_str(&paragraph("  now   ", now));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_listed_with_their_state_and_counted() {
        let mut report = CheckReport::on("shop/web".into());
        report.passed("the API server accepts it");
        report.failed("there is no Deployment web");
        report.unsure("metric cpu: not asked");
        report.now = Some("nothing".into());
        let text = "ClosedLoop shop/web\n  ok    the API server accepts it\n  FAIL  there is no Deployment web\n  ?     \
                    metric cpu: not asked\n  now   nothing\n";
        assert_eq!(report.text(), text);
        let counts = [CheckState::Passed, CheckState::Failed, CheckState::Unsure].map(|state| report.count(state));
        assert_eq!(counts, [1, 1, 1]);
    }
}
