//! Tests of the explanation of labels.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::world::registered;
use ganglion_core::facts::{Identity, Key};
use ganglion_core::world::Origin;

const KEY: &str = "ganglion.node-restriction.kubernetes.io/green";

/// Time at which the pod was created, and two seconds later scheduled.
const CREATED: i64 = 1_764_364_800;

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn node(name: &str, label: Option<&str>, history: &str) -> NodeFact {
    let id = Identity { key: Key::new("", name), uid: name.into(), version: "1".into() };
    let labels = label.iter().map(|label| (KEY.to_owned(), (*label).to_owned())).collect();
    NodeFact { id, labels, label_histories: [(KEY.into(), history.into())].into(), ..NodeFact::default() }
}

fn world(nodes: impl IntoIterator<Item = NodeFact>) -> World {
    let mut world = registered();
    for node in nodes {
        world.apply(node, Origin::Watch);
    }
    world
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (member, value) in from {
                merge(into.entry(member.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A pod on node b, with these changes.
fn pod(changes: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "shop", "creationTimestamp": second(CREATED)},
        "spec": {"nodeName": "b", "containers": []},
        "status": {"conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": second(CREATED + 2)},
        ]},
    });
    merge(&mut pod, changes);
    serde_json::from_value(pod).expect("a pod")
}

/// The terms of the component placement-labels, in short.
fn with_terms() -> Value {
    let term =
        json!({"weight": 6, "preference": {"matchExpressions": [{"key": KEY, "operator": "In", "values": ["1"]}]}});
    json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}})
}

/// The default policy, with these changes.
fn policy(changes: &Value) -> PlacementPolicy {
    let mut policy = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "green", "labels": {marks::DEFAULT_POLICY: "true"}},
        "spec": {"delivery": ["Labels"], "agents": [{"name": "safe", "safe": {}}]},
        "status": {
            "validUntil": second(CREATED + 300),
            "conditions": [{
                "type": "LabelsApplied", "status": "True", "reason": "AppliedByAdmission", "message": "",
                "lastTransitionTime": second(CREATED),
            }],
        },
    });
    merge(&mut policy, changes);
    serde_json::from_value(policy).expect("a policy")
}

fn explained(nodes: Vec<NodeFact>, pod: &Pod, policy: Option<&PlacementPolicy>) -> Option<LabelExplanation> {
    let added = Err("there is no ConfigMap".to_owned());
    let subject = LabelSubject { pod, name: "green", policy, is_valid: true, added, takes_part: Some(true) };
    explain(&world(nodes), &subject)
}

#[test]
fn labels_then_and_now_are_shown_with_the_times_of_their_writes() {
    let nodes = vec![
        node("a", Some("9"), &format!("9@{},15@{}", CREATED + 60, CREATED - 60)),
        node("b", Some("12"), &format!("12@{}", CREATED - 60)),
        node("c", Some("3"), &format!("3@{},4@{CREATED}", CREATED + 2)),
    ];
    let policy = policy(&json!({}));
    let text = explained(nodes, &pod(&with_terms()), Some(&policy)).expect("labels").text();
    let expected = "\
Delivery by labels:
  policy     its labels are valid until 2025-11-28 21:25:00
  pod        1 preferred term (weight 6) reads ganglion.node-restriction.kubernetes.io/green
  scheduler  the profile of default-scheduler may add terms, which is not known: there is no ConfigMap
  scheduled  2025-11-28 21:20:02 on b

ganglion.node-restriction.kubernetes.io/green:
NODE  THEN  WRITTEN              NOW  WRITTEN              NOTE
b     12    2025-11-28 21:19:00  12   2025-11-28 21:19:00  the pod is here
a     15    2025-11-28 21:19:00  9    2025-11-28 21:21:00
c     3     2025-11-28 21:20:02  3    2025-11-28 21:20:02  written in the second of the scheduling; before, it was 4
";
    assert_eq!(text, expected);
}

#[rstest]
#[case::no_history(Some("9"), String::new(), None, "then is not known, the label has no history")]
#[case::malformed(Some("9"), "9@x".to_owned(), None, "then is not known, the label has no history")]
#[case::later(
    Some("9"),
    format!("9@{}", CREATED + 3),
    None,
    "then is not known, the first record is of 2025-11-28 21:20:03"
)]
#[case::dropped(
    Some("9"),
    vec![format!("9@{}", CREATED + 3); 8].join(","),
    None,
    "then is not known, the history begins at 2025-11-28 21:20:03"
)]
#[case::changed(
    Some("15"),
    format!("9@{CREATED}"),
    Some("9"),
    "somebody else changed the label: the operator wrote 9 at 2025-11-28 21:20:00"
)]
#[case::removed(
    None,
    format!("rejected@{CREATED}"),
    Some("rejected"),
    "somebody else removed the label: the operator wrote rejected at 2025-11-28 21:20:00"
)]
#[case::restored(
    Some("9"),
    format!("9@{},9@{CREATED}", CREATED + 9),
    Some("9"),
    "somebody else changed the label, which was restored at 2025-11-28 21:20:09"
)]
fn a_label_that_is_not_known_is_not_guessed(
    #[case] label: Option<&str>,
    #[case] history: String,
    #[case] then: Option<&str>,
    #[case] note: &str,
) {
    let explained = explained(vec![node("a", label, &history)], &pod(&with_terms()), None).expect("labels");
    let found = &explained.labels[0].nodes[0];
    assert_eq!((found.then.as_deref(), found.notes.as_slice()), (then, [note.to_owned()].as_slice()));
    assert_eq!(found.now.as_deref(), label);
}

#[test]
fn a_node_that_was_created_later_was_no_candidate() {
    let mut new = node("a", Some("9"), "9@1000");
    new.created = second(CREATED + 3);
    let explained = explained(vec![new], &pod(&with_terms()), None).expect("labels");
    let found = &explained.labels[0].nodes[0];
    assert_eq!(found.then, None);
    assert_eq!(found.notes, ["created 2025-11-28 21:20:03, after the pod was scheduled"]);
}

#[test]
fn a_pending_pod_has_only_the_labels_of_now() {
    let pending = json!({"spec": {"nodeName": null}, "status": {"conditions": [
        {"type": "PodScheduled", "status": "False", "lastTransitionTime": second(CREATED)},
    ]}});
    let mut changes = with_terms();
    merge(&mut changes, &pending);
    let text = explained(vec![node("a", Some("9"), "9@1000")], &pod(&changes), None).expect("labels").text();
    assert!(text.contains("  scheduled  not yet\n"), "{text}");
    assert!(text.contains("NODE  NOW  WRITTEN              NOTE\na     9    1970-01-01 00:16:40\n"), "{text}");
}

#[rstest]
#[case::valid(json!({}), "its labels are valid until 2025-11-28 21:25:00")]
#[case::shadow(json!({"spec": {"mode": "Shadow"}}), "mode: Shadow, so the operator removes its labels")]
#[case::extender(
    json!({"spec": {"delivery": ["Extender"]}}),
    "its delivery is not Labels, so the operator removes its labels"
)]
#[case::never(json!({"status": {"validUntil": null}}), "its labels are not valid yet")]
fn the_state_of_the_policy_is_said(#[case] changes: Value, #[case] expected: &str) {
    let explained = explained(Vec::new(), &pod(&with_terms()), Some(&policy(&changes))).expect("labels");
    assert_eq!(explained.policy, expected);
}

#[test]
fn a_policy_that_is_deleted_or_invalid_is_said() {
    let gone = explained(Vec::new(), &pod(&with_terms()), None).expect("labels");
    assert!(gone.policy.starts_with("there is no PlacementPolicy green: it was deleted or has another name"));
    let (pod, policy) = (pod(&json!({})), policy(&json!({})));
    let added = Ok(Vec::new());
    let subject =
        LabelSubject { pod: &pod, name: "green", policy: Some(&policy), is_valid: false, added, takes_part: None };
    let invalid = explain(&world([]), &subject).expect("labels");
    assert_eq!(invalid.policy, "its spec is invalid, so its labels stay as they are, valid until 2025-11-28 21:25:00");
    assert!(invalid.text().contains("  scheduler  the profile of default-scheduler adds no terms\n"));
}

#[rstest]
#[case::new(
    json!({"metadata": {"creationTimestamp": null}}), json!({}),
    "the API server adds terms when a pod is created"
)]
#[case::other(
    json!({"metadata": {"labels": {marks::POD_POLICY: "blue"}}}), json!({}),
    "the pod names policy blue (label ganglion.dev/placement-policy)"
)]
#[case::not_default(
    json!({}), json!({"metadata": {"labels": {marks::DEFAULT_POLICY: "false"}}}),
    "the pod names no policy (label ganglion.dev/placement-policy), and green is not the default one (label \
     ganglion.dev/default-policy)"
)]
#[case::daemon(
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true},
    ]}}),
    json!({}),
    "pods of DaemonSets have a node each"
)]
#[case::replacement(
    json!({"metadata": {"labels": {marks::ROLE: "replacement"}}}), json!({}),
    "an action chooses the node of its replacement"
)]
#[case::scheduler(
    json!({"spec": {"schedulerName": "second"}}), json!({}),
    "the policy does not name scheduler second (schedulerNames)"
)]
#[case::expired(
    json!({}), json!({"status": {"validUntil": second(CREATED - 1)}}),
    "created 2025-11-28 21:20:00, after validUntil 2025-11-28 21:19:59: no terms"
)]
#[case::never_valid(json!({}), json!({"status": {"validUntil": null}}), "the policy has no valid labels")]
#[case::not_installed(
    json!({}),
    json!({"status": {"conditions": [{
        "type": "LabelsApplied", "status": "False", "reason": "NotInstalled", "message": "no pod gets terms: install it",
        "lastTransitionTime": second(CREATED),
    }]}}),
    "no pod gets terms: install it"
)]
#[case::unknown(
    json!({}), json!({"status": {"validUntil": second(CREATED)}}),
    "it is not known why: labels, policy or namespace may have been others when the pod was created (2025-11-28 21:20:00)"
)]
fn a_pod_without_terms_is_told_why(#[case] changed_pod: Value, #[case] changed_policy: Value, #[case] expected: &str) {
    let explained = explained(Vec::new(), &pod(&changed_pod), Some(&policy(&changed_policy))).expect("labels");
    assert_eq!(explained.no_terms.as_deref(), Some(expected));
}

#[test]
fn a_namespace_that_does_not_take_part_is_named() {
    let (pod, policy) = (pod(&json!({})), policy(&json!({})));
    let added = Ok(Vec::new());
    let subject = LabelSubject {
        pod: &pod,
        name: "green",
        policy: Some(&policy),
        is_valid: true,
        added,
        takes_part: Some(false),
    };
    let found = explain(&world([]), &subject).and_then(|found| found.no_terms);
    assert_eq!(found.as_deref(), Some("namespace shop does not have the label ganglion.dev/placement=labels"));
}

#[test]
fn without_labels_there_is_nothing_to_explain() {
    let extender = policy(&json!({"spec": {"delivery": ["Extender"]}}));
    assert!(explained(Vec::new(), &pod(&json!({})), Some(&extender)).is_none());
    assert!(explained(Vec::new(), &pod(&json!({})), None).is_none());
    let pod = pod(&json!({}));
    let added = Ok(vec![LabelTerms { key: KEY.to_owned(), weights: vec![90], required: Vec::new() }]);
    let subject = LabelSubject { pod: &pod, name: "green", policy: None, is_valid: false, added, takes_part: None };
    let found = explain(&world([]), &subject).expect("the terms of the profile read labels");
    assert_eq!(found.labels[0].key, KEY);
}

#[test]
fn the_worst_label_is_explained_where_it_is_present() {
    let nodes = ["0", "rejected", "3"].map(|label| node(&format!("n{label}"), Some(label), ""));
    let mut explained = explained(nodes.into(), &pod(&with_terms()), None).expect("labels");
    let reasons = ["n0", "nrejected", "n3", "gone"].map(|name| (name.to_owned(), format!("because of {name}")));
    explained.add_worst("other", &reasons.clone().into());
    explained.add_worst("green", &reasons.into());
    let last = |name: &str| {
        let node = explained.labels[0].nodes.iter().find(|node| node.name == name).expect("a node");
        node.notes.last().cloned().unwrap_or_default()
    };
    assert_eq!([last("n0"), last("nrejected")], ["because of n0", "because of nrejected"]);
    assert!(!last("n3").contains("because"), "{}", last("n3"));
}
