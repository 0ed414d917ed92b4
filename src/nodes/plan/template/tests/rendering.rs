//! Single texts: rendered results, and errors of invalid texts.

use rstest::rstest;

use super::*;

#[rstest]
#[case::plain("Inlet", "Inlet")]
#[case::wao("{{.Hostname}}", "worker-0")]
#[case::wao_spaced("a-{{ .Hostname }}-b", "a-worker-0-b")]
#[case::wao_trimmed("a {{- .Hostname -}} b", "aworker-0b")]
#[case::wao_address("{{ .IPv4.Address }}", "10.0.3.7")]
#[case::wao_octets("{{.IPv4.Octet1}}.{{.IPv4.Octet2}}.{{.IPv4.Octet3}}.{{.IPv4.Octet4}}", "10.0.3.7")]
#[case::wao_filter("{{ .Hostname | upper }}", "WORKER-0")]
#[case::own("{{ hostname }} {{ node.name }}", "worker-0 node-0")]
#[case::label("{{ node.labels[\"example.com/bmc\"] }}/{{ node.labels.rack }}", "10.9.8.7/r1")]
#[case::ipv6("[{{ ipv6.address }}]", "[fd00::7]")]
#[case::sum("{{ ipv4.octet4 | int + 100 }}", "107")]
#[case::wao_sum("{{ .IPv4.Octet4 | int + 100 }}", "107")]
#[case::sum_of_numbers("{{ ipv4.octet4 + 100 }}", "107")]
#[case::sum_of_texts("{{ (ipv4.address | split('.'))[3] | int + 1 }}", "8")]
#[case::padded("{{ \"%03d\" | format(ipv4.octet4) }}", "007")]
#[case::suffix("{{ hostname | trim_suffix(\"-0\") | trim_prefix(\"wor\") }}", "ker")]
#[case::choice("{% if node.labels.rack == 'r1' %}a{% else %}b{% endif %}", "a")]
#[case::default("{{ node.labels.none | default('x') }}", "x")]
#[case::braces("{{ {'a': {'b': 'c'}}['a']['b'] }}", "c")]
#[case::quoted("{{ '}}' | replace('}}', 'x') }}", "x")]
#[case::comment("{# .Hostname #}a", "a")]
fn a_text_is_rendered(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(sensor_of(text, &worker()).as_deref(), Ok(expected));
}

/// Plain fields are all that works of Go templates; the error links to the page with the equivalents.
#[rstest]
#[case::function("{{ trimSuffix \"-a\" .Hostname }}")]
#[case::function_of_a_field("{{ upper .Hostname }}")]
#[case::pipe("{{ .Hostname | trimPrefix \"worker-\" }}")]
#[case::number("{{ add .IPv4.Octet3 10 }}")]
#[case::nested("{{ (split \".\" .Hostname)._0 }}")]
#[case::condition("{{ if eq .Hostname \"a\" }}x{{ end }}")]
#[case::keyword("x{{ end }}")]
#[case::comment("{{/* why */}}")]
#[case::variable("{{ $x := .Hostname }}")]
#[case::range("{{ range .Hostname }}")]
#[case::filter("{{ .Hostname | nospace }}")]
fn other_constructs_of_go_are_an_error_with_a_link(#[case] text: &str) {
    let error = sensor_of(text, &worker()).unwrap_err();
    assert!(error.starts_with("template.metricsCollector.inletTemp.sensor: "), "{error}");
    assert!(error.ends_with("see samples/nodeconfigtemplate/README.md#expressions"), "{error}");
}

/// Equivalents of functions that Go templates use most.
#[rstest]
#[case("{{ hostname | trim_suffix(\"-0\") }}", "worker")]
#[case("{{ hostname | replace(\"-\", \"_\") | upper }}", "WORKER_0")]
#[case("{{ node.labels.none | default(\"x\") }}", "x")]
#[case("{{ (ipv4.octet4 | int + 1) * 2 }}", "16")]
#[case("{{ \"%s-%03d\" | format(hostname, ipv4.octet4 | int) }}", "worker-0-007")]
#[case("{{ (hostname | split(\"-\"))[1] }}", "0")]
#[case("{{ hostname[:3] }}", "wor")]
#[case("{{ hostname is startingwith(\"work\") }}", "True")]
#[case("{{ \"a\" if hostname is startingwith(\"work\") else \"b\" }}", "a")]
#[case("{% if hostname == \"a\" %}x{% elif hostname == \"worker-0\" %}y{% endif %}", "y")]
fn an_equivalent_is_rendered(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(sensor_of(text, &worker()).as_deref(), Ok(expected));
}

#[rstest]
#[case::unclosed("a{{ .Hostname ", "`{{` at character 2 is not closed by `}}`")]
#[case::unclosed_block("{% if hostname %}", "syntax error")]
#[case::unclosed_text("{{ hostname | replace(\"a }}", "is not closed")]
#[case::empty("{{ }}", "has no expression")]
#[case::unknown_go("{{ .IPv4.Octet5 }}", "`.IPv4.Octet5` is unknown; there are hostname")]
#[case::unknown("{{ ipv4.octet5 }}", "`ipv4.octet5` is unknown")]
#[case::unknown_name("{{ host }}", "`host` is unknown")]
#[case::filter("{{ hostname | shout }}", "unknown filter")]
#[case::include("{% include 'a' %}", "syntax error")]
#[case::a_macro("{% macro a() %}{% endmacro %}", "syntax error")]
#[case::endless("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}", "takes too long")]
#[case::huge("{{ hostname * 1000000000 }}", "")]
#[case::long("{{ hostname * 100 }}", "is longer than 512 bytes")]
#[case::longer("{{ hostname * 1000 }}", "is longer than 2048 bytes")]
#[case::deep("{{ f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(1))))))))))))))))) }}", "nested too deep")]
#[case::many(
    "{{ 1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1 }}",
    "too long"
)]
#[case::again("{{ '{' ~ '{ hostname }' ~ '}' }}", "is not rendered again")]
#[case::raw("{% raw %}{{ hostname }}{% endraw %}", "is not rendered again")]
#[case::nothing("{{ '' }}", "is empty")]
#[case::control("a{{ '\\n' }}", "control characters")]
fn a_wrong_text_is_an_error(#[case] text: &str, #[case] expected: &str) {
    let error = sensor_of(text, &worker()).unwrap_err();
    assert!(error.contains(expected) && error.contains("metricsCollector.inletTemp.sensor"), "{error}");
}

#[rstest]
#[case::no_ipv4("{{ ipv4.octet4 }}", &["fd00::7"], "the node has no internal IPv4 address: undefined value: `ipv4.octet4`")]
#[case::no_ipv4_go("{{ .IPv4.Address }}", &[], "the node has no internal IPv4 address")]
#[case::no_sum("{{ ipv4.octet4 + 100 }}", &[], "the node has no internal IPv4 address")]
#[case::no_int("{{ ipv4.octet4 | int + 100 }}", &[], "the node has no internal IPv4 address")]
#[case::no_ipv6("{{ ipv6.address }}", &["10.0.0.1"], "the node has no internal IPv6 address")]
#[case::no_label("{{ node.labels['a/b'] }}", &[], "the node does not have this label")]
#[case::no_number("{{ hostname | int }}", &[], "invalid operation")]
#[case::no_number_go("{{ .Hostname | int }}", &[], "invalid operation")]
#[case::odd_address("{{ ipv4.address }}", &["10.0.0.256", "10.0.0", "10.0.0.+1", "1.2.3.4.5"], "no internal IPv4")]
fn what_a_node_lacks_is_its_error(#[case] text: &str, #[case] addresses: &[&str], #[case] expected: &str) {
    let compiled = compile(&template(json!({"type": "Fake", "sensor": text}))).expect("a template");
    let error = render(&compiled, &node("n", addresses, &[])).unwrap_err();
    assert!(matches!(error, RenderError::Node { .. }), "{error:?}");
    assert!(error.to_string().contains(expected), "{error}");
}

#[rstest]
#[case::secret("https://a", json!({"basicAuthSecret": {"name": "bmc-{{ hostname | upper }}"}}), "basicAuthSecret.name")]
#[case::ca("https://a", json!({"ca": {"configMap": {"name": "{{ hostname }}.", "key": "k"}}}), "ca.configMap.name")]
#[case::type_("https://a", json!({"type": "{{ hostname }}"}), "type is \"worker-0\", which must be one of Redfish, Fake")]
#[case::no_url("{{ hostname }}", json!({}), "must begin with http")]
#[case::no_host("http://{{ '' }}/a", json!({}), "host")]
#[case::octet("https://10.0.0.{{ ipv4.octet4 | int + 300 }}", json!({}), "not a valid IPv4 address")]
#[case::space("https://{{ hostname }} b", json!({}), "must be escaped")]
#[case::port("https://a:{{ ipv4.octet4 | int + 70000 }}", json!({}), "port")]
#[case::user("https://{{ hostname }}:secret@a", json!({}), "basicAuthSecret")]
#[case::scheme("ftp://{{ hostname }}", json!({}), "must begin with http")]
#[case::bare_ipv6("https://{{ ipv6.address }}", json!({}), "")]
fn a_result_that_no_machine_has_is_an_error(#[case] endpoint: &str, #[case] more: Value, #[case] expected: &str) {
    let mut term = json!({"type": "Redfish", "endpoint": endpoint});
    term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let compiled = compile(&template(term)).expect("a template");
    let error = render(&compiled, &worker()).unwrap_err();
    assert!(matches!(error, RenderError::Value { .. }) && error.to_string().contains(expected), "{error}");
}

#[test]
fn a_whole_template_is_rendered() {
    let all: NodeTemplate = serde_json::from_value(json!({
        "nodeName": "ignored",
        "metricsCollector": {
            "inletTemp": {"type": "Redfish", "endpoint": "https://10.0.100.{{.IPv4.Octet4}}",
                "basicAuthSecret": {"name": "redfish-basicauth-{{.Hostname}}"}, "fetchInterval": "10s",
                "ca": {"secret": {"name": "ca-{{ node.labels.rack }}", "key": "ca.crt"}}},
            "deltaP": {"type": "DifferentialPressureAPI", "endpoint": "http://[{{ ipv6.address }}]:5000"},
            "usage": {"type": "{% if hostname %}MetricsServer{% endif %}"},
        },
        "predictor": {
            "powerConsumption": {"type": "V2InferenceProtocol", "endpoint": "http://a.b:8080/v2/models/m/infer"},
            "powerConsumptionEndpointProvider": {"type": "Redfish", "endpoint": "https://{{ node.labels['example.com/bmc'] }}"},
        },
    }))
    .unwrap();
    let spec = render(&compile(&all).unwrap(), &worker()).unwrap();
    let expected = json!({
        "nodeName": "node-0",
        "metricsCollector": {
            "inletTemp": {"type": "Redfish", "endpoint": "https://10.0.100.7",
                "basicAuthSecret": {"name": "redfish-basicauth-worker-0"}, "fetchInterval": "10s",
                "ca": {"secret": {"name": "ca-r1", "key": "ca.crt"}}},
            "deltaP": {"type": "DifferentialPressureAPI", "endpoint": "http://[fd00::7]:5000"},
            "usage": {"type": "MetricsServer"},
        },
        "predictor": {
            "powerConsumption": {"type": "V2InferenceProtocol", "endpoint": "http://a.b:8080/v2/models/m/infer"},
            "powerConsumptionEndpointProvider": {"type": "Redfish", "endpoint": "https://10.9.8.7"},
        },
    });
    assert_eq!(serde_json::to_value(&spec).unwrap(), expected);
}

#[test]
fn a_node_without_the_label_is_called_by_its_name() {
    assert_eq!(sensor_of("{{ hostname }}", &node("a.b.c", &[], &[])).as_deref(), Ok("a.b.c"));
}
