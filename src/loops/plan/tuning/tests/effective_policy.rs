//! Tests of policies that were tuned.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::common::micro_time;
use crate::tests::bench::{at, demo};
use crate::tuning::effective_policy::{EffectivePolicy, LevelStep, declared_rank, effective, level, obsolete, stepped};
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::closed_loop::metric::Level;
use ganglion_api::closed_loop::policy::{Tunable, Tuning};
use ganglion_api::closed_loop::status::Effective;
use ganglion_api::scalars::Number;

fn tunable() -> ClosedLoopSpec {
    let mut spec = demo(json!({"rank": ["memory"]}));
    spec.metrics[0].low.as_mut().unwrap().clear = Some("8".into());
    spec.tunable = serde_json::from_value(json!({
        "by": ["strong", "weak"],
        "rank": true,
        "ttl": "1h",
        "thresholds": [{"path": "cpu.low.raise", "min": "2", "max": "10", "maxStep": "1"}],
    }))
    .unwrap();
    spec
}

fn tuning(by: &str, second: i64, rank: Option<&[&str]>, thresholds: Value) -> Tuning {
    Tuning {
        by: by.into(),
        uid: by.into(),
        seq: 1,
        at: micro_time(at(second)),
        rank: rank.map(|rank| rank.iter().map(|name| (*name).into()).collect()),
        rank_at: None,
        thresholds: serde_json::from_value(thresholds).unwrap(),
        message: None,
    }
}

#[test]
fn the_rank_is_whole() {
    assert_eq!(declared_rank(&tunable()), ["memory", "cpu"]);
}

#[test]
fn the_strongest_decides_and_all_expires() {
    let spec = tunable();
    let all = [
        tuning("weak", 0, Some(&["memory", "cpu"]), json!([])),
        tuning("strong", 0, Some(&["cpu", "disk"]), json!([])),
    ];
    let policy = effective(&spec, &all, None, at(1)).unwrap();
    assert_eq!(policy.rank, ["cpu", "memory"], "unknown metrics are dropped, missing ones are appended");
    assert_eq!(policy.shown.until, Some(micro_time(at(3600))));
    assert_eq!(effective(&spec, &all, None, at(3600)).unwrap().rank, ["memory", "cpu"]);
}

#[rstest]
#[case("cpu.low.raise", "6", None)]
#[case("cpu.low.raise", "6.5", Some("more than 1 from 5"))]
#[case("cpu.low.raise", "11", Some("not within 2 and 10"))]
#[case("cpu.low.clear", "9", Some("not tunable"))]
#[case("cpu.low.raise", "NaN", Some("not a quantity"))]
fn a_level_keeps_to_its_bounds(#[case] path: &str, #[case] value: &str, #[case] refused: Option<&str>) {
    let all = [tuning("strong", 0, None, json!([{"path": path, "value": value}]))];
    let policy = effective(&tunable(), &all, None, at(1)).unwrap();
    match refused {
        None => {
            assert_eq!(policy.metrics[0].low.as_ref().unwrap().raise.as_str(), value);
            assert!(policy.shown.refused.is_empty());
        }
        Some(words) => {
            assert_eq!(policy.metrics[0].low.as_ref().unwrap().raise.as_str(), "5");
            assert!(policy.shown.refused[0].contains(words), "{:?}", policy.shown.refused);
        }
    }
}

#[test]
fn steps_are_measured_from_what_held_before() {
    let spec = tunable();
    let before: Effective =
        serde_json::from_value(json!({"thresholds": [{"path": "cpu.low.raise", "value": "6.5"}]})).unwrap();
    let all = [tuning("strong", 0, None, json!([{"path": "cpu.low.raise", "value": "7.5"}]))];
    let policy = effective(&spec, &all, Some(&before), at(1)).unwrap();
    assert_eq!(policy.shown.thresholds[0].value.as_str(), "7.5");
    // The level in effect stays in effect.
    assert_eq!(effective(&spec, &all, Some(&policy.shown), at(2)).unwrap(), policy);
}

#[test]
fn a_level_declared_outside_its_bounds_comes_back_step_by_step() {
    let mut spec = tunable();
    (spec.metrics[0].low.as_mut().unwrap().raise, spec.metrics[0].low.as_mut().unwrap().clear) = ("12.5".into(), None);
    let tunable = spec.tunable.clone().unwrap();
    let (mut held, mut ways, mut metrics) = (None, Vec::new(), spec.metrics.clone());
    for second in 0..4 {
        // The direction of the slow loop does not matter.
        let step = stepped(&tunable, &metrics, "cpu.low.raise", &"1".into()).unwrap();
        let LevelStep::To(goal) = step else {
            assert_eq!(step, LevelStep::Limited("cpu.low.raise is at 10, the limit of its bounds".to_owned()));
            break;
        };
        let all = [tuning("strong", second, None, json!([{"path": "cpu.low.raise", "value": goal}]))];
        let policy = effective(&spec, &all, held.as_ref(), at(second)).unwrap();
        assert_eq!(policy.shown.refused, [""; 0]);
        assert_eq!(effective(&spec, &all, Some(&policy.shown), at(second)).unwrap(), policy, "and stays in effect");
        ways.push(level(&policy.metrics, "cpu.low.raise").unwrap().0);
        (held, metrics) = (Some(policy.shown), policy.metrics);
    }
    assert_eq!(ways, ["11.5", "10.5", "10"]);
    let out = [tuning("strong", 0, None, json!([{"path": "cpu.low.raise", "value": "13"}]))];
    assert!(effective(&spec, &out, None, at(1)).unwrap().shown.refused[0].contains("not within 2 and 10"));
}

#[test]
fn levels_do_not_cross() {
    let mut spec = tunable();
    spec.metrics[0].low.as_mut().unwrap().clear = Some("5.5".into());
    let all = [tuning("strong", 0, None, json!([{"path": "cpu.low.raise", "value": "6"}]))];
    let policy = effective(&spec, &all, None, at(1)).unwrap();
    assert!(policy.shown.refused[0].contains("cross"));
}

/// Returns the effective rank and the effective level `cpu.low.raise`.
fn in_effect(policy: &EffectivePolicy) -> (String, String) {
    (policy.rank.join(","), level(&policy.metrics, "cpu.low.raise").unwrap().0)
}

/// Before this, the first loop had raised the level from 5 to 7.5, and the rank of cpu.
fn tuned() -> (Effective, [Tuning; 1]) {
    let held = json!({"rank": ["cpu", "memory"], "thresholds": [{"path": "cpu.low.raise", "value": "7.5"}]});
    let strong = tuning("strong", 0, Some(&["cpu", "memory"]), json!([{"path": "cpu.low.raise", "value": "7.5"}]));
    (serde_json::from_value(held).unwrap(), [strong])
}

#[test]
fn a_loop_that_is_taken_out_of_the_list_has_no_effect_at_once() {
    let (held, all) = tuned();
    let mut spec = tunable();
    let listed = effective(&spec, &all, Some(&held), at(1)).unwrap();
    assert_eq!(in_effect(&listed), ("cpu,memory".to_owned(), "7.5".to_owned()));
    spec.tunable.as_mut().unwrap().by = vec!["weak".into()];
    for tunable in [spec.tunable.clone(), None] {
        spec.tunable = tunable;
        let policy = effective(&spec, &all, Some(&held), at(1)).unwrap();
        assert_eq!(in_effect(&policy), ("memory,cpu".to_owned(), "5".to_owned()));
        assert_eq!(policy.shown.refused, ["strong: this loop is not in tunable.by"]);
        assert_eq!((policy.shown.thresholds, policy.shown.until), (Vec::new(), None));
    }
}

#[test]
fn after_a_loop_is_taken_out_the_next_one_is_in_effect_at_once() {
    let (held, [strong]) = tuned();
    let mut spec = tunable();
    spec.tunable.as_mut().unwrap().by = vec!["weak".into()];
    let weak = tuning("weak", 0, None, json!([{"path": "cpu.low.raise", "value": "6"}]));
    let policy = effective(&spec, &[strong, weak], Some(&held), at(1)).unwrap();
    assert_eq!(in_effect(&policy), ("memory,cpu".to_owned(), "6".to_owned()), "{:?}", policy.shown.refused);
}

#[test]
fn what_may_no_longer_be_tuned_is_as_declared_at_once() {
    let (held, all) = tuned();
    let may = |rank: bool, thresholds: Value| {
        let mut spec = tunable();
        let tunable = spec.tunable.as_mut().unwrap();
        (tunable.rank, tunable.thresholds) = (rank, serde_json::from_value(thresholds).unwrap());
        let policy = effective(&spec, &all, Some(&held), at(1)).unwrap();
        (in_effect(&policy), policy.shown.refused)
    };
    let narrow = json!([{"path": "cpu.low.raise", "min": "2", "max": "7", "maxStep": "1"}]);
    let refused = "strong: cpu.low.raise: 7.5 is not within 2 and 7";
    assert_eq!(may(true, narrow), (("cpu,memory".into(), "5".into()), vec![refused.to_owned()]));
    let refused = ["the rank is not tunable", "cpu.low.raise: it is not tunable"].map(|why| format!("strong: {why}"));
    assert_eq!(may(false, json!([])), (("memory,cpu".into(), "5".into()), refused.to_vec()));
}

#[test]
fn who_may_not_tune_is_named() {
    let all = [tuning("not-listed", 0, Some(&["cpu"]), json!([]))];
    let policy = effective(&tunable(), &all, None, at(1)).unwrap();
    assert_eq!(policy.rank, ["memory", "cpu"]);
    assert_eq!(policy.shown.refused, ["not-listed: this loop is not in tunable.by"]);
}

/// A metric whose low alarm is raised at `raise` and cleared at 8, and whose high alarm is raised at 9.5.
fn leveled(raise: &str) -> ClosedLoopSpec {
    let mut spec = tunable();
    spec.metrics[0].low.as_mut().unwrap().raise = raise.into();
    spec.metrics[0].high = Some(serde_json::from_value(json!({"raise": "9.5", "clear": "9"})).unwrap());
    spec
}

fn step(spec: &ClosedLoopSpec, path: &str, by: &str) -> String {
    let mut tunable = spec.tunable.clone().unwrap();
    let bounds = tunable.thresholds.as_mut().unwrap();
    bounds[0].path = path.to_owned();
    match stepped(&tunable, &spec.metrics, path, &by.into()).unwrap() {
        LevelStep::To(level) => level.0,
        LevelStep::Limited(message) => message,
    }
}

#[rstest]
#[case("5", "0.5", "5.5")]
#[case("5", "3", "6")]
#[case("5", "-3", "4")]
#[case("2.5", "-3", "2")]
#[case("2", "-1", "cpu.low.raise is at 2, the limit of its bounds")]
#[case("7.5", "3", "8")]
#[case("8", "3", "cpu.low.raise is at 8, and cpu.low.clear is at 8: the two must not cross")]
#[case("8", "-3", "7")]
fn a_change_is_a_step_that_crosses_no_other_level(#[case] now: &str, #[case] by: &str, #[case] expected: &str) {
    assert_eq!(step(&leveled(now), "cpu.low.raise", by), expected);
}

#[test]
fn each_level_has_its_neighbors() {
    let spec = leveled("7.5");
    assert_eq!(step(&spec, "cpu.low.clear", "-1"), "7.5");
    assert_eq!(step(&spec, "cpu.low.clear", "1"), "9");
    assert_eq!(step(&spec, "cpu.high.raise", "-1"), "9");
    assert_eq!(step(&spec, "cpu.high.clear", "1"), "9.5");
    // Without hysteresis, the two raise levels are the next to each other, and they must not be equal.
    let mut spec = leveled("9");
    (spec.metrics[0].low.as_mut().unwrap().clear, spec.metrics[0].high.as_mut().unwrap().clear) = (None, None);
    let refused = "cpu.low.raise is at 9, and cpu.high.raise is at 9.5: the two must not cross";
    assert_eq!(step(&spec, "cpu.low.raise", "1"), refused);
    assert_eq!(step(&spec, "cpu.low.raise", "0.5"), refused);
    assert_eq!(step(&spec, "cpu.low.raise", "0.4"), "9.4");
    // The clear level of one side is at the raise level of the other side.
    spec.metrics[0].high.as_mut().unwrap().clear = Some("9".into());
    let refused = "cpu.high.raise is at 9.5, and cpu.low.raise is at 9: the two must not cross";
    assert_eq!(step(&spec, "cpu.high.raise", "-1"), refused);
}

proptest! {
    /// A step that a slow loop may take is in effect afterwards: no step is claimed that the tuned loop refuses.
    #[test]
    fn a_step_is_in_effect_afterwards(
        levels in [0..12_i32, 0..12, 0..12, 0..12], has_clear in any::<[bool; 2]>(), path in 0..4_usize,
        bounds in [0..12_i32, 0..12], max_step in 1..5_i32, steps in prop::collection::vec(-5..6_i32, 1..8),
    ) {
        let path = ["cpu.low.raise", "cpu.low.clear", "cpu.high.clear", "cpu.high.raise"][path];
        let mut levels = levels.map(|level| f64::from(level) / 2.0);
        levels.sort_by(f64::total_cmp);
        levels[3] += 0.5;
        let text = |level: f64| Number(level.to_string());
        let mut spec = tunable();
        let level = |raise, clear, has_clear: bool| Level {
            raise: text(raise), clear: has_clear.then(|| text(clear)), for_: None,
        };
        spec.metrics[0].low = Some(level(levels[0], levels[1], has_clear[0]));
        spec.metrics[0].high = Some(level(levels[3], levels[2], has_clear[1]));
        let (min, max) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
        let bounds = json!([{"path": path, "min": min.to_string(), "max": max.to_string(),
            "maxStep": max_step.to_string()}]);
        spec.tunable.as_mut().unwrap().thresholds = serde_json::from_value(bounds).unwrap();
        let tunable = spec.tunable.clone().unwrap();
        let (mut all, mut held) = (Vec::new(), None);
        for by in steps {
            let policy = effective(&spec, &all, held.as_ref(), at(0)).unwrap();
            prop_assert_eq!(&policy.shown.refused, &[""; 0]);
            let step = stepped(&tunable, &policy.metrics, path, &by.to_string().as_str().into()).unwrap();
            held = Some(policy.shown);
            if let LevelStep::To(value) = step {
                all = vec![tuning("strong", 0, None, json!([{"path": path, "value": value}]))];
            }
        }
        let policy = effective(&spec, &all, held.as_ref(), at(0)).unwrap();
        prop_assert_eq!(policy.shown.refused, [""; 0]);
    }
}

#[test]
fn levels_are_found_by_their_path() {
    let spec = tunable();
    let text = |path| level(&spec.metrics, path).map(|number| number.0);
    assert_eq!(text("cpu.low.raise").as_deref(), Some("5"));
    assert_eq!(text("cpu.low.clear").as_deref(), Some("8"));
    assert_eq!(text("memory.low.clear").as_deref(), Some("50"), "an unset clear is the same as raise");
    for path in ["cpu.high.raise", "disk.low.raise", "cpu.low", "cpu.low.raise.x", ""] {
        assert_eq!(text(path), None, "{path}");
    }
}

#[test]
fn a_tuning_that_expired_or_whose_loop_went_or_is_not_allowed_is_obsolete() {
    let all = [("old", 0), ("strong", 100), ("went", 100), ("out", 100)];
    let all: Vec<Tuning> = all.map(|(by, second)| tuning(by, second, None, json!([]))).into();
    let exists = |by: &str| by != "went";
    let tunable: Tunable = serde_json::from_value(json!({"by": ["old", "strong", "went"], "ttl": "1m"})).unwrap();
    let places = |second| obsolete(Some(&tunable), &all, exists, at(second));
    assert_eq!((places(59), places(60), places(160)), (vec![2, 3], vec![0, 2, 3], vec![0, 1, 2, 3]));
    assert_eq!(obsolete(None, &all, exists, at(59)), [0, 1, 2, 3]);
}
