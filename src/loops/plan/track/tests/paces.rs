//! Cases of windows and rates that users of autoscalers ran into, by their ids. Where HorizontalPodAutoscaler gives
//! another number, the case says so. Bad rules.

use rstest::rstest;

use super::bench::{Tracked, at, direct, named, nanos, policy, queue, rules, seconds};
use crate::track::{
    PolicySelect, RateChange, ScalePace, ScaleRules, Tolerances, TrackOutcome, TrackReason, TrackRuleError, TrackRules,
    TrackStage, TrackTarget,
};

/// Without rules the autoscaler goes to 8: the highest proposal of its window is a raise.
#[test]
fn b1_a_window_holds_and_never_raises() {
    let mut this = Tracked::new(TrackRules { pace: ScalePace::default(), ..direct(1, 50) }, 1);
    assert_eq!(this.raw(0, 10), 4);
    assert_eq!(this.raw(15, 1), 4);
    assert_eq!(this.raw(30, 6), 6);
}

#[test]
fn b2_the_highest_proposal_of_the_window() {
    let pace = ScalePace::rules(None, Some(ScaleRules::default_down()));
    let mut this = Tracked::new(TrackRules { pace, ..direct(1, 50) }, 10);
    let found = [(0, 10), (60, 4), (250, 6), (290, 3), (301, 3)].map(|(second, raw)| this.raw(second, raw));
    assert_eq!(found, [10, 10, 10, 10, 6]);
    let mut this = Tracked::new(TrackRules { pace: ScalePace::default(), ..direct(1, 50) }, 10);
    let found = [(0, 10), (60, 4), (250, 6), (290, 3), (301, 3)].map(|(second, raw)| this.raw(second, raw));
    assert_eq!(found, [10, 10, 10, 10, 6]);
}

#[test]
fn b4_a_change_as_old_as_the_period_is_out_of_it() {
    let up = rules(0, &[policy(RateChange::Pods(4), 60)], PolicySelect::Max);
    let mut this = Tracked::new(TrackRules { pace: ScalePace::rules(Some(up), None), ..direct(1, 50) }, 10);
    let outcome = this.step(0, &[queue("30", "1")]);
    assert_eq!((outcome.replicas, outcome.reason), (14, TrackReason::LimitedByPolicy));
    assert_eq!(outcome.changes_at, Some(at(60)));
    assert_eq!(this.raw(59, 30), 14);
    assert_eq!(this.raw(60, 30), 18);
}

#[rstest]
#[case(PolicySelect::Max, 5)]
#[case(PolicySelect::Min, 8)]
#[case(PolicySelect::Disabled, 10)]
fn b6_policies_are_selected(#[case] select: PolicySelect, #[case] expected: i32) {
    let down = rules(0, &[policy(RateChange::Pods(2), 60), policy(RateChange::Percent(50), 60)], select);
    let mut this = Tracked::new(TrackRules { pace: ScalePace::rules(None, Some(down)), ..direct(1, 50) }, 10);
    assert_eq!(this.raw(0, 1), expected);
}

/// The autoscaler stays at 0 for ever.
#[test]
fn b8_a_percentage_of_nothing_allows_one() {
    let up = rules(0, &[policy(RateChange::Percent(100), 15)], PolicySelect::Max);
    let mut this = Tracked::new(TrackRules { pace: ScalePace::rules(Some(up), None), ..direct(0, 50) }, 0);
    assert_eq!([this.raw(0, 5), this.raw(15, 5), this.raw(30, 5), this.raw(45, 5)], [1, 2, 4, 5]);
}

/// The autoscaler computes 111, and 0.
#[test]
fn b9_percentages_are_exact() {
    let up = rules(0, &[policy(RateChange::Percent(10), 15)], PolicySelect::Max);
    let down = rules(0, &[policy(RateChange::Percent(90), 15)], PolicySelect::Max);
    let pace = ScalePace::rules(Some(up), Some(down));
    assert_eq!(Tracked::new(TrackRules { pace: pace.clone(), ..direct(0, 500) }, 100).raw(0, 400), 110);
    assert_eq!(Tracked::new(TrackRules { pace, ..direct(0, 500) }, 10).raw(0, 0), 1);
}

#[test]
fn b10_two_algorithms() {
    assert_eq!(Tracked::new(TrackRules { pace: ScalePace::default(), ..direct(1, 50) }, 1).raw(0, 20), 4);
    assert_eq!(Tracked::new(TrackRules { pace: ScalePace::rules(None, None), ..direct(1, 50) }, 1).raw(0, 20), 5);
}

/// The autoscaler forgets both.
#[test]
fn b11_a_restart_continues_window_and_rate() {
    let up = rules(0, &[policy(RateChange::Pods(4), 600)], PolicySelect::Max);
    let pace = ScalePace::rules(Some(up), Some(ScaleRules::default_down()));
    let mut this = Tracked::new(TrackRules { pace, ..direct(1, 50) }, 6);
    assert_eq!(this.raw(0, 20), 10);
    assert_eq!(this.raw(15, 3), 10);
    this.restart(60);
    assert_eq!([this.raw(61, 3), this.raw(299, 3), this.raw(300, 3)], [10, 10, 3]);
    this.restart(301);
    // Both the raise and the lowering are in the period: 3 - 4 + 7 + 4.
    assert_eq!(this.raw(302, 20), 10);
}

#[test]
fn b13_below_min_is_no_fault() {
    let outcome = Tracked::new(direct(2, 9), 2).step(0, &[queue("1", "1")]);
    assert_eq!((outcome.replicas, outcome.reason), (2, TrackReason::AtMin));
    let outcome = Tracked::new(direct(2, 9), 9).step(0, &[queue("10", "1")]);
    assert_eq!((outcome.replicas, outcome.reason), (9, TrackReason::AtMax));
}

#[test]
fn b14_one_line_for_each_stage() {
    let down = rules(300, &[policy(RateChange::Pods(2), 60)], PolicySelect::Max);
    let mut this = Tracked::new(TrackRules { pace: ScalePace::rules(None, Some(down)), ..direct(3, 12) }, 10);
    this.step(0, &[queue("10", "1"), named(queue("9", "1"), "other")]);
    let metrics = [queue("4", "1"), named(queue("2", "1"), "other")];
    let lines = |outcome: &TrackOutcome| outcome.lines.iter().map(ToString::to_string).collect::<Vec<_>>();
    let held = this.step(60, &metrics);
    assert_eq!(
        lines(&held),
        [
            "metric: queue: 4, target 1 for each replica, ratio 0.4 (tolerance 0.9 to 1.1): 4 replicas (UnderTarget)",
            "metric: other: 2, target 1 for each replica, ratio 0.2 (tolerance 0.9 to 1.1): 2 replicas (UnderTarget)",
            "proposal: 4 replicas by queue (Unchanged)",
            "window: 10 replicas, held by the proposal of 10 at 2027-01-15T08:00:00Z until 2027-01-15T08:05:00Z \
             (HeldByWindow)",
            "rate: 10 replicas, within the rate (Unchanged)",
            "bounds: 10 replicas; min 3, max 12 (Unchanged)",
            "result: stays at 10 replicas (HeldByWindow)",
        ]
    );
    assert_eq!(held.changes_at, Some(at(300)));
    let limited = this.step(300, &metrics);
    assert_eq!(
        lines(&limited)[3..],
        [
            "window: 4 replicas; windows: up 0 s, down 300 s (Unchanged)",
            "rate: 8 replicas, limited by 2 pods in 60 s (LimitedByPolicy)",
            "bounds: 8 replicas; min 3, max 12 (Unchanged)",
            "result: 10 → 8 replicas (LimitedByPolicy)",
        ]
    );
    assert_eq!(limited.changes_at, Some(at(360)));
    assert_eq!(
        this.result(330, &metrics).lines[4].text,
        "8 replicas, limited by 2 pods in 60 s until 2027-01-15T08:06:00Z"
    );
    assert_eq!(limited.lines.iter().filter(|line| line.stage == TrackStage::Metric).count(), 2);
}

/// Windows are in seconds: the number of passes does not matter.
#[rstest]
#[case(5)]
#[case(15)]
#[case(60)]
fn b15_windows_do_not_depend_on_the_interval(#[case] interval: i64) {
    let mut this = Tracked::new(TrackRules { pace: ScalePace::rules(None, None), ..direct(1, 50) }, 10);
    this.raw(0, 10);
    let steps = (1..=300 / interval).map(|step| step * interval);
    let lowered = steps.into_iter().find(|second| this.raw(*second, 2) == 2);
    assert_eq!(lowered, Some(300));
}

#[test]
fn bad_rules_are_refused() {
    let good = direct(1, 9);
    assert_eq!(TrackRules { min: 10, ..good.clone() }.check(), Err(TrackRuleError::MinAboveMax { min: 10, max: 9 }));
    assert_eq!(TrackRules { min: -1, ..good.clone() }.check(), Err(TrackRuleError::NegativeMin { min: -1 }));
    assert_eq!(TrackRules { max: 0, min: 0, ..good.clone() }.check(), Err(TrackRuleError::MaxBelowOne { max: 0 }));
    let tolerance = nanos("-1m");
    let tolerances = Tolerances { down: tolerance, ..Tolerances::default() };
    assert_eq!(tolerances.check(), Err(TrackRuleError::Tolerance { tolerance }));
    for percent in [0, -5, i64::from(i32::MAX) + 1] {
        assert_eq!(TrackTarget::utilization(percent), Err(TrackRuleError::Percent { percent }));
    }
    for target in [nanos("0"), nanos("-1")] {
        assert_eq!(TrackTarget::value(target), Err(TrackRuleError::Target { target }));
        assert_eq!(TrackTarget::average_value(target), Err(TrackRuleError::Target { target }));
    }
    let with = |up: ScaleRules| TrackRules { pace: ScalePace::rules(Some(up), None), ..good.clone() }.check();
    let pods = |period| [policy(RateChange::Pods(1), period)];
    assert_eq!(with(rules(0, &[], PolicySelect::Max)), Err(TrackRuleError::Policies { count: 0 }));
    assert_eq!(with(rules(3601, &pods(1), PolicySelect::Max)), Err(TrackRuleError::Window { window: seconds(3601) }));
    assert_eq!(with(rules(0, &pods(1801), PolicySelect::Max)), Err(TrackRuleError::Period { period: seconds(1801) }));
    assert_eq!(with(rules(0, &pods(0), PolicySelect::Max)), Err(TrackRuleError::Period { period: seconds(0) }));
    let nothing = [policy(RateChange::Percent(0), 15)];
    assert_eq!(with(rules(0, &nothing, PolicySelect::Max)), Err(TrackRuleError::NoChange));
}
