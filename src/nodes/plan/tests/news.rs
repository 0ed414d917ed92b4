//! Changes that are worth a write.

use proptest::prelude::*;

use super::*;
use crate::news::StatusTimes;
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::status::StatusTiming;

fn one(value: f64, second: i64) -> NodeConfigStatus {
    let mut readings = all(second);
    readings.record(NodeValue::InletTemperature, sample(value, second));
    status(&readings, second)
}

/// Written at this second; polled by the current spec since long before.
fn times(written: i64) -> StatusTimes {
    StatusTimes { written: Some(at(written)), polled_since: at(-1000) }
}

fn timing(written: &NodeConfigStatus, new: &NodeConfigStatus) -> StatusTiming {
    rule().timing(written, new, times(0), at(1))
}

#[test]
fn a_value_within_its_deadband_is_written_with_the_heartbeat() {
    assert_eq!(timing(&NodeConfigStatus::default(), &one(20.0, 0)), StatusTiming::Now);
    assert_eq!(timing(&one(20.0, 0), &one(20.4, 10)), StatusTiming::Never);
    assert_eq!(timing(&one(20.0, 0), &one(20.5, 10)), StatusTiming::Now);
    assert_eq!(timing(&one(20.0, 0), &one(19.5, 10)), StatusTiming::Now);
    assert_eq!(timing(&one(20.0, 0), &one(20.0, 299)), StatusTiming::Never);
    assert_eq!(timing(&one(20.0, 0), &one(20.0, 300)), StatusTiming::Now);
}

#[test]
fn a_deadband_of_zero_writes_every_change_and_nothing_else() {
    let rule = WriteRule { celsius: 0.0, ..rule() };
    assert_eq!(rule.timing(&one(20.0, 0), &one(20.1, 10), times(0), at(1)), StatusTiming::Now);
    assert_eq!(
        rule.timing(&one(20.0, 0), &one(20.01, 10), times(0), at(1)),
        StatusTiming::Never,
        "the same when rounded"
    );
}

#[test]
fn a_value_that_goes_or_becomes_stale_is_written_and_one_that_stays_away_is_not() {
    let readings = all(0);
    let (fresh, stale) = (status(&readings, 0), status(&readings, 30));
    assert_eq!(timing(&fresh, &stale), StatusTiming::Now);
    assert_eq!(timing(&stale, &status(&readings, 9999)), StatusTiming::Never, "no heartbeat of what does not come");
}

#[test]
fn texts_alone_are_written_at_most_every_half_minute() {
    let with = |reason, words| {
        let mut readings = all(0);
        for value in NodeValue::ALL.into_iter().filter(|value| *value != NodeValue::Power) {
            readings.record(value, sample(20.0, 60));
        }
        readings.record(NodeValue::Power, problem(reason, words));
        status(&readings, 60)
    };
    let first = with(NodeReason::Unreachable, "no answer within 10 s");
    let second = with(NodeReason::Unreachable, "cannot connect");
    assert_eq!(rule().timing(&first, &second, times(60), at(70)), StatusTiming::At(at(90)));
    assert_eq!(rule().timing(&first, &second, times(60), at(90)), StatusTiming::Now);
    assert_eq!(rule().timing(&first, &second, StatusTimes { written: None, ..times(0) }, at(90)), StatusTiming::Now);
    let third = with(NodeReason::LoginRefused, "no");
    assert_eq!(rule().timing(&first, &third, times(60), at(61)), StatusTiming::Now, "another reason");
}

#[test]
fn a_new_generation_that_changes_nothing_waits_for_its_polls() {
    let first = one(20.0, 0);
    let next = |value: f64| {
        let mut next = one(value, 0);
        next.observed_generation = Some(first.observed_generation.unwrap() + 1);
        next.conditions.iter_mut().for_each(|one| one.observed_generation = next.observed_generation);
        next
    };
    let polled = StatusTimes { polled_since: at(10), ..times(0) };
    assert_eq!(rule().timing(&first, &next(20.0), polled, at(11)), StatusTiming::At(at(15)));
    assert_eq!(rule().timing(&first, &next(20.0), polled, at(15)), StatusTiming::Now);
    assert_eq!(rule().timing(&first, &next(25.0), polled, at(11)), StatusTiming::Now);
    let mut suspended = next(20.0);
    suspended.conditions[0].reason = "Suspended".to_owned();
    assert_eq!(rule().timing(&first, &suspended, polled, at(11)), StatusTiming::Now);
}

proptest! {
    #[test]
    fn what_was_written_is_not_written_again(
        values in proptest::collection::vec((0_usize..6, -50.0_f64..200.0, 0_i64..100, any::<bool>()), 0..12),
        now in 0_i64..200,
    ) {
        let mut readings = Readings::default();
        for (value, number, second, fails) in values {
            let result = if fails { problem(NodeReason::Unreachable, "no") } else { sample(number, second) };
            readings.record(NodeValue::ALL[value], result);
        }
        let status = status(&readings, now);
        prop_assert_eq!(timing(&status, &status), StatusTiming::Never);
        // Round trip through the API server.
        let text = serde_json::to_string(&status).unwrap();
        let read: NodeConfigStatus = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(timing(&read, &status), StatusTiming::Never);
    }

    #[test]
    fn a_value_that_creeps_is_written_once_for_each_deadband(steps in proptest::collection::vec(0.0_f64..0.2, 1..200)) {
        let (mut written, mut writes, mut value, mut now) = (one(20.0, 0), 0, 20.0, 0);
        for step in &steps {
            value += step;
            now += 1;
            let new = one(value, now);
            if timing(&written, &new) == StatusTiming::Now {
                written = new;
                writes += 1;
            }
        }
        let most = ((value - 20.0) / 0.5).ceil() as usize + 1;
        prop_assert!(writes <= most, "{} writes for {}", writes, value - 20.0);
        let kept: f64 = written.inlet_temperature.unwrap().value.unwrap().parse().unwrap();
        prop_assert!((kept - value).abs() < 0.5 + 0.051);
    }
}

#[test]
fn values_are_relied_on_until_a_newer_status_is_overdue() {
    let (longest, now) = (SignedDuration::from_secs(15), at(100));
    let until = rule().valid_until(&one(20.0, 90), longest, now);
    assert_eq!(until.map(|until| until.0), Some(at(100 + 300 + 3 * 15)));
    assert_eq!(rule().valid_until(&NodeConfigStatus::default(), longest, now), None, "nothing is known");
}
