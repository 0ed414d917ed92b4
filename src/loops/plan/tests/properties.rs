//! Properties that hold for any samples, any policy and any text.

use proptest::prelude::*;
use serde_json::json;

use super::bench::{Loop, at, demo, sample, spec};
use crate::decision::{DecisionInput, DecisionRules, Executor};
use crate::monitoring::{MonitoringRules, ObserveContext, ObserveTrigger};
use ganglion_api::decision::DecisionSpec;
use ganglion_api::monitoring::{MonitoringSpec, MonitoringStatus};
use ganglion_core::quantity;

/// A loop that goes up and down, with all limits.
pub fn restless(dwell: i64, max: i32) -> Loop {
    let scale = |by: i32| json!({"scale": {"by": by, "min": 1, "max": 8}});
    let action = |metric: &str, side: &str, by: i32| json!({"when": {"metric": metric, "side": side}, "settle": "3s", "ladder": [scale(by), scale(by * 2)]});
    let metric = |name: &str| {
        json!({"name": name, "source": {"push": {}}, "low": {"raise": "10", "clear": "20"},
            "high": {"raise": "90", "clear": "80", "for": "2s"}, "missing": {"then": "Assume", "value": "95", "after": "5s"}})
    };
    Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [metric("a"), metric("b")],
            "policy": {
                "rank": ["b", "a"], "dwell": format!("{dwell}s"), "budget": {"max": max, "per": "60s"},
                "oscillation": {"reversals": 3, "per": "60s"}, "historyLimit": 10,
            },
            "actions": [action("a", "Low", -1), action("a", "High", 1), action("b", "Low", -1), action("b", "High", 1)],
        })),
    )
}

pub fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (0..120_i32).prop_map(|value| value.to_string()),
        1 => Just("n/a".to_owned()),
        1 => ".{0,5}",
    ]
}

fn samples() -> impl Strategy<Value = Vec<(i64, String, String)>> {
    prop::collection::vec((1..8_i64, value(), value()), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn limits_are_never_broken_and_counters_only_grow(samples in samples(), dwell in 0..20_i64, max in 0..6_i32) {
        let mut this = restless(dwell, max);
        let mut now = 0;
        let mut done: Vec<i64> = Vec::new();
        for (pause, a, b) in samples {
            now += pause;
            let (before, effects) = (this.decision.clone(), this.effects.len());
            this.push(at(now), &[("a", &a), ("b", &b)]);
            prop_assert!((1..=8).contains(&this.replicas));
            prop_assert!(this.effects.len() <= effects + 1, "one action per iteration");
            if this.effects.len() > effects {
                prop_assert!(done.last().is_none_or(|last| now - last >= dwell), "dwell");
                done.push(now);
                let recent = done.iter().filter(|at| now - **at < 60).count();
                prop_assert!(recent <= usize::try_from(max).unwrap(), "budget");
            }
            for old in &before.counters {
                let new = this.decision.counters.iter().find(|new| new.metric == old.metric).unwrap();
                prop_assert!(new.wanted >= old.wanted && new.served >= old.served && new.limited >= old.limited);
            }
            prop_assert!(this.decision.seq >= before.seq);
            prop_assert!(this.decision.history.len() <= 10 && this.decision.acts.len() <= 64);
            let served: i64 = this.status_at(at(now)).counters.iter().map(|counter| counter.served).sum();
            prop_assert_eq!(usize::try_from(served).unwrap(), this.effects.len(), "served counts the effects");
        }
        let mut numbers: Vec<i64> = this.effects.iter().map(|(seq, _)| *seq).collect();
        let all = numbers.len();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), all, "one effect per decision number");
    }

    #[test]
    fn an_unknown_value_never_lowers(samples in prop::collection::vec((1..8_i64, value()), 1..40)) {
        let mut this = restless(0, 60);
        let mut now = 0;
        for (pause, a) in samples {
            now += pause;
            let before = this.replicas;
            this.push(at(now), &[("a", &a), ("b", "NaN")]);
            let served = this.decision.history.last().map(|entry| entry.when.subject());
            let lowered = this.replicas < before;
            prop_assert!(!lowered || served.as_deref() == Some("a"));
            prop_assert!(!lowered || quantity::number(&a).is_ok());
        }
    }

    #[test]
    fn hysteresis_does_not_chatter(values in prop::collection::vec(0..100_i32, 1..200)) {
        let spec: MonitoringSpec = serde_json::from_value(json!({"metrics": [
            {"name": "a", "source": {"push": {}}, "low": {"raise": "40", "clear": "60"}}]})).unwrap();
        let watch = MonitoringRules::parse(&spec).unwrap();
        let mut status = MonitoringStatus::default();
        let mut stood = false;
        for (second, value) in (0..).zip(values) {
            let measured = watch.pushed(&sample(at(second), &[("a", &value.to_string())]), at(second));
            status = watch.observe(&status, ObserveTrigger::Measured(&measured), ObserveContext::of(None, at(second)))
                .status;
            let stands = !status.alarms.is_empty();
            if (40..60).contains(&value) {
                prop_assert_eq!(stands, stood, "between the levels the alarm keeps its state");
            } else {
                prop_assert_eq!(stands, value < 40);
            }
            stood = stands;
        }
    }

    #[test]
    fn sequences_only_grow(times in prop::collection::vec((-20..40_i64, 0..3_i64), 1..60)) {
        let spec: MonitoringSpec = serde_json::from_value(json!({"metrics": [
            {"name": "a", "source": {"push": {}}, "low": {"raise": "40"}}]})).unwrap();
        let watch = MonitoringRules::parse(&spec).unwrap();
        let mut status = MonitoringStatus::default();
        let mut now = 100;
        for (offset, pause) in times {
            now += pause;
            let before = status.tag.clone();
            let measured = watch.pushed(&sample(at(now + offset), &[("a", "1")]), at(now));
            let seen = watch.observe(&status, ObserveTrigger::Measured(&measured), ObserveContext::of(None, at(now)));
            if let (Some(old), Some(new)) = (before, &seen.status.tag) {
                prop_assert!(new.sequence >= old.sequence);
                prop_assert_eq!(new.sequence > old.sequence, seen.fresh);
                prop_assert_eq!(new.sequence > old.sequence, new.time > old.time);
            }
            status = seen.status;
        }
    }

    #[test]
    fn the_order_does_not_depend_on_chance(seed in any::<u64>(), select in 0..3_usize) {
        let policy = [
            json!({"rank": ["memory"]}),
            json!({"select": "Weighted", "weights": {}}),
            json!({"select": "Expression", "expression": "1"}),
        ];
        let mut this = Loop::new("fast", demo(policy[select].clone()));
        this.push(at(0), &[("cpu", "2.5"), ("memory", "25")]);
        let children = this.children(at(1));
        let rules = DecisionRules::parse(&children.decision).unwrap();
        let chosen = |shuffled: bool| {
            let mut monitoring = this.monitoring.clone();
            monitoring.tag.as_mut().unwrap().sequence += 1;
            if shuffled && seed % 2 == 0 {
                monitoring.alarms.reverse();
                monitoring.values.reverse();
            }
            let executor = Some(Executor { uid: "exe", target: &this.spec.target, status: &this.execution });
            let input =
                DecisionInput { monitoring: &monitoring, executor, written: &this.decision, generation: 1,
                    term: "term", now: at(1) };
            rules.decide(&this.decision, input).status.chosen.map(|chosen| chosen.metric)
        };
        prop_assert!(chosen(false).is_some());
        prop_assert_eq!(chosen(true), chosen(false));
    }

    #[test]
    fn any_spec_and_any_status_is_survived(
        texts in prop::collection::vec("[-0-9a-zA-Z. *{}]{0,12}", 12), numbers in prop::collection::vec(any::<i32>(), 6),
    ) {
        let text = |index: usize| texts[index].clone();
        let metric = json!({"name": "a", "source": {"push": {}}, "low": {"raise": text(0), "clear": text(1), "for": text(2)},
            "missing": {"after": text(3)}});
        if let Ok(spec) = serde_json::from_value::<MonitoringSpec>(json!({"interval": text(4), "metrics": [metric]}))
            && let Ok(watch) = MonitoringRules::parse(&spec)
        {
            let measured = watch.pushed(&sample(at(0), &[("a", &text(5))]), at(0));
            let _ = watch.observe(&MonitoringStatus::default(), ObserveTrigger::Measured(&measured),
                ObserveContext::of(None, at(0)));
        }
        let spec = json!({
            "rank": ["a", text(6)],
            "policy": {"dwell": text(7), "historyLimit": numbers[0], "budget": {"max": numbers[1], "per": text(8)},
                "oscillation": {"reversals": numbers[2], "per": text(9)}},
            "actions": [{"when": {"metric": "a", "side": "Low"}, "settle": text(10),
                "ladder": [{"scale": {"by": numbers[3], "min": numbers[4], "max": numbers[5]}}, {}]}],
        });
        let spec: DecisionSpec = serde_json::from_value(spec).unwrap();
        if let Ok(rules) = DecisionRules::parse(&spec) {
            let mut this = Loop::new("fast", demo(json!({})));
            this.push(at(0), &[("cpu", "2"), ("memory", "40")]);
            this.monitoring.alarms[0].metric = "a".into();
            let input = DecisionInput {
                monitoring: &this.monitoring,
                executor: Some(Executor { uid: "x", target: &this.spec.target, status: &this.execution }),
                written: &this.decision,
                generation: 1,
                term: "term",
                now: at(0),
            };
            let _ = rules.decide(&Default::default(), input);
        }
    }
}
