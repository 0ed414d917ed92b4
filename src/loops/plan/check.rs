//! The report of `ganglion check`: whether a loop would work, point by point, and a forecast of what it would do now,
//! without a history, on given values. The forecast runs the same stages as the operator.
//!
//! Must not know how the points are checked.

use jiff::Timestamp;

use crate::acted::alarm_words;
use crate::decision::{DecisionInput, DecisionRules, Executor};
use crate::monitoring::{Measurement, MonitoringRules, ObserveContext, ObserveTrigger};
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::decision::DecisionStatus;
use ganglion_api::execution::ExecutionStatus;
use ganglion_api::monitoring::{AlarmState, MonitoringStatus};
use ganglion_api::scalars::Number;
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

/// Name of the leader term in the statuses.
const TERM: &str = "check";

/// Result of a forecast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forecast {
    /// Nothing, for this reason.
    Nothing(String),
    Act(ProposedRung),
}

/// Rung that would be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedRung {
    pub metric: String,
    pub side: Side,
    /// Index of the rung on the ladder, from 0.
    pub rung: usize,
    /// The alarm, such as `cpu 2 is below 5`.
    pub cause: String,
    /// The alarm is raised only after the time `for` of its level.
    pub pending: bool,
}

/// Forecasts the decision on this measurement. A pending alarm counts as raised.
pub fn forecast(
    (watches, decides): (&MonitoringRules, &DecisionRules),
    spec: &ClosedLoopSpec,
    measured: &Measurement,
    now: Timestamp,
) -> Forecast {
    let written = MonitoringStatus::default();
    let context = ObserveContext {
        last: None,
        written: &written,
        unanswered: &[],
        watched_since: now,
        awaited: false,
        term: TERM,
        now,
    };
    let mut seen = watches.observe(&written, ObserveTrigger::Measured(measured), context).status;
    let pending = std::mem::take(&mut seen.pending);
    seen.alarms.extend(pending.iter().cloned());
    (seen.term, seen.valid_until) = (Some(TERM.to_owned()), None);
    let decided = decision(decides, spec, &seen, now);
    let Some(chosen) = &decided.chosen else {
        return Forecast::Nothing(nothing(&seen, &decided));
    };
    let (metric, side) = (chosen.metric.as_str(), chosen.side);
    let value = seen.values.iter().find(|reading| reading.metric == metric).map(|reading| &reading.value);
    let is_it = |alarm: &AlarmState| alarm.metric == metric && alarm.side == side;
    let cause = alarm_words(metric, side, value.map(Number::as_str), &spec.metrics);
    Forecast::Act(ProposedRung {
        metric: metric.to_owned(),
        side,
        rung: usize::try_from(chosen.rung).unwrap_or(0),
        cause: cause.unwrap_or_else(|| format!("{side} {metric}")),
        pending: pending.iter().any(is_it),
    })
}

fn decision(decides: &DecisionRules, spec: &ClosedLoopSpec, seen: &MonitoringStatus, now: Timestamp) -> DecisionStatus {
    let fresh = DecisionStatus::default();
    let idle = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    let executor = Some(Executor { uid: TERM, target: &spec.target, status: &idle });
    let input = DecisionInput { monitoring: seen, executor, written: &fresh, generation: 1, term: TERM, now };
    decides.decide(&fresh, input).status
}

fn nothing(seen: &MonitoringStatus, decided: &DecisionStatus) -> String {
    if !decided.rejected.is_empty() {
        let held = decided.rejected.iter().map(|one| format!("{} {}: {}", one.side, one.metric, one.message));
        return held.collect::<Vec<_>>().join("; ");
    }
    if seen.alarms.is_empty() && seen.values.is_empty() {
        return "no metric has a value".to_owned();
    }
    if seen.alarms.is_empty() {
        return "no value is beyond a level".to_owned();
    }
    decided.message.clone().unwrap_or_default()
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

#[cfg(test)]
mod forecast_tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::children::children;
    use crate::tuning::effective_policy::declared;

    fn spec(changes: Value) -> ClosedLoopSpec {
        let mut spec = json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [
                {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}},
                {"name": "memory", "source": {"push": {}}, "high": {"raise": "80", "for": "2m"}},
            ],
            "actions": [
                {"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"scale": {"by": 1}}]},
                {"when": {"metric": "memory", "side": "High"}, "ladder": [{"scale": {"by": 2}}]},
            ],
        });
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn look(spec: &ClosedLoopSpec, values: &[(&str, &str)]) -> Forecast {
        let free = children(spec, &declared(spec), None, None);
        let watches = MonitoringRules::parse(&free.monitoring).unwrap();
        let decides = DecisionRules::parse(&free.decision).unwrap();
        let values = values.iter().map(|(metric, value)| ((*metric).to_owned(), Ok((*value).to_owned().into())));
        let measured = Measurement { values: values.collect(), ..Measurement::default() };
        forecast((&watches, &decides), spec, &measured, "2026-11-22T10:00:00Z".parse().unwrap())
    }

    fn act(metric: &str, side: Side, cause: &str, pending: bool) -> Forecast {
        Forecast::Act(ProposedRung { metric: metric.into(), side, rung: 0, cause: cause.into(), pending })
    }

    #[test]
    fn the_first_rung_of_the_first_alarm_is_proposed() {
        let spec = spec(json!({}));
        let both = [("cpu", "2"), ("memory", "90")];
        assert_eq!(look(&spec, &both), act("cpu", Side::Low, "cpu 2 is below 5", false));
        // Raised after two minutes.
        let later = act("memory", Side::High, "memory 90 is above 80", true);
        assert_eq!(look(&spec, &[("cpu", "7"), ("memory", "90")]), later);
    }

    #[test]
    fn each_mode_but_paused_proposes() {
        for mode in ["Auto", "DryRun", "Approve"] {
            let found = look(&spec(json!({"mode": mode})), &[("cpu", "2")]);
            assert!(matches!(found, Forecast::Act(_)), "{mode}: {found:?}");
        }
        assert!(matches!(look(&spec(json!({"mode": "Paused"})), &[("cpu", "2")]), Forecast::Nothing(_)));
    }

    #[rstest]
    #[case(json!({}), &[], "no metric has a value")]
    #[case(json!({}), &[("cpu", "7")], "no value is beyond a level")]
    #[case(json!({"actions": []}), &[("cpu", "2")], "Low cpu: no action is declared for it")]
    #[case(
        json!({"actions": [{"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"scale": {"by": 1}}],
            "during": [{"cron": "0 12 * * *", "duration": "1h"}]}]}),
        &[("cpu", "2")],
        "Low cpu: outside its window; opens 12:00 UTC"
    )]
    fn why_nothing_would_be_done_is_said(#[case] changes: Value, #[case] values: &[(&str, &str)], #[case] why: &str) {
        assert_eq!(look(&spec(changes), values), Forecast::Nothing(why.to_owned()));
    }
}
