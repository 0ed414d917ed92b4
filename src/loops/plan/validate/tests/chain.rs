//! Tests of chains of loops, and of conflicts on a target.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use crate::tests::bench::{at, demo, seconds, spec};
use crate::validate::chain::{ChainError, LoopLink, check, overlap};
use crate::validate::conflict::{Claimant, ClaimantKind, Conflict, ReplicaRange, dimensions, find};
use ganglion_api::foreign::VerticalPodAutoscaler;
use ganglion_core::facts::{HpaFact, VpaFact};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;

fn loops(links: &[(&str, Option<&str>)]) -> BTreeMap<String, LoopLink> {
    let link = |tunes: &Option<&str>| LoopLink { tunes: tunes.map(Into::into), ..LoopLink::default() };
    links.iter().map(|(name, tunes)| ((*name).to_owned(), link(tunes))).collect()
}

#[test]
fn three_may_stand_on_one_another() {
    let all = loops(&[("a", None), ("b", Some("a")), ("c", Some("b")), ("d", Some("c"))]);
    assert_eq!(check("c", &all), Ok(()));
    assert_eq!(check("d", &all), Err(ChainError::TooDeep(4)));
    assert_eq!(check("e", &loops(&[("e", Some("gone"))])), Ok(()));
}

#[rstest]
#[case(&[("a", Some("a"))], "a", &["a", "a"])]
#[case(&[("a", Some("b")), ("b", Some("a"))], "b", &["b", "a", "b"])]
#[case(&[("a", Some("b")), ("b", Some("a")), ("c", Some("a"))], "c", &["c", "a", "b", "a"])]
fn circles_are_refused(#[case] links: &[(&str, Option<&str>)], #[case] name: &str, #[case] way: &[&str]) {
    let way = way.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(check(name, &loops(links)), Err(ChainError::Circle(way)));
}

#[rstest]
#[case(749, true)]
#[case(750, false)]
fn a_slow_loop_has_to_be_slow(#[case] interval: i64, #[case] expected: bool) {
    let mut all = loops(&[("fast", None), ("slow", Some("fast"))]);
    let fast = all.get_mut("fast").unwrap();
    (fast.dwell, fast.settle) = (seconds(60), seconds(90));
    all.get_mut("slow").unwrap().interval = seconds(interval);
    assert_eq!(overlap("slow", &all).is_some(), expected);
    assert_eq!(overlap("fast", &all), None);
}

#[test]
fn a_link_is_read_off_its_loop() {
    let mut fast = demo(json!({"dwell": "60s"}));
    fast.actions.as_mut().unwrap()[1].settle = Some("90s".into());
    let link = LoopLink::parse(&fast).unwrap();
    assert_eq!((link.tunes, link.interval, link.dwell, link.settle), (None, seconds(15), seconds(60), seconds(90)));
    fast.actions.as_mut().unwrap()[1].settle = Some("999999h".into());
    assert_eq!(LoopLink::parse(&fast).unwrap_err().field, "actions[Low memory].settle");
}

fn claimant(kind: ClaimantKind, name: &str, created: i64, dimensions: &[&str]) -> Claimant {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    Claimant {
        kind,
        name: name.into(),
        uid: name.into(),
        created: at(created),
        target: serde_json::from_value(target).unwrap(),
        dimensions: dimensions.iter().map(|dimension| (*dimension).into()).collect(),
        keeps: None,
    }
}

#[test]
fn the_later_loop_gives_way() {
    let first = claimant(ClaimantKind::ClosedLoop, "z", 0, &["replicas"]);
    let second = claimant(ClaimantKind::ClosedLoop, "a", 1, &["app/memory", "replicas"]);
    let all = [first.clone(), second.clone()];
    assert_eq!(find(&first, &all), None);
    let conflict = find(&second, &all).unwrap();
    assert_eq!((conflict.name.as_str(), conflict.dimension.as_str()), ("z", "replicas"));
    let twin = claimant(ClaimantKind::ClosedLoop, "b", 1, &["replicas"]);
    assert_eq!(find(&twin, &all).unwrap().name, "z");
    assert!(
        find(&second, std::slice::from_ref(&twin)).is_none() && find(&twin, &[second]).is_some(),
        "of one age by name"
    );
}

#[test]
fn a_loop_gives_way_to_an_autoscaler_whoever_came_first() {
    let this = claimant(ClaimantKind::ClosedLoop, "a", 0, &["app/cpu", "replicas"]);
    let scaler = claimant(ClaimantKind::HorizontalPodAutoscaler, "hpa", 9, &["replicas"]);
    assert_eq!(find(&this, &[scaler]).unwrap().name, "hpa");
    let vertical = claimant(ClaimantKind::VerticalPodAutoscaler, "vpa", 9, &["app/cpu"]);
    assert_eq!(find(&this, std::slice::from_ref(&vertical)).unwrap().dimension, "app/cpu");
    let mut elsewhere = vertical;
    elsewhere.target.name = "db".into();
    assert_eq!(find(&this, &[elsewhere]), None);
}

#[test]
fn a_loop_gives_way_to_one_that_changes_a_field_within_its_field() {
    let paths =
        ["spec.rate", "spec.rate.max", "spec.rates"].map(|path| claimant(ClaimantKind::ClosedLoop, path, 1, &[path]));
    let [outer, inner, other] = &paths;
    let first = |one: &Claimant| Claimant { created: at(0), uid: "first".into(), ..one.clone() };
    for (before, after) in [(outer, inner), (inner, outer)] {
        assert!(find(after, &[first(before)]).is_some(), "{} before {}", before.name, after.name);
    }
    assert_eq!(find(other, &[first(outer), first(inner)]), None);
}

/// A HorizontalPodAutoscaler with these policies for both directions and bounds 2 to 10, beside a loop with this rung.
fn beside_an_autoscaler(select: [&str; 2], rung: &Value) -> Option<Conflict> {
    let mut this = demo(json!({}));
    let actions = json!([{"when": {"metric": "cpu", "side": "Low"}, "ladder": [rung]}]);
    this.actions = serde_json::from_value(actions).unwrap();
    let hpa: HorizontalPodAutoscaler =
        serde_json::from_value(json!({"metadata": {"name": "hpa", "uid": "h"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 10,
            "behavior": {"scaleUp": {"selectPolicy": select[0]}, "scaleDown": {"selectPolicy": select[1]}},
        }}))
        .unwrap();
    let all = dimensions(&this, None);
    let named: Vec<&str> = all.iter().map(String::as_str).collect();
    let me = claimant(ClaimantKind::ClosedLoop, "me", 1, &named);
    let other = Claimant::autoscaler(&HpaFact::from(hpa).0, &all, ReplicaRange::of(&this, None));
    find(&me, &[other])
}

/// A HorizontalPodAutoscaler has no pause: switched off in both directions, it still returns to its bounds (I1).
#[rstest]
#[case(json!({"scale": {"track": {"type": "Value", "target": "1"}, "min": 2, "max": 10}}), true)]
#[case(json!({"scale": {"track": {"type": "Value", "target": "1"}, "min": 1, "max": 10}}), false)]
#[case(json!({"scale": {"track": {"type": "Value", "target": "1"}, "max": 10}}), false)]
#[case(json!({"scale": {"track": {"type": "Value", "target": "1"}, "min": 2, "max": 11}}), false)]
#[case(
    json!({"scale": {"track": {"type": "Value", "target": "1"}, "min": 2, "max": 9,
        "schedule": [{"during": {"cron": "0 8 * * *", "duration": "1h"}, "to": 0}]}}),
    false
)]
#[case(json!({"scale": {"by": 1, "max": 10}}), true)]
#[case(json!({"scale": {"by": 1, "max": 11}}), false)]
#[case(json!({"scale": {"by": -1, "min": 2}}), true)]
#[case(json!({"scale": {"by": -1, "min": 1}}), false)]
#[case(json!({"scale": {"to": 11}}), false)]
#[case(json!({"patch": {"path": "spec.replicas", "to": "5"}}), false)]
#[case(json!({"workloadAction": {"create": {"to": {"nodeName": "a"}}}}), false)]
fn an_autoscaler_that_is_off_is_no_conflict_within_its_bounds(#[case] rung: Value, #[case] is_within: bool) {
    let off = beside_an_autoscaler(["Disabled", "Disabled"], &rung);
    assert_eq!(off.is_none(), is_within, "{off:?}");
    if let Some(conflict) = off {
        let text = conflict.to_string();
        assert!(text.contains("returns the number of replicas to 2 to 10"), "{text}");
    }
    for select in [["Max", "Disabled"], ["Disabled", "Min"], ["Max", "Max"]] {
        let on = beside_an_autoscaler(select, &rung).expect("somebody has switched it on");
        assert!(on.to_string().contains("hpa acts on replicas of the same target"), "{on}");
    }
}

#[rstest]
#[case("Auto", &["replicas"])]
#[case("Approve", &["replicas"])]
#[case("DryRun", &[])]
#[case("Paused", &[])]
fn who_does_nothing_is_in_nobodys_way(#[case] mode: &str, #[case] expected: &[&str]) {
    let mut this = demo(json!({}));
    this.mode = serde_json::from_value(json!(mode)).unwrap();
    assert_eq!(dimensions(&this, None), expected);
}

#[test]
fn a_patch_of_replicas_conflicts_as_a_scale_does() {
    let mut this = demo(json!({}));
    let patch = json!([{"when": {"metric": "cpu", "side": "Low"},
        "ladder": [{"patch": {"path": "spec.replicas", "by": "1", "min": "1", "max": "9"}}]}]);
    this.actions = serde_json::from_value(patch).unwrap();
    assert_eq!(dimensions(&this, None), ["replicas"]);
}

/// The number of replicas of a custom resource may be anywhere in its spec.
#[rstest]
#[case("spec.replicas", None, &["replicas"])]
#[case("spec.size", None, &["spec.size"])]
#[case("spec.size", Some("spec.size"), &["replicas"])]
#[case("spec.replicas", Some("spec.size"), &["spec.replicas"])]
#[case("spec.pool", Some("spec.pool.size"), &["replicas", "spec.pool"])]
#[case("spec.pool.size.x", Some("spec.pool.size"), &["spec.pool.size.x"])]
#[case("spec.pools", Some("spec.pool.size"), &["spec.pools"])]
fn a_patch_of_the_replicas_conflicts_wherever_they_are(
    #[case] path: &str,
    #[case] replicas_path: Option<&str>,
    #[case] expected: &[&str],
) {
    let mut this = demo(json!({}));
    let patch = json!([{"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"patch": {"path": path, "to": "1"}}]}]);
    this.actions = serde_json::from_value(patch).unwrap();
    let all = dimensions(&this, replicas_path);
    assert_eq!(all, expected);
    let named: Vec<&str> = all.iter().map(String::as_str).collect();
    let me = claimant(ClaimantKind::ClosedLoop, "me", 1, &named);
    for kind in [ClaimantKind::HorizontalPodAutoscaler, ClaimantKind::ClosedLoop] {
        let other = claimant(kind, "other", 0, &["replicas"]);
        assert_eq!(find(&me, &[other]).is_some(), expected.contains(&"replicas"), "{kind:?}");
    }
}

/// Which resources of a container in the template a patch of this path changes.
#[rstest]
#[case("spec.template", &["cpu", "memory"])]
#[case("spec.template.spec.containers", &["cpu", "memory"])]
#[case("spec.template.spec.containers.3", &["cpu", "memory"])]
#[case("spec.template.spec.containers.3.resources", &["cpu", "memory"])]
#[case("spec.template.spec.containers.0.resources.requests", &["cpu", "memory"])]
#[case("spec.template.spec.containers.0.resources.requests.memory", &["memory"])]
#[case("spec.template.spec.containers.0.resources.limits.cpu", &["cpu"])]
#[case("spec.template.spec.containers.0.resources.claims", &[])]
#[case("spec.template.spec.containers.0.resources.limits.memory.x", &[])]
#[case("spec.template.spec.containers.0.image", &[])]
#[case("spec.template.spec.initContainers.0.resources.requests.memory", &[])]
#[case("spec.template.metadata", &[])]
#[case("spec.rate", &[])]
fn a_patch_of_resources_in_the_template_conflicts_as_a_resize_does(#[case] path: &str, #[case] changed: &[&str]) {
    let mut this = demo(json!({}));
    let patch = json!([{"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"patch": {"path": path, "to": "1"}}]}]);
    this.actions = serde_json::from_value(patch).unwrap();
    let all = dimensions(&this, None);
    let named: Vec<&str> = all.iter().map(String::as_str).collect();
    let patching = |second| claimant(ClaimantKind::ClosedLoop, "patching", second, &named);
    for resource in ["cpu", "memory"] {
        let is_changed = changed.contains(&resource);
        let resizing = |second| claimant(ClaimantKind::ClosedLoop, "resizing", second, &[&format!("app/{resource}")]);
        assert_eq!(find(&patching(1), &[resizing(0)]).is_some(), is_changed, "{path} {resource}");
        assert_eq!(find(&resizing(1), &[patching(0)]).is_some(), is_changed, "{path} {resource}");
        let policies = json!([{"containerName": "*", "controlledResources": [resource]}]);
        let vertical: VerticalPodAutoscaler = serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "vpa"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "resourcePolicy": {"containerPolicies": policies}},
        }))
        .unwrap();
        let vertical = Claimant::autoscaler(&VpaFact::from(vertical).0, &all, None);
        assert_eq!(find(&patching(0), &[vertical]).is_some(), is_changed, "{path} {resource}");
    }
}

/// Resources at pod level are a field of their own, which a VerticalPodAutoscaler of the containers would exceed or
/// waste.
#[rstest]
#[case("spec.template", &["cpu", "memory"])]
#[case("spec.template.spec.resources", &["cpu", "memory"])]
#[case("spec.template.spec.resources.limits.cpu", &["cpu"])]
#[case("spec.template.spec.containers.0.resources.requests.memory", &[])]
#[case("app/memory", &[])]
fn a_resize_at_pod_level_conflicts_with_patches_of_these_resources(#[case] other: &str, #[case] changed: &[&str]) {
    let mut this = demo(json!({}));
    for resource in ["cpu", "memory"] {
        let resize = json!({"pod": true, "resource": resource, "factor": "2", "max": "4"});
        let resize = json!([{"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"resize": resize}]}]);
        this.actions = serde_json::from_value(resize).unwrap();
        let all = dimensions(&this, None);
        assert_eq!(all, [format!("Pod/{resource}")]);
        let named: Vec<&str> = all.iter().map(String::as_str).collect();
        let resizing = claimant(ClaimantKind::ClosedLoop, "resizing", 1, &named);
        let patching = claimant(ClaimantKind::ClosedLoop, "patching", 0, &[other]);
        assert_eq!(find(&resizing, &[patching]).is_some(), changed.contains(&resource), "{other} {resource}");
        let vertical: VerticalPodAutoscaler = serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "vpa"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        }))
        .unwrap();
        let vertical = Claimant::autoscaler(&VpaFact::from(vertical).0, &all, None);
        assert!(find(&resizing, &[vertical]).is_some(), "{resource}");
    }
}

#[test]
fn patches_of_two_containers_do_not_conflict() {
    let path = |index| format!("spec.template.spec.containers.{index}.resources.requests.memory");
    let patching = |name, index| claimant(ClaimantKind::ClosedLoop, name, index, &[&path(index)]);
    assert_eq!(find(&patching("second", 1), &[patching("first", 0)]), None);
}

#[test]
fn rungs_that_need_another_state_of_the_target_do_not_share_a_read() {
    let scale = json!({"scale": {"by": 1, "max": 2}});
    let patch = json!({"patch": {"path": "spec.replicas", "to": "1"}});
    let resize = json!({"resize": {"container": "app", "resource": "memory", "factor": "2"}});
    let mut with_template = resize.clone();
    with_template["resize"]["template"] = json!(true);
    let rungs = [scale, patch, resize, with_template].map(|rung| serde_json::from_value(rung).unwrap());
    let readings: std::collections::BTreeSet<String> = rungs.iter().map(crate::rung::reading).collect();
    assert_eq!(readings.len(), rungs.len(), "{readings:?}");
}

#[test]
fn every_rung_has_a_dimension() {
    let rungs: Value = json!([
        {"scale": {"by": 1, "max": 2}},
        {"resize": {"container": "app", "resource": "memory", "factor": "2"}},
        {"workloadAction": {"move": {"to": {"nodeName": "a"}}}},
        {"workloadAction": {"create": {"to": {"nodeName": "a"}}}},
        {"patch": {"path": "spec.rate", "to": "1"}},
        {"webhook": {"url": "http://a.b"}},
        {"tune": {"raiseRank": "LeastServed"}},
    ]);
    let this = spec(json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}}],
        "actions": [{"when": {"metric": "cpu", "side": "Low"}, "ladder": rungs}],
    }));
    assert_eq!(dimensions(&this, None), ["app/memory", "placement", "rank", "replicas", "spec.rate"]);
}

/// Two paths of the same field are one dimension, however they are written.
#[rstest::rstest]
#[case("spec.replicas", "replicas")]
#[case("spec['replicas']", "replicas")]
#[case("spec.items[0].rate", "spec.items.0.rate")]
#[case("spec['example.com/rate']", "spec.example\\.com/rate")]
#[case("spec.example\\.com/rate", "spec.example\\.com/rate")]
fn a_path_has_one_dimension(#[case] path: &str, #[case] expected: &str) {
    let rung = serde_json::from_value(serde_json::json!({"patch": {"path": path, "to": "1"}})).unwrap();
    assert_eq!(crate::rung::dimension(&rung), expected);
}
