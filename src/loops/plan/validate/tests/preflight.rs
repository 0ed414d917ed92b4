//! Tests of preflights: the permissions that a rung needs, the message for a missing one, and the time of the next
//! check.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};

use crate::tests::bench::demo;
use crate::validate::preflight::{Preflight, PreflightQuestion, TargetResource, rights, source_rights};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_core::conditions::Stamp;

fn needed(rung: Value, kind: TargetResource, api_version: &str) -> Vec<String> {
    let target = TargetRef { api_version: api_version.into(), kind: "K".into(), name: "web".into() };
    let all = rights(&serde_json::from_value(rung).unwrap(), &target, kind);
    all.into_iter()
        .map(|right| {
            let part = right.subresource.map(|part| format!("/{part}")).unwrap_or_default();
            let name = right.name.map(|name| format!(" {name}")).unwrap_or_default();
            format!("{} {}/{}{part}{name}", right.verb, right.group, right.resource)
        })
        .collect()
}

#[rstest]
#[case::scale(json!({"scale": {"by": 1, "max": 9}}), &["get apps/deployments web", "patch apps/deployments/scale web"])]
#[case::resize(
    json!({"resize": {"container": "c", "resource": "cpu", "factor": "2", "max": "4"}}),
    &["get apps/deployments web", "list /pods", "patch /pods/resize"]
)]
#[case::template(
    json!({"resize": {"container": "c", "resource": "cpu", "factor": "2", "max": "4", "template": true}}),
    &["get apps/deployments web", "list /pods", "patch /pods/resize", "patch apps/deployments web"]
)]
#[case::lower_memory_limits(
    json!({"resize": {"pod": true, "resource": "memory", "factor": "0.5", "min": "1Mi"}}),
    &["get apps/deployments web", "list /pods", "patch /pods/resize", "list metrics.k8s.io/pods"]
)]
#[case::lower_memory_requests(
    json!({"resize": {"container": "c", "resource": "memory", "factor": "0.5", "min": "1Mi", "what": "Requests"}}),
    &["get apps/deployments web", "list /pods", "patch /pods/resize"]
)]
#[case::patch(
    json!({"patch": {"path": "spec.x", "to": "1"}}),
    &["get apps/deployments web", "patch apps/deployments web"]
)]
#[case::create(
    json!({"workloadAction": {"create": {"to": {"nodeName": "n"}}}}),
    &["create ganglion.dev/workloadactions", "create /pods/eviction", "patch apps/deployments/scale web"]
)]
#[case::moves(
    json!({"workloadAction": {"move": {"to": {"nodeName": "n"}}}}),
    &["create ganglion.dev/workloadactions", "create /pods/eviction"]
)]
#[case::tune(json!({"tune": {"raiseRank": "LeastServed"}}), &[])]
#[case::webhook(json!({"webhook": {"url": "https://example.com"}}), &[])]
fn a_rung_needs_these_rights(#[case] rung: Value, #[case] expected: &[&str]) {
    let kind = TargetResource { plural: "deployments", reads_scale: false };
    assert_eq!(needed(rung, kind, "apps/v1"), expected);
}

#[test]
fn a_kind_whose_replicas_are_not_known_is_read_by_its_scale() {
    let kind = TargetResource { plural: "things", reads_scale: true };
    let all = needed(json!({"scale": {"by": 1, "max": 9}}), kind, "v1");
    assert_eq!(all, ["get /things web", "patch /things/scale web", "get /things/scale web"]);
}

#[rstest]
#[case::external(json!({"external": {"metric": "queue"}}), &["list external.metrics.k8s.io/queue in shop"])]
#[case::elsewhere(
    json!({"external": {"metric": "queue", "namespace": "other"}}),
    &["list external.metrics.k8s.io/queue in other"]
)]
#[case::pods(
    json!({"custom": {"metric": "hits", "pods": {}}}),
    &["get custom.metrics.k8s.io/pods/hits in shop", "list /pods in shop"]
)]
#[case::object(
    json!({"custom": {"metric": "hits", "object": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
    &["get custom.metrics.k8s.io/deployments.apps/hits in shop"]
)]
#[case::namespace(
    json!({"custom": {"metric": "hits", "object": {"apiVersion": "v1", "kind": "Namespace", "name": "shop"}}}),
    &["get custom.metrics.k8s.io/metrics in shop"]
)]
#[case::prometheus(json!({"prometheus": {"url": "http://a", "query": "b"}}), &[])]
fn a_metric_of_an_adapter_needs_these_rights(#[case] source: Value, #[case] expected: &[&str]) {
    let source = serde_json::from_value(source).unwrap();
    let needed: Vec<String> = source_rights(&source, Some("deployments"))
        .iter()
        .map(|right| {
            let refused = right.refusal("shop", "web-loop");
            let (user, rest) = refused.split_once(" cannot ").unwrap();
            assert_eq!(user, "User \"system:serviceaccount:shop:web-loop\"");
            let words: Vec<&str> = rest.split('"').collect();
            format!("{}{}/{} in {}", words[0].replace("resource ", ""), words[3], words[1], words[5])
        })
        .collect();
    assert_eq!(needed, expected);
}

#[test]
fn a_missing_right_reads_as_the_api_server_writes_it() {
    let kind = TargetResource { plural: "deployments", reads_scale: false };
    let target = TargetRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into() };
    let rung = serde_json::from_value(json!({"scale": {"by": 1, "max": 9}})).unwrap();
    assert_eq!(
        rights(&rung, &target, kind)[1].refusal("shop", "web-loop"),
        "User \"system:serviceaccount:shop:web-loop\" cannot patch resource \"deployments/scale\" in API group \"apps\" in the \
         namespace \"shop\""
    );
}

#[test]
fn a_verdict_names_the_rung_and_is_found_again_in_the_status() {
    let question = PreflightQuestion::new("u".into(), &demo(json!({})));
    let failed = question.rungs[0].fails(LoopReason::TargetNotFound, "there is no Deployment web");
    let Preflight::Failed(_, words) = &failed else { panic!("{failed:?}") };
    assert_eq!(words, "rung 1 on Low cpu (scale by 1, at most 1000): there is no Deployment web");
    let stamp = Stamp { generation: 3, now: Timestamp::UNIX_EPOCH };
    for verdict in [failed, Preflight::Passed] {
        let stored: Vec<_> = verdict.condition(&[], stamp).into_iter().collect();
        assert_eq!(Preflight::stored(&stored, 3), verdict);
        assert_eq!(Preflight::stored(&stored, 4), Preflight::Pending(None), "another spec has no verdict");
    }
    assert_eq!(Preflight::Pending(Some("no answer".into())).condition(&[], stamp), None);
}

#[test]
fn a_check_that_fails_comes_again_soon_and_then_less_often() {
    let failed = Preflight::Failed(LoopReason::Forbidden, String::new());
    let pauses = |verdict: &Preflight| [0, 1, 2, 3, 7, 90].map(|failures| verdict.pause(failures).as_secs());
    assert_eq!(pauses(&failed), [300, 5, 10, 20, 300, 300]);
    assert_eq!(pauses(&Preflight::Pending(None)), [10, 5, 10, 10, 10, 10]);
    assert_eq!(Preflight::Passed.pause(0), SignedDuration::from_mins(5));
}
