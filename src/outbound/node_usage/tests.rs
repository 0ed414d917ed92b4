//! Queries, and mapping of the numbers in an answer to nodes. `tests/peers` evaluates the queries.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[rstest]
#[case(60, "[120s:15s]", "[120s]")]
#[case(300, "[300s:15s]", "[300s]")]
#[case(3_600, "[3600s:60s]", "[3600s]")]
#[case(86_400, "[86400s:1440s]", "[86400s]")]
fn windows_have_ranges_and_steps(#[case] window: u64, #[case] steps: &str, #[case] range: &str) {
    for statistic in UsageStatistic::ALL {
        let query = statistic.query(&series("instance", &[]), Duration::from_secs(window));
        let mean = matches!(statistic, UsageStatistic::CpuMean | UsageStatistic::MemoryMean);
        assert!(query.contains(if mean { range } else { steps }), "{query}");
        assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
    }
}

fn series(label: &str, matchers: &[(&str, &str)]) -> ExporterSeries {
    let owned = |(label, value): &(&str, &str)| ((*label).to_owned(), (*value).to_owned());
    ExporterSeries::new(label, &matchers.iter().map(owned).collect()).unwrap()
}

#[test]
fn rates_are_over_two_minutes_or_the_whole_step() {
    let query = |hours| UsageStatistic::CpuDeviation.query(&series("node", &[]), Duration::from_hours(hours));
    assert!(query(1).contains("{cpu=\"0\"}[120s]"), "{}", query(1));
    assert!(query(24).contains("{cpu=\"0\"}[1440s]"), "{}", query(24));
    assert!(!query(1).contains("instance"), "{}", query(1));
}

#[test]
fn each_selector_has_the_matchers() {
    let some = series("instance", &[("cluster", "a\"b\\c\nd"), ("job", "node")]);
    let queries = UsageStatistic::ALL.map(|statistic| statistic.query(&some, SHORTEST));
    for query in queries.into_iter().chain([some.ambiguous()]) {
        let metrics = query.matches("node_cpu").count() + query.matches("node_memory").count();
        let matched = query.matches(r#"cluster="a\"b\\c\nd",job="node"}"#).count();
        assert!(metrics > 0 && metrics == matched, "{query}");
    }
}

#[test]
fn a_node_for_which_two_exporters_answer_has_no_number() {
    let several = statistic(&[("worker-0:9100", "2")]);
    assert_eq!(several.one_exporter("worker-1", &[]), Ok(()));
    let error = several.one_exporter("worker-0", &[]).unwrap_err();
    assert!(matches!(error, ValueError::Ambiguous(_)) && error.to_string().contains("set matchers"), "{error}");
}

fn answer(label: &str, series: &[(&str, &str)]) -> Vec<u8> {
    let one = |(host, value): &(&str, &str)| json!({"metric": {label: host}, "value": [1_763_719_200.25, value]});
    let result: Vec<_> = series.iter().map(one).collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string().into_bytes()
}

fn statistic(series: &[(&str, &str)]) -> NodeStatistic {
    NodeStatistic::parse(StatusCode::OK, &answer("instance", series), "instance").unwrap()
}

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|one| one.parse().unwrap()).collect()
}

#[rstest]
#[case("worker-0")]
#[case("worker-0:9100")]
#[case("Worker-0:9100")]
#[case("10.0.0.5")]
#[case("10.0.0.5:9100")]
#[case("[fd00::5]:9100")]
#[case("[fd00::5]")]
#[case("fd00::5")]
#[case("[FD00:0:0::5]:65535")]
#[case("::ffff:10.0.0.5")]
fn a_node_finds_its_series(#[case] label: &str) {
    let all = statistic(&[("worker-00", "1"), (label, "42.5"), ("10.0.0.50:9100", "2"), ("[fd00::50]:9100", "3")]);
    assert_eq!(all.of("worker-0", &addresses(&["10.0.0.5", "fd00::5"])), Ok(42.5));
}

#[rstest]
#[case("worker-0:http")]
#[case("worker-0:")]
#[case("worker-0:65536")]
#[case("worker-0:9100:1")]
#[case("10.0.0.5/9100")]
#[case("http://worker-0:9100")]
#[case("[worker-0]:9100")]
#[case("[fd00::5]9100")]
#[case("fd00::5:9100")]
#[case("")]
#[case(":9100")]
fn another_label_is_not_of_the_node(#[case] label: &str) {
    let error = statistic(&[(label, "42.5")]).of("worker-0", &addresses(&["10.0.0.5", "fd00::5"])).unwrap_err();
    let words = "the server has no series of node-exporter for node worker-0: set nodeLabel to the label that has its name or address";
    assert_eq!(error, ValueError::NotFound(words.into()));
}

#[test]
fn a_node_that_is_named_like_its_address_has_one_series() {
    let all = statistic(&[("10.0.0.5:9100", "7")]);
    assert_eq!(all.of("10.0.0.5", &addresses(&["10.0.0.5"])), Ok(7.0));
}

#[rstest]
#[case(&[("worker-0:9100", "1"), ("10.0.0.5:9100", "1")])]
#[case(&[("worker-0:9100", "1"), ("worker-0:9101", "2")])]
#[case(&[("worker-0", "1"), ("worker-0", "2")])]
fn two_series_of_a_node_are_no_number(#[case] series: &[(&str, &str)]) {
    let error = statistic(series).of("worker-0", &addresses(&["10.0.0.5"])).unwrap_err();
    assert_eq!(
        error,
        ValueError::Ambiguous(
            "2 series of node-exporter are of node worker-0: set matchers to labels that only the right one has, or \
             another nodeLabel"
                .into()
        )
    );
}

#[rstest]
#[case("-0.25", Ok(0.0))]
#[case("100.3", Ok(100.0))]
#[case("1e-05", Ok(1e-05))]
#[case("NaN", Err("the server has no number for the node at the moment"))]
#[case("+Inf", Err("the server has no number for the node at the moment"))]
#[case("111", Err("the usage is not between 0 and 100 percent"))]
#[case("-11", Err("the usage is not between 0 and 100 percent"))]
fn numbers_are_percents(#[case] value: &str, #[case] expected: Result<f64, &str>) {
    let found = statistic(&[("a", value), ("b", "1")]).of("a", &[]).map_err(|error| error.to_string());
    assert_eq!(found, expected.map_err(str::to_owned));
}

#[rstest]
#[case(json!({"resultType": "vector", "result": [{"metric": {"job": "hunter2"}, "value": [1, "5"]}]}),
    "the series of node-exporter have no label instance: set nodeLabel")]
#[case(json!({"resultType": "vector", "result": [{"metric": {}, "histogram": []}]}), "the query gives a histogram, not a number")]
#[case(json!({"resultType": "matrix", "result": []}), "the query gives a matrix, not a number for each instance")]
#[case(json!({"resultType": "hunter2", "result": []}), "the answer is not a Prometheus reply")]
#[case(json!({"resultType": "vector", "result": [{"metric": {}, "value": [1, "hunter2"]}]}), "the answer is not a Prometheus reply")]
#[case(json!({"resultType": "vector", "result": [{"metric": {"instance": 5}, "value": [1, "5"]}]}), "the answer is not a Prometheus reply")]
#[case(json!({"resultType": "vector", "result": vec![json!({}); MAX_SERIES + 1]}), "the query gives 20001 series, more than 20000")]
fn an_answer_without_numbers_has_words(#[case] data: Value, #[case] words: &str) {
    let body = json!({"status": "success", "data": data}).to_string();
    let error = NodeStatistic::parse(StatusCode::OK, body.as_bytes(), "instance").unwrap_err();
    assert_eq!(error.to_string(), words);
}

#[test]
fn no_series_at_all_are_those_of_no_node() {
    assert!(matches!(statistic(&[]).of("a", &[]), Err(ValueError::NotFound(_))));
    let refused = NodeStatistic::parse(StatusCode::BAD_GATEWAY, b"hunter2", "instance").unwrap_err();
    assert_eq!(refused.to_string(), "the server answers 502 Bad Gateway");
}

fn list() -> Value {
    json!({"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [
        {"metadata": {"name": "a", "labels": {"b": "c"}}, "timestamp": "2026-11-21T10:00:05Z", "window": "20s",
            "usage": {"cpu": "1234567890n", "memory": "1048576Ki"}},
        {"metadata": {"name": "b"}, "timestamp": "hunter2", "usage": {"cpu": "hunter2", "memory": "-1Gi"}},
        {"metadata": {"name": "c"}, "timestamp": null, "usage": null},
    ]})
}

#[test]
fn measured_nodes_are_related_to_their_capacity() {
    let nodes = measured_nodes(list().to_string().as_bytes()).unwrap();
    let names: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.at.is_some())).collect();
    assert_eq!(names, [("a", true), ("b", false), ("c", false)]);
    let (cpu, memory) = (nodes[0].cpu_percent(4000).unwrap(), nodes[0].memory_percent(4 << 30));
    assert!((cpu - 30.864_197_25).abs() < 1e-9, "{cpu}");
    assert_eq!(memory, Ok(25.0));
    assert_eq!(nodes[0].at, Some("2026-11-21T10:00:05Z".parse().unwrap()));
    let words = |found: Result<f64, ValueError>| found.unwrap_err().to_string();
    assert_eq!(words(nodes[1].cpu_percent(4000)), "usage.cpu of the node is not a quantity");
    assert_eq!(words(nodes[1].memory_percent(4 << 30)), "the usage is not between 0 and 100 percent");
    assert_eq!(words(nodes[2].cpu_percent(4000)), "cpu of the node is not measured at the moment");
    assert_eq!(words(nodes[0].cpu_percent(0)), "the node's status has no capacity of cpu");
    assert_eq!(words(nodes[0].memory_percent(-1)), "the node's status has no capacity of memory");
    assert_eq!(words(nodes[0].cpu_percent(500)), "the usage is not between 0 and 100 percent");
}

#[rstest]
#[case("{}", Ok(0))]
#[case(r#"{"items": null}"#, Ok(0))]
#[case(r#"{"items": [{"metadata": {}}]}"#, Err("the answer does not have the expected form at line 1, column 26"))]
#[case("<html>", Err("the answer is no JSON document: error at line 1, column 1"))]
fn a_list_of_another_form_has_words(#[case] body: &str, #[case] expected: Result<usize, &str>) {
    let found = measured_nodes(body.as_bytes()).map(|nodes| nodes.len()).map_err(|error| error.to_string());
    assert_eq!(found, expected.map_err(str::to_owned));
}

proptest! {
    /// For any port and other hosts, each host finds its own series and no other.
    #[test]
    fn each_host_finds_itself(
        hosts in prop::collection::btree_map("[a-z]([a-z0-9.-]{0,9}[a-z0-9])?", any::<u32>(), 1..20), port in any::<u16>(), with in any::<bool>(),
    ) {
        let labels: Vec<_> = hosts.iter().enumerate().map(|(at, (name, address))| {
            let host = if with { std::net::Ipv4Addr::from(*address).to_string() } else { name.clone() };
            (format!("{host}:{port}"), (at % 100).to_string())
        }).collect();
        let series: Vec<_> = labels.iter().map(|(label, value)| (label.as_str(), value.as_str())).collect();
        let all = statistic(&series);
        for (at, (name, address)) in hosts.iter().enumerate() {
            let same = hosts.values().filter(|other| *other == address).count();
            let found = all.of(name, &[std::net::Ipv4Addr::from(*address).into()]);
            if with && same > 1 {
                prop_assert!(matches!(found, Err(ValueError::Ambiguous(_))));
            } else {
                prop_assert_eq!(found, Ok((at % 100) as f64));
            }
        }
        prop_assert!(matches!(all.of("no.such-host", &[]), Err(ValueError::NotFound(_))));
    }

    #[test]
    fn any_label_is_read_without_a_panic(label in "\\PC*") {
        let _ = Host::parse(&label);
        let _ = statistic(&[(&label, "1")]).of(&label, &[]);
    }
}

#[rstest]
#[case("ipmi_dcmi_power_consumption_watts", "ipmi_dcmi_power_consumption_watts{cluster=\"east\"}")]
#[case("node_hwmon_power_average_watt", "node_hwmon_power_average_watt{cluster=\"east\"}")]
#[case("node:power:watts", "node:power:watts{cluster=\"east\"}")]
#[case(
    "kepler_node_platform_joules_total",
    "sum without (mode) (rate(kepler_node_platform_joules_total{cluster=\"east\"}[120s]))"
)]
fn a_metric_of_power_has_its_unit_in_its_name(#[case] metric: &str, #[case] query: &str) {
    assert_eq!(PowerMetric::new(metric).unwrap().query(&series("instance", &[("cluster", "east")])), query);
}

#[rstest]
#[case("")]
#[case("power")]
#[case("power_milliwatts")]
#[case("kepler_node_platform_joules")]
#[case("1_watts")]
#[case("up) or (b_watts")]
#[case("a{b=\"c\"}_watts")]
fn another_metric_is_refused(#[case] metric: &str) {
    assert!(matches!(PowerMetric::new(metric), Err(ValueError::Unfit(_))), "{metric}");
}

#[test]
fn power_of_a_node_is_one_series_and_more_than_nothing() {
    let answer = answer("instance", &[("worker-0", "250.5"), ("worker-1", "0"), ("worker-2", "1"), ("worker-2", "2")]);
    let all = NodeStatistic::parse_series(StatusCode::OK, &answer, "instance", "a_watts").unwrap();
    let watts = |node: &str| all.number(node, &[]).and_then(node_watts);
    assert_eq!(watts("worker-0"), Ok(250.5));
    assert!(matches!(watts("worker-1"), Err(ValueError::NoReading(_))));
    let error = watts("worker-2").unwrap_err();
    assert!(matches!(error, ValueError::Ambiguous(_)), "{error}");
    assert!(error.to_string().starts_with("2 series of a_watts are of node worker-2: set matchers"), "{error}");
    let error = watts("worker-3").unwrap_err().to_string();
    assert!(error.starts_with("the server has no series of a_watts for node worker-3: set nodeLabel"), "{error}");
    assert!(matches!(node_watts(1e6), Err(ValueError::Invalid(_))));
    assert!(matches!(node_watts(f64::NAN), Err(ValueError::NoReading(_))));
}
