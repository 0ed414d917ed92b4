//! Moves of replicas that must not run side by side.

use super::*;
use ganglion_core::facts::{ClaimFact, NodeName};

fn off(node: &str) -> serde_json::Value {
    json!({"disruption": "Allowed", "move": {
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "from": {"nodeName": node}, "count": "All",
    }})
}

impl Stage {
    /// The stage with a Deployment that has `strategy: Recreate`, and node a cordoned.
    fn recreating() -> Self {
        let mut stage = Self::new();
        stage.change_deployment(|deployment| deployment.recreates = true);
        stage.put_node("a", |node| node.cordoned = true);
        stage
    }

    fn change_deployment(&mut self, change: impl FnOnce(&mut DeploymentFact)) {
        let mut deployment =
            self.world.get::<DeploymentFact>(&Key::new(NAMESPACE, "web")).expect("it is there").clone();
        deployment.id.version = self.id("web").version;
        change(&mut deployment);
        self.world.apply(deployment, Origin::Watch);
    }

    /// Makes its pods share a claim with these access modes.
    fn share_claim(&mut self, modes: &[&str]) {
        let mut set = self.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).expect("it is there").clone();
        set.id.version = self.id("web-h1").version;
        let template = set.template.take().expect("a template");
        set.template = Some(Arc::new(TemplateFact { claims: vec!["data".into()], ..template.as_ref().clone() }));
        self.world.apply(set, Origin::Watch);
        let access_modes = modes.iter().map(ToString::to_string).collect();
        self.put(|id| ClaimFact { id, access_modes, volume: None, ..ClaimFact::default() }, "data");
    }

    fn gone(&mut self, pod: &str) {
        let gone = self.id(pod);
        self.world.remove::<PodFact>(&gone);
    }

    fn slot_at(&self, name: &str, at: usize) -> Slot {
        self.action(name).status.expect("a status").slots[at].clone()
    }
}

#[rstest]
#[case::once(&["ReadWriteOnce"], Some("claim data is ReadWriteOnce"))]
#[case::one_pod(&["ReadWriteOncePod"], Some("claim data is ReadWriteOncePod"))]
#[case::shared(&["ReadWriteMany"], None)]
#[case::read(&["ReadOnlyMany", "ReadWriteOnce"], None)]
#[case::unknown(&[], None)]
fn a_volume_of_one_node_is_in_the_way(#[case] modes: &[&str], #[case] words: Option<&str>) {
    let mut stage = Stage::new();
    stage.share_claim(modes);
    stage.act("go", move_web(json!({"nodeName": "d"})));
    let next = stage.settle("go");
    let Some(words) = words else {
        assert!(matches!(next, NextStep::Do(Effect::CreatePod(_))), "{next:?}");
        return;
    };
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "ReplacementCannotBeFirst"), "{message}");
    assert!(message.contains(words) && message.contains("disruption: Allowed and without `to`"), "{message}");
    assert!(stage.action("go").metadata.finalizers.is_none(), "nothing was begun");
}

#[rstest]
#[case::target(json!({"nodeName": "d"}), true, "ReplacementCannotBeFirst", "apply a new action without `to`")]
#[case::open(serde_json::Value::Null, false, "NodeNotCordoned", "kubectl cordon a")]
fn the_next_pod_goes_where_the_scheduler_wants(
    #[case] to: serde_json::Value,
    #[case] cordoned: bool,
    #[case] reason: &str,
    #[case] words: &str,
) {
    let mut stage = Stage::recreating();
    stage.put_node("a", |node| node.cordoned = cordoned);
    let mut spec = off("a");
    if !to.is_null() {
        spec["move"]["to"] = to;
    }
    stage.act("go", spec);
    stage.settle("go");
    let (_, said, message) = stage.ready("go");
    assert_eq!(said, reason, "{message}");
    assert!(message.contains(words), "{message}");
    assert!(stage.action("go").metadata.finalizers.is_none(), "nothing was begun");
}

/// The replicas leave two nodes, and a replica of one could come to the other.
#[test]
fn all_nodes_that_the_replicas_leave_are_cordoned_before_the_old_pod_goes() {
    let mut stage = Stage::recreating();
    let mut spec = off("a");
    spec["move"]["from"] = json!({"where": "node.name in ['a', 'd']"});
    stage.act("go", spec.clone());
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert_eq!(reason, "NodeNotCordoned", "{message}");
    assert!(message.contains("kubectl cordon d"), "{message}");
    stage.put_node("d", |node| node.cordoned = true);
    stage.act("again", spec);
    assert!(stage.settle_until_admitted("again").is_some());
}

#[rstest]
#[case::the_cordon(json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]), false)]
#[case::something_else(json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]), true)]
fn a_pod_that_tolerates_the_cordon_does_not_go_first(#[case] tolerations: serde_json::Value, #[case] goes: bool) {
    let mut stage = Stage::recreating();
    stage.put_template(json!({"containers": [], "tolerations": tolerations}));
    stage.act("go", off("a"));
    let next = stage.settle("go");
    assert_eq!(matches!(next, NextStep::Do(Effect::Evict { .. })), goes, "{next:?}");
    if !goes {
        let (_, reason, message) = stage.ready("go");
        assert_eq!(reason, "ReplacementCannotBeFirst", "{message}");
        assert!(message.contains("tolerate the cordon"), "{message}");
    }
}

#[test]
fn a_node_that_is_uncordoned_in_between_is_not_left() {
    let mut stage = Stage::recreating();
    stage.act("go", off("a"));
    let status = stage.settle_until_admitted("go");
    let mut action = stage.action("go");
    action.status = status;
    stage.put_action(action);
    stage.put_node("a", |_| {});
    let next = stage.settle("go");
    assert!(!matches!(next, NextStep::Do(Effect::Evict { .. })), "{next:?}");
    assert_eq!(stage.ready("go").1, "NodeNotCordoned");
}

#[test]
fn the_old_pod_goes_and_the_set_makes_the_new_one() {
    let mut stage = Stage::recreating();
    stage.act("go", off("a"));
    let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") else { panic!("the old pod is evicted as it is") };
    assert_eq!(pod.key.name, "web-a");
    let slot = stage.slot_at("go", 0);
    assert!(slot.evicting && slot.break_first && slot.replacement.is_none(), "recorded before it is sent: {slot:?}");
    stage.change_pod("web-a", |pod| pod.terminating = true);
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }), "waits until it is gone");
    stage.gone("web-a");
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }), "waits for the set");
    assert_eq!(stage.slot_at("go", 0).step, Step::Verifying);
    let now = stage.now;
    stage.put_pod("web-new", "d", |pod| (pod.created, pod.ready_since) = (now, None));
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }), "waits until it is Ready");
    assert_eq!(stage.slot_at("go", 0).reason, Some(Reason::ReplacementNotReady));
    stage.change_pod("web-new", |pod| pod.ready_since = Some(now));
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Succeeded");
    let came = stage.slot_at("go", 0).replacement.expect("the new pod is named");
    assert_eq!((came.name.as_str(), came.node.as_str()), ("web-new", "d"));
}

#[test]
fn they_go_by_turns_unless_they_share_a_volume() {
    let evicting = |stage: &Stage| {
        let slots = stage.action("go").status.expect("a status").slots;
        slots.iter().filter(|slot| slot.evicting).count()
    };
    for (shared, expected) in [(false, 1), (true, 2)] {
        let mut stage = Stage::recreating();
        stage.put_pod("web-b", "a", |_| {});
        if shared {
            stage.share_claim(&["ReadWriteOnce"]);
        }
        stage.act("go", off("a"));
        let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") else { panic!("one is evicted") };
        assert_eq!(evicting(&stage), expected, "shared: {shared}");
        // The next one waits for the successor of the first pod.
        stage.gone(&pod.key.name);
        let next = stage.settle("go");
        assert_eq!(matches!(next, NextStep::Do(Effect::Evict { .. })), shared, "{next:?}");
        let now = stage.now;
        stage.put_pod("web-new", "d", |pod| (pod.created, pod.ready_since) = (now, Some(now)));
        let next = stage.settle("go");
        assert!(matches!(next, NextStep::Do(Effect::Evict { .. })), "shared: {shared}: {next:?}");
    }
}

#[test]
fn what_is_evicted_is_not_evicted_again_and_what_is_not_stays() {
    let mut stage = Stage::recreating();
    stage.put(budget(0, 3), "budget");
    stage.act("go", off("a"));
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }), "the budget allows none");
    assert!(!stage.slot_at("go", 0).evicting);
    stage.now += SignedDuration::from_secs(601);
    assert!(!matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })));
    let (_, reason, message) = stage.ready("go");
    assert_eq!(reason, "BudgetBlocked", "{message}");

    // The response to the eviction was lost, and the action was aborted.
    let mut stage = Stage::recreating();
    stage.act("go", off("a"));
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })));
    let mut action = stage.action("go");
    action.spec.abort = true;
    action.status.as_mut().expect("a status").slots[0].step = Step::RollingBack;
    stage.put_action(action);
    stage.gone("web-a");
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    assert_eq!(stage.slot_at("go", 0).step, Step::Verifying, "it is carried through");
}

#[test]
fn a_pod_that_comes_back_or_does_not_come_is_told() {
    for (node, reason) in [(Some("a"), "NodeNotCordoned"), (None, "Unschedulable")] {
        let mut stage = Stage::recreating();
        stage.act("go", off("a"));
        assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })));
        stage.gone("web-a");
        let now = stage.now;
        stage.put_pod("web-new", "a", |pod| {
            (pod.created, pod.ready_since, pod.node) = (now, None, node.map(NodeName::from));
        });
        stage.settle("go");
        stage.now += SignedDuration::from_secs(421);
        stage.settle("go");
        let (_, said, message) = stage.ready("go");
        assert_eq!(said, reason, "{message}");
        assert_eq!(stage.slot_at("go", 0).step, Step::Failed);
    }
}

#[test]
fn others_on_the_set_do_not_wait_for_a_substitute_of_it() {
    let mut stage = Stage::recreating();
    stage.act("go", off("a"));
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })));
    stage.put_node("b", |node| node.cordoned = true);
    stage.act("other", off("b"));
    assert!(stage.settle_until_admitted("other").is_some());
}

#[test]
fn swaps_of_them_are_refused() {
    let mut stage = Stage::recreating();
    let side = |node: &str| json!({"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "from": {"nodeName": node}});
    stage.act("go", json!({"disruption": "Allowed", "swap": {"replica": side("a"), "with": [side("b")]}}));
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert_eq!(reason, "ReplacementCannotBeFirst", "{message}");
}
