//! The spans of a decision, from statuses: in order, with their parents, and the same in every process.

use std::sync::atomic::{AtomicU64, Ordering};

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{DeploymentFact, Identity, Key, Owner, PodFact, ReplicaSetFact, ScaleFact};
use ganglion_core::trace::{Span, SpanId, SpanValue, TraceId};
use ganglion_core::world::{Fact, Origin, World};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::execution::action_name;
use crate::trace::{DecisionTrace, last_decision};
use crate::world::register;

/// A time in the story, in seconds.
fn at(second: f64) -> String {
    let start: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
    let time = Timestamp::from_microsecond(start.as_microsecond() + (second * 1e6) as i64).unwrap();
    format!("{time:.6}")
}

fn time(second: f64) -> Timestamp {
    at(second).parse().unwrap()
}

fn key() -> Key {
    Key::new("shop", "web")
}

/// A resourceVersion after all earlier ones.
fn version() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).to_string()
}

fn put<F: Fact + DeserializeOwned>(world: &mut World, uid: &str, owner: &str, mut object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap_or("web").to_owned();
    let owners = json!([{"apiVersion": "ganglion.dev/v1alpha1", "kind": "X", "name": "web", "uid": owner}]);
    object["metadata"] = json!({"namespace": "shop", "name": name, "uid": uid, "resourceVersion": version(),
        "ownerReferences": owners});
    object["apiVersion"] = json!("ganglion.dev/v1alpha1");
    object["kind"] = json!(F::KIND);
    world.apply(serde_json::from_value::<F>(object).unwrap(), Origin::Watch);
}

/// A decision on the sample of second 0, received at 1, decided at 2.
fn chosen(action: Value) -> Value {
    json!({"seq": 3, "metric": "cpu", "side": "Low", "rung": 0, "do": action, "at": at(2.0), "executor": "exe",
        "mode": "Auto", "tag": {"time": at(0.0), "sequence": 7}, "received": at(1.0)})
}

fn scale() -> Value {
    json!({"scale": {"by": 2, "max": 9}})
}

/// A loop on Deployment `web` with this decision. The last evaluated sample is a later one.
fn world(chosen: Value) -> World {
    let mut world = World::default();
    register(&mut world);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    put::<ClosedLoop>(&mut world, "loop", "nobody", json!({"spec": {"target": target, "metrics": []}}));
    let history = format!("3 {} Low cpu 2 rung 0 | scale by 2, at most 9 | -", at(2.0));
    let status = json!({"seq": 3, "tag": {"time": at(9.0), "sequence": 8}, "chosen": chosen, "history": [history]});
    put::<Decision>(&mut world, "dec", "loop", json!({"spec": {}, "status": status}));
    world
}

fn execute(world: &mut World, status: Value) {
    let spec = json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
    put::<Execution>(world, "exe", "loop", json!({"spec": spec, "status": status}));
}

fn done() -> Value {
    json!({"seq": 3, "state": "Done", "since": at(3.0), "before": "1", "after": "3", "reason": "Done"})
}

fn identity(name: &str, uid: &str) -> Identity {
    Identity { key: Key::new("shop", name), uid: uid.into(), version: version() }
}

/// Deployment `web` with three replicas, and with pods that are Ready since these seconds.
fn pods(world: &mut World, ready: &[Option<f64>]) {
    let owner = |kind: &str, uid: &str| Some(Owner { kind: kind.into(), name: "web".into(), uid: uid.into() });
    let scale = ScaleFact { replicas: 3, ..ScaleFact::default() };
    world
        .apply(DeploymentFact { id: identity("web", "deployment"), scale, ..DeploymentFact::default() }, Origin::Watch);
    let set = ReplicaSetFact {
        id: identity("web-1", "set"),
        controller: owner("Deployment", "deployment"),
        ..Default::default()
    };
    world.apply(set, Origin::Watch);
    for (index, ready) in ready.iter().enumerate() {
        let name = format!("web-1-{index}");
        let pod = PodFact {
            id: identity(&name, &name),
            controller: owner("ReplicaSet", "set"),
            ready_since: ready.map(time),
            ..PodFact::default()
        };
        world.apply(pod, Origin::Watch);
    }
}

fn spans(world: &World, now: f64) -> DecisionTrace {
    last_decision(world, &key(), time(now))
}

/// Names of the spans with the seconds from start to end.
fn stages(trace: &DecisionTrace) -> Vec<(&'static str, f64, f64)> {
    let seconds = |at: Timestamp| (at.as_microsecond() - time(0.0).as_microsecond()) as f64 / 1e6;
    trace.spans.iter().map(|span| (span.name, seconds(span.start), seconds(span.end))).collect()
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a SpanValue> {
    span.attributes.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
}

#[test]
fn one_decision_is_one_trace_from_sample_to_ready_pods() {
    let mut world = world(chosen(scale()));
    let decided = spans(&world, 2.0);
    assert_eq!(stages(&decided), [("sample", 0.0, 1.0), ("decision", 1.0, 2.0)]);
    execute(&mut world, done());
    pods(&mut world, &[Some(-50.0), Some(5.0), None]);
    let running = spans(&world, 6.0);
    assert_eq!(stages(&running)[2..], [("execution", 2.0, 3.0)]);
    assert!(running.is_open && !decided.is_open);
    pods(&mut world, &[Some(-50.0), Some(5.0), Some(7.0)]);
    let ended = spans(&world, 8.0);
    assert_eq!(stages(&ended)[3..], [("rollout", 3.0, 7.0)]);
    assert!(!ended.is_open);
    let parents: Vec<Option<SpanId>> = ended.spans.iter().map(|span| span.parent).collect();
    let ids: Vec<SpanId> = ended.spans.iter().map(|span| span.id).collect();
    assert_eq!(parents, [None, Some(ids[0]), Some(ids[1]), Some(ids[2])]);
    let trace = TraceId::new("loop", time(0.0), 7);
    assert!(ended.spans.iter().all(|span| span.trace == trace), "the tag is that of the decision");
    assert!(ended.spans.iter().all(|span| span.error.is_none()));
    let text = |text: &str| Some(SpanValue::Text(text.to_owned()));
    assert_eq!(attribute(&ended.spans[1], "ganglion.alarm").cloned(), text("Low cpu"));
    assert_eq!(attribute(&ended.spans[1], "ganglion.value").cloned(), text("2"));
    assert_eq!(attribute(&ended.spans[2], "ganglion.after").cloned(), text("3"));
    // A process that knows nothing reports the same spans as the one before.
    assert_eq!(ended.spans[..3], running.spans[..]);
    assert_eq!(running.spans[..2], decided.spans[..]);
}

#[test]
fn two_decisions_on_one_sample_share_it() {
    let first = spans(&world(chosen(scale())), 2.0).spans;
    let mut second = chosen(scale());
    (second["seq"], second["at"]) = (json!(4), json!(at(4.0)));
    let second = spans(&world(second), 4.0).spans;
    assert_eq!(first[0], second[0]);
    assert!(first[1].id != second[1].id && first[1].trace == second[1].trace);
}

#[test]
fn a_claim_ends_the_wait_for_approval_only() {
    let claim = json!({"seq": 3, "at": at(60.0), "deadline": at(99.0), "do": scale(), "goal": {"replicas": 3}});
    let claimed = json!({"seq": 3, "state": "Claimed", "claim": claim, "since": at(60.0)});
    let mut proposal = chosen(scale());
    proposal["mode"] = json!("Approve");
    let mut world = world(proposal);
    execute(&mut world, claimed.clone());
    let trace = spans(&world, 60.0);
    assert_eq!(stages(&trace)[2..], [("approval", 2.0, 60.0)]);
    assert_eq!(trace.spans[2].parent, Some(trace.spans[1].id));
    let mut world = self::world(chosen(scale()));
    execute(&mut world, claimed);
    assert_eq!(spans(&world, 60.0).spans.len(), 2, "nobody had to approve it");
}

#[test]
fn a_failure_has_its_reason_even_if_a_block_is_reported_later() {
    let mut world = world(chosen(scale()));
    let last = json!({"type": "LastActionSucceeded", "status": "False", "reason": "Forbidden", "message": "grant it",
        "lastTransitionTime": at(3.0)});
    let mut failed =
        json!({"seq": 3, "state": "Failed", "since": at(3.0), "reason": "Forbidden", "conditions": [last]});
    execute(&mut world, failed.clone());
    let trace = spans(&world, 4.0);
    assert_eq!(trace.spans[2].error.as_deref(), Some("Forbidden"));
    (failed["reason"], failed["message"]) = (json!("Blocked"), json!("another loop controls the target"));
    execute(&mut world, failed);
    assert_eq!(spans(&world, 9.0), trace, "the span does not change afterwards");
    assert!(!trace.is_open);
}

#[test]
fn what_does_not_add_pods_has_no_rollout() {
    for (action, before, after) in [
        (json!({"scale": {"by": -1, "min": 1}}), "3", "2"),
        (scale(), "3", "3"),
        (json!({"patch": {"path": "spec.replicas", "to": "5"}}), "3", "5"),
    ] {
        let mut world = world(chosen(action));
        let mut status = done();
        (status["before"], status["after"]) = (json!(before), json!(after));
        execute(&mut world, status);
        pods(&mut world, &[Some(-50.0)]);
        let trace = spans(&world, 4.0);
        assert!(trace.spans.len() == 3 && !trace.is_open, "{before} to {after}: {trace:?}");
    }
    let mut world = world(chosen(scale()));
    execute(&mut world, done());
    assert!(!spans(&world, 4.0).is_open, "the pods of the target are not known");
}

#[test]
fn a_rollout_without_end_is_given_up() {
    let mut world = world(chosen(scale()));
    execute(&mut world, done());
    pods(&mut world, &[Some(-50.0)]);
    assert!(spans(&world, 602.0).is_open);
    let trace = spans(&world, 5_000.0);
    assert_eq!(stages(&trace)[3..], [("rollout", 3.0, 603.0)]);
    assert_eq!((trace.spans[3].error.as_deref(), trace.is_open), (Some("NotReady"), false));
    let deployment = DeploymentFact { id: identity("web", "deployment"), ..DeploymentFact::default() };
    world.apply(deployment, Origin::Watch);
    assert_eq!(stages(&spans(&world, 5_000.0)).len(), 3, "somebody else has set another number");
}

#[test]
fn an_action_is_followed_with_its_slots() {
    let mut world = world(chosen(json!({"workloadAction": {"move": {"to": {}, "count": 2}}})));
    execute(&mut world, json!({"seq": 3, "state": "Claimed", "since": at(3.0)}));
    let slot = |index: i64, step: &str, since: f64| {
        json!({"id": format!("s{index}"), "index": index, "attempt": 0, "step": step, "since": at(since), "label": "",
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "replicaSet": {"name": "web-1", "uid": "set"},
            "victim": {"name": "web-1-0", "node": "n1"}, "replacement": {"name": "web-1-9", "node": "n2"}})
    };
    let name = action_name("web", &"exe".into(), 3);
    let mut action = |status: Value| {
        let object = json!({"metadata": {"name": name}, "spec": {"move": {"count": 2}}, "status": status});
        put::<WorkloadAction>(&mut world, "action", "exe", object);
        spans(&world, 9.0)
    };
    let running = action(json!({"startedAt": at(4.0), "slots": [slot(0, "Succeeded", 6.0), slot(1, "Creating", 5.0)]}));
    assert_eq!(stages(&running)[2..], [("slot", 4.0, 6.0)]);
    assert!(running.is_open);
    let ready = json!({"type": "Ready", "status": "False", "reason": "Aborted", "message": "",
        "lastTransitionTime": at(8.0)});
    let ended = action(json!({"startedAt": at(4.0), "finishedAt": at(8.0), "conditions": [ready],
        "slots": [slot(0, "Succeeded", 6.0), slot(1, "Aborted", 8.0)]}));
    assert_eq!(stages(&ended)[2..], [("workloadAction", 4.0, 8.0), ("slot", 4.0, 6.0), ("slot", 4.0, 8.0)]);
    assert!(!ended.is_open);
    let errors: Vec<Option<&str>> = ended.spans.iter().map(|span| span.error.as_deref()).collect();
    assert_eq!(errors, [None, None, Some("Aborted"), None, Some("Aborted")]);
    let parent = ended.spans[2].id;
    assert!(ended.spans[3..].iter().all(|span| span.parent == Some(parent)) && ended.spans[3].id != ended.spans[4].id);
    assert_eq!(ended.spans[2].parent, Some(SpanId::new(ended.spans[0].trace, "execution", "3")));
    assert_eq!(running.spans[2], ended.spans[3]);
}

#[test]
fn clocks_that_differ_make_no_long_or_negative_span() {
    for (sample, start) in [(at(3.0), 1.0), (at(-7_200.0), 1.0), (at(-60.0), -60.0)] {
        let mut decision = chosen(scale());
        decision["tag"]["time"] = json!(sample);
        let trace = spans(&world(decision), 2.0);
        assert_eq!(stages(&trace), [("sample", start, 1.0), ("decision", 1.0, 2.0)], "{sample}");
    }
}

#[test]
fn there_is_no_trace_without_the_facts() {
    let mut old = chosen(scale());
    old.as_object_mut().unwrap().remove("tag");
    assert_eq!(spans(&world(old), 2.0), DecisionTrace::default(), "an earlier version made the decision");
    assert_eq!(last_decision(&world(chosen(scale())), &Key::new("shop", "other"), time(2.0)), DecisionTrace::default());
    let mut world = world(chosen(scale()));
    execute(&mut world, json!({"seq": 2, "state": "Done", "since": at(1.0), "before": "1", "after": "2"}));
    assert_eq!(spans(&world, 2.0).spans.len(), 2, "the Execution describes the decision before");
}

#[test]
fn no_value_that_an_action_writes_and_no_url_is_in_a_span() {
    for action in [
        json!({"patch": {"path": "spec.token", "to": "secret"}}),
        json!({"webhook": {"url": "https://hooks.example/secret"}}),
    ] {
        let mut world = world(chosen(action));
        let status = json!({"seq": 3, "state": "Done", "since": at(3.0), "before": "secret", "after": "secret",
            "message": "secret"});
        execute(&mut world, status);
        let trace = spans(&world, 4.0);
        assert!(trace.spans.len() == 3 && !format!("{trace:?}").contains("secret"), "{trace:?}");
    }
}
