//! Tests of the timeline: golden texts, merged events, clocks, input that is cut or of another version, and laws.

mod golden;
mod input;
mod laws;
mod merges;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use super::build::{TimelineKind, TimelineObjects};
use super::model::Timeline;

/// Time of the fixtures on 2026-11-21: `10:00:03`, with a fraction if there is one.
fn at(time: &str) -> String {
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "000000"));
    format!("2026-11-21T{whole}.{fraction:0<6}Z")
}

fn whole(time: &str) -> String {
    format!("2026-11-21T{time}Z")
}

fn now() -> Timestamp {
    whole("10:10:00").parse().unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, time: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": whole(time)})
}

fn object(kind: &str, name: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{kind}"), "generation": 2,
            "creationTimestamp": whole("09:59:00")},
        "spec": spec, "status": status,
    })
}

fn child_of(parent: &str, mut child: Value) -> Value {
    child["metadata"]["ownerReferences"] = json!([{"apiVersion": "ganglion.dev/v1alpha1", "kind": parent, "name": "web", "uid": format!("uid-{parent}"), "controller": true}]);
    child
}

/// An event of the operator about an object, as the API server returns it.
fn event(id: &str, kind: &str, name: &str, reason: &str, note: &str, time: &str) -> Event {
    serde_json::from_value(json!({
        "metadata": {"name": id, "namespace": "shop", "uid": id, "creationTimestamp": whole(time.split('.').next().unwrap())},
        "involvedObject": {"kind": kind, "name": name, "namespace": "shop", "uid": format!("uid-{kind}")},
        "eventTime": at(time), "reason": reason, "message": note, "type": "Normal",
        "reportingComponent": "ganglion/execution",
    }))
    .unwrap()
}

fn add(objects: &mut TimelineObjects, child: Value) {
    let key = (child["kind"].as_str().unwrap().to_owned(), child["metadata"]["name"].as_str().unwrap().to_owned());
    objects.children.insert(key, child);
}

fn add_events(objects: &mut TimelineObjects, events: impl IntoIterator<Item = Event>) {
    for event in events {
        objects.events.insert(event.metadata.uid.clone().unwrap(), event);
    }
}

/// A loop as the operator leaves it: its history begins with decision 3, a change was undone, and the slow loop has
/// tuned a level.
fn loop_objects() -> TimelineObjects {
    let metrics = json!([
        {"name": "cpu", "source": {"push": {}}, "low": {"raise": "4"}},
        {"name": "memory", "source": {"push": {}}, "low": {"raise": "50", "clear": "55"}},
    ]);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let parent = object(
        "ClosedLoop",
        "web",
        json!({"target": target, "metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}},
            {"name": "memory", "source": {"push": {}}, "low": {"raise": "50", "clear": "55"}},
        ], "tunable": {"by": ["slow"]}}),
        json!({
            "conditions": [
                condition("Ready", "True", "Running", "watches, decides and acts", "09:59:02"),
                condition("ChangeUndone", "True", "Undone", "kubectl-edit undid a change of replicas", "10:02:00"),
            ],
            "tuning": [{"by": "slow", "uid": "u", "seq": 1, "at": at("10:03:00"), "message": "lower cpu.low.raise",
                "thresholds": [{"path": "cpu.low.raise", "value": "4"}]}],
        }),
    );
    let monitoring = object(
        "Monitoring",
        "web",
        json!({"metrics": metrics}),
        json!({
            "tag": {"time": at("10:09:00"), "sequence": 40}, "received": at("10:09:00.2"),
            "values": [{"metric": "cpu", "value": "3", "at": at("10:09:00.2")}, {"metric": "memory", "value": "48", "at": at("10:09:00.2")}],
            "alarms": [format!("Low cpu since {}, excess 0.25", at("10:08:40")), format!("Low memory since {}", at("10:08:50"))],
            "refused": {"outOfOrder": 2, "repeated": 0, "fromFuture": 0, "unreadable": 0},
        }),
    );
    let entry = |seq: i64, time: &str, metric: &str, value: &str, end: String| {
        format!("{seq} {} Low {metric} {value} rung 0 | scale by 1, at most 10 | {end}", at(time))
    };
    let decision = object(
        "Decision",
        "web",
        json!({}),
        json!({
            "tag": {"time": at("10:09:00"), "sequence": 40}, "seq": 6, "message": "React to cpu",
            "chosen": {"seq": 6, "metric": "cpu", "side": "Low", "rung": 0, "do": {"scale": {"by": 1, "max": 10}},
                "at": at("10:09:00.3"), "executor": "uid-Execution", "mode": "Auto"},
            "rejected": ["Low memory Outranked: another alarm is served first"],
            "history": [
                entry(3, "10:00:03", "cpu", "2", format!("Served {} | 3 -> 4", at("10:00:03.2"))),
                entry(4, "10:01:00", "memory", "40", "Limited".to_owned()),
                entry(6, "10:09:00.3", "cpu", "3", "-".to_owned()),
            ],
        }),
    );
    let execution = object(
        "Execution",
        "web",
        json!({"target": target}),
        json!({
            "seq": 6, "state": "Failed", "reason": "Forbidden", "since": at("10:09:00.5"),
            "message": "the account web-loop may not patch deployments/scale",
            "undone": [{"at": at("10:01:59"), "by": "kubectl-edit", "dimension": "replicas"}],
        }),
    );
    let mut objects = TimelineObjects { parent, ..TimelineObjects::default() };
    for child in [monitoring, decision, execution] {
        add(&mut objects, child_of("ClosedLoop", child));
    }
    add_events(
        &mut objects,
        [
            event(
                "e1",
                "ClosedLoop",
                "web",
                "Scaled",
                "Deployment/web: replicas 3 → 4: cpu 2 is below 5",
                "10:00:03.4",
            ),
            event(
                "e2",
                "ClosedLoop",
                "web",
                "Forbidden",
                "Deployment/web: the account web-loop may not patch deployments/scale",
                "10:09:00.6",
            ),
            event("e3", "Deployment", "web", "ScalingReplicaSet", "Scaled up replica set web-7d to 4", "10:00:04"),
            event("e4", "Deployment", "other", "ScalingReplicaSet", "of another one", "10:00:04"),
        ],
    );
    objects
}

/// An action that moves two replicas: one has moved, one waits.
fn action_objects() -> TimelineObjects {
    let slot = |index: i32, step: &str, time: &str, victim: &str, new: Value| {
        json!({
            "id": format!("s{index}"), "index": index, "attempt": 0, "step": step, "since": whole(time), "label": "app",
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicaSet": {"name": "web-7d", "uid": "r"},
            "victim": {"name": victim, "uid": format!("uid-{victim}"), "node": "node-1"}, "replacement": new,
        })
    };
    let mut waiting =
        slot(1, "Evicting", "10:00:20", "web-b", json!({"name": "web-y", "uid": "uid-web-y", "node": "node-3"}));
    waiting["reason"] = json!("BudgetBlocked");
    waiting["message"] = json!("the PodDisruptionBudget web allows no eviction");
    let done =
        slot(0, "Succeeded", "10:00:12", "web-a", json!({"name": "web-x", "uid": "uid-web-x", "node": "node-2"}));
    let parent = object(
        "WorkloadAction",
        "go",
        json!({"move": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "to": {"nodeName": "node-2"}, "count": 2}}),
        json!({
            "conditions": [
                condition("Ready", "Unknown", "Evicting", "1 of 2 replicas moved", "09:59:01"),
                condition("Reconciling", "True", "BlockedByBudget", "the PodDisruptionBudget web allows no eviction", "10:00:20"),
            ],
            "summary": {"action": "Move", "workload": "Deployment/web", "done": "1/2"},
            "slots": [done, waiting], "queuedAt": whole("09:59:01"), "startedAt": whole("10:00:00"),
        }),
    );
    let mut objects = TimelineObjects { parent, ..TimelineObjects::default() };
    let mut killing = event("e2", "Pod", "web-a", "Killing", "Stopping container web", "10:00:11");
    killing.involved_object.uid = Some("uid-web-a".to_owned());
    killing.reporting_component = Some("kubelet".to_owned());
    add_events(
        &mut objects,
        [event("e1", "WorkloadAction", "go", "Creating", "Deployment/web: creates 2 pods", "10:00:00.3"), killing],
    );
    objects
}

/// A pool after a change from three to four workers.
fn pool_objects() -> TimelineObjects {
    let parent = object(
        "SwarmPool",
        "cameras",
        json!({
            "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w"},
            "jobs": {"inline": [{"name": "a"}]}, "output": {"configMap": "jobs"},
        }),
        json!({
            "version": 2, "jobs": 3, "moved": 1,
            "lastChange": {"at": whole("10:00:30"), "version": 2, "why": "3 to 4 workers"},
            "workers": [
                {"name": "w-0", "jobs": 1, "weight": 1, "desiredVersion": 2, "observedVersion": 1, "state": "Releasing"},
                {"name": "w-1", "jobs": 2, "weight": 2, "desiredVersion": 1, "observedVersion": 1, "state": "Converged"},
            ],
            "conditions": [condition("Ready", "Unknown", "Releasing", "1 job moves", "10:00:31")],
        }),
    );
    let mut objects = TimelineObjects { parent, ..TimelineObjects::default() };
    let mut replica_sets =
        event("e2", "StatefulSet", "w", "SuccessfulCreate", "create Pod w-3 in StatefulSet w successful", "10:00:29");
    replica_sets.reporting_component = Some("statefulset-controller".to_owned());
    let first =
        event("e0", "SwarmPool", "cameras", "Dealt", "first deal: 0 jobs to move to another worker", "09:59:05");
    let second =
        event("e1", "SwarmPool", "cameras", "Dealt", "3 to 4 workers: 1 job to move to another worker", "10:00:30.4");
    add_events(&mut objects, [first, second, replica_sets]);
    objects
}

fn timeline(kind: TimelineKind, objects: &TimelineObjects) -> Timeline {
    kind.timeline(objects, now(), None).unwrap()
}
