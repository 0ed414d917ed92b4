//! Actions that cannot be carried out, and actions that are not carried out twice.

use super::*;
use ganglion_api::closed_loop::TargetRef;
use ganglion_core::expression::ExpressionError;
use ganglion_core::facts::{AutoscalerFact, AutoscalerKind, Controls, HpaFact, OutsidePodFact, SlimPod, Uid};

#[rstest]
#[case::no_workload(json!({"move": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "wep"}, "to": {"nodeName": "d"}}}), Reason::WorkloadNotFound, "no Deployment wep")]
#[case::stateful(json!({"delete": {"workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}}}), Reason::WorkloadNotFound, "no StatefulSet db")]
#[case::no_pod(json!({"delete": {"pod": {"name": "web-z"}}}), Reason::PodNotFound, "web-z")]
#[case::bare_pod(json!({"delete": {"pod": {"name": "bare"}}}), Reason::NotSupported, "belongs to no workload")]
#[case::job(json!({"delete": {"pod": {"name": "job"}}}), Reason::NotSupported, "Job")]
#[case::static_pod(json!({"delete": {"pod": {"name": "static"}}}), Reason::NotSupported, "static")]
#[case::no_node(move_web(json!({"nodeName": "z"})), Reason::NodeNotFound, "no node z")]
#[case::cordoned(move_web(json!({"nodeName": "cordoned"})), Reason::NodeCordoned, "uncordon")]
#[case::full(move_web(json!({"nodeName": "full"})), Reason::NodeFull, "full: pods: 0 of 0")]
#[case::down(move_web(json!({"nodeName": "down"})), Reason::NodeNotReady, "not Ready")]
#[case::there(json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "a"}}}), Reason::AlreadyOnTarget, "already")]
#[case::too_many(json!({"delete": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "count": 4}}), Reason::NotEnoughReplicas, "4 replicas of Deployment web asked for, 3 of 3 can be deleted: there are no others; apply a new action with count: 3")]
#[case::expression(move_web(json!({"where": "node.pods <"})), Reason::ExpressionInvalid, "where")]
#[case::unknown_name(move_web(json!({"where": "node.podz < 3"})), Reason::ExpressionInvalid, "node.podz")]
#[case::nowhere(move_web(json!({"where": "node.pods > 90"})), Reason::NoCandidateNode, "none of")]
#[case::delete_of_a_set(json!({"delete": {"workload": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-h1"}}}), Reason::NotSupported, "ReplicaSet web-h1 belongs to Deployment web, which has its replicas; name Deployment web")]
#[case::create_of_a_set(json!({"create": {"workload": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-h1"}, "to": {"nodeName": "d"}}}), Reason::NotSupported, "name Deployment web")]
#[case::policy(move_web(json!({"policy": "green"})), Reason::PolicyNotFound, "there is no PlacementPolicy green")]
fn what_cannot_be_done_is_refused_with_advice(
    #[case] spec: serde_json::Value,
    #[case] reason: Reason,
    #[case] words: &str,
) {
    let mut stage = Stage::new();
    stage.put_node("cordoned", |node| node.cordoned = true);
    stage.put_node("full", |node| node.pod_capacity = 0);
    stage.put_node("down", |node| node.ready = false);
    stage.put_pod("bare", "a", |pod| pod.controller = None);
    stage.put_pod("job", "a", |pod| {
        pod.controller = Some(Owner { kind: "Job".into(), name: "job".into(), uid: "uid-job".into() });
    });
    stage.put_pod("static", "a", |pod| (pod.controller, pod.mirror) = (None, true));
    stage.act("bad", spec);
    stage.settle("bad");
    let (ready, said, message) = stage.ready("bad");
    assert_eq!((ready.as_str(), said.as_str()), ("False", reason.as_str()), "{message}");
    assert!(message.contains(words), "{message}");
    let action = stage.action("bad");
    assert!(action.metadata.finalizers.is_none(), "nothing was begun");
    assert!(action.status.is_some_and(|status| status.conditions.iter().any(|one| one.type_ == "Stalled")));
}

#[test]
fn pods_and_workloads_whose_labels_are_not_kept_are_left_alone() {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let mut stage = Stage::new();
    stage.change_pod("web-a", Fact::reduce);
    stage.act("pod", json!({"delete": {"pod": {"name": "web-a"}}}));
    stage.act("all", json!({"delete": {"workload": web, "count": 3}}));
    let mut set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).unwrap().clone();
    stage.settle("all");
    stage.settle("pod");
    set.id.version = stage.id("web-h1").version;
    Fact::reduce(&mut set);
    stage.world.apply(set, Origin::Watch);
    stage.act("set", move_web(json!({"nodeName": "d"})));
    stage.settle("set");
    let expected = [
        ("pod", "NotSupported", "objects.maxBytesPerNamespace"),
        ("all", "NotEnoughReplicas", "2 of 3 can be deleted"),
        ("set", "NotSupported", "Deployment web"),
    ];
    for (action, reason, words) in expected {
        let (ready, found, message) = stage.ready(action);
        assert_eq!((ready.as_str(), found.as_str()), ("False", reason), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn pods_of_namespaces_that_are_not_watched_are_load_too() {
    let mut stage = Stage::new();
    stage.put_node("e", |_| {});
    stage.put(|id| OutsidePodFact { id, node: Some("d".into()), ..OutsidePodFact::default() }, "outside");
    stage.act("go", move_web(json!({"where": "node.pods < 1"})));
    stage.settle("go");
    let plan = stage.action("go").status.clone().unwrap_or_default().plan.unwrap_or_default();
    let replicas = |name| plan.nodes.iter().find(|node| node.name == name).map(|node| (node.replicas, node.refused));
    let expected = (Some((0, Some(Reason::NodeExcluded))), Some((1, None)));
    assert_eq!((replicas("d"), replicas("e")), expected, "{:?}", plan.nodes);
}

#[rstest]
#[case(move_web(json!({"nodeName": "d"})), true)]
#[case(json!({"delete": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "from": {"where": "node.pods > 0"}}}), true)]
#[case(json!({"delete": {"pod": {"name": "web-a"}}}), false)]
fn what_needs_the_load_of_nodes_waits_while_it_is_unknown(#[case] spec: serde_json::Value, #[case] waits: bool) {
    let mut stage = Stage::new();
    stage.world.unavailable::<OutsidePodFact>();
    stage.act("go", spec);
    stage.settle("go");
    let conditions = stage.action("go").status.clone().unwrap_or_default().conditions;
    let cause = conditions.iter().find(|one| one.type_ == "Reconciling").map(|one| one.reason.as_str());
    assert_eq!(cause == Some("LoadUnknown"), waits, "{conditions:?}");
    let listed = stage.world.begin_list::<OutsidePodFact>(None);
    let _ = stage.world.end_list(&listed);
    assert!(stage.world.knows_load());
}

/// The watch delivered the action long after its creation by the API server's clock. An object that it names may arrive
/// a moment later.
#[test]
fn an_action_that_was_noticed_late_waits_for_what_it_names() {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "new"})));
    let uid = Uid::of(&stage.action("go").metadata);
    stage.now += SignedDuration::from_secs(60);
    stage.world.notice(&uid, stage.now);
    stage.world.notice(&uid, stage.now + SignedDuration::from_secs(60));
    let NextStep::Wait { until: Some(until), report: None } = stage.next("go") else { panic!("it does not wait") };
    assert_eq!(until, stage.now + GRACE);
    stage.now = until;
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "NodeNotFound");
    let id = Identity::from(&stage.action("go").metadata);
    let _ = stage.world.remove::<WorkloadAction>(&id);
    assert_eq!(stage.world.noticed(&uid), None);
}

#[test]
fn an_expression_that_finds_no_thread_waits() {
    let mut stage = Stage::new();
    stage.act("short", move_web(json!({"where": "node.pods < 3"})));
    let action = stage.action("short").clone();
    let status = action.status.clone().unwrap_or_default();
    let ctx = PlanContext {
        world: &stage.world,
        now: stage.now,
        clock: stage.now,
        limits: &stage.limits,
        action: &action,
        status: &status,
        work: Work::of(&action.spec).unwrap(),
        ranker: &NoRanker,
    };
    let error = ExpressionError::NoThread { kind: std::io::ErrorKind::WouldBlock };
    let NextStep::Wait { until: Some(until), report: Some(shown) } =
        refuse(&ctx, StartRefusal::expression(&error), Plan::default())
    else {
        panic!("it does not wait");
    };
    assert!(until <= stage.now + QUEUE_PACE);
    let ready = shown.conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("Unknown", "Queued"));
    assert!(ready.message.contains("no thread"), "{}", ready.message);
}

fn hpa(id: Identity) -> HpaFact {
    let target = TargetRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into() };
    let kind = AutoscalerKind::HorizontalPodAutoscaler;
    HpaFact(AutoscalerFact { id, kind, target, controls: Controls::Replicas })
}

#[rstest]
#[case::autoscaler(|stage: &mut Stage| stage.put(hpa, "hpa"))]
fn replicas_that_somebody_owns_are_left_alone(#[case] own: fn(&mut Stage)) {
    let create = json!({"create": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "to": {"nodeName": "d"}}});
    let mut stage = Stage::new();
    own(&mut stage);
    stage.act("more", create.clone());
    stage.settle("more");
    assert_eq!(stage.ready("more").1, "ReplicasOwnedElsewhere");
    let mut forced = create;
    forced["onReplicaOwner"] = json!("Force");
    stage.act("forced", forced);
    assert!(matches!(stage.settle("forced"), NextStep::Do(Effect::CreatePod(_))));
}

#[rstest]
#[case::of_a_loop(Some("Execution"), RunPolicy::Once, true)]
#[case::of_an_object(None, RunPolicy::OncePerObject, true)]
#[case::of_a_tool(Some("ConfigMap"), RunPolicy::Once, false)]
#[case::of_a_name(None, RunPolicy::Once, false)]
fn a_receipt_that_concerns_one_object_only_is_deleted_with_it(
    #[case] owner: Option<&str>,
    #[case] run_policy: RunPolicy,
    #[case] is_owned: bool,
) {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "d"})));
    let mut action = stage.action("go");
    let owners = owner.map(|kind| json!([{"apiVersion": "v1", "kind": kind, "name": "web", "uid": "u"}]));
    action.metadata.owner_references = owners.map(|owners| serde_json::from_value(owners).unwrap());
    action.metadata.finalizers = Some(vec![marks::FINALIZER.into()]);
    action.spec.run_policy = run_policy;
    stage.put_action(action.clone());
    let Effect::Admit { status, receipt: Some(receipt), .. } = stage.effect("go") else { panic!("no receipt") };
    assert_eq!(receipt.is_owned, is_owned);
    // While the action is undone, the garbage collector may already have deleted its receipt.
    action.status = Some(*status);
    action.metadata.deletion_timestamp = Some(Time(stage.now));
    stage.put_action(action);
    assert!(!matches!(stage.next("go"), NextStep::Do(Effect::WriteReceipt(_))));
}

/// Where the kind of receipts is gone, an action that is deleted does not wait for one.
#[rstest]
#[case::is_deleted(true, false)]
#[case::goes_on(false, true)]
fn an_action_is_deleted_without_a_receipt_where_receipts_are_not_served(
    #[case] is_deleted: bool,
    #[case] is_written: bool,
) {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "d"})));
    let mut action = stage.action("go");
    action.metadata.finalizers = Some(vec![marks::FINALIZER.into()]);
    stage.put_action(action.clone());
    let Effect::Admit { status, .. } = stage.effect("go") else { panic!("it does not begin") };
    stage.world.unavailable::<ReceiptFact>();
    action.status = Some(*status);
    action.metadata.deletion_timestamp = is_deleted.then_some(Time(stage.now));
    stage.put_action(action);
    assert_eq!(matches!(stage.next("go"), NextStep::Do(Effect::WriteReceipt(_))), is_written);
}

#[test]
fn the_receipt_goes_beside_the_admission_and_is_taken_back_should_the_action_not_begin() {
    let changes: [fn(&mut WorkloadAction); 2] = [
        |action| action.spec.abort = true,
        |action| action.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
    ];
    for change in changes {
        let mut stage = Stage::new();
        stage.act("go", move_web(json!({"nodeName": "d"})));
        let mut action = stage.action("go");
        action.metadata.finalizers = Some(vec![marks::FINALIZER.into()]);
        stage.put_action(action.clone());
        let Effect::Admit { receipt: Some(receipt), .. } = stage.effect("go") else { panic!("no receipt") };
        let fact = |id| ReceiptFact { id, action_uid: receipt.spec.action_uid, executed_at: NOW, outcome: None };
        stage.put(fact, &receipt.key.name);
        // The admission itself failed.
        assert!(matches!(stage.effect("go"), Effect::Admit { receipt: None, .. }));
        change(&mut action);
        stage.put_action(action);
        let next = stage.settle("go");
        let NextStep::Do(Effect::DeleteReceipt { receipt }) = next else { panic!("{next:?}") };
        let ended = stage.action("go").status.is_some_and(|status| status.finished_at.is_some());
        assert!(ended || stage.action("go").metadata.deletion_timestamp.is_some(), "it can begin no more");
        stage.world.remove::<ReceiptFact>(&receipt);
        assert!(matches!(stage.settle("go"), NextStep::Wait { until: None, report: None }));
        assert!(stage.action("go").metadata.finalizers.unwrap_or_default().is_empty());
    }
}

#[test]
fn an_action_that_ran_before_does_nothing() {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "d"})));
    let receipt = identity::receipt_name(&stage.action("go"));
    stage.put(|id| ReceiptFact { id, action_uid: "another".into(), executed_at: NOW, outcome: None }, &receipt);
    assert_eq!(stage.settle("go"), NextStep::Wait { until: None, report: None });
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("True", "AlreadyExecuted"));
    assert!(message.contains(&receipt), "{message}");
    assert!(message.starts_with("nothing was done now: it ran on 1 Jan 1970 00:00 UTC"), "{message}");
}

#[test]
fn the_identity_is_that_of_the_decision() {
    let spec = |text: serde_json::Value| serde_json::from_value::<WorkloadActionSpec>(text).expect("a spec");
    let hash = |spec: &WorkloadActionSpec, uid: &str, manager: Option<&str>| {
        let mut action = WorkloadAction::new("go", spec.clone());
        action.metadata.uid = Some(uid.into());
        let managers = manager.map(|manager| json!([{"manager": manager}]));
        action.metadata.managed_fields = managers.map(|managers| serde_json::from_value(managers).expect("managers"));
        identity::spec_hash(&action)
    };
    let one = spec(move_web(json!({"nodeName": "d"})));
    let mut same = one.clone();
    (same.suspend, same.abort, same.ttl_seconds_after_finished) = (true, true, Some(5));
    assert_eq!(hash(&one, "x", None), hash(&same, "y", None));
    let mut other = one.clone();
    other.disruption = Disruption::Allowed;
    assert_ne!(hash(&one, "x", None), hash(&other, "x", None));
    let mut each = one.clone();
    each.run_policy = RunPolicy::OncePerObject;
    assert_ne!(hash(&each, "x", None), hash(&each, "y", None));
    // By default, each object of a person runs, but only one of those that a tool created.
    assert_ne!(hash(&one, "x", Some("kubectl-create")), hash(&one, "y", Some("kubectl-create")));
    assert_eq!(hash(&one, "x", Some("argocd-controller")), hash(&one, "y", Some("argocd-controller")));
    let mut once = one;
    once.run_policy = RunPolicy::Once;
    assert_eq!(hash(&once, "x", Some("kubectl-create")), hash(&once, "y", Some("kubectl-create")));
}

#[test]
fn an_action_in_a_namespace_of_kubernetes_is_refused_unless_the_settings_allow_it() {
    for (allow_kube, expected) in [(false, Some("NamespaceRefused")), (true, Some("WorkloadNotFound"))] {
        let mut stage = Stage::new();
        stage.limits.namespaces.allow_kube = allow_kube;
        stage.act("bad", move_web(json!({"nodeName": "d"})));
        let mut action = stage.action("bad");
        action.metadata.namespace = Some("kube-system".into());
        stage.put_action(action);
        let NextStep::Do(Effect::Record { status, .. }) =
            next(&Key::new("kube-system", "bad"), &stage.world, stage.now, &stage.limits, &NoRanker)
        else {
            panic!("nothing is recorded");
        };
        let stalled = status.conditions.iter().find(|one| one.type_ == "Stalled");
        assert_eq!(stalled.map(|one| one.reason.as_str()), expected);
    }
}

#[rstest]
#[case::group(json!({}), json!({"schedulingGroup": {"podGroupName": "g"}}), "spec.schedulingGroup")]
#[case::volcano(json!({"annotations": {"scheduling.k8s.io/group-name": "g"}}), json!({}), "Volcano")]
#[case::coscheduling(json!({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}), json!({}), "Coscheduling")]
#[case::leader(json!({"labels": {"leaderworkerset.sigs.k8s.io/name": "g"}}), json!({}), "LeaderWorkerSet")]
#[case::kueue(json!({"labels": {"kueue.x-k8s.io/queue-name": "q"}}), json!({}), "Kueue")]
#[case::claims(json!({}), json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}), "ResourceClaims")]
fn replicas_that_belong_together_or_hold_devices_are_left_alone(
    #[case] mut metadata: serde_json::Value,
    #[case] mut spec: serde_json::Value,
    #[case] words: &str,
) {
    spec["containers"] = json!([]);
    let object = json!({"metadata": metadata, "spec": spec});
    let pod: SlimPod = serde_json::from_value(object).expect("a pod");
    let membership = PodFact::from(pod).membership;
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let pod_a = json!({"name": "web-a"});
    let specs = [
        json!({"move": {"workload": web, "to": {"nodeName": "d"}}}),
        json!({"move": {"pod": pod_a, "to": {"nodeName": "d"}}}),
        json!({"create": {"workload": web, "to": {"nodeName": "d"}}}),
        json!({"delete": {"workload": web}}),
        json!({"swap": {"replica": {"pod": pod_a}, "with": [{"pod": {"name": "web-b"}}]}}),
        json!({"moveApplication": {"selector": {"app": "web"}, "from": {"nodeName": "a"}, "to": {"nodeName": "d"}}}),
    ];
    for spec in specs {
        let mut stage = Stage::new();
        let mut set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).unwrap().clone();
        set.id.version = stage.id("web-h1").version;
        metadata["labels"]["app"] = json!("web");
        metadata["labels"][marks::POD_TEMPLATE_HASH] = json!(HASH);
        let template = json!({"metadata": metadata, "spec": {"containers": []}}).to_string();
        set.template = Some(Arc::new(TemplateFact { membership, ..serde_json::from_str(&template).unwrap() }));
        stage.world.apply(set, Origin::Watch);
        stage.act("go", spec.clone());
        stage.settle("go");
        let (ready, reason, message) = stage.ready("go");
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "NotSupported"), "{spec}: {message}");
        assert!(message.contains(words), "{message}");
    }
    // Volcano and Kueue also write to pods whose template has nothing.
    let mut stage = Stage::new();
    for pod in ["web-a", "web-b", "web-c"] {
        stage.change_pod(pod, |pod| pod.membership = membership);
    }
    stage.act("go", json!({"move": {"workload": web, "to": {"nodeName": "d"}}}));
    stage.settle("go");
    let plan = stage.action("go").status.and_then(|status| status.plan).expect("a plan");
    assert!(plan.pods.iter().all(|pod| !pod.chosen && pod.message.contains(words)), "{:?}", plan.pods);
    assert_eq!(stage.ready("go").1, "NotEnoughReplicas");
}

/// Volcano, Kueue and webhooks also mark pods whose template has nothing.
#[rstest]
#[case::group(json!({}), json!({"schedulingGroup": {"podGroupName": "g"}}), "spec.schedulingGroup")]
#[case::volcano(json!({"annotations": {"scheduling.k8s.io/group-name": "g"}}), json!({}), "Volcano")]
#[case::kueue(json!({"labels": {"kueue.x-k8s.io/queue-name": "q"}}), json!({}), "Kueue")]
#[case::claims(json!({}), json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}), "ResourceClaims")]
fn pods_that_are_marked_without_their_template_are_left_alone(
    #[case] metadata: serde_json::Value,
    #[case] mut spec: serde_json::Value,
    #[case] words: &str,
) {
    spec["containers"] = json!([]);
    let pod: SlimPod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
    let membership = PodFact::from(pod).membership;
    let pod_a = json!({"name": "web-a"});
    let all_of_a = json!({
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "from": {"nodeName": "a"}, "count": "All",
    });
    for spec in [
        json!({"move": {"pod": pod_a, "to": {"nodeName": "d"}}}),
        json!({"move": all_of_a}),
        json!({"delete": all_of_a}),
        json!({"delete": {"pod": pod_a}}),
        json!({"swap": {"replica": {"pod": pod_a}, "with": [{"pod": {"name": "web-b"}}]}}),
        json!({"moveApplication": {"selector": {"app": "web"}, "from": {"nodeName": "a"}, "to": {"nodeName": "d"}}}),
    ] {
        let mut stage = Stage::new();
        for pod in ["web-a", "web-b", "web-c"] {
            stage.change_pod(pod, |pod| pod.membership = membership);
        }
        stage.act("go", spec.clone());
        stage.settle("go");
        let (ready, reason, message) = stage.ready("go");
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "NotSupported"), "{spec}: {message}");
        assert!(message.contains(words), "{spec}: {message}");
    }
}
