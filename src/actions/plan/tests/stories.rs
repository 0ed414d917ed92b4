//! The story of an action, as its user reads it.

use serde_json::{Value, json};

use super::*;
use crate::explain::{ActionStory, ExplainedAction};
use ganglion_api::receipt::WorkloadActionReceipt;

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-21T10:02:25Z"})
}

/// A slot of a move from a to d.
fn slot(index: i32, step: &str, since: &str) -> Value {
    json!({
        "id": format!("s{index}"), "index": index, "attempt": 0, "step": step, "since": since,
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "replicaSet": {"name": "web-h1", "uid": "u"}, "label": "pod-template-hash",
        "victim": {"name": format!("web-{index}"), "node": "a", "uid": "v"},
        "replacement": {"name": format!("web-h1-{index}"), "node": "d"},
    })
}

fn with(mut slot: Value, members: &Value) -> Value {
    for (key, value) in members.as_object().into_iter().flatten() {
        slot[key] = value.clone();
    }
    slot
}

fn summary(done: &str) -> Value {
    json!({"action": "Move", "workload": "Deployment/web", "from": "a", "to": "d", "done": done})
}

fn story(spec: Value, status: Value, receipts: Option<&[WorkloadActionReceipt]>) -> ActionStory {
    let mut whole = move_web(json!({"nodeName": "d"}));
    whole = with(whole, &spec);
    let action: WorkloadAction = serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"name": "go", "namespace": "shop", "uid": "mine", "creationTimestamp": "2026-11-21T10:00:00Z"},
        "spec": whole, "status": status,
    }))
    .expect("an action");
    let now = "2026-11-21T10:05:00Z".parse().expect("a time");
    ActionStory::of(ExplainedAction { action: &action, receipts, now })
}

fn receipt(uid: &str) -> WorkloadActionReceipt {
    serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadActionReceipt", "metadata": {"name": "go-1"},
        "spec": {"actionName": "go", "actionUid": uid, "specHash": "1", "executedAt": "2026-11-21T10:00:13Z"},
    }))
    .expect("a receipt")
}

#[test]
fn one_that_nobody_has_seen_yet_says_so() {
    let expected = "\
WorkloadAction shop/go: Move.
WHEN (UTC)           AGO  WHAT
2026-11-21 10:00:00  5m   made

The operator has not reconciled this action yet.
-> Wait a moment. If nothing changes, check the operator: kubectl get pods -n ganglion-system
";
    assert_eq!(story(json!({}), json!({}), None).text(), expected);
}

#[test]
fn one_that_waits_says_for_what() {
    let message = "waiting: 50 of 50 replicas in the cluster are being changed, 3 more are ahead in the queue (setting limits.inAll)";
    let status = json!({
        "queuedAt": "2026-11-21T10:00:01Z", "summary": summary("0/2"),
        "conditions": [condition("Ready", "Unknown", "Queued", message), condition("Reconciling", "True", "LimitReached", message)],
    });
    let expected = "\
WorkloadAction shop/go: Move of Deployment/web from a to d, 0/2 done.
WHEN (UTC)           AGO  WHAT
2026-11-21 10:00:00  5m   made
2026-11-21 10:00:01  4m   began to wait for its admission

Now: it waits (Queued, LimitReached), since 2026-11-21 10:02:25 (2m ago): waiting: 50 of 50 replicas in the cluster are
     being changed, 3 more are ahead in the queue (setting limits.inAll)
-> Wait, or raise the limit in the operator's settings.
";
    assert_eq!(story(json!({}), status, Some(&[])).text(), expected);
}

#[test]
fn one_that_has_ended_says_when_and_how_long_it_took() {
    let status = json!({
        "startedAt": "2026-11-21T10:00:12Z", "finishedAt": "2026-11-21T10:02:25Z", "summary": summary("1/1"), "receipt": "go-1",
        "slots": [slot(0, "Succeeded", "2026-11-21T10:02:25Z")],
        "conditions": [condition("Ready", "True", "Succeeded", "moved web-0 from a to d")],
    });
    let expected = "\
WorkloadAction shop/go: Move of Deployment/web from a to d, 1/1 done.
WHEN (UTC)           AGO  WHAT
2026-11-21 10:00:00  5m   made
2026-11-21 10:00:12  4m   admitted, 12s after it was made
2026-11-21 10:02:25  2m   ended: Succeeded, 2m13s after its admission

1 replica: done
  web-0 from a to d, as web-h1-0, since 2026-11-21 10:02:25 (2m ago)

Receipt go-1 proves that it ran, from 2026-11-21 10:00:13 (4m ago) on.
It is deleted at 2026-11-21 11:02:25, as ttlSecondsAfterFinished says.
Now: it is done (Succeeded), since 2026-11-21 10:02:25 (2m ago): moved web-0 from a to d
-> Nothing to do.
";
    assert_eq!(story(json!({"ttlSecondsAfterFinished": 3600}), status, Some(&[receipt("mine")])).text(), expected);
}

#[test]
fn what_was_undone_says_why_and_what_is_left() {
    let failed = json!({"reason": "ImagePullFailed", "message": "container main: ErrImagePull", "tried": ["b", "c"], "attempt": 1});
    let status = json!({
        "startedAt": "2026-11-21T10:00:00Z", "finishedAt": "2026-11-21T10:02:25Z", "summary": summary("1/3"), "receipt": "go-1",
        "slots": [slot(0, "Succeeded", "2026-11-21T10:01:00Z"), with(slot(1, "RolledBack", "2026-11-21T10:02:25Z"), &failed)],
        "conditions": [condition("Ready", "False", "ImagePullFailed", "1 of 3 replicas done; rolled back: container main: ErrImagePull")],
    });
    let expected = "\
1 replica: undone (ImagePullFailed): container main: ErrImagePull
  web-1 from a to d, as web-h1-1, after it failed on b, c, attempt 2, since 2026-11-21 10:02:25 (2m ago)

1 replica not begun.
Its receipt go-1 does not exist: all its changes were undone, or somebody deleted it.
Now: it ended without success (ImagePullFailed), since 2026-11-21 10:02:25 (2m ago): 1 of 3 replicas done; rolled back:
     container main: ErrImagePull
-> Repair the image or its pull secret, then apply a new action.
";
    let text = story(json!({}), status, Some(&[])).text();
    assert!(text.ends_with(expected), "{text}");
}

/// A hundred replicas are as readable as three: replicas in the same state are shown together, and most of them are
/// counted.
#[test]
fn a_hundred_replicas_are_grouped() {
    let step = |index| match index {
        0..80 => slot(index, "Succeeded", "2026-11-21T10:01:00Z"),
        80..98 => slot(index, "Readying", "2026-11-21T10:04:30Z"),
        _ => with(
            slot(index, "Scheduling", "2026-11-21T10:04:00Z"),
            &json!({"reason": "Unschedulable", "message": format!("0/4 nodes are available for web-{index}")}),
        ),
    };
    let slots: Vec<Value> = (0..100).map(step).collect();
    let message = "move web-98 from a to d: waiting for the scheduler";
    let status = json!({
        "startedAt": "2026-11-21T10:00:00Z", "summary": summary("80/100"), "slots": slots,
        "conditions": [condition("Ready", "Unknown", "Unschedulable", message), condition("Reconciling", "True", "Unschedulable", message)],
    });
    let told = story(json!({}), status, None);
    let text = told.text();
    assert!(text.lines().count() < 45, "{text}");
    for part in [
        "80 replicas: done\n  web-0 from a to d, as web-h1-0, since 2026-11-21 10:01:00 (4m ago)\n",
        "  and 70 more from a to d, the last since 2026-11-21 10:01:00 (4m ago)\n",
        "18 replicas: waiting until the new pod is Ready\n",
        "2 replicas: waiting for the scheduler (Unschedulable)\n",
        "  web-99 from a to d, as web-h1-99, since 2026-11-21 10:04:00 (60s ago): 0/4 nodes are available for web-99\n",
        "Now: it is at work (Unschedulable), since",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    let json = serde_json::to_value(&told).expect("JSON");
    assert_eq!(json["replicas"].as_array().map(Vec::len), Some(100));
    assert_eq!(json["replicas"][99]["step"], "Scheduling");
    assert_eq!(json["events"][0], json!({"at": "2026-11-21T10:00:00Z", "what": "made"}));
}

#[test]
fn a_plan_shows_what_it_would_do() {
    let plan = json!({"replicas": [{"pod": "web-0", "from": "a", "to": "d"}], "nodes": [{"name": "d", "replicas": 1, "message": "x"}]});
    let status = json!({
        "finishedAt": "2026-11-21T10:00:01Z", "plan": plan, "summary": summary("0/1"),
        "conditions": [condition("Ready", "True", "Planned", "would do: move web-0 from a to d: chosen")],
    });
    let text = story(json!({"mode": "Plan"}), status, Some(&[])).text();
    let parts = "ended without having begun: Planned, 1s after it was made\n\nPOD    FROM  TO  WHY\nweb-0  a     d   x\n\nIt has mode: Plan: nothing was changed.\n";
    assert!(text.contains(parts), "{text}");
    assert!(text.ends_with("-> To carry the plan out, apply a new action with mode: Execute.\n"), "{text}");
}

#[test]
fn what_holds_it_and_what_to_do_is_said() {
    let owned = "flux owns spec.replicas";
    for (spec, conditions, state, words) in [
        (
            json!({}),
            json!([
                condition("Ready", "False", "ReplicasOwnedElsewhere", owned),
                condition("Stalled", "True", "ReplicasOwnedElsewhere", owned)
            ]),
            json!({"finishedAt": "2026-11-21T10:00:05Z"}),
            "-> Change the number of replicas in its owner, or apply a new action with onReplicaOwner: Force.\n",
        ),
        (
            json!({}),
            json!([condition("Ready", "False", "NewWord", "x")]),
            json!({}),
            "-> Use the ganglion program of the operator's version.\n",
        ),
        (
            json!({"suspend": true}),
            json!([condition("Ready", "Unknown", "Suspended", "x")]),
            json!({"suspendedAt": "2026-11-21T10:01:00Z"}),
            "2026-11-21 10:01:00  4m   suspended; its timeouts do not run\n\nNow: it is suspended (Suspended)",
        ),
        (
            json!({"abort": true}),
            json!([
                condition("Ready", "Unknown", "RollingBack", "x"),
                condition("Reconciling", "True", "Aborted", "x")
            ]),
            json!({"startedAt": "2026-11-21T10:01:00Z", "slots": [slot(0, "RollingBack", "2026-11-21T10:01:00Z")]}),
            "spec.abort is set: it undoes what was done, unless a pod was evicted already.\nNow: it is at work (RollingBack, Aborted)",
        ),
        (
            json!({"ttlSecondsAfterFinished": 5}),
            json!([
                condition("Ready", "True", "Succeeded", "x"),
                condition("TTLHonored", "False", "NotSupported", "Flux manages it")
            ]),
            json!({"finishedAt": "2026-11-21T10:01:00Z"}),
            "ttlSecondsAfterFinished is ignored: Flux manages it.\n",
        ),
    ] {
        let text = story(spec, with(state, &json!({"conditions": conditions})), None).text();
        assert!(text.contains(words), "{words}\nis not in\n{text}");
    }
    let status = json!({"conditions": [condition("Ready", "True", "AlreadyExecuted", "nothing was done now")], "receipt": "go-1"});
    let text = story(json!({}), status, Some(&[receipt("another")])).text();
    assert!(
        text.contains("Receipt go-1 proves that another object of this name ran, from 2026-11-21 10:00:13"),
        "{text}"
    );
}

#[test]
fn receivers_that_were_not_notified_are_named_with_what_to_do() {
    let failed = condition("Notified", "False", "DeliveryFailed", "http://a/b was given up after 10 attempts");
    let status = json!({
        "finishedAt": "2026-11-21T10:02:25Z", "summary": summary("1/1"),
        "conditions": [condition("Ready", "True", "Succeeded", "moved"), failed],
    });
    let text = story(json!({}), status, None).text();
    assert!(text.contains("Receivers (DeliveryFailed): http://a/b was given up after 10 attempts.\n"), "{text}");
    let advice = "-> Nothing to do.\n-> Read the result in the action's status. Repair the receiver";
    assert!(text.contains(advice), "{text}");
}
