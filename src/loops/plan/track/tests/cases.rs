//! Cases of proposals that users of autoscalers ran into, by their ids. Where HorizontalPodAutoscaler gives another
//! number, the case says so.

use rstest::rstest;

use super::bench::{
    Tracked, at, average, cpu, direct, nanos, pod, pods, proposed, queue, starting, total, unknown, valued,
};
use crate::track::{
    MetricReason, Nanos, PodPhase, Tolerances, TrackMemory, TrackPass, TrackReason, TrackedPod, ZeroOrigin, decide,
    ready_pods,
};

#[rstest]
#[case::t1_missing_counts_as_100_when_lowering(4, 50, &[Some(20), Some(20), Some(20), None], 4)]
#[case::t2_missing_counts_as_0_when_raising(4, 50, &[Some(100), Some(100), Some(100), None], 6)]
#[case::t5_missing_counts_as_the_target_above_100(4, 200, &[Some(100), Some(100), Some(100), None], 3)]
// The autoscaler lowers to 6 after its window.
#[case::t9_over_the_target_never_lowers(10, 50, &[Some(75), Some(75), Some(75), Some(75)], 10)]
#[case::t14_between_two_numbers(2, 80, &[Some(45), Some(45)], 2)]
#[case::t14_lowers(2, 80, &[Some(40), Some(40)], 1)]
fn missing_and_direction(
    #[case] replicas: i32,
    #[case] target: i64,
    #[case] used: &[Option<i64>],
    #[case] expected: i32,
) {
    assert_eq!(proposed(replicas, &cpu(target, pods(used))), expected);
}

#[test]
fn t3_the_direction_does_not_turn() {
    let mut all = pods(&[Some(90), Some(90)]);
    all.extend(["a", "b", "c"].map(|name| starting(name, 0)));
    assert_eq!(proposed(5, &cpu(50, all)), 5);
}

#[test]
fn t4_usage_of_pods_that_start_is_left_out() {
    let mut all = pods(&[Some(20), Some(20), Some(20)]);
    all.extend(["a", "b"].map(|name| starting(name, 400)));
    assert_eq!(proposed(5, &cpu(50, all)), 2);
}

/// The autoscaler counts them as missing, and stays at 3.
#[test]
fn t6_ended_pods_do_not_count() {
    for phase in [PodPhase::Succeeded, PodPhase::Failed] {
        let mut all = pods(&[Some(20), Some(20), Some(20)]);
        all.extend(["a", "b"].map(|name| TrackedPod { phase, ..pod(name, None) }));
        assert_eq!(proposed(3, &cpu(50, all)), 2);
    }
}

/// The autoscaler counts ready pods that end, and asks for 12.
#[test]
fn t8_deleted_pods_are_not_ready_pods() {
    let mut all = pods(&[Some(1), Some(1), Some(1)]);
    all.extend(["a", "b", "c"].map(|name| TrackedPod { is_deleting: true, ..pod(name, Some(1)) }));
    assert_eq!(ready_pods(&all), 3);
    assert_eq!(proposed(3, &total("200", "100", ready_pods(&all))), 6);
}

#[test]
fn t11_one_pod_does_not_block() {
    let mut used = vec![Some(80); 69];
    used.push(None);
    assert_eq!(proposed(70, &cpu(60, pods(&used))), 91);
}

#[test]
fn t12_a_container_without_a_request_is_named() {
    let problem = "container proxy of pod web-1 has no request for cpu: set one, or use container".to_owned();
    let mut all = pods(&[Some(90), Some(90)]);
    all.push(TrackedPod { requests: Err(problem.clone()), ..pod("web-1", Some(900)) });
    let outcome = Tracked::new(direct(1, 9), 3).result(0, &[cpu(50, all.clone())]);
    assert_eq!((outcome.replicas, outcome.reason), (3, TrackReason::MetricUnknown));
    assert!(outcome.metrics[0].text.contains(&problem), "{}", outcome.metrics[0].text);
    assert_eq!(proposed(3, &average("500m", all)), 6, "other targets do not need requests");
}

/// The caller passes own pods only. The autoscaler would count 3 pods at 90 % and 2 at 0.
#[test]
fn t13_own_pods_only() {
    assert_eq!(proposed(3, &cpu(50, pods(&[Some(90), Some(90), Some(90)]))), 6);
    assert_eq!(proposed(3, &cpu(50, pods(&[Some(90), Some(90), Some(90), Some(0), Some(0)]))), 3, "54 % is near 50 %");
}

#[test]
fn t14_explain_says_when_it_lowers() {
    let outcome = Tracked::new(direct(1, 9), 2).result(0, &[cpu(80, pods(&[Some(45), Some(45)]))]);
    let text = &outcome.metrics[0].text;
    assert_eq!(
        text,
        "cpu: 45 %, target 80 %, ratio 0.562 (tolerance 0.9 to 1.1) × 2: 2 replicas; lowers at 40 % or less"
    );
    let outcome = Tracked::new(direct(1, 90), 20).result(0, &[average("80", valued(&["71"; 20]))]);
    assert_eq!(outcome.reason, TrackReason::Lowered, "71 is below the tolerance of 80");
}

#[rstest]
#[case("0", "100m", 11)]
#[case("100m", "100m", 10)]
#[case("0", "1", 11)]
fn t15_two_tolerances(#[case] up: &str, #[case] down: &str, #[case] expected: i32) {
    let mut this = Tracked::new(direct(1, 50), 10);
    let tolerances = |down| Tolerances { up: nanos(up), down: nanos(down) };
    this.tolerances = Some(tolerances(down));
    assert_eq!(tolerances(down).check(), Ok(()));
    assert_eq!(this.result(0, &[queue("41", "4")]).replicas, expected);
    this.tolerances = Some(tolerances("1"));
    assert_eq!(this.result(1, &[queue("0", "4")]).replicas, 10, "a tolerance of 1 never lowers");
    this.tolerances = Some(tolerances("2"));
    assert_eq!(this.result(1, &[queue("-8", "4")]).replicas, 10, "nor does a larger one");
}

#[test]
fn t16_utilization_is_cut_to_whole_percent() {
    let all = [660, 660, 663].map(|used| pod(&used.to_string(), Some(used)));
    assert_eq!(proposed(3, &cpu(60, all.to_vec())), 3);
    let all = [670, 670, 673].map(|used| pod(&used.to_string(), Some(used)));
    assert_eq!(proposed(3, &cpu(60, all.to_vec())), 4);
}

/// The autoscaler asks for 251.
#[test]
fn t17_division_is_exact() {
    assert_eq!(proposed(30, &average("3", valued(&["25"; 30]))), 250);
}

/// The autoscaler writes 12.
#[test]
fn t18_surge_is_no_proposal() {
    assert_eq!(proposed(10, &queue("110", "10")), 10);
    assert_eq!(proposed(10, &queue("111", "10")), 12);
}

/// The autoscaler asks for 107 at 85 %.
#[rstest]
#[case(100)]
#[case(95)]
#[case(85)]
#[case(80)]
fn t19_surge_never_becomes_replicas(#[case] used: i64) {
    assert_eq!(proposed(100, &cpu(100, pods(&[Some(used); 125]))), 100);
    let mut this = Tracked::new(direct(100, 200), 100);
    assert_eq!(this.result(0, &[cpu(100, pods(&[Some(0); 125]))]).replicas, 100, "idle");
}

#[rstest]
#[case(1)]
#[case(2)]
#[case(4)]
fn t20_missing_pods_never_raise(#[case] replicas: i32) {
    let mut all = valued(&["10"]);
    all.extend(["a", "b", "c"].map(|name| pod(name, None)));
    assert!(proposed(replicas, &average("80", all.clone())) <= replicas);
    all[0] = valued(&["100"]).remove(0);
    assert!(proposed(replicas, &average("80", all)) <= replicas.max(2));
}

#[test]
fn t21_per_replica_or_product() {
    assert_eq!(proposed(4, &queue("300", "100")), 3);
    assert_eq!(proposed(4, &total("300", "100", 4)), 12);
}

#[test]
fn t23_bounds_need_no_metric() {
    let mut this = Tracked::new(direct(2, 10), 12);
    let outcome = this.result(0, &[unknown("queue")]);
    assert_eq!((outcome.replicas, outcome.reason), (10, TrackReason::AboveMax));
    this.replicas = 1;
    let outcome = this.result(0, &[unknown("queue")]);
    assert_eq!((outcome.replicas, outcome.reason), (2, TrackReason::BelowMin));
    this.replicas = 0;
    assert_eq!(this.result(0, &[unknown("queue")]).replicas, 2, "its own zero");
}

#[test]
fn t24_an_unknown_metric_may_ask_for_more() {
    let mut this = Tracked::new(direct(1, 10), 3);
    let outcome = this.result(0, &[cpu(50, pods(&[Some(10); 3])), unknown("queue")]);
    assert_eq!((outcome.replicas, outcome.reason), (3, TrackReason::MetricUnknown));
    let outcome = this.result(0, &[cpu(50, pods(&[Some(100); 3])), unknown("queue")]);
    assert_eq!((outcome.replicas, outcome.reason), (6, TrackReason::Raised));
}

#[test]
fn t26_an_unknown_metric_has_no_old_number() {
    let outcome = Tracked::new(direct(1, 10), 3).result(0, &[unknown("queue")]);
    assert_eq!(outcome.metrics[0].replicas, None);
    assert_eq!(outcome.metrics[0].reason, MetricReason::Unknown);
    assert_eq!(outcome.metrics[0].text, "queue: unknown: the adapter answers 503");
}

/// The autoscaler rounds samples up to 1m: its ratio is 1.
#[test]
fn t34_small_values_are_exact() {
    let outcome = Tracked::new(direct(1, 10), 5).result(0, &[average("0.001", valued(&["0.0004"; 5]))]);
    assert_eq!(outcome.replicas, 2);
    assert!(
        outcome.metrics[0].text.contains("0.0004, target 0.001 for each replica, ratio 0.4"),
        "{:?}",
        outcome.metrics
    );
    let outcome = Tracked::new(direct(1, 10), 3).result(0, &[average("50", valued(&["100", "0", "0"]))]);
    assert!(outcome.metrics[0].text.starts_with("tasks: 33.3,"), "{:?}", outcome.metrics);
}

/// The autoscaler counts requests of the spec, and lowers to 3.
#[test]
fn r8_allocated_resources_count() {
    let resized = |pod: TrackedPod| TrackedPod {
        requests: Ok(Nanos::from_millis(200)),
        allocated: Some(Nanos::from_millis(100)),
        ..pod
    };
    let all = ["a", "b", "c", "d"].map(|name| resized(pod(name, Some(90))));
    assert_eq!(proposed(4, &cpu(60, all.to_vec())), 6);
}

#[test]
fn z2_a_zero_of_others_stays() {
    let rules = direct(0, 9);
    let metrics = [queue("5", "1")];
    let pass = TrackPass { replicas: 0, metrics: &metrics, zero: ZeroOrigin::Other, now: at(0), forecast: None };
    let outcome = decide(&rules, &mut TrackMemory::default(), &pass);
    assert_eq!((outcome.replicas, outcome.reason), (0, TrackReason::StoppedAtZero));
    let pass = TrackPass { zero: ZeroOrigin::Own, ..pass };
    assert_eq!(decide(&rules, &mut TrackMemory::default(), &pass).replicas, 5);
}

#[test]
fn no_ready_pod_says_nothing_about_a_pod() {
    assert_eq!(proposed(4, &total("5", "10", 0)), 4);
    assert_eq!(proposed(4, &total("50", "10", 0)), 4);
    assert_eq!(proposed(4, &total("0", "10", 0)), 0);
}
