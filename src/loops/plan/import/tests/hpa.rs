//! Each field of a HorizontalPodAutoscaler.

use rstest::rstest;
use serde_json::{Value, json};

use super::{contains, hpa_object, import, refused, resource, scale};
use crate::import::{ImportOptions, convert_hpa};
use crate::track::ScalePace;

fn cpu() -> Value {
    json!([resource("cpu", json!({"type": "Utilization", "averageUtilization": 50}))])
}

#[test]
fn an_autoscaler_becomes_a_loop_with_its_pace_and_target() {
    let import = import(&json!({"minReplicas": 2, "metrics": cpu()}));
    assert_eq!(
        import.manifest,
        json!({
            "interval": "15s",
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"name": "cpu", "source": {"resource": {"resource": "cpu", "unit": "Utilization"}}}],
            "actions": [{"when": {"metric": "cpu", "side": "Target"}, "ladder": [{"scale": {
                "track": {"type": "Utilization", "target": "50"}, "min": 2, "max": 10,
            }}]}],
        })
    );
    assert_eq!(import.warnings, [""; 0]);
}

#[test]
fn defaults_are_those_of_the_api_server() {
    let import = import(&json!({}));
    assert_eq!((&scale(&import, 0)["min"], &scale(&import, 0)["max"]), (&json!(1), &json!(10)));
    assert_eq!(scale(&import, 0)["track"], json!({"type": "Utilization", "target": "80"}));
}

#[rstest]
#[case(resource("memory", json!({"type": "AverageValue", "averageValue": "512Mi"})),
    json!({"resource": {"resource": "memory"}}), json!({"type": "AverageValue", "target": "512Mi"}), "memory")]
#[case(json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "web-app",
        "target": {"type": "Utilization", "averageUtilization": 70}}}),
    json!({"resource": {"resource": "cpu", "container": "web-app", "unit": "Utilization"}}),
    json!({"type": "Utilization", "target": "70"}), "cpu_web_app")]
fn usage_of_pods_is_tracked(#[case] metric: Value, #[case] source: Value, #[case] track: Value, #[case] name: &str) {
    let import = import(&json!({"metrics": [metric]}));
    assert_eq!(import.manifest["metrics"], json!([{"name": name, "source": source}]));
    assert_eq!(scale(&import, 0)["track"], track);
    assert!(contains(&import.differences, "only pods that the target owns count"), "{:?}", import.differences);
}

/// Sources that a version may not have yet: the draft is checked, before it is parsed.
fn draft(metric: &Value) -> (Value, Value, Vec<String>) {
    use crate::import::draft::LoopDraft;
    let mut draft = LoopDraft::default();
    let metric = serde_json::from_value(metric.clone()).unwrap();
    crate::import::hpa::metric(&mut draft, &metric).unwrap();
    let differences = draft.differences.iter().map(|one| one.text().to_owned()).collect();
    let manifest = draft.manifest(&ganglion_api::closed_loop::TargetRef::default(), "15s", &ImportOptions::default());
    let track = manifest["actions"][0]["ladder"][0]["scale"]["track"].clone();
    (manifest["metrics"][0].clone(), track, differences)
}

#[test]
fn metrics_of_adapters_keep_selector_and_meaning() {
    let selector = json!({"matchLabels": {"queue": "orders"}});
    let external = json!({"type": "External", "external": {
        "metric": {"name": "queue-length", "selector": selector}, "target": {"type": "AverageValue", "averageValue": "30"},
    }});
    let (metric, track, differences) = draft(&external);
    let source = json!({"external": {"metric": "queue-length", "selector": selector, "several": "Sum"}});
    assert_eq!(metric, json!({"name": "queue_length", "source": source}));
    assert_eq!(track, json!({"type": "AverageValue", "target": "30"}));
    assert!(contains(&differences, "status.replicas"), "{differences:?}");

    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"});
    let object = json!({"type": "Object", "object": {
        "metric": {"name": "requests"}, "describedObject": ingress, "target": {"type": "Value", "value": "10k"},
    }});
    let (metric, track, differences) = draft(&object);
    assert_eq!(metric, json!({"name": "requests", "source": {"custom": {"metric": "requests", "object": ingress}}}));
    assert_eq!(track, json!({"type": "Value", "target": "10k"}));
    assert!(contains(&differences, "a Value without ready pods"), "{differences:?}");

    let pods = json!({"type": "Pods", "pods": {
        "metric": {"name": "2xx"}, "target": {"type": "AverageValue", "averageValue": "500m"},
    }});
    let (metric, track, differences) = draft(&pods);
    assert_eq!(metric, json!({"name": "m_2xx", "source": {"custom": {"metric": "2xx", "pods": {}}}}));
    assert_eq!(track, json!({"type": "AverageValue", "target": "500m"}));
    assert!(contains(&differences, "only pods that the target owns"), "{differences:?}");
}

#[test]
fn several_metrics_share_bounds_and_pace() {
    let memory = resource("memory", json!({"type": "Utilization", "averageUtilization": 60}));
    let metrics = json!([cpu()[0], memory, cpu()[0]]);
    let import = import(&json!({"metrics": metrics, "minReplicas": 3, "behavior": {"scaleDown": {
        "stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 30}]}}}));
    let names: Vec<_> = import.spec.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["cpu", "memory", "cpu_2"]);
    for index in 0..3 {
        let mut shared = scale(&import, index).clone();
        shared.as_object_mut().unwrap().remove("track");
        let down = json!({"policies": [{"pods": 2, "per": "30s"}], "window": "60s"});
        assert_eq!(shared, json!({"min": 3, "max": 10, "up": {}, "down": down}), "{index}");
    }
}

/// The pace that the loop has in the end.
fn pace(behavior: &Value) -> ScalePace {
    let import = import(&json!({"metrics": cpu(), "behavior": behavior}));
    let monitoring = ganglion_api::monitoring::MonitoringSpec {
        metrics: import.spec.metrics.clone(),
        tracking: import.spec.actions.clone().unwrap(),
        ..Default::default()
    };
    let rules = crate::monitoring::tracking::TrackingRules::parse(&monitoring).unwrap().unwrap();
    rules.at(crate::tests::bench::at(0)).pace
}

/// B10: `behavior` absent and present are two algorithms. With n 1 and a proposal of 20, they go to 4 and to 5.
#[test]
fn behavior_absent_and_present_are_two_algorithms() {
    let absent = import(&json!({"metrics": cpu()}));
    assert!(scale(&absent, 0).get("up").is_none() && scale(&absent, 0).get("down").is_none(), "{:?}", absent.manifest);
    assert!(contains(&absent.differences, "window can also raise it"), "{:?}", absent.differences);
    assert!(matches!(pace(&Value::Null), ScalePace::PerPass { .. }));
    // The API server stores all defaults for `{}`.
    let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15}]);
    let stored = json!({
        "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": policies},
        "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
    });
    for behavior in [json!({}), stored] {
        let present = import(&json!({"metrics": cpu(), "behavior": behavior}));
        assert_eq!((&scale(&present, 0)["up"], &scale(&present, 0)["down"]), (&json!({}), &json!({})));
        assert!(matches!(pace(&behavior), ScalePace::Rules { .. }), "{behavior}");
    }
}

#[test]
fn every_field_of_behavior_is_kept() {
    let behavior = json!({
        "scaleUp": {"stabilizationWindowSeconds": 30, "selectPolicy": "Min", "tolerance": "50m", "policies": [
            {"type": "Percent", "value": 900, "periodSeconds": 60}]},
        "scaleDown": {"selectPolicy": "Disabled", "tolerance": "0"},
    });
    let import = import(&json!({"metrics": cpu(), "behavior": behavior}));
    let scale = scale(&import, 0);
    assert_eq!(scale["up"], json!({"policies": [{"percent": 900, "per": "60s"}], "select": "Min", "window": "30s"}));
    assert_eq!(scale["down"], json!({"select": "Disabled"}));
    assert_eq!(scale["track"]["tolerance"], json!({"up": "50m", "down": "0"}));
    assert!(contains(&import.differences, "at least one"), "{:?}", import.differences);
}

#[test]
fn min_0_has_no_cooldown_and_says_how_it_differs() {
    let metric = json!({"minReplicas": 0, "metrics": cpu()});
    let import = import(&metric);
    assert_eq!(scale(&import, 0)["cooldown"], "0s");
    assert!(contains(&import.differences, "no metric is active"), "{:?}", import.differences);
}

#[rstest]
#[case(json!({"minReplicas": 2, "maxReplicas": 200_000}), "maxReplicas is 200000")]
#[case(json!({"metrics": [resource("ephemeral-storage", json!({"type": "AverageValue", "averageValue": "1"}))]}), "ephemeral-storage")]
#[case(json!({"metrics": [{"type": "Weather"}]}), "metrics[0] of type Weather")]
#[case(json!({"metrics": [resource("cpu", json!({"type": "Utilization"}))]}), "metrics[0] of type Resource")]
#[case(json!({"somethingNew": 1}), "unknown field `somethingNew`")]
#[case(json!({"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 200_000, "periodSeconds": 15}]}}}), "scaleUp.policies[0].value")]
#[case(json!({"behavior": {"scaleDown": {"selectPolicy": "Some"}}}), "scaleDown.selectPolicy is Some")]
fn what_cannot_be_expressed_is_named(#[case] fields: Value, #[case] words: &str) {
    let problem = refused(&fields);
    assert!(problem.contains(words) && problem.contains("nothing was changed"), "{problem}");
}

#[test]
fn all_problems_are_named_at_once() {
    let many: Vec<Value> = (0..20).map(|_| cpu()[0].clone()).chain([json!({"type": "Weather"})]).collect();
    let problem = refused(&json!({"metrics": many}));
    assert!(problem.contains("20 metrics") && problem.contains("Weather"), "{problem}");
}

/// A source that is lost when the spec is parsed.
#[test]
fn a_source_that_this_version_does_not_have_is_named() {
    use crate::import::draft::LoopDraft;
    let mut draft = LoopDraft::default();
    draft.metric("moon", json!({"moon": {"phase": "full"}}), None);
    let problem = draft.finish(&Default::default(), "15s", &ImportOptions::default()).unwrap_err().to_string();
    assert!(problem.contains("metric moon needs the source moon"), "{problem}");
}

/// I4: KEDA writes its HorizontalPodAutoscaler back.
#[rstest]
#[case(json!({"labels": {"scaledobject.keda.sh/name": "web"}}), "import scaledobject web")]
#[case(json!({"ownerReferences": [{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "s"}]}),
    "import scaledobject web")]
#[case(json!({"ownerReferences": [{"apiVersion": "serving.knative.dev/v1", "kind": "Revision", "name": "r1", "uid": "r"}]}),
    "belongs to Revision r1")]
fn an_autoscaler_of_a_controller_is_refused(#[case] metadata: Value, #[case] words: &str) {
    let mut object = hpa_object(&json!({"metrics": cpu()}));
    object.metadata.labels = serde_json::from_value(metadata["labels"].clone()).unwrap();
    object.metadata.owner_references = serde_json::from_value(metadata["ownerReferences"].clone()).unwrap();
    let problem = convert_hpa(&object, &ImportOptions::default()).unwrap_err().to_string();
    assert!(problem.contains(words), "{problem}");
}

#[test]
fn an_account_is_used_and_an_owner_of_behavior_is_told_of() {
    let mut object = hpa_object(&json!({"metrics": cpu(), "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0}}}));
    object.metadata.managed_fields = serde_json::from_value(json!([{
        "manager": "argocd", "operation": "Apply", "fieldsType": "FieldsV1", "apiVersion": "autoscaling/v2",
        "fieldsV1": {"f:spec": {"f:behavior": {"f:scaleUp": {"f:stabilizationWindowSeconds": {}}}}},
    }]))
    .unwrap();
    let options = ImportOptions { service_account: Some("web-loop".into()) };
    let import = convert_hpa(&object, &options).unwrap();
    assert_eq!(import.spec.service_account_name.as_deref(), Some("web-loop"));
    assert!(contains(&import.warnings, "belongs to argocd"), "{:?}", import.warnings);
}
