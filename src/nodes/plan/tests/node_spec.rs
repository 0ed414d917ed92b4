//! Parsing of specs.

use rstest::rstest;

use super::*;
use crate::node_spec::{PrometheusValue, Question, ValueSource};
use ganglion_api::node_config::source::CpuFamily;
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
fn a_straight_line_needs_the_usage_alone() {
    let linear = json!({"type": "Linear", "idleWatts": 90, "fullWatts": 320});
    let parsed = |predictor: Value| {
        ParsedNodeSpec::parse(&spec(json!({"nodeName": "n", "predictor": predictor})))
            .map_err(|error| error.to_string())
    };
    let line = parsed(json!({"powerConsumption": linear})).unwrap();
    assert_eq!(line.sources[&Question::Power].source, ValueSource::Linear { idle: 90, full: 320 });
    assert_eq!(line.sources[&Question::Usage].source, ValueSource::MetricsServer);
    assert_eq!((line.inputs(), line.values().count()), (&[NodeValue::Cpu][..], 3));
    let provider = json!({"type": "Redfish", "endpoint": "https://10.0.0.1"});
    let both = parsed(json!({"powerConsumption": linear, "powerConsumptionEndpointProvider": provider})).unwrap();
    assert_eq!(both.inputs().len(), 3, "the model that the machine names needs all of them");
    let family = parsed(json!({"powerConsumption": {"type": "Linear", "cpuFamily": "EpycGen3"}})).unwrap();
    assert_eq!(family.sources[&Question::Power].source, ValueSource::FamilyLine(CpuFamily::EpycGen3));
    assert_eq!((family.inputs(), family.values().count()), (&[NodeValue::Cpu][..], 3));
    let wrong = "spec.predictor.powerConsumption.idleWatts: idleWatts and fullWatts, which is not less, or cpuFamily \
        without them are needed";
    for term in [
        json!({}),
        json!({"idleWatts": 90}),
        json!({"idleWatts": 90, "fullWatts": 89}),
        json!({"cpuFamily": "IceLake", "idleWatts": 90, "fullWatts": 320}),
        json!({"cpuFamily": "IceLake", "fullWatts": 320}),
    ] {
        let mut term = term;
        term["type"] = json!("Linear");
        assert_eq!(parsed(json!({"powerConsumption": term})), Err(wrong.to_owned()));
    }
}

#[test]
fn power_that_is_measured_and_predicted_is_compared() {
    let window = |measured: Value, predicted: Value| {
        let predictor = json!({"powerConsumption": predicted});
        let value = json!({"nodeName": "n", "metricsCollector": {"power": measured}, "predictor": predictor});
        ParsedNodeSpec::parse(&spec(value)).map(|parsed| parsed.error_window.map(|window| window.as_secs()))
    };
    let (fake, wide) = (json!({"type": "Fake"}), json!({"type": "Fake", "window": "24h"}));
    assert_eq!(window(fake.clone(), fake.clone()), Ok(Some(3600)));
    assert_eq!(window(wide, fake.clone()), Ok(Some(86_400)));
    assert_eq!((window(fake.clone(), Value::Null), window(Value::Null, fake.clone())), (Ok(None), Ok(None)));
    let error = window(json!({"type": "Fake", "window": "1s"}), fake).unwrap_err().to_string();
    assert_eq!(error, "spec.metricsCollector.power.window: it must be 1m to 24h");
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
    let ValueSource::Prometheus { value, label, .. } = &parsed.sources[&Question::Usage].source else { panic!() };
    assert_eq!((value, label.as_str()), (&PrometheusValue::Usage(SignedDuration::from_mins(5)), "instance"));
}

#[rstest]
#[case("inletTemp", json!({"type": "IPMI", "endpoint": "https://a"}), "spec.metricsCollector.inletTemp.type: it must be one of Redfish, Fake")]
#[case("inletTemp", json!({"type": "Prometheus", "endpoint": "https://a"}), "spec.metricsCollector.inletTemp.type")]
#[case("deltaP", json!({"type": "DifferentialPressureAPI"}), "spec.metricsCollector.deltaP.endpoint: an http or https address is needed")]
#[case("deltaP", json!({"type": "DifferentialPressureAPI", "endpoint": "http:///x"}), "spec.metricsCollector.deltaP.endpoint")]
#[case("usage", json!({"type": "Prometheus", "endpoint": "http://a", "window": "25h"}), "spec.metricsCollector.usage.window: it must be 1m to 24h")]
#[case("power", json!({"type": "Prometheus", "endpoint": "http://a"}), "spec.metricsCollector.power.metric: it is needed: a metric such as ipmi_dcmi_")]
#[case("power", json!({"type": "Redfish", "endpoint": "http://a", "sensor": "Power"}), "spec.metricsCollector.power.sensor: it must be a path")]
#[case("power", json!({"type": "MetricsServer"}), "spec.metricsCollector.power.type: it must be one of Redfish, Prometheus, Fake")]
#[case("usage", json!({"type": "Fake", "fetchInterval": "1ms"}), "spec.metricsCollector.usage.fetchInterval: it must be 1s to 1h")]
#[case("usage", json!({"type": "Fake", "fetchInterval": "soon"}), "spec.metricsCollector.usage.fetchInterval")]
fn a_field_that_cannot_be_used_is_named(#[case] member: &str, #[case] term: Value, #[case] words: &str) {
    let spec = spec(json!({"nodeName": "n", "metricsCollector": {member: term}}));
    let error = ParsedNodeSpec::parse(&spec).unwrap_err().to_string();
    assert!(error.starts_with(words), "{error}");
}
