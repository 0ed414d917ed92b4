//! Bound volumes keep replicas where they can be used: moves of Deployments and StatefulSets, and swaps.

use super::*;
use ganglion_core::facts::{ClaimFact, StatefulSetFact, VolumeFact};

impl Stage {
    /// A claim that is bound to a volume with these node selector terms; an unbound one without terms.
    fn claim(&mut self, name: &str, terms: Option<serde_json::Value>) {
        let volume = terms.is_some().then(|| format!("pv-{name}"));
        let access_modes = vec!["ReadWriteOnce".to_owned()];
        self.put(|id| ClaimFact { id, access_modes, volume: volume.clone(), ..ClaimFact::default() }, name);
        if let Some((terms, volume)) = terms.zip(volume) {
            let affinity = serde_json::from_value(json!({"nodeSelectorTerms": terms})).expect("a node selector");
            let id = Identity { key: Key::new("", volume), version: "1".into(), ..Identity::default() };
            self.world.apply(VolumeFact { id, affinity: Some(affinity) }, Origin::Watch);
        }
    }

    /// The claims of the Deployment `web`.
    fn mount(&mut self, claims: &[&str]) {
        let mut set = self.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).expect("it is there").clone();
        set.id.version = self.id("web-h1").version;
        let template = set.template.take().expect("a template");
        let claims = claims.iter().map(ToString::to_string).collect();
        set.template = Some(Arc::new(TemplateFact { claims, ..template.as_ref().clone() }));
        self.world.apply(set, Origin::Watch);
    }

    /// Node a is alone in its zone and cordoned; the others are in zone b.
    fn zones(&mut self) {
        for name in ["a", "b", "c", "d"] {
            let zone = if name == "a" { "a" } else { "b" };
            self.put_node(name, |node| {
                node.labels.insert("zone".into(), zone.into());
                node.cordoned = name == "a";
            });
        }
    }
}

fn zone(zone: &str) -> serde_json::Value {
    json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}])
}

fn off_a(kind: &str, name: &str) -> serde_json::Value {
    let workload = json!({"apiVersion": "apps/v1", "kind": kind, "name": name});
    json!({"move": {"workload": workload, "from": {"nodeName": "a"}, "count": "All"}, "disruption": "Allowed"})
}

fn evicts(next: &NextStep) -> bool {
    matches!(next, NextStep::Do(Effect::Evict { .. }))
}

#[rstest]
#[case::of_the_zone(Some(zone("a")), &["data"], Some("volume pv-data of claim data cannot be used on another node"))]
#[case::of_another_zone(Some(zone("b")), &["data"], None)]
#[case::of_the_node(
    Some(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}])), &["data"],
    Some("volume pv-data of claim data cannot be used on another node")
)]
#[case::of_either_zone(
    Some(json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}])), &["data"], None
)]
#[case::of_no_zone(Some(json!([{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}])), &["data"],
    Some("volume pv-data of claim data cannot be used on another node"))]
#[case::one_of_two(Some(zone("a")), &["other", "data"], Some("volume pv-data of claim data cannot be used on another node"))]
#[case::not_bound(None, &["data"], None)]
#[case::no_claim(None, &["missing"], None)]
fn a_replica_whose_volume_cannot_follow_stays(
    #[case] terms: Option<serde_json::Value>,
    #[case] claims: &[&str],
    #[case] words: Option<&str>,
) {
    for recreates in [false, true] {
        let mut stage = Stage::new();
        stage.zones();
        stage.claim("data", terms.clone());
        stage.claim("other", Some(zone("b")));
        stage.mount(claims);
        let mut deployment =
            stage.world.get::<DeploymentFact>(&Key::new(NAMESPACE, "web")).expect("it is there").clone();
        deployment.id.version = stage.id("web").version;
        deployment.recreates = recreates;
        stage.world.apply(deployment, Origin::Watch);
        stage.act("go", off_a("Deployment", "web"));
        let next = stage.settle("go");
        let Some(words) = words else {
            let begins = evicts(&next) || matches!(next, NextStep::Do(Effect::CreatePod(_)));
            assert!(begins, "{:?}", stage.ready("go"));
            continue;
        };
        let (ready, reason, message) = stage.ready("go");
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "VolumeOnOtherNode"), "{message}");
        assert_eq!(message, words);
        assert!(stage.action("go").status.unwrap().slots.is_empty(), "a slot was recorded");
    }
}

#[rstest]
#[case::full(|node: &mut NodeFact| node.pod_capacity = 0)]
#[case::cordoned(|node: &mut NodeFact| node.cordoned = true)]
fn what_the_volume_excludes_for_good_is_said_before_what_may_pass(#[case] spoil: fn(&mut NodeFact)) {
    let mut stage = Stage::new();
    stage.zones();
    for name in ["b", "c", "d"] {
        stage.put_node(name, |node| {
            node.labels.insert("zone".into(), "b".into());
            spoil(node);
        });
    }
    stage.claim("data", Some(zone("a")));
    stage.mount(&["data"]);
    stage.act("go", off_a("Deployment", "web"));
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("VolumeOnOtherNode", "volume pv-data of claim data cannot be used on another node",)
    );
}

#[test]
fn another_node_of_the_zone_that_is_full_is_the_reason() {
    let mut stage = Stage::new();
    stage.zones();
    stage.put_node("d", |node| {
        node.labels.insert("zone".into(), "a".into());
        node.pod_capacity = 0;
    });
    stage.claim("data", Some(zone("a")));
    stage.mount(&["data"]);
    stage.act("go", off_a("Deployment", "web"));
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert!(reason == "Queued" && message.contains("d: pods: 0 of 0"), "{reason} {message}");
}

#[rstest]
#[case::own_claim("data-db-0", vec!["data".to_owned()])]
#[case::shared_claim("shared", Vec::new())]
fn a_stateful_replica_whose_volume_cannot_follow_stays(#[case] claim: &str, #[case] templates: Vec<String>) {
    let mut stage = Stage::new();
    stage.zones();
    let labels = BTreeMap::from([("app".to_owned(), "db".to_owned())]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [], "volumes": [
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]}});
    let template: TemplateFact = serde_json::from_str(&template.to_string()).expect("a pod template");
    let set = |id: Identity| ReplicaSetFact {
        id: id.unversioned(),
        scale: ScaleFact { replicas: 1, ..ScaleFact::default() },
        selector: Selector { labels: labels.clone(), ..Selector::default() },
        template: Some(Arc::new(template)),
        ..ReplicaSetFact::default()
    };
    stage.put(|id| StatefulSetFact { set: set(id.clone()), id, claims: templates, ..StatefulSetFact::default() }, "db");
    let id = stage.id("db-0");
    let controller = Some(Owner { kind: "StatefulSet".into(), name: "db".into(), uid: "uid-db".into() });
    let (node, ready_since) = (Some("a".into()), Some(stage.now));
    stage.world.apply(PodFact { id, labels, controller, node, ready_since, ..PodFact::default() }, Origin::Watch);
    stage.claim(claim, Some(zone("a")));
    stage.act("go", off_a("StatefulSet", "db"));
    assert!(!evicts(&stage.settle("go")), "the pod was evicted");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "VolumeOnOtherNode"), "{message}");
    assert_eq!(message, format!("volume pv-{claim} of claim {claim} cannot be used on another node"));
}

#[test]
fn replicas_whose_volume_cannot_follow_are_not_swapped() {
    let mut stage = Stage::new();
    stage.zones();
    stage.put_node("a", |node| drop(node.labels.insert("zone".into(), "a".into())));
    stage.claim("data", Some(zone("b")));
    let shared = |id| ClaimFact {
        id,
        access_modes: vec!["ReadWriteMany".into()],
        volume: Some("pv-data".into()),
        ..ClaimFact::default()
    };
    stage.put(shared, "data");
    stage.mount(&["data"]);
    let pod = |name: &str| json!({"pod": {"name": name}});
    stage.act("out", json!({"swap": {"replica": pod("web-a"), "with": [pod("web-b")]}}));
    stage.settle("out");
    let (ready, reason, message) = stage.ready("out");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "VolumeOnOtherNode"), "{message}");
    stage.act("go", json!({"swap": {"replica": pod("web-b"), "with": [pod("web-c")]}}));
    assert!(matches!(stage.settle("go"), NextStep::Do(_) | NextStep::DoAll(_)), "{:?}", stage.ready("go"));
}
