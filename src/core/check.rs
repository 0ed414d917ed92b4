//! The report of `ganglion check`: point by point, whether something works, and what to do where it does not.
//!
//! Must not know what is checked, or how.

use serde::Serialize;

use crate::layout::paragraph;

/// Result of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CheckState {
    Passed,
    Failed,
    /// Not verifiable from here, or worth a closer look.
    Unsure,
}

impl CheckState {
    /// Beginning of a line about a point in this state.
    fn mark(self) -> &'static str {
        match self {
            Self::Passed => "  ok    ",
            Self::Failed => "  FAIL  ",
            Self::Unsure => "  ?     ",
        }
    }
}

/// Beginning of the advice below a point.
const ADVICE: &str = "        → ";

/// One point of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckPoint {
    pub state: CheckState,
    pub message: String,
    /// Advice for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Report on one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Headline, such as `ClosedLoop shop/web`.
    pub subject: String,
    pub points: Vec<CheckPoint>,
    /// Action that a loop would carry out now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

impl CheckReport {
    /// Creates an empty report.
    pub fn on(subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), ..Self::default() }
    }

    pub fn passed(&mut self, message: impl Into<String>) {
        self.add(CheckState::Passed, message.into(), None);
    }

    pub fn failed(&mut self, message: impl Into<String>) {
        self.add(CheckState::Failed, message.into(), None);
    }

    pub fn unsure(&mut self, message: impl Into<String>) {
        self.add(CheckState::Unsure, message.into(), None);
    }

    /// Adds a failed point with advice.
    pub fn failed_with(&mut self, message: impl Into<String>, advice: impl Into<String>) {
        self.add(CheckState::Failed, message.into(), Some(advice.into()));
    }

    /// Adds an unsure point with advice.
    pub fn unsure_with(&mut self, message: impl Into<String>, advice: impl Into<String>) {
        self.add(CheckState::Unsure, message.into(), Some(advice.into()));
    }

    fn add(&mut self, state: CheckState, message: String, advice: Option<String>) {
        self.points.push(CheckPoint { state, message, advice });
    }

    /// Number of points in this state.
    pub fn count(&self, state: CheckState) -> usize {
        self.points.iter().filter(|point| point.state == state).count()
    }

    /// Returns the report for a terminal, with the points in the order in which they were added. Points that follow
    /// each other and have the same advice share it.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.subject);
        let mut points = self.points.iter().peekable();
        while let Some(CheckPoint { state, message, advice }) = points.next() {
            text.push_str(&paragraph(state.mark(), message));
            let is_repeated = points.peek().is_some_and(|next| next.advice == *advice);
            if let Some(advice) = advice.as_ref().filter(|_| !is_repeated) {
                text.push_str(&paragraph(ADVICE, advice));
            }
        }
        if let Some(now) = &self.now {
            text.push_str(&paragraph("  now   ", now));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn points_are_listed_with_their_state_and_counted() {
        let mut report = CheckReport::on("ClosedLoop shop/web");
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

    #[test]
    fn advice_stands_below_the_points_that_share_it() {
        let mut report = CheckReport::on("Policies");
        report.failed_with("a is missing", "apply them");
        report.failed_with("b is missing", "apply them");
        report.unsure_with("c", "look at it");
        report.passed("d");
        let text = "Policies\n  FAIL  a is missing\n  FAIL  b is missing\n        → apply them\n  ?     c\n        → look \
                    at it\n  ok    d\n";
        assert_eq!(report.text(), text);
        let point = json!({"state": "Failed", "message": "a is missing", "advice": "apply them"});
        let found = serde_json::to_value(&report).unwrap();
        assert_eq!(found["points"][0], point);
        assert_eq!(found["points"][3], json!({"state": "Passed", "message": "d"}));
        assert_eq!(found.get("now"), None);
    }
}
