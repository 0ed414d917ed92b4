//! Forecast of what a loop would do now, without a history, on given values. It runs the same stages as the operator.

use std::sync::LazyLock;

use jiff::Timestamp;

use crate::acted::when_words;
use crate::decision::{DecisionInput, DecisionRules, Executor, is_met};
use crate::monitoring::tracking::{TargetNews, TargetReading};
use crate::monitoring::{Measurement, MonitoringRules, ObserveContext, ObserveTrigger, SourceResult};
use crate::track::TrackMemory;
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::closed_loop::when::{Alarm, When};
use ganglion_api::decision::{DecisionStatus, ReplicaChange};
use ganglion_api::execution::ExecutionStatus;
use ganglion_api::monitoring::{MonitoringStatus, TrackingState};

/// Memory of a loop that has not tracked yet.
static NO_MEMORY: LazyLock<TrackMemory> = LazyLock::new(TrackMemory::default);

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
    /// The alarm or the combination of alarms.
    pub when: When,
    /// Index of the rung on the ladder, from 0.
    pub rung: usize,
    /// The alarm, such as `cpu 2 is below 5`.
    pub cause: String,
    /// The alarm is raised only after the time `for` of its level.
    pub pending: bool,
    /// Change of the number of replicas, for an action on side Target.
    pub replicas: Option<ReplicaChange>,
}

/// Values that a forecast is based on.
#[derive(Clone, Copy, Debug)]
pub struct ForecastInput<'a> {
    pub measured: &'a Measurement,
    /// The target's number of replicas, or why it is not known.
    pub replicas: Result<i32, &'a str>,
    /// State of the target, for actions on side Target, or why it is not known. None: there are no such actions.
    pub target: Option<Result<&'a TargetReading, &'a str>>,
    pub now: Timestamp,
}

impl ForecastInput<'_> {
    fn context<'a>(&'a self, written: &'a MonitoringStatus) -> ObserveContext<'a> {
        ObserveContext {
            last: None,
            written,
            unanswered: &[],
            watched_since: self.now,
            replicas: self.replicas,
            target: self.target.map(|reading| TargetNews {
                reading,
                results: &self.measured.values,
                memory: &NO_MEMORY,
                forecast: None,
                own_change: None,
                is_changing: false,
            }),
            awaited: false,
            term: TERM,
            now: self.now,
        }
    }

    fn observed(&self, watches: &MonitoringRules) -> MonitoringStatus {
        let written = MonitoringStatus::default();
        watches.observe(&written, ObserveTrigger::Measured(self.measured), self.context(&written)).status
    }
}

/// Computes each formula: its result with its operands, such as `2.5 = requests / replicas (requests 5, replicas 2)`,
/// or why there is none.
pub fn formulas(watches: &MonitoringRules, input: ForecastInput) -> Vec<(String, SourceResult)> {
    let written = MonitoringStatus::default();
    watches.described_formulas(&input.observed(watches), input.context(&written))
}

/// Explains the number of replicas that actions on side Target ask for: one line for each stage, or why there is none.
pub fn tracking(watches: &MonitoringRules, input: ForecastInput) -> Result<Vec<String>, String> {
    let state = input.observed(watches).tracking;
    match state {
        Some(TrackingState { problem: Some(why), .. }) => Err(why),
        Some(TrackingState { lines, .. }) => Ok(lines),
        None => Ok(Vec::new()),
    }
}

/// Forecasts the decision on these values. A pending alarm counts as raised.
pub fn forecast(
    (watches, decides): (&MonitoringRules, &DecisionRules),
    spec: &ClosedLoopSpec,
    input: ForecastInput,
) -> Forecast {
    let now = input.now;
    let mut seen = input.observed(watches);
    let raised = seen.alarms.clone();
    let pending = std::mem::take(&mut seen.pending);
    seen.alarms.extend(pending);
    (seen.term, seen.valid_until) = (Some(TERM.to_owned()), None);
    let decided = decision(decides, spec, &seen, now);
    let Some(chosen) = &decided.chosen else {
        return Forecast::Nothing(nothing(&seen, &decided));
    };
    let when = chosen.served();
    let value = |alarm: &Alarm| seen.values.iter().find(|reading| reading.metric == alarm.metric);
    let cause = when_words(&when, |alarm| value(alarm).map(|reading| reading.value.as_str()), &spec.metrics);
    Forecast::Act(ProposedRung {
        rung: usize::try_from(chosen.rung).unwrap_or(0),
        cause: cause.unwrap_or_else(|| when.to_string()),
        pending: !is_met(&when, &raised),
        replicas: chosen.replicas,
        when,
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
        let held = decided.rejected.iter().map(|one| format!("{}: {}", one.when, one.message));
        return held.collect::<Vec<_>>().join("; ");
    }
    if seen.alarms.is_empty() && seen.values.is_empty() {
        return "no metric has a value".to_owned();
    }
    if let Some(state) = seen.tracking.as_ref().filter(|_| seen.alarms.is_empty()) {
        return match &state.problem {
            Some(why) => why.clone(),
            None => format!("{} replicas are right ({})", state.replicas, state.reason),
        };
    }
    if seen.alarms.is_empty() {
        return "no value is beyond a level".to_owned();
    }
    decided.message.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
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
        let now = "2026-11-22T10:00:00Z".parse().unwrap();
        let input = ForecastInput { measured: &measured, replicas: Ok(2), target: None, now };
        forecast((&watches, &decides), spec, input)
    }

    fn act(when: Value, cause: &str, pending: bool) -> Forecast {
        let when = serde_json::from_value(when).unwrap();
        Forecast::Act(ProposedRung { when, rung: 0, cause: cause.into(), pending, replicas: None })
    }

    fn alarm(metric: &str, side: &str) -> Value {
        json!({"metric": metric, "side": side})
    }

    #[test]
    fn the_first_rung_of_the_first_alarm_is_proposed() {
        let spec = spec(json!({}));
        let both = [("cpu", "2"), ("memory", "90")];
        assert_eq!(look(&spec, &both), act(alarm("cpu", "Low"), "cpu 2 is below 5", false));
        // Raised after two minutes.
        let later = act(alarm("memory", "High"), "memory 90 is above 80", true);
        assert_eq!(look(&spec, &[("cpu", "7"), ("memory", "90")]), later);
    }

    #[test]
    fn a_combination_is_proposed_with_the_values_of_its_alarms() {
        let combined = |list: &str| json!({list: [alarm("cpu", "Low"), alarm("memory", "High")]});
        let watching =
            |list: &str| spec(json!({"actions": [{"when": combined(list), "ladder": [{"scale": {"by": 1}}]}]}));
        let both = [("cpu", "2"), ("memory", "90")];
        let words = "cpu 2 is below 5 and memory 90 is above 80";
        assert_eq!(
            look(&watching("all"), &both),
            act(combined("all"), words, true),
            "memory is high after two minutes"
        );
        let words = "cpu 2 is below 5 or memory 90 is above 80";
        assert_eq!(look(&watching("any"), &both), act(combined("any"), words, false));
        let why = "Low cpu and High memory: High memory is not active";
        assert_eq!(look(&watching("all"), &[("cpu", "2"), ("memory", "7")]), Forecast::Nothing(why.to_owned()));
    }

    #[test]
    fn formulas_are_computed_and_shown_with_their_operands() {
        let metrics = json!([
            {"name": "requests", "source": {"push": {}}},
            {"name": "cpu", "source": {"formula": {"expression": "requests / replicas"}}, "low": {"raise": "5"}},
            {"name": "memory", "source": {"formula": {"expression": "cpu / (replicas - 2)"}}, "high": {"raise": "80"}},
        ]);
        let spec = spec(json!({"metrics": metrics}));
        assert_eq!(look(&spec, &[("requests", "5")]), act(alarm("cpu", "Low"), "cpu 2.5 is below 5", false));
        let watches = MonitoringRules::parse(&children(&spec, &declared(&spec), None, None).monitoring).unwrap();
        let measured = Measurement {
            values: [("requests".to_owned(), Ok("5".to_owned().into()))].into(),
            ..Measurement::default()
        };
        let input = ForecastInput { measured: &measured, replicas: Ok(2), target: None, now: Timestamp::UNIX_EPOCH };
        let shown: Vec<_> = formulas(&watches, input)
            .into_iter()
            .map(|(metric, result)| (metric, result.map_or_else(|why| why, |value| value.value)))
            .collect();
        let expected = [
            ("cpu", "2.5 = requests / replicas (requests 5, replicas 2)"),
            (
                "memory",
                "the result is not a finite number (cpu 2.5, replicas 2): cpu / (replicas - 2) (cpu 2.5, replicas 2)",
            ),
        ];
        assert_eq!(shown, expected.map(|(metric, words)| (metric.to_owned(), words.to_owned())));
    }

    /// T21: the same target means two numbers.
    #[rstest]
    #[case("AverageValue", 3)]
    #[case("Value", 12)]
    fn t21_a_number_is_explained_before_it_is_applied(#[case] kind: &str, #[case] expected: i32) {
        let mut spec = spec(json!({}));
        let track = json!({"type": kind, "target": "100"});
        spec.metrics.truncate(1);
        spec.metrics[0].low = None;
        let action =
            json!([{"when": {"metric": "cpu", "side": "Target"}, "ladder": [{"scale": {"track": track, "max": 50}}]}]);
        spec.actions = serde_json::from_value(action).unwrap();
        let free = children(&spec, &declared(&spec), None, None);
        let watches = MonitoringRules::parse(&free.monitoring).unwrap();
        let decides = DecisionRules::parse(&free.decision).unwrap();
        let measured =
            Measurement { values: [("cpu".to_owned(), Ok("300".to_owned().into()))].into(), ..Measurement::default() };
        let reading = TargetReading { replicas: None, ready_pods: Some(4) };
        let now = "2026-11-22T10:00:00Z".parse().unwrap();
        let input = ForecastInput { measured: &measured, replicas: Ok(4), target: Some(Ok(&reading)), now };
        let lines = tracking(&watches, input).unwrap();
        assert!(
            lines.iter().any(|line| line.starts_with(&format!("proposal: {expected} replicas by cpu"))),
            "{lines:#?}"
        );
        match forecast((&watches, &decides), &spec, input) {
            // The first interval at most doubles.
            Forecast::Act(found) => assert_eq!(found.replicas.map(|change| (change.from, change.to)), Some((4, 8))),
            Forecast::Nothing(why) => assert_eq!(why, "4 replicas are right (HeldByWindow)"),
        }
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
