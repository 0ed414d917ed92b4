//! New pods that do not start, do not end or cannot be created: how long an action waits, what it says, and how it
//! ends.

use super::*;
use crate::effect::{Refusal, RefusalKind};
use crate::explain::{ActionStory, ExplainedAction};
use crate::refused;
use ganglion_core::facts::{PodEnd, SlotId, Trouble};

/// A move whose new pod runs on this node, with the name of that pod.
fn moving(to: serde_json::Value) -> (Stage, String) {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": to}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
    let node = new.node();
    stage.put_pod(&new.key.name, node.as_str(), |pod| {
        (pod.ready_since, pod.controller, pod.generated, pod.labels) = (None, None, false, labels(false));
        let role = Some(marks::ROLE_REPLACEMENT.into());
        pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
    });
    (stage, new.key.name)
}

pub fn slot(stage: &Stage) -> Slot {
    stage.action("go").status.unwrap().slots[0].clone()
}

/// Performs the step that follows from a refusal.
pub fn refuse(stage: &mut Stage, effect: &Effect, kind: RefusalKind, message: &str) {
    let refusal = Refusal { kind, message: message.into() };
    let step = refused(&Key::new(NAMESPACE, "go"), &stage.world, stage.now, effect, &refusal);
    let (NextStep::Do(Effect::Record { status, .. }) | NextStep::Wait { report: Some(status), .. }) = step else {
        panic!("{step:?}")
    };
    let mut action = stage.action("go");
    action.status = Some(*status);
    stage.put_action(action);
}

#[test]
fn a_trouble_that_passes_is_waited_for() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    let trouble = Trouble { reason: Reason::ImagePullFailed, message: "the registry restarts".into() };
    stage.change_pod(&pod, |pod| pod.trouble = Some(trouble));
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }));
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "ImagePullFailed"));
    assert!(message.contains("the registry restarts"), "{message}");
    let now = stage.now;
    stage.change_pod(&pod, |pod| (pod.trouble, pod.ready_since) = (None, Some(now)));
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })));
}

#[test]
fn a_trouble_that_stays_is_tried_on_another_node_where_the_action_allows_it() {
    let trouble = || Trouble { reason: Reason::ReplacementCrashed, message: "it crashes".into() };
    let (mut stage, pod) = moving(json!({"where": "node.name in ['b', 'd']"}));
    stage.change_pod(&pod, |pod| pod.trouble = Some(trouble()));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(300);
    let NextStep::Do(Effect::Evict { pod: left, .. }) = stage.settle("go") else { panic!("removes the first new pod") };
    assert_eq!((left.key.name, slot(&stage).attempt), (pod, 1));

    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    stage.change_pod(&pod, |pod| pod.trouble = Some(trouble()));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(300);
    stage.settle("go");
    assert_eq!((slot(&stage).step, slot(&stage).reason), (Step::RollingBack, Some(Reason::ReplacementCrashed)));
}

/// How a new pod fails on its node.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Image,
    Kubelet,
    NeverReady,
}

impl Stage {
    /// Lets the scheduler bind the new pod of the action to this node.
    fn bind(&mut self, new: &NewPod, node: &str) {
        let role = Some(marks::ROLE_REPLACEMENT.into());
        let own = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
        self.put_pod(&new.key.name, node, |pod| {
            (pod.ready_since, pod.controller, pod.generated, pod.labels) = (None, None, false, labels(false));
            pod.marks = own;
        });
    }

    /// Lets the new pod fail, and its time pass. Returns the next new pod, if there is one.
    fn fail(&mut self, name: &str, failure: Failure) -> Option<NewPod> {
        self.settle("go");
        match failure {
            Failure::Image => {
                let trouble = Trouble { reason: Reason::ImagePullFailed, message: "no such image".into() };
                self.change_pod(name, |pod| pod.trouble = Some(trouble));
            }
            Failure::Kubelet => self.change_pod(name, |pod| pod.finished = true),
            Failure::NeverReady => {}
        }
        self.settle("go");
        self.now += SignedDuration::from_secs(301);
        loop {
            match self.settle("go") {
                NextStep::Do(Effect::Evict { pod, .. } | Effect::DeletePod { pod, .. }) => {
                    self.world.remove::<PodFact>(&pod);
                }
                NextStep::Do(Effect::CreatePod(new)) => return Some(new),
                _ => return None,
            }
        }
    }
}

fn names(nodes: &[ganglion_core::facts::NodeName]) -> Vec<&str> {
    nodes.iter().map(|node| node.as_str()).collect()
}

#[rstest]
#[case::anywhere(json!({"move": {"pod": {"name": "web-a"}}}))]
#[case::by_labels(json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeSelector": {"target": "yes"}}}}))]
fn a_node_that_the_scheduler_chose_is_excluded_after_a_failure(
    #[case] spec: serde_json::Value,
    #[values(Failure::Image, Failure::Kubelet, Failure::NeverReady)] failure: Failure,
) {
    let mut stage = Stage::new();
    for node in ["b", "c", "d", "e", "f"] {
        stage.put_node(node, |node| drop(node.labels.insert("target".into(), "yes".into())));
    }
    stage.act("go", spec);
    let NextStep::Do(Effect::CreatePod(mut new)) = stage.settle("go") else { panic!("a new pod") };
    let mut tried = Vec::new();
    for node in ["e", "f", "d"] {
        stage.bind(&new, node);
        new = stage
            .fail(&new.key.name, failure)
            .unwrap_or_else(|| panic!("another node than {node}: {:?}", slot(&stage)));
        tried.push(node);
        assert_eq!(names(&slot(&stage).tried), tried);
    }
    stage.bind(&new, "c");
    assert_eq!(stage.fail(&new.key.name, failure), None, "four nodes are enough");
    let message = stage.ready("go").2;
    assert!(message.contains("new pods failed on e, f, d, c"), "{message}");
}

/// The scheduler does not count pods on excluded nodes. With the only node of a zone excluded, it would put the new pod
/// into a zone that has a replica already.
#[rstest]
#[case::another_of_the_zone(&["a", "d", "g"], Some("g"))]
#[case::none_of_the_zone(&["a", "d"], None)]
fn another_node_after_a_failure_keeps_the_spread(#[case] first_zone: &[&str], #[case] expected: Option<&str>) {
    let mut stage = Stage::new();
    let template = json!({"containers": [], "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    stage.put_set_with(3, template);
    for (zone, nodes) in [("1", first_zone), ("2", &["b", "e"]), ("3", &["c", "f"])] {
        for name in nodes {
            stage.put_node(name, |node| drop(node.labels.insert("zone".into(), zone.into())));
        }
    }
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
    assert_eq!(new.place, crate::effect::PodPlace::Any { labels: BTreeMap::new(), except: vec!["a".into()] });
    stage.bind(&new, "d");
    let next = stage.fail(&new.key.name, Failure::Image);
    assert_eq!(next.map(|new| new.node().to_string()).as_deref(), expected);
    if expected.is_none() {
        let (ready, reason, message) = stage.ready("go");
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "ImagePullFailed"), "{message}");
        assert!(message.contains("no such image"), "{message}");
    }
}

#[test]
fn a_create_by_labels_excludes_the_node_that_failed() {
    let mut stage = Stage::new();
    for node in ["c", "d"] {
        stage.put_node(node, |node| drop(node.labels.insert("target".into(), "yes".into())));
    }
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    stage.act("go", json!({"create": {"workload": web, "to": {"nodeSelector": {"target": "yes"}}}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
    stage.bind(&new, "d");
    let next = stage.fail(&new.key.name, Failure::Image).expect("another node");
    assert_eq!(names(&slot(&stage).tried), ["d"]);
    stage.bind(&next, "c");
    assert_eq!(stage.fail(&next.key.name, Failure::Image), None, "there is no third node");
}

#[test]
fn a_new_pod_that_ends_is_not_waited_for() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    stage.settle("go");
    let trouble = Trouble { reason: Reason::ReplacementLost, message: "OutOfcpu: Pod was rejected".into() };
    stage.change_pod(&pod, |pod| (pod.finished, pod.trouble) = (true, Some(trouble)));
    let NextStep::Do(Effect::Evict { pod: ended, .. }) = stage.settle("go") else { panic!("removes it") };
    assert_eq!(ended.key.name, pod);
    assert_eq!((slot(&stage).step, slot(&stage).reason), (Step::RollingBack, Some(Reason::ReplacementLost)));
    assert!(slot(&stage).message.unwrap().contains("OutOfcpu: Pod was rejected"));
}

/// A `delete` that has detached its old pod, with the slot.
fn detached() -> (Stage, SlotId) {
    let mut stage = Stage::new();
    stage.act("go", json!({"delete": {"pod": {"name": "web-a"}}}));
    let NextStep::Do(Effect::ChangePod { change: PodChange::Detach { slot, .. }, .. }) = stage.settle("go") else {
        panic!("detach")
    };
    let marks = Marks { slot: Some(slot.clone()), role: Some(marks::ROLE_VICTIM.into()), ..Marks::default() };
    stage.change_pod("web-a", |pod| (pod.labels, pod.controller, pod.marks) = (labels(false), None, marks));
    (stage, slot)
}

/// No ReplicaSet adopts a pod that has ended, so it would stay for ever.
#[test]
fn a_detached_pod_that_ends_is_removed() {
    let (mut stage, _) = detached();
    stage.change_pod("web-a", |pod| (pod.finished, pod.ready_since) = (true, None));
    let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") else { panic!("removes it") };
    assert_eq!(pod.key.name, "web-a");
}

/// Its ReplicaSet does not count it any more, and never deletes it.
#[test]
fn a_surplus_that_ends_keeps_no_mark_and_the_next_one_is_marked() {
    let (mut stage, slot) = detached();
    let now = stage.now;
    stage.put_pod("web-new", "b", |pod| {
        (pod.created, pod.ready_since, pod.finished) = (now, None, true);
        pod.marks = Marks { slot: Some(slot), role: Some(marks::ROLE_SURPLUS.into()), ..Marks::default() };
    });
    stage.put_pod("web-next", "b", |pod| (pod.created, pod.ready_since) = (now, None));
    let NextStep::Do(Effect::ChangePod { pod, change: PodChange::Unmark { .. } }) = stage.settle("go") else {
        panic!("removes the mark")
    };
    assert_eq!(pod.key.name, "web-new");
    stage.change_pod("web-new", |pod| pod.marks = Marks::default());
    let NextStep::Do(Effect::ChangePod { pod, change: PodChange::Mark { .. } }) = stage.settle("go") else {
        panic!("marks the next one")
    };
    assert_eq!(pod.key.name, "web-next");
}

#[test]
fn a_new_pod_that_does_not_terminate_is_named_and_the_action_ends() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    stage.settle("go");
    let mut action = stage.action("go");
    action.spec.abort = true;
    stage.put_action(action);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })));
    stage.change_pod(&pod, |pod| (pod.terminating, pod.grace_seconds) = (true, 30));
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }));
    stage.now += SignedDuration::from_secs(330);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Aborted"));
    assert!(message.contains(&pod) && message.contains("finalizers"), "{message}");
}

#[test]
fn a_pod_that_cannot_be_created_has_a_deadline_and_the_words_of_the_api_server() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    let NextStep::Do(effect @ Effect::CreatePod(_)) = stage.settle("go") else { panic!("a new pod") };
    refuse(&mut stage, &effect, RefusalKind::Failing, "failed calling webhook \"pods.example.com\"");
    let (_, reason, message) = stage.ready("go");
    assert!(reason == "PodRefused" && message.contains("failed calling webhook"), "{reason} {message}");
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::CreatePod(_))), "it is tried again");
    stage.now += SignedDuration::from_secs(120);
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert!(ready == "False" && message.contains("failed calling webhook"), "{ready} {message}");
}

/// A quota refuses the receipt for good, a webhook for a while.
#[rstest]
#[case::by_a_quota(RefusalKind::Denied, Step::RolledBack)]
#[case::by_a_webhook(RefusalKind::Failing, Step::Planned)]
fn an_action_whose_receipt_is_refused_says_so_and_has_no_effect(#[case] kind: RefusalKind, #[case] step: Step) {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    let status = stage.settle_until_admitted("go").expect("it is admitted");
    let mut action = stage.action("go");
    action.status = Some(status);
    stage.put_action(action);
    let NextStep::Do(effect @ Effect::WriteReceipt(_)) = stage.next("go") else { panic!("the receipt is first") };
    refuse(&mut stage, &effect, kind, "no receipts now");
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert!(reason == "PodRefused" && message.contains("no receipts now"), "{reason} {message}");
    assert_eq!(slot(&stage).step, step);
}

#[test]
fn a_detachment_that_fails_for_long_is_given_up() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    let now = stage.now;
    stage.change_pod(&pod, |pod| pod.ready_since = Some(now));
    let NextStep::Do(effect @ Effect::ChangePod { .. }) = stage.settle("go") else { panic!("detaches") };
    refuse(&mut stage, &effect, RefusalKind::Failing, "failed calling webhook");
    assert!(slot(&stage).step != Step::RollingBack);
    stage.now += SignedDuration::from_mins(30);
    refuse(&mut stage, &effect, RefusalKind::Failing, "failed calling webhook");
    assert_eq!(slot(&stage).step, Step::RollingBack);
    assert!(slot(&stage).message.unwrap().contains("failed calling webhook"));
}

#[test]
fn a_move_without_a_target_waits_for_a_node_that_joins() {
    let mut stage = Stage::new();
    for node in ["b", "c", "d"] {
        stage.put_node(node, |node| node.cordoned = true);
    }
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}}}));
    for _ in 0..3 {
        stage.settle("go");
        stage.now += SignedDuration::from_secs(60);
    }
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert!(message.contains("goes on when a node can take it"), "{message}");
    stage.put_node("e", |_| {});
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::CreatePod(_))));
}

#[rstest]
#[case::by_labels(json!({"move": {"workload": web(), "from": {"nodeSelector": {"old": "yes"}}}}))]
#[case::by_expression(json!({"move": {"workload": web(), "from": {"where": "node.name == 'a'"}}}))]
#[case::application(json!({"moveApplication": {"selector": {"app": "web"}, "from": {"nodeName": "a"}}}))]
fn every_move_without_a_target_waits_for_a_node_that_joins(#[case] spec: serde_json::Value) {
    let mut stage = Stage::new();
    stage.put_node("a", |node| drop(node.labels.insert("old".into(), "yes".into())));
    for node in ["b", "c", "d"] {
        stage.put_node(node, |node| node.cordoned = true);
    }
    stage.act("go", spec);
    for _ in 0..3 {
        stage.settle("go");
        stage.now += SignedDuration::from_secs(60);
    }
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"), "{message}");
    stage.put_node("e", |_| {});
    let next = stage.settle("go");
    assert_ne!(stage.ready("go").1, "Queued", "{next:?}");
}

fn web() -> serde_json::Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
}

impl Stage {
    /// Lets pods of `web` count as available after this time.
    fn put_min_ready(&mut self, seconds: i32) {
        let mut set = self.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).unwrap().clone();
        set.id.version = self.id("web-h1").version;
        set.min_ready_seconds = seconds;
        self.world.apply(set, Origin::Watch);
    }
}

/// A sibling that is Ready again serves, but may fail again at once: it is not available yet.
#[test]
fn a_sibling_that_is_not_available_yet_is_waited_for() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    stage.put_min_ready(30);
    let now = stage.now;
    stage.change_pod(&pod, |pod| pod.ready_since = Some(now));
    for sibling in ["web-a", "web-b", "web-c"] {
        stage.change_pod(sibling, |pod| pod.ready_since = Some(now));
    }
    stage.settle("go");
    stage.now += SignedDuration::from_secs(30);
    let again = stage.now - SignedDuration::from_secs(10);
    stage.change_pod("web-b", |pod| pod.ready_since = Some(again));
    let NextStep::Wait { until: Some(until), .. } = stage.settle("go") else { panic!("waits for web-b") };
    assert!(until <= again + SignedDuration::from_secs(30), "{until}");
    stage.now += SignedDuration::from_secs(5);
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert!(reason == "ReplicasNotReady" && message.contains("pod web-b of the same set"), "{reason} {message}");
    stage.now = again + SignedDuration::from_secs(30);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })));
}

/// A pod that is being deleted, as the API server shows it.
fn deleted(cause: Option<&str>, finalizers: Option<&str>) -> impl FnOnce(&mut PodFact) {
    let end = PodEnd { cause: cause.map(str::to_owned), finalizers: finalizers.map(str::to_owned) };
    move |pod| (pod.terminating, pod.grace_seconds, pod.end) = (true, 30, Some(Box::new(end)))
}

/// Others deleted it, and a finalizer or a dead kubelet keeps it.
#[rstest]
#[case::finalizer(json!({"nodeName": "d"}), Some("example.com/keep"), Step::RollingBack, "its finalizers are example.com/keep")]
#[case::kubelet(json!({"nodeName": "d"}), None, Step::RollingBack, "look at the kubelet of node d")]
#[case::other_node(json!({"where": "node.name in ['b', 'd']"}), None, Step::Planned, "")]
#[case::scheduler(json!({"nodeSelector": {"disk": "hdd"}}), None, Step::Planned, "")]
fn a_new_pod_that_others_deleted_is_not_waited_for_without_end(
    #[case] to: serde_json::Value,
    #[case] finalizers: Option<&str>,
    #[case] step: Step,
    #[case] words: &str,
) {
    let (mut stage, pod) = match to.get("nodeSelector") {
        None => moving(to),
        Some(_) => {
            let mut stage = Stage::new();
            stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": to}}));
            let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
            stage.put_pod(&new.key.name, "b", |pod| {
                (pod.ready_since, pod.controller, pod.generated, pod.labels) = (None, None, false, labels(false));
                let role = Some(marks::ROLE_REPLACEMENT.into());
                pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
            });
            (stage, new.key.name)
        }
    };
    stage.settle("go");
    stage.change_pod(&pod, deleted(Some("DeletionByTaintManager: Taint manager: deleting"), finalizers));
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }), "it has a deadline");
    assert!(slot(&stage).message.unwrap().contains("was deleted (DeletionByTaintManager: Taint manager: deleting)"));
    stage.now += SignedDuration::from_secs(331);
    let next = stage.settle("go");
    let now = slot(&stage);
    if step == Step::Planned {
        assert!(matches!(next, NextStep::Do(Effect::CreatePod(_))), "{next:?}");
        assert_eq!(now.attempt, 1);
    } else {
        assert_eq!((now.step, now.reason), (step, Some(Reason::ReplacementLost)));
        assert!(now.message.as_ref().unwrap().contains(words), "{now:?}");
        assert!(now.message.unwrap().contains(&pod));
    }
    stage.now += SignedDuration::from_secs(331);
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert!(step == Step::Planned || (ready == "False" && message.matches(words).count() == 1), "{ready} {message}");
}

/// Each new pod may preempt others.
#[test]
fn a_replica_is_tried_on_few_nodes_and_the_end_names_them() {
    let mut stage = Stage::new();
    for index in 0..20 {
        stage.put_node(&format!("n{index:02}"), |_| {});
    }
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"where": "node.name.startsWith('n')"}}}));
    let mut names = Vec::new();
    while let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") {
        names.push(new.node().to_string());
        assert!(names.len() < 20, "it has no end");
        let mark = Marks { slot: Some(new.slot.clone()), ..Marks::default() };
        stage.put_pod(&new.key.name, "", |pod| {
            (pod.ready_since, pod.controller, pod.generated, pod.labels) = (None, None, false, labels(false));
            (pod.node, pod.marks) = (None, mark);
            pod.unschedulable = Some("0/24 nodes are available".into());
        });
        // Earlier new pods are gone at once.
        while let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") {
            stage.world.remove::<PodFact>(&pod);
        }
        stage.now += SignedDuration::from_secs(121);
        while let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") {
            stage.world.remove::<PodFact>(&pod);
        }
    }
    assert_eq!(names.len(), 4, "{names:?}");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Unschedulable"), "{message}");
    let tried = format!("new pods failed on {}", names.join(", "));
    assert!(message.contains(&tried), "{message}");
}

/// Only the API server knows who deleted a pod.
#[rstest]
#[case::unknown(None, "the old pod was deleted")]
#[case::preempted(
    Some("PreemptionByScheduler: preempting to accommodate a higher priority pod"),
    "the old pod was deleted (PreemptionByScheduler: preempting to accommodate a higher priority pod)"
)]
fn nobody_is_blamed_for_the_end_of_an_old_pod(#[case] cause: Option<&str>, #[case] words: &str) {
    let (mut stage, _) = moving(json!({"nodeName": "d"}));
    stage.settle("go");
    match cause {
        Some(_) => stage.change_pod("web-a", deleted(cause, None)),
        None => {
            let id = stage.world.pod(&Key::new(NAMESPACE, "web-a")).unwrap().id.clone();
            stage.world.remove::<PodFact>(&id);
        }
    }
    stage.settle("go");
    assert_eq!((slot(&stage).reason, slot(&stage).message.as_deref()), (Some(Reason::VictimGone), Some(words)));
}

/// The set has one pod less than it should, and its controller does not run.
#[test]
fn a_rollback_that_waits_for_the_controller_says_so_and_goes_on_by_itself() {
    let (mut stage, _) = detached();
    let mut action = stage.action("go");
    action.spec.abort = true;
    stage.put_action(action);
    stage.settle("go");
    assert_eq!((slot(&stage).step, slot(&stage).reason), (Step::RollingBack, Some(Reason::Aborted)));
    stage.now += SignedDuration::from_mins(60);
    stage.settle("go");
    let waiting = slot(&stage);
    assert_eq!((waiting.reason, waiting.obstacle), (Some(Reason::Aborted), Some(Reason::SetStuck)));
    let message = waiting.message.unwrap();
    assert!(message.starts_with("spec.abort was set; not undone yet: ReplicaSet web-h1 "), "{message}");
    assert!(message.ends_with("is kube-controller-manager running?"), "{message}");
    let status = stage.action("go").status.unwrap();
    let cause = status.conditions.iter().find(|one| one.type_ == "Reconciling").unwrap();
    assert_eq!((stage.ready("go").1.as_str(), cause.reason.as_str()), ("RollingBack", "SetStuck"));
    let now = stage.now;
    stage.put_pod("web-new", "b", |pod| pod.created = now);
    let NextStep::Do(Effect::ChangePod { pod, change: PodChange::Mark { slot: id, .. } }) = stage.settle("go") else {
        panic!("marks the substitute")
    };
    assert_eq!(pod.key.name, "web-new");
    let role = Some(marks::ROLE_SURPLUS.into());
    stage.change_pod("web-new", |pod| pod.marks = Marks { slot: Some(id), role, ..Marks::default() });
    let NextStep::Do(Effect::ChangePod { change: PodChange::Attach { .. }, .. }) = stage.settle("go") else {
        panic!("takes the old pod back")
    };
    stage.change_pod("web-a", |pod| {
        (pod.labels, pod.marks) = (labels(true), Marks::default());
        pod.controller = Some(Owner { kind: "ReplicaSet".into(), name: "web-h1".into(), uid: "uid-web-h1".into() });
    });
    stage.settle("go");
    let message = slot(&stage).message.unwrap();
    assert!(message.contains("pod web-new is marked") && message.contains("has not deleted it yet"), "{message}");
    let id = stage.world.pod(&Key::new(NAMESPACE, "web-new")).unwrap().id.clone();
    stage.world.remove::<PodFact>(&id);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str(), slot(&stage).obstacle), ("False", "Aborted", None), "{message}");
    assert!(!message.contains("not undone yet"), "{message}");
}

/// A foreign controller deletes the Deployment; its ReplicaSet is still there.
#[test]
fn a_rollback_without_a_workload_says_what_it_waits_for() {
    let (mut stage, _) = detached();
    stage.put_deployment(|deployment| deployment.terminating = true);
    stage.settle("go");
    stage.now += SignedDuration::from_secs(60);
    stage.settle("go");
    let waiting = slot(&stage);
    assert_eq!((waiting.step, waiting.obstacle), (Step::RollingBack, Some(Reason::SetStuck)), "{waiting:?}");
    assert!(waiting.message.unwrap().contains("the old pod serves outside ReplicaSet web"));
}

/// The action goes on by itself.
#[test]
fn an_action_that_is_queued_again_does_not_ask_for_a_new_one() {
    let mut stage = Stage::new();
    stage.put_deployment(|deployment| deployment.recreates = true);
    stage.put_node("a", |node| node.cordoned = true);
    stage.put_pod("web-b", "b", |pod| pod.ready_since = None);
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}}, "disruption": "Allowed"}));
    stage.settle("go");
    assert_eq!(slot(&stage).step, Step::Planned, "web-b is not Ready");
    stage.put_node("a", |_| {});
    let NextStep::Do(Effect::Record { status, .. }) = stage.next("go") else { panic!("it is undone") };
    let message = status.slots[0].message.clone().unwrap();
    assert!(message.ends_with("run `kubectl cordon a`"), "{message}");
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert!(ready == "False" && message.contains("run `kubectl cordon a`, then apply a new action"), "{message}");
}

/// A node may join or get room.
#[test]
fn a_move_off_several_nodes_waits_as_long_as_queue_seconds_says() {
    let mut stage = Stage::new();
    for node in ["b", "c", "d"] {
        stage.put_node(node, |node| node.cordoned = true);
    }
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let change = json!({"workload": workload, "from": {"where": "node.name == 'a'"}});
    stage.act("go", json!({"move": change, "timeouts": {"queueSeconds": 30}}));
    for _ in 0..2 {
        stage.settle("go");
        stage.now += SignedDuration::from_secs(10);
    }
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"), "{message}");
    let explained = |stage: &Stage| {
        let action = stage.action("go");
        ActionStory::of(ExplainedAction { action: &action, receipts: None, now: stage.now }).advice.join(" ")
    };
    assert!(!explained(&stage).contains("new action"), "{}", explained(&stage));
    stage.now += SignedDuration::from_secs(30);
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "QueueTimedOut");
    assert!(explained(&stage).contains("new action"));
}
