//! Parity with the demo from which closed loops originate: its messages, and the sequence that its slow loop causes.

use rstest::rstest;
use serde_json::json;

use super::bench::{Loop, at, demo, spec};
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::decision::{DecisionStatus, Outcome};
use ganglion_api::execution::ExecutionState;

#[rstest]
#[case(&[("cpu", "2"), ("memory", "40")], "Low cpu,Low memory", "React to cpu", 1)]
#[case(&[("cpu", "20"), ("memory", "40")], "Low memory", "React to memory", 1)]
#[case(&[("cpu", "2"), ("memory", "51.2")], "Low cpu", "React to cpu", 1)]
#[case(&[("cpu", "20"), ("memory", "60")], "No Event", "No Event", 0)]
// The demo read all of these as low, which is wrong.
#[case(&[("cpu", "7.9"), ("memory", "60")], "No Event", "No Event", 0)]
#[case(&[("cpu", "n/a"), ("memory", "60")], "No Event", "No Event", 0)]
#[case(&[("memory", "60")], "No Event", "No Event", 0)]
#[case(&[("cpu", "NaN"), ("memory", "")], "No Event", "No Event", 0)]
// This one is low: it is below 1.
#[case(&[("cpu", "900m"), ("memory", "60")], "Low cpu", "React to cpu", 1)]
fn says_what_the_demo_says(
    #[case] values: &[(&str, &str)],
    #[case] monitoring: &str,
    #[case] decision: &str,
    #[case] effects: usize,
) {
    let mut fast = Loop::new("fast", demo(json!({"rank": ["cpu", "memory"]})));
    fast.push(at(0), values);
    assert_eq!(fast.messages(), (monitoring, decision));
    assert_eq!(fast.effects.len(), effects);
}

#[test]
fn the_tag_of_a_sample_stands_in_all_three_children() {
    let mut fast = Loop::new("fast", demo(json!({})));
    fast.push(at(0), &[("cpu", "2"), ("memory", "40")]);
    let tag = fast.monitoring.tag.clone();
    assert!(tag.is_some());
    assert_eq!(fast.decision.tag, tag);
    assert_eq!(fast.execution.tag, tag);
    assert_eq!(fast.execution.state, Some(ExecutionState::Done));
    assert_eq!((fast.execution.before.as_deref(), fast.execution.after.as_deref()), (Some("3"), Some("4")));
    assert_eq!(serde_json::to_value(&tag).unwrap()["time"], "2026-11-18T11:06:40.000000Z");
}

#[test]
fn a_calm_sample_clears_what_was_said_before() {
    let mut fast = Loop::new("fast", demo(json!({})));
    fast.push(at(0), &[("cpu", "2"), ("memory", "60")]);
    fast.push(at(1), &[("cpu", "20"), ("memory", "60")]);
    assert_eq!(fast.messages(), ("No Event", "No Event"));
    assert!(fast.decision.rejected.is_empty());
}

fn slow() -> Loop {
    Loop::new(
        "slow",
        spec(json!({
            "interval": "15m",
            "target": {"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "name": "fast"},
            "metrics": [{"name": "imbalance", "source": {"loop": {"rule": "LastServed", "window": 10}}, "high": {"raise": "0"}}],
            "actions": [{"when": {"metric": "imbalance", "side": "High"}, "ladder": [{"tune": {"raiseRank": "LeastServed"}}]}],
        })),
    )
}

/// Runs both loops, the slow one after each sample. Returns the served metrics.
fn together(first: &[(&str, &str)], samples: i64) -> (Loop, Vec<String>) {
    let (mut fast, mut slow) =
        (Loop::new("fast", demo(json!({"rank": ["cpu", "memory"], "historyLimit": 64}))), slow());
    fast.push(at(0), first);
    slow.look(at(0), &mut fast);
    for second in 1..samples {
        fast.push(at(second), &[("cpu", "2"), ("memory", "40")]);
        slow.look(at(second), &mut fast);
    }
    let served = fast.served().into_iter().map(str::to_owned).collect();
    (fast, served)
}

#[test]
fn the_slow_loop_makes_the_sequence_of_the_demo() {
    let (fast, served) = together(&[("cpu", "20"), ("memory", "40")], 51);
    let mut expected = vec!["memory"];
    for metric in ["cpu", "memory", "cpu", "memory", "cpu"] {
        expected.extend([metric; 10]);
    }
    assert_eq!(served, expected);
    assert_eq!(fast.tuning.first().and_then(|tuning| tuning.message.as_deref()), Some("Increase rank memory"));
}

#[test]
fn who_was_never_served_is_raised_too() {
    let (_, served) = together(&[("cpu", "2"), ("memory", "40")], 30);
    assert_eq!(served[..10], ["cpu"; 10]);
    assert_eq!(served[10..20], ["memory"; 10]);
    assert_eq!(served[20..30], ["cpu"; 10]);
}

#[test]
fn after_the_slow_loop_raised_memory_the_same_sample_is_another_reaction() {
    let (mut fast, _) = together(&[("cpu", "20"), ("memory", "40")], 11);
    assert_eq!(fast.messages().1, "React to cpu");
    fast.push(at(100), &[("cpu", "2"), ("memory", "40")]);
    assert_eq!(fast.messages(), ("Low cpu,Low memory", "React to memory"));
}

#[test]
fn a_slow_loop_that_looks_seldom_still_sees_true_totals() {
    let (mut fast, mut slow) = (Loop::new("fast", demo(json!({"historyLimit": 10}))), slow());
    for second in 0..40 {
        fast.push(at(second), &[("cpu", "2"), ("memory", "40")]);
    }
    slow.look(at(40), &mut fast);
    assert_eq!(fast.children(at(40)).decision.rank, ["memory", "cpu"]);
    assert_eq!(slow.monitoring.values[0].value.as_str(), "40");
}

#[test]
fn tuning_expires() {
    let (mut fast, _) = together(&[("cpu", "20"), ("memory", "40")], 12);
    assert_eq!(fast.children(at(12)).decision.rank, ["memory", "cpu"]);
    let day = 24 * 3600;
    assert_eq!(fast.children(at(day + 20)).decision.rank, ["cpu", "memory"]);
}

/// A proposal names the metric that is behind; by the time of its approval, it may be another one.
#[test]
fn a_proposal_to_raise_a_rank_is_made_again_when_another_metric_is_behind() {
    let counters = |served: [i64; 2]| {
        let counter =
            |metric: &str, served: i64| json!({"metric": metric, "wanted": 30, "served": served, "limited": 0});
        let all = json!([counter("cpu", 30), counter("memory", served[0]), counter("disk", served[1])]);
        DecisionStatus { counters: serde_json::from_value(all).unwrap(), ..DecisionStatus::default() }
    };
    let mut spec = demo(json!({"rank": ["cpu", "memory", "disk"]}));
    spec.metrics.push(serde_json::from_value(json!({"name": "disk", "source": {"push": {}}})).unwrap());
    let mut fast = Loop::new("fast", spec);
    let mut slow = slow();
    slow.spec.mode = LoopMode::Approve;
    fast.decision = counters([0, 5]);
    slow.look(at(0), &mut fast);
    let first = slow.decision.chosen.clone().unwrap();
    assert_eq!((first.seq, first.least_served.as_deref()), (1, Some("memory")));
    slow.look(at(900), &mut fast);
    assert_eq!(slow.decision.chosen.as_ref().unwrap().digest, first.digest, "nothing has changed");

    fast.decision = counters([29, 5]);
    slow.look(at(1800), &mut fast);
    slow.approval = first.digest;
    slow.look(at(1801), &mut fast);
    assert!(slow.effects.is_empty(), "memory was raised though disk is behind");
    let second = slow.decision.chosen.clone().unwrap();
    assert_eq!((second.seq, second.least_served.as_deref()), (2, Some("disk")));
    assert_eq!(slow.decision.history[0].outcome, Some(Outcome::Withdrawn));
    slow.approval = second.digest;
    slow.look(at(1802), &mut fast);
    assert_eq!(fast.children(at(1803)).decision.rank, ["cpu", "disk", "memory"]);
}
