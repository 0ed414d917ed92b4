//! Drains on hand-made pods and actions.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use serde_json::{Value, json};

use super::super::preview::{ActionPreview, PreviewOutcome};
use super::action::{label, manifest};
use super::*;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{ClaimFact, Identity, Key, NodeFact, NodeName, Uid};

fn owner(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}])
}

fn pod(name: &str, owners: Value, more: Value) -> NodePod {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "ownerReferences": owners},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
    });
    json_patch::merge(&mut object, &more);
    NodePod::from(serde_json::from_value::<Pod>(object).expect("a pod"))
}

fn with_volume(volume: Value) -> Value {
    let mut volume = volume;
    volume["name"] = json!("v");
    json!({"spec": {"volumes": [volume]}})
}

/// ReplicaSet `web-1` belongs to Deployment `web`, ReplicaSet `old-1` to Deployment `old` with `strategy: Recreate`.
/// Claim `data` can be mounted on one node only.
fn around() -> PodSurroundings {
    let deployment =
        |name: &str| WorkloadRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: name.into() };
    let claim = |name: &str, mode: &str, volume: &str| {
        let id = Identity { key: Key::new("shop", name), ..Identity::default() };
        (
            id.key.clone(),
            ClaimFact { id, access_modes: vec![mode.into()], volume: Some(volume.into()), ..ClaimFact::default() },
        )
    };
    PodSurroundings {
        deployments: [("web-1", "web"), ("old-1", "old")]
            .map(|(set, name)| (Key::new("shop", set), deployment(name)))
            .into(),
        recreating: [Key::new("shop", "old")].into(),
        claims: [
            claim("data", "ReadWriteOnce", "pv-1"),
            claim("wide", "ReadWriteMany", "pv-2"),
            claim("here", "ReadWriteOnce", "pv-3"),
        ]
        .into(),
        confined: ["pv-3".to_owned()].into(),
        ..PodSurroundings::default()
    }
}

#[rstest]
#[case::daemon(owner("DaemonSet", "proxy"), json!({}), Some(StayCause::DaemonSet))]
#[case::mirror(owner("Node", "n1"), json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), Some(StayCause::StaticPod))]
#[case::local(owner("ReplicaSet", "web-1"), with_volume(json!({"persistentVolumeClaim": {"claimName": "here"}})), Some(StayCause::LocalVolume))]
#[case::local_of_other(owner("Game", "g"), with_volume(json!({"persistentVolumeClaim": {"claimName": "here"}})), Some(StayCause::LocalVolume))]
#[case::moves(owner("ReplicaSet", "web-1"), json!({}), None)]
fn who_stays_says_why(#[case] owners: Value, #[case] more: Value, #[case] cause: Option<StayCause>) {
    let plan = DrainPlan::of(&[pod("p", owners, more)], &around());
    assert_eq!(plan.stays.first().map(|stay| stay.cause), cause, "{plan:?}");
    for stay in &plan.stays {
        let is_node_s = matches!(stay.cause, StayCause::DaemonSet | StayCause::StaticPod);
        assert_eq!(
            (stay.is_expected(), stay.advice.is_none()),
            (is_node_s, is_node_s),
            "a pod that should not stay has advice"
        );
    }
}

/// They keep nothing on the node. Where disruption is allowed, they are evicted, as `kubectl drain` does.
#[rstest]
fn finished_pods_are_evicted_only_where_that_is_wished(#[values("Succeeded", "Failed")] phase: &str) {
    let finished = json!({"status": {"phase": phase}});
    let of_set = owner("ReplicaSet", "web-1");
    let pods = [
        pod("b", json!([]), finished.clone()),
        pod("d", owner("DaemonSet", "proxy"), finished.clone()),
        pod("p", of_set, finished),
    ];
    let mut stage = Stage::of(&pods);
    assert_eq!((stage.evicted(), stage.progress().is_over()), (vec![], true));
    assert_eq!((stage.report(false).outcome, stage.report(false).stays.len()), (DrainOutcome::Empty, 0));
    stage.wishes.disruption = true;
    assert_eq!((stage.evicted(), stage.progress().is_over()), (vec!["b", "p"], false));
    stage.evictions.insert("uid-b".into(), LastEviction::Refused("pods \"b\" is forbidden".into()));
    assert_eq!((stage.evicted(), stage.report(false).stays[0].cause), (vec!["p"], StayCause::Refused));
}

/// A pod of another project's kind, whose controller the operator does not know.
#[test]
fn kinds_of_other_projects_with_known_names_are_evicted() {
    let owners = |kind: &str| {
        let version = "apps.kruise.io/v1beta1";
        json!([{"apiVersion": version, "kind": kind, "name": "web-1", "uid": "u", "controller": true}])
    };
    let mut stage = Stage::of(&["ReplicaSet", "StatefulSet"].map(|kind| pod(kind, owners(kind), json!({}))));
    assert_eq!(stage.due(), []);
    let message = stage.report(false).stays[0].message.clone();
    assert_eq!(message, "ReplicaSet/web-1 of apps.kruise.io is of a kind that no action moves");
    stage.wishes.disruption = true;
    assert_eq!(stage.evicted(), ["ReplicaSet", "StatefulSet"]);
}

#[test]
fn pods_that_should_not_stay_come_first() {
    let here = with_volume(json!({"persistentVolumeClaim": {"claimName": "here"}}));
    let pods = [
        pod("d", owner("DaemonSet", "proxy"), json!({})),
        pod("b", owner("ReplicaSet", "web-1"), here.clone()),
        pod("a", owner("ReplicaSet", "web-1"), here),
    ];
    let plan = DrainPlan::of(&pods, &around());
    assert_eq!(plan.stays.iter().map(|stay| stay.what.as_str()).collect::<Vec<_>>(), ["Pod/a", "Pod/b", "Pod/d"]);
}

#[rstest]
#[case::plain("web-1", json!({}), "", false)]
#[case::recreate("old-1", json!({}), "the Deployment has strategy: Recreate", true)]
#[case::set_with_the_name("old", json!({}), "", false)]
#[case::claim("web-1", with_volume(json!({"persistentVolumeClaim": {"claimName": "data"}})), "claim data is ReadWriteOnce", true)]
#[case::shared("web-1", with_volume(json!({"persistentVolumeClaim": {"claimName": "wide"}})), "", false)]
#[case::scratch("web-1", with_volume(json!({"emptyDir": {}})), "the data of volume v are lost with the pod", false)]
#[case::host("web-1", with_volume(json!({"hostPath": {"path": "/srv"}})), "the data in /srv stay on the node", false)]
fn what_cannot_be_first_is_named(#[case] set: &str, #[case] more: Value, #[case] why: &str, #[case] disrupts: bool) {
    let plan = DrainPlan::of(&[pod("p", owner("ReplicaSet", set), more)], &around());
    assert_eq!((plan.moves[0].why().as_str(), plan.moves[0].disrupts()), (why, disrupts));
}

#[rstest]
#[case::anywhere(json!({"nfs": {"server": "s", "path": "/"}}), Some("a"), false)]
#[case::zone_of_another(json!({"csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": zone("a")}), Some("a"), false)]
#[case::zone_of_none(json!({"csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": zone("b")}), Some("a"), true)]
#[case::zone_unknown(json!({"csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": zone("b")}), None, false)]
#[case::local_unknown(json!({"local": {"path": "/data"}, "nodeAffinity": zone("b")}), None, true)]
#[case::directory(json!({"hostPath": {"path": "/data"}}), Some("a"), true)]
fn a_volume_is_confined_if_no_other_node_may_use_it(
    #[case] spec: Value,
    #[case] zone: Option<&str>,
    #[case] confined: bool,
) {
    let volume = serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).expect("a volume");
    let labels = zone.map(|zone| [("zone".to_owned(), zone.to_owned())].into());
    let others = labels.map(|labels| [NodeFact { labels, ..NodeFact::default() }]);
    assert_eq!(is_confined(&volume, others.as_ref().map(<[NodeFact; 1]>::as_slice)), confined);
}

fn zone(name: &str) -> Value {
    let here = json!({"key": "zone", "operator": "In", "values": [name]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}})
}

#[test]
fn a_stateful_set_keeps_its_names_and_pods_on_their_way_leave() {
    let moving = json!({"metadata": {"annotations": {"ganglion.dev/slot": "s"}}});
    let ends = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let pods =
        [pod("db-0", owner("StatefulSet", "web-1"), json!({})), pod("a", json!([]), moving), pod("b", json!([]), ends)];
    let plan = DrainPlan::of(&pods, &around());
    let first = &plan.moves[0];
    assert_eq!(
        (first.why().as_str(), first.words().as_str()),
        ("the next pod of a StatefulSet has the same name", "StatefulSet/web-1")
    );
    let leaving: Vec<&str> = plan.leaving.iter().map(|one| one.stay.message.as_str()).collect();
    assert_eq!((leaving, plan.stays.len()), (vec!["an action moves it", "it terminates"], 0), "{plan:?}");
}

/// A drain of node n1 with these pods and actions.
struct Stage {
    nodes: Vec<NodeName>,
    wishes: DrainWishes,
    plan: DrainPlan,
    actions: Vec<WorkloadAction>,
    refused: BTreeMap<MoveKey, String>,
    evictions: BTreeMap<Uid, LastEviction>,
    terminations: Terminations,
    operator: Option<String>,
    now: Timestamp,
}

impl Stage {
    /// Three pods of Deployment web and one of Deployment old.
    fn new() -> Self {
        let mut pods: Vec<NodePod> =
            ["a", "b", "c"].map(|name| pod(name, owner("ReplicaSet", "web-1"), json!({}))).into();
        pods.push(pod("o", owner("ReplicaSet", "old-1"), json!({})));
        Self::of(&pods)
    }

    fn of(pods: &[NodePod]) -> Self {
        Self {
            nodes: vec!["n1".into()],
            wishes: DrainWishes::default(),
            plan: DrainPlan::of(pods, &around()),
            actions: Vec::new(),
            refused: BTreeMap::new(),
            evictions: BTreeMap::new(),
            terminations: Terminations::default(),
            operator: None,
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
        }
    }

    fn progress(&self) -> DrainProgress<'_> {
        let Self { nodes, wishes, plan, actions, refused, evictions, terminations, operator, now } = self;
        let (operator, now) = (operator.as_deref(), *now);
        DrainProgress { nodes, wishes, plan, actions, refused, evictions, terminations, operator, now }
    }

    /// Names of the pods that the drain evicts now.
    fn evicted(&self) -> Vec<&str> {
        self.progress().next_evictions().into_iter().map(|pod| pod.key.name.as_str()).collect()
    }

    fn report(&self, timed_out: bool) -> DrainReport {
        self.progress().report(timed_out, SignedDuration::from_secs(5))
    }

    /// Workload and upper limit of the due actions.
    fn due(&self) -> Vec<(String, Option<i32>)> {
        self.progress().next_moves().iter().map(|new| (new.of.words(), new.up_to)).collect()
    }

    /// Creates the first due action, with this status.
    fn act(&mut self, status: Value) {
        let new = self.progress().next_moves();
        let mut object = manifest(&new[0], 60, &self.actions.len().to_string());
        object["status"] = status;
        object["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:0{}Z", self.actions.len()));
        let action = serde_json::from_value(object).expect("an action");
        self.actions.push(action);
    }
}

fn slot(index: i32, step: &str) -> Value {
    json!({
        "id": index.to_string(), "index": index, "attempt": 0, "step": step, "since": "2026-01-01T00:00:00Z",
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "replicaSet": {"name": "web-1", "uid": "u"}, "label": "l",
        "victim": {"name": format!("web-1-{index}"), "node": "n1"}, "replacement": {"name": "x", "node": "n2"},
    })
}

fn ended(ready: &str, reason: &str, slots: &[Value]) -> Value {
    let at = "2026-01-01T00:01:00Z";
    json!({"finishedAt": at, "slots": slots, "conditions": [
        {"type": "Ready", "status": ready, "reason": reason, "message": "as it is", "lastTransitionTime": at},
    ]})
}

#[test]
fn what_disrupts_is_left_unless_it_is_wished() {
    let mut stage = Stage::new();
    assert_eq!(stage.due(), [("Deployment/web".to_owned(), None)]);
    let stays = stage.progress().stays(false);
    assert_eq!(stays.len(), 1);
    assert_eq!(stays[0].cause, StayCause::NeedsDisruption);
    assert!(stays[0].advice.as_ref().is_some_and(|words| words.ends_with("kubectl ganglion drain n1 --disruption")));
    stage.wishes.disruption = true;
    assert_eq!(stage.due(), [("Deployment/old".to_owned(), None), ("Deployment/web".to_owned(), None)]);
    let progress = stage.progress();
    let asked = progress
        .next_moves()
        .iter()
        .map(|new| manifest(new, 60, "s")["spec"]["disruption"].clone())
        .collect::<Vec<_>>();
    assert_eq!(asked, [json!("Allowed"), json!("Never")], "only where it is needed");
}

#[test]
fn no_more_replicas_than_wished_are_in_motion() {
    let mut stage = Stage::new();
    stage.wishes.parallel = Some(2);
    assert_eq!(stage.due(), [("Deployment/web".to_owned(), Some(2))]);
    stage.act(json!({"slots": [slot(0, "Succeeded"), slot(1, "Readying")]}));
    assert_eq!(stage.due(), [], "its action is at work");
    stage.wishes.disruption = true;
    assert_eq!(stage.due(), [("Deployment/old".to_owned(), None)], "one of two is done");
    stage.wishes.disruption = false;
    stage.actions[0].status =
        serde_json::from_value(ended("True", "Succeeded", &[slot(0, "Succeeded"), slot(1, "Succeeded")])).unwrap();
    stage.plan.moves[1].pods.truncate(1);
    assert_eq!(stage.due(), [("Deployment/web".to_owned(), None)], "another round");
    stage.act(ended("False", "BudgetBlocked", &[slot(0, "Succeeded"), slot(1, "RolledBack")]));
    assert_eq!(stage.due(), [], "a failed move is not tried again");
    assert!(stage.progress().is_over());
}

#[test]
fn replicas_in_motion_count_once_for_the_limit() {
    let mut stage = Stage::new();
    stage.wishes = DrainWishes { disruption: true, parallel: Some(3), ..DrainWishes::default() };
    let [old, web] = ["Deployment/old", "Deployment/web"].map(ToOwned::to_owned);
    assert_eq!(stage.due(), [(old.clone(), None), (web, Some(2))], "three in all");
    let mut counted = stage.progress().next_moves();
    let web = manifest(&counted.remove(1), 60, "web");
    stage.actions = vec![serde_json::from_value(web).expect("an action")];
    stage.actions[0].status = serde_json::from_value(json!({"replicas": 3, "slots": []})).unwrap();
    assert_eq!(stage.due(), [], "its action has found three");
    stage.actions[0].status = serde_json::from_value(json!({"replicas": 1, "slots": []})).unwrap();
    assert_eq!(stage.due(), [(old, None)]);
}

#[test]
fn an_action_has_no_more_replicas_than_the_kind_allows() {
    let names: Vec<String> = (0..101).map(|index| format!("p{index}")).collect();
    let pods: Vec<NodePod> = names.iter().map(|name| pod(name, owner("ReplicaSet", "web-1"), json!({}))).collect();
    assert_eq!(Stage::of(&pods).due(), [("Deployment/web".to_owned(), Some(100))]);
}

#[test]
fn an_action_that_finds_nothing_is_not_made_again() {
    let mut stage = Stage::new();
    stage.act(ended("True", "Succeeded", &[]));
    assert_eq!(stage.due(), []);
    let report = stage.progress().report(false, SignedDuration::from_secs(5));
    assert_eq!(report.outcome, DrainOutcome::Stays);
    assert!(report.stays.iter().any(|stay| stay.cause == StayCause::NotMoved && stay.what == "Deployment/web"));
}

#[test]
fn a_drain_is_over_when_nothing_is_left_to_wait_for() {
    let mut stage = Stage::new();
    assert!(!stage.progress().is_over(), "an action is due");
    stage.act(json!({}));
    assert!(!stage.progress().is_over(), "it is at work");
    stage.plan.moves.clear();
    stage.actions[0].status = serde_json::from_value(ended("True", "Succeeded", &[slot(0, "Succeeded")])).unwrap();
    assert!(stage.progress().is_over());
    let report = stage.progress().report(false, SignedDuration::from_secs(5));
    assert_eq!((report.outcome, report.moved), (DrainOutcome::Empty, 1));
    let job = pod("j", owner("Job", "import"), json!({}));
    stage.plan.evictions = DrainPlan::of(&[job], &around()).evictions;
    assert!(!stage.progress().is_over(), "a Job is waited for");
    assert_eq!(stage.progress().report(true, SignedDuration::ZERO).outcome, DrainOutcome::TimedOut);
    stage.wishes.leave_jobs = true;
    assert!(stage.progress().is_over());
    assert_eq!(stage.progress().report(false, SignedDuration::ZERO).outcome, DrainOutcome::Stays);
}

#[test]
fn a_refusal_is_told_and_not_repeated() {
    let mut stage = Stage::new();
    let key = stage.plan.moves[1].key();
    stage.refused.insert(key, "workloadactions.ganglion.dev is forbidden".into());
    assert_eq!(stage.due(), []);
    let stays = stage.progress().stays(false);
    assert!(
        stays.iter().any(|stay| stay.cause == StayCause::Refused && stay.message.contains("forbidden")),
        "{stays:?}"
    );
}

/// A pod that was deleted, with a grace period of 30 s.
fn ending(name: &str, finalizers: Value) -> NodePod {
    let more = json!({"metadata": {
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30, "finalizers": finalizers,
    }});
    pod(name, owner("ReplicaSet", "web-1"), more)
}

#[rstest]
#[case::finalizer(json!(["example.com/keep"]), "finalizers hold it: example.com/keep", "kubectl get pod p -n shop -o yaml")]
#[case::kubelet(json!([]), "the kubelet of node n1 has not ended it", "kubectl describe node n1")]
fn a_pod_that_does_not_end_is_not_waited_for(#[case] finalizers: Value, #[case] why: &str, #[case] advice: &str) {
    let mut stage = Stage::of(&[ending("p", finalizers)]);
    stage.terminations.note(&stage.plan.leaving, stage.now);
    stage.now += SignedDuration::from_secs(80);
    stage.terminations.note(&stage.plan.leaving, stage.now);
    assert!(!stage.progress().is_over() && stage.report(false).stays.is_empty(), "it has a minute more than its grace");
    let late = stage.report(true);
    assert_eq!((late.outcome, late.stays[0].cause), (DrainOutcome::TimedOut, StayCause::NotYet));
    stage.now += SignedDuration::from_secs(11);
    assert!(stage.progress().is_over());
    for report in [late, stage.report(false)] {
        let [stay] = report.stays.as_slice() else { panic!("{report:?}") };
        assert!(stay.message.ends_with(why), "{stay:?}");
        assert!(stay.advice.as_ref().is_some_and(|words| words.ends_with(advice)), "{stay:?}");
    }
    assert_eq!(
        (stage.report(false).outcome, stage.report(false).stays[0].cause),
        (DrainOutcome::Stays, StayCause::Stuck)
    );
}

#[test]
fn a_victim_that_its_action_gave_up_is_not_waited_for() {
    let mut stage = Stage::new();
    let mut stuck = slot(0, "Failed");
    stuck["reason"] = json!("VictimStuck");
    stage.act(ended("False", "VictimStuck", &[stuck]));
    stage.plan = DrainPlan::of(&[ending("web-1-0", json!([])), ending("other", json!([]))], &around());
    assert!(!stage.progress().is_over(), "the other pod may end");
    stage.plan.leaving.truncate(1);
    assert!(stage.progress().is_over());
    let report = stage.report(false);
    assert_eq!((report.stays[0].cause, report.moved, report.evicted), (StayCause::Stuck, 0, 0), "{report:?}");
    stage.plan.leaving[0].pod.key.namespace = "other".into();
    assert!(!stage.progress().is_over(), "it has the name of the victim in another namespace");
    stage.plan.leaving[0].pod.key.namespace = "shop".into();
    let mut failed = slot(0, "Failed");
    failed["reason"] = json!("NodeGone");
    stage.actions[0].status = serde_json::from_value(ended("False", "NodeGone", &[failed])).unwrap();
    assert!(!stage.progress().is_over(), "its action did not give it up");
    stage.plan.leaving.clear();
    assert_eq!(stage.report(false).evicted, 1, "its action had evicted it");
}

#[rstest]
#[case::bare(json!([]), json!({}), "--force")]
#[case::other(owner("Game", "g"), json!({}), "--disruption")]
#[case::job(owner("Job", "import"), json!({}), "--evict-jobs")]
#[case::data(json!([]), with_volume(json!({"emptyDir": {}})), "--force --disruption")]
fn what_no_action_moves_is_evicted_if_an_option_says_so(
    #[case] owners: Value,
    #[case] more: Value,
    #[case] flags: &str,
) {
    let mut stage = Stage::of(&[pod("p", owners, more)]);
    stage.wishes.leave_jobs = true;
    assert_eq!((stage.evicted(), stage.progress().is_over()), (vec![], true));
    let report = stage.report(false);
    assert_eq!((report.outcome, report.stays.len()), (DrainOutcome::Stays, 1));
    let advice = report.stays[0].advice.clone().unwrap_or_default();
    assert!(advice.ends_with(&format!(" {flags}")) && !advice.contains("delete"), "{advice}");
    stage.wishes = DrainWishes {
        disruption: flags.contains("--disruption"),
        force: flags.contains("--force"),
        evict_jobs: flags.contains("--evict-jobs"),
        ..DrainWishes::default()
    };
    assert_eq!((stage.evicted(), stage.progress().is_over()), (vec!["p"], false));
    assert_eq!(stage.progress().planned(&BTreeMap::new()).outcome, DrainOutcome::Empty);
    let words = "The disruption budget web needs 3 healthy pods and has 3 currently";
    stage.evictions.insert("uid-p".into(), LastEviction::Blocked(words.into()));
    assert_eq!((stage.evicted(), stage.progress().is_over()), (vec!["p"], false), "it is tried again");
    assert!(news(&stage.progress(), false).contains(&format!("shop/p: waits: {words}")));
    let late = stage.report(true);
    assert_eq!((late.outcome, late.stays[0].message.as_str()), (DrainOutcome::TimedOut, words));
    stage.evictions.insert("uid-p".into(), LastEviction::Refused("pods \"p\" is forbidden".into()));
    assert_eq!((stage.evicted(), stage.progress().is_over()), (vec![], true));
    assert_eq!(stage.report(false).stays[0].cause, StayCause::Refused);
    stage.evictions.insert("uid-p".into(), LastEviction::Gone);
    assert_eq!(stage.report(false).evicted, 0, "somebody else removed it");
    stage.evictions.insert("uid-p".into(), LastEviction::Accepted);
    stage.plan.evictions.clear();
    let done = stage.report(false);
    assert_eq!((done.outcome, done.moved, done.evicted), (DrainOutcome::Empty, 0, 1));
    assert!(report_text(&done, false).starts_with("0 replicas moved, 1 pod evicted in 5s.\n"));
}

#[test]
fn data_that_would_be_lost_are_named_and_each_option_is_named_once() {
    let mut stage = Stage::of(&[pod("p", owner("Game", "g"), with_volume(json!({"emptyDir": {}})))]);
    let report = stage.report(false);
    assert!(report.stays[0].message.ends_with("the data of volume v are lost with the pod"), "{report:?}");
    let advice = report.stays[0].advice.clone().unwrap_or_default();
    assert_eq!(advice.matches("--disruption").count(), 1, "{advice}");
    stage.plan = DrainPlan::of(&[pod("j", owner("Job", "import"), json!({}))], &around());
    assert!(stage.report(false).stays.is_empty(), "it is waited for");
    let planned = stage.progress().planned(&BTreeMap::new());
    assert_eq!((planned.outcome, planned.leaves[0].how), (DrainOutcome::Empty, PlannedHow::Waited));
    let late = stage.report(true);
    assert_eq!(late.stays[0].cause, StayCause::Job);
}

#[test]
fn what_the_operator_leaves_alone_is_evicted_if_it_is_wished() {
    let mut stage = Stage::of(&[pod("dns", owner("ReplicaSet", "web-1"), json!({}))]);
    stage.act(ended("False", "NamespaceRefused", &[]));
    assert!(stage.progress().is_over());
    let report = stage.report(false);
    let stay = &report.stays[0];
    assert_eq!((stay.cause, stay.reason.as_deref()), (StayCause::NotMoved, Some("NamespaceRefused")));
    assert!(stay.advice.as_ref().is_some_and(|words| words.ends_with("drain n1 --disruption")), "{stay:?}");
    stage.wishes.disruption = true;
    assert_eq!((stage.evicted(), stage.progress().is_over()), (vec!["dns"], false));
    stage.actions.clear();
    let key = stage.plan.moves[0].key();
    stage.refused.insert(key, "no operator works in namespace shop".into());
    assert_eq!(stage.evicted(), ["dns"]);
    stage.evictions.insert("uid-dns".into(), LastEviction::Refused("more than one budget".into()));
    assert!(stage.progress().is_over());
    assert_eq!(stage.report(false).stays[0].message, "more than one budget");
    stage.actions.clear();
    stage.refused.clear();
    stage.act(ended("False", "BudgetBlocked", &[slot(0, "RolledBack")]));
    assert_eq!(stage.evicted(), Vec::<&str>::new(), "what the operator tried is not evicted past it");
}

#[rstest]
#[case("NamespaceRefused", &["dns"])]
#[case("NotSupported", &["dns"])]
#[case("Forbidden", &["dns"])]
#[case("AdmissionPolicyMissing", &["dns"])]
#[case("DefinitionOutdated", &["dns"])]
#[case("RolloutStuck", &["dns"])]
#[case("NoDetachLabel", &["dns"])]
#[case("WorkloadNotFound", &["dns"])]
#[case("BudgetBlocked", &[])]
fn what_the_operator_never_does_is_left_to_evictions(#[case] reason: &str, #[case] evicted: &[&str]) {
    let mut stage = Stage::of(&[pod("dns", owner("ReplicaSet", "web-1"), json!({}))]);
    stage.wishes.disruption = true;
    stage.act(ended("False", reason, &[]));
    assert_eq!(stage.evicted(), evicted);
    let begun = ended("False", reason, &[slot(0, "RolledBack")]);
    stage.actions[0].status = serde_json::from_value(begun).unwrap();
    assert_eq!(stage.evicted(), Vec::<&str>::new(), "the operator has begun");
}

#[test]
fn a_pod_that_came_after_the_cordon_is_not_evicted_again() {
    let mut pods = [pod("w", owner("ReplicaSet", "web-1"), json!({})), pod("g", owner("Game", "g"), json!({}))];
    for one in &mut pods {
        one.late = true;
    }
    let mut stage = Stage::of(&pods);
    stage.wishes.disruption = true;
    assert_eq!((stage.due(), stage.evicted(), stage.progress().is_over()), (vec![], vec![], true));
    let causes: Vec<StayCause> = stage.report(false).stays.iter().map(|stay| stay.cause).collect();
    assert_eq!(causes, [StayCause::CameBack; 2]);
}

#[test]
fn own_evictions_count_for_the_limit() {
    let bare = ["a", "b", "c"].map(|name| pod(name, json!([]), json!({})));
    let mut stage = Stage::of(&bare);
    stage.wishes = DrainWishes { force: true, parallel: Some(2), ..DrainWishes::default() };
    assert_eq!(stage.evicted(), ["a", "b"]);
    stage.plan.leaving = DrainPlan::of(&[ending("x", json!([]))], &around()).leaving;
    assert_eq!(stage.evicted(), ["a"]);
}

#[test]
fn only_selected_pods_leave() {
    let mut pods: Vec<NodePod> = ["a", "b"].map(|name| pod(name, owner("ReplicaSet", "web-1"), json!({}))).into();
    pods.push(pod("o", owner("ReplicaSet", "old-1"), json!({})));
    pods.push(pod("bare", json!([]), json!({})));
    for one in &mut pods[1..] {
        one.selected = false;
    }
    let mut stage = Stage::of(&pods);
    stage.wishes.force = true;
    assert_eq!((stage.due(), stage.evicted()), (vec![], vec![]));
    let report = stage.report(false);
    assert_eq!((report.stays.len(), report.stays[0].cause), (1, StayCause::NotSelected), "{report:?}");
    pods[1].selected = true;
    stage.plan = DrainPlan::of(&pods, &around());
    assert_eq!(stage.due(), [("Deployment/web".to_owned(), None)]);
}

#[test]
fn the_end_of_the_time_names_what_is_not_complete_and_what_is_pending() {
    let mut stage = Stage::new();
    stage.act(json!({"slots": [slot(0, "Verifying")], "conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "Verifying", "message": "no node takes the new pod",
            "lastTransitionTime": "2026-01-01T00:01:00Z"},
    ]}));
    let done = stage.plan.moves[1].clone();
    stage.plan.moves.clear();
    let mut report = stage.report(true);
    let owner = "ReplicaSet/web-1".to_owned();
    report.pending.push(PendingPod {
        namespace: "shop".into(),
        name: "web-1-x".into(),
        owner,
        message: "0/2 nodes are available".into(),
    });
    assert_eq!((report.outcome, report.moved, report.evicted), (DrainOutcome::TimedOut, 0, 1));
    let text = report_text(&report, false);
    for words in [
        "0 replicas moved, 1 pod evicted in 5s.\n",
        "not complete: shop Deployment/web from n1: Verifying: no node takes the new pod\n",
        "  -> Its action goes on. To wait for it: kubectl ganglion drain n1\n",
        "pending: shop Pod/web-1-x of ReplicaSet/web-1: 0/2 nodes are available\n",
        "The time is over. Node n1 is empty but for DaemonSets and static pods; 1 move not complete.\n",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    stage.plan.moves.push(done);
    assert!(stage.report(true).incomplete.is_empty(), "its replicas are still there");
}

fn lease(annotations: Value, spec: Value) -> Lease {
    let metadata = json!({"name": "ganglion", "namespace": "ops", "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a lease")
}

fn held_lease(annotations: Value) -> Lease {
    let spec = json!({
        "holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:01:00.000000Z",
    });
    lease(annotations, spec)
}

#[test]
fn a_missing_operator_is_told_at_once_and_a_silent_one_is_waited_for() {
    let mut stage = Stage::new();
    let renewed = stage.now + SignedDuration::from_secs(60);
    let held = held_lease(json!({}));
    let free = lease(json!({}), json!({"holderIdentity": "", "leaseDurationSeconds": 1}));
    let words = |leases: &[Lease], unseen, after| {
        let now = renewed + SignedDuration::from_secs(after);
        unseen_words(leases, "ganglion", now - SignedDuration::from_secs(unseen), now)
    };
    let state = |leases: &[Lease], unseen, after| {
        let words = words(leases, unseen, after)?;
        Some(words.split_once('(')?.1.split_once(')')?.0.to_owned())
    };
    assert_eq!(words(&[], 0, 0), None, "the lease of the operator may have another name");
    assert_eq!(state(&[], 1, 0).as_deref(), Some("there is none"));
    assert_eq!(words(&[held.clone(), free.clone()], 14, 14), None);
    assert_eq!(state(std::slice::from_ref(&free), 0, 0).as_deref(), Some("released in namespace ops"));
    assert_eq!(state(std::slice::from_ref(&held), 0, 40).as_deref(), Some("last renewed in namespace ops 40s ago"));
    let silent = words(&[held], 21, 14).unwrap_or_default();
    assert!(silent.starts_with("operator one, ") && silent.ends_with("kubectl get pods -n ops"), "{silent}");
    let words = words(&[free], 0, 0);
    stage.act(json!({}));
    stage.actions[0].status = None;
    stage.operator = words.clone();
    assert_eq!(news(&stage.progress(), false), [words.clone().unwrap_or_default()]);
    assert!(!stage.progress().is_over(), "an operator may come");
    assert!(stage.report(true).stays.iter().any(|stay| Some(&stay.message) == words.as_ref()));
}

#[test]
fn a_lease_at_the_last_time_there_is_is_read() {
    let spec = json!({
        "holderIdentity": "one", "leaseDurationSeconds": i32::MAX, "renewTime": "9999-12-30T00:00:00.000000Z",
    });
    let now = Stage::new().now;
    assert_eq!(unseen_words(&[lease(json!({}), spec)], "ganglion", now, now), None);
}

#[test]
fn operators_name_the_namespaces_in_which_they_work() {
    let named = |namespaces: &str| held_lease(json!({"ganglion.dev/namespaces": namespaces}));
    assert_eq!(working_namespaces(&[]), None, "an operator may have a lease of another name");
    assert_eq!(working_namespaces(&[named("shop"), held_lease(json!({}))]), None, "one of them works in all");
    assert_eq!(working_namespaces(&[named("shop,web"), named("db")]), Some(["db", "shop", "web"].into()));
}

#[test]
fn the_rights_are_those_for_what_would_be_done() {
    let mut stage = Stage::new();
    stage.plan.evictions = DrainPlan::of(&[pod("bare", json!([]), json!({}))], &around()).evictions;
    let rights = |stage: &Stage| stage.progress().rights().iter().map(ToString::to_string).collect::<Vec<_>>();
    let of_moves = [
        "patch nodes (n1)",
        "create workloadactions.ganglion.dev in namespace shop",
        "create pods/eviction in namespace shop",
    ];
    assert_eq!(rights(&stage), of_moves);
    stage.plan.moves.clear();
    assert_eq!(rights(&stage), [of_moves[0]]);
    stage.wishes.force = true;
    assert_eq!(rights(&stage), [of_moves[0], of_moves[2]]);
}

#[test]
fn a_plan_lists_what_leaves_and_what_stays() {
    let mut stage = Stage::new();
    let other = pod("g", owner("Game", "g"), json!({}));
    stage.plan.evictions = DrainPlan::of(&[other], &around()).evictions;
    let report = stage.progress().planned(&BTreeMap::new());
    let leaves: Vec<(&str, PlannedHow)> = report.leaves.iter().map(|one| (one.what.as_str(), one.how)).collect();
    assert_eq!(leaves, [("Deployment/web", PlannedHow::ReplacementFirst)]);
    assert_eq!((report.outcome, report.stays.len()), (DrainOutcome::Stays, 2));
    stage.wishes.disruption = true;
    let report = stage.progress().planned(&BTreeMap::new());
    assert_eq!((report.outcome, report.leaves.len(), report.leaves[0].pods.len()), (DrainOutcome::Empty, 3, 1));
    assert_eq!(report.leaves[0].how, PlannedHow::OldPodFirst);
    let text = plan_text(&stage.progress(), &report, &BTreeMap::new());
    assert!(text.contains("Pod/g") && text.contains("is evicted"), "{text}");
    let moving = pod("m", json!([]), json!({"metadata": {"annotations": {"ganglion.dev/slot": "s"}}}));
    stage.plan = DrainPlan::of(&[moving, ending("x", json!([]))], &around());
    let leaves = stage.progress().planned(&BTreeMap::new()).leaves;
    let how: Vec<(&str, PlannedHow)> = leaves.iter().map(|one| (one.what.as_str(), one.how)).collect();
    assert_eq!(how, [("Pod/m", PlannedHow::InMotion), ("Pod/x", PlannedHow::Terminating)]);
    let late = stage.report(true).stays;
    assert!(late.len() == 2 && late.iter().all(|stay| stay.advice.is_some()), "{late:?}");
}

#[rstest]
#[case::refused(PreviewOutcome::Refused, None, true)]
#[case::left_alone(PreviewOutcome::Ends, Some("NamespaceRefused"), true)]
#[case::tried(PreviewOutcome::Ends, Some("NoCandidateNode"), false)]
fn a_plan_says_what_is_evicted_instead(
    #[case] outcome: PreviewOutcome,
    #[case] reason: Option<&str>,
    #[case] evicted: bool,
) {
    let mut stage = Stage::of(&[pod("dns", owner("ReplicaSet", "web-1"), json!({}))]);
    let preview = ActionPreview {
        namespace: "shop".into(),
        name: "a".into(),
        action: "Move",
        outcome,
        reason: reason.map(ToOwned::to_owned),
        message: None,
        advice: None,
        plan: None,
        notes: Vec::new(),
    };
    let previews = [(stage.plan.moves[0].key(), preview)].into();
    let report = stage.progress().planned(&previews);
    assert_eq!((report.outcome, report.leaves.len(), report.stays.len()), (DrainOutcome::Stays, 0, 1));
    stage.wishes.disruption = true;
    let report = stage.progress().planned(&previews);
    let how: Vec<PlannedHow> = report.leaves.iter().map(|one| one.how).collect();
    let expected =
        if evicted { (DrainOutcome::Empty, vec![PlannedHow::Evicted]) } else { (DrainOutcome::Stays, vec![]) };
    assert_eq!((report.outcome, how), expected);
    let key = stage.plan.moves[0].key();
    stage.refused.insert(key, "no operator works in namespace shop".into());
    let leaves = stage.progress().planned(&BTreeMap::new()).leaves;
    assert!(leaves.len() == 1 && leaves[0].how == PlannedHow::Evicted, "{leaves:?}");
}

#[test]
fn advice_repeats_the_options_of_the_drain() {
    let mut stage = Stage::new();
    stage.wishes = DrainWishes {
        force: true,
        pod_selector: Some("app in (a, b)".into()),
        parallel: Some(2),
        grace_seconds: Some(7),
        ..DrainWishes::default()
    };
    let words = "kubectl ganglion drain n1 --force --pod-selector='app in (a, b)' --parallel=2 --grace-period=7 \
                 --disruption";
    assert_eq!(stage.progress().command(&["--disruption"]), words);
    stage.wishes = DrainWishes { disruption: true, leave_jobs: true, ..DrainWishes::default() };
    assert_eq!(stage.progress().command(&[]), "kubectl ganglion drain n1 --disruption --leave-jobs");
    let words = "kubectl ganglion drain n1 --disruption --evict-jobs";
    assert_eq!(stage.progress().command(&["--evict-jobs"]), words, "instead of --leave-jobs");
    stage.wishes = DrainWishes { disruption: true, evict_jobs: true, ..DrainWishes::default() };
    assert_eq!(stage.progress().command(&[]), words);
}

#[test]
fn actions_get_the_grace_period_of_the_drain() {
    let mut stage = Stage::new();
    let action = |stage: &Stage| manifest(&stage.progress().next_moves()[0], 60, "s")["spec"].clone();
    assert_eq!(action(&stage).get("gracePeriodSeconds"), None);
    stage.wishes.grace_seconds = Some(0);
    assert_eq!(action(&stage)["gracePeriodSeconds"], 0);
}

#[test]
fn names_and_labels_are_valid_and_each_run_has_its_own() {
    let stage = Stage::new();
    let new = stage.progress().next_moves();
    let name = |seed: &str| manifest(&new[0], 60, seed)["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name("1").starts_with("drain-n1-web-"), "{}", name("1"));
    assert_ne!(name("1"), name("2"));
    assert_eq!(name("1"), name("1"));
    let long = format!("{}.example", "n".repeat(200)).into();
    assert_eq!(label(&"n1".into()), "n1");
    assert!(label(&long).len() <= 63);
    let action: WorkloadAction = serde_json::from_value(manifest(&new[0], 60, "1")).unwrap();
    assert_eq!(super::action::key_of(&action), Some(new[0].of.key()));
}

#[test]
fn the_tree_shows_what_each_replica_waits_for_and_fits() {
    let mut stage = Stage::new();
    stage.act(json!({"slots": [slot(0, "Succeeded"), slot(1, "Readying")]}));
    let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let now = since + SignedDuration::from_secs(9);
    let lines = tree(&stage.progress(), since, now, (20, 200));
    let expected = [
        "n1: 1 replica moved, 1 in motion (9s)",
        "└─ shop",
        "   ├─ Deployment/old: stays: the Deployment has strategy: Recreate",
        "   └─ Deployment/web",
        "      ├─ web-1-0 → n2: done",
        "      └─ web-1-1 → n2: waiting until the new pod is Ready (9s)",
    ];
    assert_eq!(lines, expected);
    // An action works on the last pods, so they are not part of the plan.
    let plan = std::mem::take(&mut stage.plan);
    let lines = tree(&stage.progress(), since, now, (20, 200));
    assert_eq!(lines[2], "   └─ Deployment/web", "it is not done");
    stage.plan = plan;
    let small = tree(&stage.progress(), since, now, (4, 20));
    assert_eq!((small.len(), small[3].as_str()), (4, "… and 3 lines more"));
    assert!(small.iter().all(|line| line.chars().count() <= 20), "{small:?}");
    assert_eq!(news(&stage.progress(), false), ["shop/web-1-0 → n2: done"]);
    assert_eq!(news(&stage.progress(), true).len(), 2);
}

#[test]
fn the_progress_is_one_line_with_the_first_cause_of_a_wait() {
    let mut stage = Stage::new();
    assert_eq!(summary(&stage.progress()), "Node n1: 0 replicas moved, 0 in motion, 3 pods to go");
    stage.act(json!({}));
    let expected = "Node n1: 0 replicas moved, 0 in motion, 3 pods to go; the operator has not seen its action yet";
    assert_eq!(summary(&stage.progress()), expected);
    stage.operator = Some("no operator runs".to_owned());
    assert!(summary(&stage.progress()).ends_with("; no operator runs"), "{}", summary(&stage.progress()));
    stage.operator = None;
    stage.actions.clear();
    stage.act(json!({"slots": [slot(0, "Succeeded"), slot(1, "Readying")]}));
    // An action works on the last pods, so they are not part of the plan.
    stage.plan = DrainPlan::default();
    let expected = "Node n1: 1 replica moved, 1 in motion; waiting until the new pod is Ready";
    assert_eq!(summary(&stage.progress()), expected);
}

#[test]
fn an_interruption_names_what_continues_and_what_does_not() {
    let mut stage = Stage::new();
    let idle = interruption_text(&stage.progress());
    let expected = "Interrupted. No action is in progress. Node n1 is cordoned. 3 pods to move when this command runs \
                    again.\nTo continue, and to follow the actions: kubectl ganglion drain n1 -w\nTo abort the actions, and \
                    uncordon: kubectl ganglion drain n1 --uncordon";
    assert_eq!(idle, expected);
    stage.act(json!({"slots": [slot(0, "Readying")]}));
    let name = stage.actions[0].metadata.name.clone().unwrap();
    let text = interruption_text(&stage.progress());
    assert!(
        text.starts_with(&format!("Interrupted. 1 action continues in the cluster: shop/{name}.\nTo continue")),
        "{text}"
    );
    stage.actions = vec![stage.actions[0].clone(); 12];
    let text = interruption_text(&stage.progress());
    assert!(
        text.starts_with("Interrupted. 12 actions continue in the cluster: ") && text.contains(" and 2 more."),
        "{text}"
    );
    stage.actions.clear();
    stage.act(ended("True", "Succeeded", &[slot(0, "Succeeded")]));
    assert!(interruption_text(&stage.progress()).starts_with("Interrupted. No action is in progress."));
}

#[test]
fn the_end_names_what_stays_and_what_to_do() {
    let mut stage = Stage::new();
    stage.act(ended("False", "BudgetBlocked", &[slot(0, "RolledBack")]));
    stage.plan.stays = DrainPlan::of(&[pod("proxy-x", owner("DaemonSet", "proxy"), json!({}))], &around()).stays;
    let text = report_text(&stage.progress().report(false, SignedDuration::from_secs(62)), false);
    for words in [
        "0 replicas moved in 1m2s.\n",
        "stays: shop Deployment/web on n1 (3 pods): BudgetBlocked: as it is\n",
        "  -> Wait until the PodDisruptionBudget allows a disruption, or change the budget.\n",
        "stays as expected: shop Pod/proxy-x\n",
        "Node n1 is cordoned and not empty: 4 pods left.\n",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    let plan = plan_text(&stage.progress(), &stage.progress().planned(&BTreeMap::new()), &BTreeMap::new());
    assert!(plan.contains("Node n1 would be cordoned. Nothing was changed.\n"), "{plan}");
}
