//! Parsing of specs.

use rstest::rstest;

use super::*;
use crate::node_spec::{Question, ValueSource};
use ganglion_api::node_config::status::NodeValue;

#[test]
fn power_needs_usage_and_takes_it_from_metrics_server_where_the_spec_names_no_source() {
    let mut bare = full();
    bare["metricsCollector"].as_object_mut().unwrap().remove("usage");
    let parsed = ParsedNodeSpec::parse(&spec(bare.clone())).unwrap();
    assert_eq!(parsed.sources[&Question::Usage].source, ValueSource::MetricsServer);
    assert_eq!(parsed.values().collect::<Vec<_>>(), NodeValue::ALL);
    assert_eq!(parsed.inputs().len(), 3);
    bare["predictor"]["powerConsumption"] = json!({"type": "Fake"});
    let parsed = ParsedNodeSpec::parse(&spec(bare)).unwrap();
    assert!(!parsed.sources.contains_key(&Question::Usage) && parsed.inputs().is_empty());
}

#[test]
fn a_provider_alone_predicts_power_and_what_is_unset_has_its_default() {
    let provider = json!({"type": "Redfish", "endpoint": "https://10.0.0.1"});
    let parsed = ParsedNodeSpec::parse(&spec(json!({
        "nodeName": "n",
        "metricsCollector": {"usage": {"type": "Prometheus", "endpoint": "http://p:9090"}},
        "predictor": {"powerConsumptionEndpointProvider": provider},
    })))
    .unwrap();
    assert_eq!(parsed.sources[&Question::Power].source, ValueSource::NamedModel);
    assert_eq!(parsed.interval(NodeValue::Power), SignedDuration::from_secs(15));
    let ValueSource::Prometheus { window, label, .. } = &parsed.sources[&Question::Usage].source else { panic!() };
    assert_eq!((window.as_secs(), label.as_str()), (300, "instance"));
}

#[rstest]
#[case("inletTemp", json!({"type": "IPMI", "endpoint": "https://a"}), "spec.metricsCollector.inletTemp.type: it must be one of Redfish, Fake")]
#[case("inletTemp", json!({"type": "Prometheus", "endpoint": "https://a"}), "spec.metricsCollector.inletTemp.type")]
#[case("deltaP", json!({"type": "DifferentialPressureAPI"}), "spec.metricsCollector.deltaP.endpoint: an http or https address is needed")]
#[case("deltaP", json!({"type": "DifferentialPressureAPI", "endpoint": "http:///x"}), "spec.metricsCollector.deltaP.endpoint")]
#[case("usage", json!({"type": "Prometheus", "endpoint": "http://a", "window": "25h"}), "spec.metricsCollector.usage.window: it must be 1m to 24h")]
#[case("usage", json!({"type": "Fake", "fetchInterval": "1ms"}), "spec.metricsCollector.usage.fetchInterval: it must be 1s to 1h")]
#[case("usage", json!({"type": "Fake", "fetchInterval": "soon"}), "spec.metricsCollector.usage.fetchInterval")]
fn a_field_that_cannot_be_used_is_named(#[case] member: &str, #[case] term: Value, #[case] words: &str) {
    let spec = spec(json!({"nodeName": "n", "metricsCollector": {member: term}}));
    let error = ParsedNodeSpec::parse(&spec).unwrap_err().to_string();
    assert!(error.starts_with(words), "{error}");
}
