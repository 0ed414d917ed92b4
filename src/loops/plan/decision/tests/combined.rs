//! Tests of actions for combinations of alarms.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{counters, reasons};
use crate::decision::met_since;
use crate::tests::bench::{Loop, at, spec};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Outcome;

/// An alarm on side High of `queue` or `lag`, on side Low of `errors`.
fn alarm(metric: &str) -> Value {
    json!({"metric": metric, "side": if metric == "errors" { "Low" } else { "High" }})
}

fn all_of(metrics: &[&str]) -> Value {
    json!({"all": metrics.iter().map(|metric| alarm(metric)).collect::<Vec<_>>()})
}

fn any_of(metrics: &[&str]) -> Value {
    json!({"any": metrics.iter().map(|metric| alarm(metric)).collect::<Vec<_>>()})
}

/// An action that adds this number of replicas.
fn action(when: Value, by: i32) -> Value {
    let scale = if by > 0 { json!({"by": by, "max": 1000}) } else { json!({"by": by, "min": 1}) };
    json!({"when": when, "ladder": [{"scale": scale}]})
}

/// A loop with 3 replicas whose alarms are active for a queue over 100, a lag over 100, and errors under 5.
fn watching(actions: Value, policy: Value) -> Loop {
    let metric =
        |name: &str, side: &str, raise: &str| json!({"name": name, "source": {"push": {}}, side: {"raise": raise}});
    Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [metric("queue", "high", "100"), metric("errors", "low", "5"), metric("lag", "high", "100")],
            "policy": policy, "actions": actions,
        })),
    )
}

fn message(this: &Loop) -> &str {
    this.messages().1
}

/// Values of queue, errors and lag: None is unknown.
type Values = (Option<i32>, Option<i32>, Option<i32>);

fn push(this: &mut Loop, second: i64, (queue, errors, lag): Values) {
    let text = |value: Option<i32>| value.map_or("NaN".to_owned(), |value| value.to_string());
    this.push(at(second), &[("queue", &text(queue)), ("errors", &text(errors)), ("lag", &text(lag))]);
}

/// Another process leads from now on; pushed samples are answers of their sources.
fn new_process(this: &mut Loop) {
    this.crash();
    this.term.push('+');
}

const BOTH: Values = (Some(200), Some(1), Some(0));
const QUEUE: Values = (Some(200), Some(9), Some(0));
const NONE: Values = (Some(0), Some(9), Some(0));

fn values() -> impl Strategy<Value = Values> {
    let value = |most: i32| proptest::option::weighted(0.8, 0..most);
    (value(200), value(10), value(200))
}

proptest! {
    /// An action is taken exactly for the samples in which the known values meet its condition; unknown values meet
    /// nothing. A new process at any time makes no difference.
    #[test]
    fn all_acts_in_the_intersection_and_any_in_the_union(
        samples in prop::collection::vec((values(), any::<bool>()), 1..40),
    ) {
        let mut each = watching(json!([action(all_of(&["queue", "errors", "lag"]), 1)]), json!({}));
        let mut some = watching(json!([action(any_of(&["queue", "errors", "lag"]), 1)]), json!({}));
        for (second, ((queue, errors, lag), restarts)) in (0..).zip(samples) {
            let before = (each.replicas, some.replicas);
            for this in [&mut each, &mut some] {
                if restarts {
                    new_process(this);
                }
                push(this, second, (queue, errors, lag));
            }
            let beyond = [
                queue.is_some_and(|value| value > 100),
                errors.is_some_and(|value| value < 5),
                lag.is_some_and(|value| value > 100),
            ];
            prop_assert_eq!(each.replicas - before.0, i32::from(!beyond.contains(&false)), "all of {:?}", beyond);
            prop_assert_eq!(some.replicas - before.1, i32::from(beyond.contains(&true)), "any of {:?}", beyond);
        }
    }
}

#[test]
fn a_combination_is_named_where_its_alarms_are() {
    let mut this = watching(json!([action(all_of(&["queue", "errors"]), 1)]), json!({"dwell": "60s"}));
    push(&mut this, 0, BOTH);
    assert_eq!(this.messages(), ("High queue,Low errors", "React to High queue and Low errors"));
    let chosen = this.decision.chosen.clone().unwrap();
    assert_eq!((chosen.metric.as_str(), chosen.served().to_string().as_str()), ("queue", "High queue and Low errors"));
    push(&mut this, 1, BOTH);
    assert_eq!(reasons(&this), [("queue", LoopReason::Dwell)], "its alarms are not listed beside it");
    assert!(message(&this).starts_with("Hold High queue and Low errors: dwell"), "{}", message(&this));
    let entry = this.decision.history[0].to_string();
    assert!(entry.contains("High queue and Low errors - rung 0"), "{entry}");
}

#[test]
fn what_is_missing_is_said() {
    let mut this = watching(json!([action(all_of(&["queue", "errors"]), 1)]), json!({}));
    push(&mut this, 0, QUEUE);
    assert_eq!(message(&this), "Hold High queue and Low errors: Low errors is not active");
    assert_eq!((reasons(&this), this.replicas), (vec![("queue", LoopReason::NotAllActive)], 3));
    assert!(this.decision.counters.is_empty(), "nothing was wanted");
    let mut this = watching(json!([action(all_of(&["queue", "errors"]), 1)]), json!({}));
    push(&mut this, 0, (Some(200), None, Some(0)));
    assert_eq!(message(&this), "Hold High queue and Low errors: errors is unknown");
    assert_eq!((reasons(&this), this.replicas), (vec![("queue", LoopReason::UnknownValue)], 3));
    push(&mut this, 1, NONE);
    assert_eq!(message(&this), "No Event");
}

#[test]
fn an_alarm_whose_value_became_unknown_holds_all_and_not_any() {
    let mut this = watching(json!([action(all_of(&["queue", "errors"]), 1)]), json!({}));
    push(&mut this, 0, BOTH);
    push(&mut this, 1, (Some(200), None, Some(0)));
    assert_eq!(message(&this), "Hold High queue and Low errors: the value of errors is unknown");
    assert_eq!(this.replicas, 4);
    let mut this = watching(json!([action(any_of(&["queue", "errors"]), 1)]), json!({}));
    push(&mut this, 0, BOTH);
    push(&mut this, 1, (None, Some(1), Some(0)));
    assert_eq!((this.replicas, this.decision.chosen.as_ref().unwrap().metric.as_str()), (5, "errors"));
    push(&mut this, 2, (None, None, Some(0)));
    assert_eq!(message(&this), "Hold High queue or Low errors: the value of queue, errors is unknown");
}

/// A combination has the place of its first alarm; there, the more specific condition comes first.
#[rstest]
#[case(json!({"rank": ["queue", "errors"]}), 8)]
#[case(json!({"rank": ["lag", "errors", "queue"]}), 2)]
#[case(json!({"rank": ["errors", "queue", "lag"]}), 8)]
#[case(json!({"select": "Weighted", "weights": {"queue": "1", "errors": "9"}}), 8)]
#[case(json!({"select": "Expression", "expression": "metric.name == \"queue\" ? 2 : 1"}), 8)]
#[case(json!({"select": "Expression", "expression": "metric.name == \"lag\" ? 1 : 0"}), 2)]
fn the_order_is_that_of_the_first_alarm(#[case] policy: Value, #[case] by: i32) {
    let actions = json!([
        action(any_of(&["lag", "errors"]), 2),
        action(alarm("queue"), 4),
        action(all_of(&["errors", "queue"]), 8),
    ]);
    let mut this = watching(actions, policy);
    push(&mut this, 0, (Some(200), Some(1), Some(200)));
    assert_eq!(this.replicas, 3 + by, "{}", message(&this));
}

#[test]
fn an_alarm_is_before_any_and_after_all() {
    let actions = json!([action(any_of(&["queue", "lag"]), 2), action(alarm("queue"), 4)]);
    let mut this = watching(actions, json!({}));
    push(&mut this, 0, QUEUE);
    assert_eq!(message(&this), "React to queue");
    push(&mut this, 1, (Some(0), Some(9), Some(200)));
    assert_eq!(message(&this), "React to High queue or High lag");
}

#[test]
fn an_iteration_counts_once_for_the_metric_that_leads() {
    let actions = json!([action(all_of(&["queue", "errors"]), 1), action(alarm("queue"), 1)]);
    let mut this = watching(actions, json!({"rank": ["errors", "queue"]}));
    push(&mut this, 0, BOTH);
    assert_eq!((counters(&this, "errors"), counters(&this, "queue")), ((1, 1, 0), (1, 0, 0)));
    let actions = json!([action(all_of(&["queue", "errors"]), 1), action(alarm("queue"), 1)]);
    let mut this = watching(actions, json!({"rank": ["queue", "errors"]}));
    push(&mut this, 0, BOTH);
    assert_eq!(counters(&this, "queue"), (1, 1, 0), "two candidates, one iteration");
}

#[test]
fn the_next_rung_is_tried_while_the_combination_is_met() {
    let ladder = json!([{"scale": {"by": 1, "max": 99}}, {"scale": {"by": 5, "max": 99}}]);
    let when = all_of(&["queue", "errors"]);
    let mut this = watching(json!([{"when": when, "settle": "10s", "ladder": ladder}]), json!({}));
    push(&mut this, 0, BOTH);
    push(&mut this, 5, BOTH);
    assert_eq!(reasons(&this), [("queue", LoopReason::Settling)]);
    new_process(&mut this);
    push(&mut this, 11, BOTH);
    assert_eq!(this.replicas, 9, "the second rung");
    push(&mut this, 22, QUEUE);
    push(&mut this, 23, BOTH);
    assert_eq!(this.replicas, 10, "the ladder starts again after the combination has ended");
}

#[test]
fn a_proposal_is_of_a_combination_and_ends_with_it() {
    let mut this = watching(json!([action(all_of(&["queue", "errors"]), 1)]), json!({}));
    this.spec.mode = serde_json::from_value(json!("Approve")).unwrap();
    push(&mut this, 0, BOTH);
    assert_eq!(message(&this), "Propose to react to High queue and Low errors");
    let digest = this.decision.chosen.as_ref().and_then(|chosen| chosen.digest.clone());
    push(&mut this, 1, QUEUE);
    assert_eq!(this.decision.history[0].outcome, Some(Outcome::Withdrawn));
    this.approval = digest;
    push(&mut this, 2, BOTH);
    assert_eq!(this.replicas, 3, "the approval was of the former proposal");
    this.approval = this.decision.chosen.as_ref().and_then(|chosen| chosen.digest.clone());
    push(&mut this, 3, BOTH);
    assert_eq!(this.replicas, 4);
}

/// Unknown values could trigger the raising action, or could not.
#[rstest]
#[case(any_of(&["lag", "queue"]), 3)]
#[case(all_of(&["lag", "queue"]), 2)]
fn an_unknown_part_that_could_ask_for_more_blocks_lowering(#[case] raising: Value, #[case] replicas: i32) {
    let mut this = watching(json!([action(alarm("errors"), -1), action(raising, 1)]), json!({}));
    push(&mut this, 0, (Some(0), Some(1), None));
    assert_eq!(this.replicas, replicas, "{}", message(&this));
}

#[test]
fn an_assumed_part_lowers_nothing() {
    let mut this = watching(json!([action(all_of(&["queue", "errors"]), -1)]), json!({}));
    let missing = json!({"after": "5s", "then": "Assume", "value": "0"});
    this.spec.metrics[1].missing = serde_json::from_value(missing).unwrap();
    this.push(at(0), &[("queue", "200"), ("lag", "0")]);
    this.push(at(9), &[("queue", "200"), ("lag", "0")]);
    assert_eq!(
        message(&this),
        "Hold High queue and Low errors: the value of errors is unknown, and its action lowers capacity"
    );
    push(&mut this, 10, BOTH);
    assert_eq!(this.replicas, 2);
}

/// A missing value is one measurement, however long it is missing; a known value beside it is a new one each time.
#[test]
fn a_missing_part_leads_to_one_action_and_a_known_one_to_more() {
    let when = json!({"any": [{"metric": "lag", "side": "Missing"}, alarm("queue")]});
    let mut this = watching(json!([action(when, 1)]), json!({}));
    this.spec.metrics[2].missing = serde_json::from_value(json!({"after": "5s", "then": "Alarm"})).unwrap();
    let idle = [("queue", "0"), ("errors", "9")];
    this.push(at(0), &idle);
    for second in [9, 10, 11] {
        this.push(at(second), &idle);
        assert_eq!(this.replicas, 4, "{second}: {}", message(&this));
    }
    for (second, replicas) in [(12, 5), (13, 6)] {
        this.push(at(second), &[("queue", "200"), ("errors", "9")]);
        assert_eq!(this.replicas, replicas, "{}", message(&this));
    }
}

#[test]
fn dry_runs_of_a_combination_are_one_line() {
    let mut this = watching(json!([action(all_of(&["queue", "errors"]), 1)]), json!({}));
    this.spec.mode = serde_json::from_value(json!("DryRun")).unwrap();
    for second in 0..3 {
        push(&mut this, second, BOTH);
        assert_eq!(message(&this), "Would react to High queue and Low errors");
    }
    assert_eq!((this.decision.history.len(), this.replicas), (1, 3));
    assert_eq!(this.decision.history[0].repeated.as_ref().map(|repeated| repeated.times), Some(3));
}

#[test]
fn all_is_met_since_its_last_alarm_and_any_since_its_first() {
    let mut this = watching(json!([]), json!({}));
    let since = |this: &Loop, when: Value| met_since(&serde_json::from_value(when).unwrap(), &this.monitoring);
    push(&mut this, 0, QUEUE);
    assert_eq!(since(&this, all_of(&["queue", "errors"])), Err("Low errors is not active".into()));
    assert_eq!(since(&this, any_of(&["queue", "errors"])), Ok(at(0)));
    push(&mut this, 7, BOTH);
    assert_eq!(since(&this, all_of(&["queue", "errors"])), Ok(at(7)));
    assert_eq!(since(&this, any_of(&["queue", "errors"])), Ok(at(0)));
    push(&mut this, 9, NONE);
    assert_eq!(
        since(&this, any_of(&["queue", "errors"])),
        Err("High queue is not active, Low errors is not active".into())
    );
}
