//! Drains on hand-made pods and actions.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use serde_json::{Value, json};

use super::action::{label, manifest};
use super::*;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{ClaimFact, Identity, Key, NodeName};

fn owner(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}])
}

fn pod(name: &str, owners: Value, more: Value) -> NodePod {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": owners},
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
        (id.key.clone(), ClaimFact { id, access_modes: vec![mode.into()], volume: Some(volume.into()) })
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
        local: ["pv-3".to_owned()].into(),
        ..PodSurroundings::default()
    }
}

#[rstest]
#[case::daemon(owner("DaemonSet", "proxy"), json!({}), Some(StayCause::DaemonSet))]
#[case::bare(json!([]), json!({}), Some(StayCause::BarePod))]
#[case::mirror(owner("Node", "n1"), json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), Some(StayCause::StaticPod))]
#[case::other(owner("Game", "g"), json!({}), Some(StayCause::UnknownOwner))]
#[case::local(owner("ReplicaSet", "web-1"), with_volume(json!({"persistentVolumeClaim": {"claimName": "here"}})), Some(StayCause::LocalVolume))]
#[case::finished(json!([]), json!({"status": {"phase": "Succeeded"}}), None)]
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

#[rstest]
#[case::plain("web-1", json!({}), "", false)]
#[case::recreate("old-1", json!({}), "the Deployment has strategy: Recreate", true)]
#[case::claim("web-1", with_volume(json!({"persistentVolumeClaim": {"claimName": "data"}})), "claim data is ReadWriteOnce", true)]
#[case::shared("web-1", with_volume(json!({"persistentVolumeClaim": {"claimName": "wide"}})), "", false)]
#[case::scratch("web-1", with_volume(json!({"emptyDir": {}})), "the data of volume v are lost with the pod", false)]
#[case::host("web-1", with_volume(json!({"hostPath": {"path": "/srv"}})), "the data in /srv stay on the node", false)]
fn what_cannot_be_first_is_named(#[case] set: &str, #[case] more: Value, #[case] why: &str, #[case] disrupts: bool) {
    let plan = DrainPlan::of(&[pod("p", owner("ReplicaSet", set), more)], &around());
    assert_eq!((plan.moves[0].why().as_str(), plan.moves[0].disrupts()), (why, disrupts));
}

#[test]
fn a_stateful_set_keeps_its_names_and_pods_on_their_way_leave() {
    let moving = json!({"metadata": {"annotations": {"ganglion.dev/slot": "s"}}});
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let pods =
        [pod("db-0", owner("StatefulSet", "db"), json!({})), pod("a", json!([]), moving), pod("b", json!([]), ending)];
    let plan = DrainPlan::of(&pods, &around());
    assert_eq!(plan.moves[0].why(), "the next pod of a StatefulSet has the same name");
    assert_eq!((plan.leaving.len(), plan.stays.len()), (2, 0), "{plan:?}");
}

/// A drain of node n1 with these pods and actions.
struct Stage {
    nodes: Vec<NodeName>,
    wishes: DrainWishes,
    plan: DrainPlan,
    actions: Vec<WorkloadAction>,
    refused: BTreeMap<MoveKey, String>,
}

impl Stage {
    /// Three pods of Deployment web and one of Deployment old.
    fn new() -> Self {
        let mut pods: Vec<NodePod> =
            ["a", "b", "c"].map(|name| pod(name, owner("ReplicaSet", "web-1"), json!({}))).into();
        pods.push(pod("o", owner("ReplicaSet", "old-1"), json!({})));
        let plan = DrainPlan::of(&pods, &around());
        let (wishes, actions, refused) = (DrainWishes::default(), Vec::new(), BTreeMap::new());
        Self { nodes: vec!["n1".into()], wishes, plan, actions, refused }
    }

    fn progress(&self) -> DrainProgress<'_> {
        let Self { nodes, wishes, plan, actions, refused } = self;
        DrainProgress { nodes, wishes, plan, actions, refused }
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
    let stays = stage.progress().stays();
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
    stage.plan.jobs = DrainPlan::of(&[job], &around()).jobs;
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
    let stays = stage.progress().stays();
    assert!(
        stays.iter().any(|stay| stay.cause == StayCause::Refused && stay.message.contains("forbidden")),
        "{stays:?}"
    );
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
    let plan = plan_text(&stage.progress(), &BTreeMap::new());
    assert!(plan.contains("Node n1 would be cordoned. Nothing was changed.\n"), "{plan}");
}
