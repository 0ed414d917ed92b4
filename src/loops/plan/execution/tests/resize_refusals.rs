//! Tests of resizes that the API server or the kubelet would refuse, and of the ones that a kubelet has failed to
//! carry out.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::resize::{Stage, memory, pending, rung};
use crate::execution::goal;
use crate::execution::{ContainerAmounts, ExecutionEffect, PodComposition, PodNode};
use ganglion_api::closed_loop::action::Resize;
use ganglion_api::closed_loop::metric::ResourceName;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::{ExecutionState, Quantities};
use ganglion_core::facts::Requests;

const MIB: i64 = 1 << 20;

fn amounts(resources: &Value) -> ContainerAmounts {
    serde_json::from_value(resources.clone()).unwrap()
}

/// Pod of containers with these resources.
fn composed(containers: &[Value]) -> PodComposition {
    PodComposition { containers: containers.iter().map(amounts).collect(), ..PodComposition::default() }
}

fn node(memory: i64) -> Option<PodNode> {
    let allocatable = Some(Requests { memory, cpu: 4000, ..Requests::default() });
    Some(PodNode { name: "n1".into(), allocatable, ..PodNode::default() })
}

fn both(request: &str, limit: Option<&str>) -> Quantities {
    Quantities { request: Some(request.into()), limit: limit.map(Into::into) }
}

/// Case R4.
#[test]
fn a_pod_that_its_node_cannot_hold_is_resized_only_after_the_node_changes() {
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi")]);
    stage.pod("a").composition = composed(&[json!({"requests": {"memory": "256Mi"}})]);
    for seq in 1..4 {
        stage.chosen.seq = seq;
        stage.pod("a").composition.node = node(511 * MIB);
        let message = stage.ends(ExecutionState::Limited, LoopReason::Limited);
        let expected = "pod a would request 512Mi memory, and node n1 can allocate 511Mi in all: ";
        assert!(message.starts_with(expected), "{message}");
    }
    stage.chosen.seq = 4;
    stage.pod("a").composition.node = node(512 * MIB);
    assert_eq!(stage.names(), ["a 512Mi"]);
}

#[test]
fn the_other_pods_are_resized_while_the_node_of_one_is_too_small() {
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi"), ("b", "256Mi")]);
    for (name, memory) in [("a", 300), ("b", 1000)] {
        stage.pod(name).composition =
            PodComposition { node: node(memory * MIB), ..composed(&[json!({"requests": {"memory": "256Mi"}})]) };
    }
    assert_eq!(stage.names(), ["b 512Mi"]);
}

/// One pod must not keep all others small.
#[test]
fn the_others_grow_further_than_a_pod_that_cannot_be_resized() {
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi"), ("b", "512Mi"), ("c", "600Mi")]);
    for (name, memory, room) in [("a", "256Mi", 300), ("b", "512Mi", 2000), ("c", "600Mi", 700)] {
        let amounts = composed(&[json!({"requests": {"memory": memory}})]);
        stage.pod(name).composition = PodComposition { node: node(room * MIB), ..amounts };
    }
    assert_eq!(stage.names(), ["b 1Gi"]);
    stage.write("b", "1Gi");
    stage.ends(ExecutionState::Done, LoopReason::Done);
    stage.chosen.seq = 2;
    let message = stage.ends(ExecutionState::Limited, LoopReason::Limited);
    assert!(message.starts_with("pod a would request 512Mi"), "the first reason: {message}");
}

#[rstest]
#[case::sidecar(json!({"requests": {"memory": "200Mi"}}), true, "712Mi")]
#[case::init(json!({"requests": {"memory": "200Mi"}}), false, "512Mi")]
#[case::large_init(json!({"requests": {"memory": "900Mi"}}), false, "900Mi")]
fn init_containers_and_overhead_count_as_the_scheduler_counts_them(
    #[case] init: Value,
    #[case] is_sidecar: bool,
    #[case] total: &str,
) {
    let mut pod = composed(&[json!({"requests": {"memory": "256Mi"}})]);
    (pod.inits, pod.node) = (vec![(amounts(&init), is_sidecar)], node(MIB));
    let why = pod.refusal("a", Some(0), ResourceName::Memory, &memory("512Mi")).unwrap();
    assert!(why.starts_with(&format!("pod a would request {total} memory")), "{why}");
    pod.overhead.memory = Some("1Gi".into());
    let with_overhead = pod.refusal("a", Some(0), ResourceName::Memory, &memory("512Mi")).unwrap();
    assert_ne!(why, with_overhead);
}

#[rstest]
#[case::nothing(&[json!({})], "BestEffort")]
#[case::zero(&[json!({"requests": {"cpu": "0"}})], "BestEffort")]
#[case::request(&[json!({"requests": {"cpu": "1"}})], "Burstable")]
#[case::one_resource(&[json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})], "Burstable")]
#[case::equal(&[json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}})], "Guaranteed")]
#[case::below(&[json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}})], "Burstable")]
#[case::one_container(&[json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}), json!({})], "Burstable")]
fn the_class_is_that_of_kubernetes(#[case] containers: &[Value], #[case] class: &str) {
    let mut pod = composed(containers);
    assert_eq!(pod.class().to_string(), class);
    let equal = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    pod.whole = Some(amounts(&equal));
    assert_eq!(pod.class().to_string(), "Guaranteed", "resources at pod level decide alone");
    let mut pod = composed(std::slice::from_ref(&equal));
    pod.inits = vec![(amounts(&json!({})), false)];
    assert_eq!(pod.class().to_string(), "Burstable", "init containers count");
}

#[rstest]
#[case::leaves_guaranteed(both("1Gi", Some("1Gi")), "2Gi", "has the QoS class Guaranteed and would get Burstable")]
#[case::becomes_guaranteed(both("512Mi", Some("1Gi")), "1Gi", "has the QoS class Burstable and would get Guaranteed")]
fn a_resize_never_changes_the_class(#[case] now: Quantities, #[case] limit: &str, #[case] words: &str) {
    let of = |memory: &Quantities| {
        let text = |part: &Option<ganglion_api::scalars::Number>| part.as_ref().unwrap().0.clone();
        composed(&[json!({"requests": {"cpu": "1", "memory": text(&memory.request)},
            "limits": {"cpu": "1", "memory": text(&memory.limit)}})])
    };
    let to = both("1Gi", Some(limit));
    let why = of(&now).refusal("a", Some(0), ResourceName::Memory, &to).unwrap();
    assert!(why.contains(words), "{why}");
    assert_eq!(of(&now).refusal("a", Some(0), ResourceName::Memory, &now), None);
}

/// Case R11.
#[test]
fn a_container_never_leaves_the_resources_of_its_pod() {
    let mut pod = composed(&[
        json!({"requests": {"cpu": "400m"}, "limits": {"cpu": "800m"}}),
        json!({"requests": {"cpu": "200m"}}),
    ]);
    pod.whole = Some(amounts(&json!({"requests": {"cpu": "700m"}, "limits": {"cpu": "1"}})));
    let why = |to: &Quantities| pod.refusal("a", Some(0), ResourceName::Cpu, to).unwrap_or_default();
    assert_eq!(why(&both("500m", Some("1"))), "");
    let above = why(&both("500m", Some("1200m")));
    let expected = "the limit of the container would be 1200m cpu, more than the 1 of pod a as a whole";
    assert!(above.starts_with(expected), "{above}");
    let above = why(&both("600m", Some("1")));
    let expected = "the requests of the containers would be 800m cpu, more than the 700m of pod a as a whole";
    assert!(above.starts_with(expected), "{above}");
}

/// Case R11.
#[test]
fn a_pod_as_a_whole_never_goes_below_its_containers() {
    let mut container = amounts(&json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}));
    container.name = "app".into();
    let whole = Some(amounts(&json!({"requests": {"cpu": "700m"}, "limits": {"cpu": "1"}})));
    let mut pod = PodComposition { containers: vec![container], whole, ..PodComposition::default() };
    let why = |pod: &PodComposition, to: &Quantities| pod.refusal("a", None, ResourceName::Cpu, to).unwrap_or_default();
    let below = why(&pod, &both("600m", Some("800m")));
    let expected = "pod a as a whole would have 800m cpu, less than the limit of its container app, 1: set min";
    assert!(below.starts_with(expected), "{below}");
    let below = why(&pod, &both("400m", Some("1")));
    let expected = "pod a as a whole would have 400m cpu, less than the requests of its containers, 500m: set min";
    assert!(below.starts_with(expected), "{below}");
    assert_eq!(why(&pod, &both("500m", Some("1"))), "");
    let allocatable = Some(Requests { cpu: 1999, ..Requests::default() });
    pod.node = Some(PodNode { name: "n1".into(), allocatable, ..PodNode::default() });
    let above = why(&pod, &both("2", Some("3")));
    assert!(above.starts_with("pod a would request 2 cpu, and node n1 can allocate 1999m in all"), "{above}");
}

#[rstest]
#[case::old_api_server(|pod: &mut PodComposition| pod.minor = Some(35), "from Kubernetes 1.36 on, and the API server has version 1.35")]
#[case::old_kubelet(|pod: &mut PodComposition| pod.is_unreported = true, "the kubelet of node n1 does not report the resources of pod a")]
#[case::old_node(|pod: &mut PodComposition| pod.node.as_mut().unwrap().resizes_pods = Some(false), "node n1 of pod a does not declare")]
fn what_a_version_lacks_is_said_before_anything_is_sent(#[case] lacks: fn(&mut PodComposition), #[case] words: &str) {
    let amounts = |memory: &str| amounts(&json!({"requests": {"memory": memory}}));
    let mut pod = PodComposition {
        containers: vec![amounts("256Mi")],
        whole: Some(amounts("512Mi")),
        node: Some(PodNode { name: "n1".into(), allocatable: None, resizes_pods: Some(true) }),
        minor: Some(36),
        ..PodComposition::default()
    };
    let why = |pod: &PodComposition| pod.refusal("a", None, ResourceName::Memory, &memory("1Gi")).unwrap_or_default();
    assert_eq!(why(&pod), "");
    lacks(&mut pod);
    assert!(why(&pod).contains(words), "{}", why(&pod));
    pod.whole = None;
    let of_container = pod.refusal("a", Some(0), ResourceName::Memory, &memory("512Mi"));
    assert_eq!(of_container.is_some(), pod.is_unreported, "only pod level needs 1.36: {of_container:?}");
}

#[test]
fn a_pod_is_resized_as_a_whole_with_its_template() {
    let mut stage = Stage::new(rung(json!({"container": null, "pod": true, "template": true})), &[("a", "256Mi")]);
    stage.pod("a").index = None;
    stage.seen.template = Some((None, memory("256Mi")));
    let ExecutionEffect::Resize { pods, container, .. } = stage.effect() else { panic!("not a resize") };
    assert_eq!((pods[0].index, container), (None, None));
    stage.write("a", "512Mi");
    let ExecutionEffect::Template { index, to, .. } = stage.effect() else { panic!("not the template") };
    assert_eq!((index, to), (None, memory("512Mi")));
    stage.seen.pods.clear();
    stage.seen.template = Some((None, memory("512Mi")));
    let message = stage.ends(ExecutionState::Done, LoopReason::Done);
    assert!(message.starts_with("changed pods of Deployment/web from request 256Mi to request 512Mi"), "{message}");
    let mut stage = Stage::new(rung(json!({"container": null, "pod": true})), &[]);
    let message = stage.ends(ExecutionState::Failed, LoopReason::NotScalable);
    assert!(message.starts_with("Deployment/web has no running pod with resources at pod level"), "{message}");
}

/// Case R9.
#[rstest]
#[case::above(Some(200), None)]
#[case::equal(Some(256), None)]
#[case::below(Some(300), Some("the memory limit of pod a would be 256Mi, and it uses 300Mi: "))]
#[case::unknown(
    None,
    Some("the memory limit of pod a is not lowered from 512Mi to 256Mi: its usage is unknown: no metrics")
)]
fn a_memory_limit_is_not_lowered_below_the_usage(#[case] usage: Option<i64>, #[case] refusal: Option<&str>) {
    let limit = |limit: &str| Quantities { request: Some("64Mi".into()), limit: Some(limit.into()) };
    let lower = |what: &str| rung(json!({"factor": "0.5", "min": "64Mi", "what": what}));
    let mut stage = Stage::new(lower("Limits"), &[("a", "64Mi"), ("b", "64Mi")]);
    stage.seen.usage_problem = Some("no metrics".into());
    for name in ["a", "b"] {
        let pod = stage.pod(name);
        (pod.wants, pod.has) = (limit("512Mi"), Some(limit("512Mi")));
        pod.usage = usage.map(|usage| usage * MIB);
    }
    match refusal {
        Some(words) => {
            let message = stage.ends(ExecutionState::Limited, LoopReason::Limited);
            assert!(message.starts_with(words), "{message}");
            // Another pod is not in the way.
            stage.chosen.seq = 2;
            stage.pod("b").usage = Some(MIB);
            assert_eq!(stage.names(), ["b 64Mi"]);
        }
        None => assert_eq!(stage.names(), ["a 64Mi", "b 64Mi"]),
    }
    let mut stage = Stage::new(lower("Requests"), &[("a", "512Mi")]);
    assert_eq!(stage.names(), ["a 256Mi"], "a request ends no process");
}

/// Case R2: the kubelet tries the same goal again by itself; a higher goal replaces it.
#[test]
fn a_resize_that_failed_on_the_node_takes_a_higher_goal_and_one_that_waits_does_not() {
    for (reason, takes) in [("Error", true), ("Deferred", false), ("Infeasible", false)] {
        let mut stage = Stage::new(rung(json!({"factor": "2"})), &[("a", "64Mi")]);
        (stage.pod("a").wants, stage.pod("a").pending) = (memory("96Mi"), Some(pending(reason, "no")));
        if takes {
            assert_eq!(stage.names(), ["a 128Mi"], "from the 64Mi that the pod has");
        } else {
            stage.ends(ExecutionState::Failed, LoopReason::ResizePending);
        }
        let mut stage = Stage::new(rung(json!({"factor": "1.5"})), &[("a", "64Mi")]);
        (stage.pod("a").wants, stage.pod("a").pending) = (memory("96Mi"), Some(pending(reason, "no")));
        stage.ends(ExecutionState::Failed, LoopReason::ResizePending);
    }
}

proptest! {
    /// Neither the request nor the limit is raised above max, and what is sent keeps the class and fits the node.
    #[test]
    fn what_is_sent_keeps_max_the_class_and_the_node(
        request in 1..64_i64, more in 0..64_i64, max in 1..128_i64, factor in 11..40_u32, room in 1..256_i64,
        has_cpu: bool, what in prop::sample::select(vec!["Requests", "Limits", "Both"]),
    ) {
        let limit = request + more;
        let resize: Resize = serde_json::from_value(json!({"container": "app", "resource": "memory", "what": what,
            "factor": format!("{}.{}", factor / 10, factor % 10), "max": format!("{max}Mi")})).unwrap();
        let now = both(&format!("{request}Mi"), Some(&format!("{limit}Mi")));
        let Ok(to) = goal::quantities(&resize, &now, false) else { return Ok(()) };
        let bytes = |part: &Option<ganglion_api::scalars::Number>| {
            ganglion_core::quantity::bytes(part.as_ref().unwrap().as_str()).unwrap()
        };
        let (new_request, new_limit) = (bytes(&to.request), bytes(&to.limit));
        prop_assert!(new_request <= (max * MIB).max(request * MIB) && new_limit <= (max * MIB).max(limit * MIB));
        let cpu = if has_cpu { json!("1") } else { Value::Null };
        let mut pod = composed(&[json!({"requests": {"cpu": cpu, "memory": format!("{request}Mi")},
            "limits": {"cpu": cpu, "memory": format!("{limit}Mi")}})]);
        pod.node = node(room * MIB);
        // With equal cpu, a pod of one container is Guaranteed as long as its memory is equal.
        let is_kept = !has_cpu || (request == limit) == (new_request == new_limit);
        let is_sent = pod.refusal("a", Some(0), ResourceName::Memory, &to).is_none();
        prop_assert_eq!(is_sent, is_kept && new_request <= room * MIB);
    }
}
