//! Laws of tracking, on random situations.

use proptest::prelude::*;

use super::bench::{Tracked, at, average, direct, pod, policy, queue, rules, seconds, total, unknown};
use crate::track::{
    Nanos, PodMeasure, PodSample, PolicySelect, RateChange, RatePolicy, Restraint, ScalePace, ScaleRules, Tolerances,
    TrackInput, TrackMemory, TrackPass, TrackRules, TrackTarget, TrackedMetric, TrackedPod, ZeroOrigin, decide,
};

fn policies() -> impl Strategy<Value = Vec<RatePolicy>> {
    let change = prop_oneof![
        (1..6_u32).prop_map(RateChange::Pods),
        prop::sample::select(vec![1, 10, 50, 90, 100, 300]).prop_map(RateChange::Percent),
        any::<u32>().prop_filter_map("no change", |pods| (pods > 0).then_some(RateChange::Pods(pods))),
    ];
    prop::collection::vec((change, 1..1800_i64).prop_map(|(change, period)| policy(change, period)), 1..4)
}

fn scale_rules() -> impl Strategy<Value = ScaleRules> {
    let select = prop::sample::select(vec![PolicySelect::Max, PolicySelect::Min, PolicySelect::Disabled]);
    (0..3600_i64, policies(), select).prop_map(|(window, policies, select)| rules(window, &policies, select))
}

pub fn track_rules() -> impl Strategy<Value = TrackRules> {
    let pace = prop_oneof![
        1 => Just(ScalePace::default()),
        3 => (scale_rules(), scale_rules()).prop_map(|(up, down)| ScalePace::rules(Some(up), Some(down))),
    ];
    let cooldown = prop::option::of((0..900_i64).prop_map(seconds));
    (0..8_i32, 1..60_i32, pace, cooldown).prop_map(|(min, more, pace, cooldown)| TrackRules {
        min,
        max: min + more,
        pace,
        cooldown,
    })
}

/// Pods with values up to a bit more than the target of 100.
fn some_pods() -> impl Strategy<Value = Vec<TrackedPod>> {
    let value = prop::option::weighted(0.8, 0..250_i64);
    prop::collection::vec(value, 1..12).prop_map(|values| {
        let valued = |(index, value): (usize, Option<i64>)| {
            let sample =
                value.map(|value| PodSample { value: Nanos::from_whole(value), at: at(0), window: seconds(15) });
            TrackedPod { sample, ..pod(&format!("p{index}"), None) }
        };
        values.into_iter().enumerate().map(valued).collect()
    })
}

/// The same pods with this much more load on each.
fn loaded(pods: &[TrackedPod], more: i64) -> Vec<TrackedPod> {
    let more = i128::from(more) * 1_000_000_000;
    let load = |pod: &TrackedPod| {
        let sample =
            pod.sample.map(|sample| PodSample { value: Nanos::new(sample.value.billionths() + more), ..sample });
        TrackedPod { sample, ..pod.clone() }
    };
    pods.iter().map(load).collect()
}

fn any_metric() -> impl Strategy<Value = TrackedMetric> {
    let number = || prop_oneof![0..100_i128, any::<i128>()].prop_map(Nanos::new);
    let extreme = (number(), number(), any::<u32>()).prop_map(|(value, target, ready_pods)| {
        let mut metric = total("1", "1", ready_pods);
        metric.target = TrackTarget::Value(target);
        metric.input = TrackInput::Total { value, ready_pods };
        metric
    });
    let average = (number(), number(), prop::collection::vec(number(), 0..5)).prop_map(|(target, requests, values)| {
        let mut metric = average("1", Vec::new());
        metric.target = TrackTarget::AverageValue(target);
        let pod = |value| TrackedPod {
            requests: Ok(requests),
            sample: Some(PodSample { value, at: at(0), window: seconds(15) }),
            ..pod("p", None)
        };
        let pods = values.into_iter().map(pod).collect();
        metric.input = TrackInput::Pods { measure: PodMeasure::Cpu, pods };
        metric
    });
    let utilization = (average.clone(), any::<u32>())
        .prop_map(|(metric, percent)| TrackedMetric { target: TrackTarget::Utilization { percent }, ..metric });
    let tolerance = || prop_oneof![Just(100_i64), Just(0), 0..2000_i64].prop_map(Nanos::from_millis);
    let metric = prop_oneof![extreme, average, utilization, Just(unknown("lost"))];
    let why = || prop::option::weighted(0.2, Just("it is assumed".to_owned()));
    let restraint = (why(), why()).prop_map(|(up, down)| Restraint { down, up });
    (metric, tolerance(), tolerance(), number(), restraint).prop_map(|(metric, up, down, activation, restraint)| {
        TrackedMetric { tolerances: Tolerances { up, down }, activation, restraint, ..metric }
    })
}

proptest! {
    /// No input overflows, and the result is within the bounds.
    #[test]
    fn the_result_is_within_the_bounds(
        rules in track_rules(), replicas in prop_oneof![0..80_i32, 0..i32::MAX], steps in prop::collection::vec(
            (prop_oneof![0..900_i64, -4000..4000_i64], prop::collection::vec(any_metric(), 0..4)), 1..12),
    ) {
        let mut memory = TrackMemory::default();
        let (mut now, mut replicas) = (0, replicas);
        for (pause, metrics) in steps {
            now += pause;
            let pass = TrackPass { replicas, metrics: &metrics, zero: ZeroOrigin::Own, now: at(now), forecast: None };
            let outcome = decide(&rules, &mut memory, &pass);
            prop_assert!((rules.min..=rules.max).contains(&outcome.replicas), "{outcome:?}");
            prop_assert!(outcome.changes_at.is_none_or(|then| then > at(now)));
            memory.record_change(replicas, outcome.replicas, at(now));
            replicas = outcome.replicas;
        }
    }

    /// More load never leads to fewer replicas.
    #[test]
    fn more_load_never_leads_to_fewer_replicas(
        rules in track_rules(), before in prop::collection::vec((1..400_i64, 0..60_i32), 0..6),
        pods in some_pods(), more in 0..200_i64, replicas in 1..60_i32,
    ) {
        let mut this = Tracked::new(rules, replicas);
        let mut now = 0;
        for (pause, raw) in before {
            now += pause;
            this.raw(now, raw);
        }
        let result = |pods: &[TrackedPod]| {
            let metrics = [average("100", pods.to_vec())];
            let (replicas, now) = (this.replicas, at(now + 15));
            let pass = TrackPass { replicas, metrics: &metrics, zero: ZeroOrigin::Own, now, forecast: None };
            decide(&this.rules, &mut this.memory.clone(), &pass).replicas
        };
        prop_assert!(result(&loaded(&pods, more)) >= result(&pods));
    }

    /// A value over the target never lowers, and one under it never raises.
    #[test]
    fn the_target_decides_the_direction(pods in some_pods(), replicas in 1..60_i32) {
        let measured: Vec<i128> = pods.iter().filter_map(|pod| Some(pod.sample?.value.billionths())).collect();
        let outcome = Tracked::new(direct(0, 10_000), replicas).result(0, &[average("100", pods)]);
        let mean = measured.iter().sum::<i128>();
        let target = 100_000_000_000 * measured.len() as i128;
        prop_assert!(mean < target || outcome.replicas >= replicas);
        prop_assert!(mean > target || outcome.replicas <= replicas);
    }

    /// With the load spread over the result, the result stays.
    #[test]
    fn the_result_is_a_fixed_point(load in 1..5000_i64, replicas in 1..60_i32) {
        let mut this = Tracked::new(direct(1, 10_000), replicas);
        let first = this.step(0, &[queue(&load.to_string(), "100")]).replicas;
        prop_assert_eq!(this.step(15, &[queue(&load.to_string(), "100")]).replicas, first);
        // Pods with a mean of exactly load / replicas.
        let spread = |replicas: i32| {
            let each = 1_000_000_000 * i128::from(load) / i128::from(replicas);
            let sample = PodSample { value: Nanos::new(each), at: at(0), window: seconds(15) };
            let pods = (0..replicas).map(|index| TrackedPod { sample: Some(sample), ..pod(&index.to_string(), None) });
            average("100", pods.collect())
        };
        let mut this = Tracked::new(direct(1, 10_000), replicas);
        let first = this.step(0, &[spread(replicas)]).replicas;
        prop_assert_eq!(this.step(15, &[spread(first)]).replicas, first);
    }

    /// The announced time is when the result changes, neither earlier nor later.
    #[test]
    fn the_next_change_is_announced(
        rules in track_rules(), raws in prop::collection::vec((1..400_i64, 0..60_i32), 1..8), replicas in 1..60_i32,
    ) {
        let mut this = Tracked::new(rules, replicas);
        let mut now = 0;
        let mut last = None;
        for (pause, raw) in raws {
            now += pause;
            let metrics = [queue(&raw.to_string(), "1")];
            let outcome = this.step(now, &metrics);
            last = Some((outcome, metrics));
        }
        let Some((outcome, metrics)) = last else { return Ok(()) };
        // The mean changes with the number, and so may the proposal within the tolerance.
        this.tolerances = Some(Tolerances { up: Nanos::ZERO, down: Nanos::ZERO });
        if outcome.proposal.is_none() || outcome.proposal != this.clone_result(now, &metrics).proposal {
            return Ok(());
        }
        if let Some(then) = outcome.changes_at {
            let before = then.checked_sub(jiff::SignedDuration::from_millis(1)).unwrap();
            let before = this.clone_result_at(before, &metrics);
            prop_assert_eq!(before.replicas, outcome.replicas, "too late: {:?}", outcome);
            prop_assert_ne!(this.clone_result_at(then, &metrics).replicas, outcome.replicas, "too early");
        } else if matches!(this.rules.pace, ScalePace::Rules { .. }) {
            for later in [1, 60, 600, 3600, 7200] {
                prop_assert_eq!(this.clone_result(now + later, &metrics).replicas, outcome.replicas, "not announced");
            }
        }
    }
}
