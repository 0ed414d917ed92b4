//! Tests of the query texts. `tests/peers` should evaluate them.

use rstest::rstest;

use super::*;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn series(label: &str, matchers: &[(&str, &str)]) -> ExporterSeries {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ExporterSeries::new(label, &matchers.iter().map(owned).collect()).expect("names of labels")
}

#[test]
fn the_queries_are_those_of_the_rules() {
    let found = queries(secs(3600), secs(60), &series("instance", &[]), true).expect("queries");
    let cpu = "1000 * sum by (instance) (rate(node_cpu_seconds_total{mode!~\"idle|iowait\"}[120s]))";
    let memory = "max by (instance) (node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)";
    let expected = [
        (Statistic::CpuMean, format!("avg_over_time(({cpu})[3600s:60s])")),
        (Statistic::CpuDeviation, format!("stddev_over_time(({cpu})[3600s:60s])")),
        (Statistic::MemoryMean, format!("avg_over_time(({memory})[3600s:60s])")),
        (Statistic::MemoryDeviation, format!("stddev_over_time(({memory})[3600s:60s])")),
        (
            Statistic::Samples,
            format!(
                "count_over_time(({memory} and sum by (instance) (rate(node_cpu_seconds_total{{cpu=\"0\",mode=\"idle\"}}\
                 [120s])))[3600s:60s]) and (count by (instance) (node_memory_MemTotal_bytes) == 1)"
            ),
        ),
        (
            Statistic::Exporters,
            "count by (instance) (node_memory_MemTotal_bytes) > 1 \
             or count by (instance) (node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"}) > 1"
                .to_owned(),
        ),
        (Statistic::CpuForecast, format!("predict_linear(({cpu})[3600s:60s], 60)")),
        (Statistic::MemoryForecast, format!("predict_linear(({memory})[3600s:60s], 60)")),
    ];
    assert_eq!(found, expected);
    assert_eq!(queries(secs(3600), secs(60), &series("instance", &[]), false).expect("queries"), expected[..6]);
}

#[test]
fn a_rate_is_over_two_minutes_or_the_whole_step() {
    let all = queries(secs(86_400), secs(600), &series("node", &[]), true).expect("queries");
    for (statistic, query) in all {
        assert!(query.contains("by (node)"), "{query}");
        if statistic == Statistic::Exporters {
            continue;
        }
        assert!(query.contains("[86400s:600s]"), "{query}");
        assert!(!query.contains("[120s]") && !query.contains("instance"), "{query}");
        let is_memory = format!("{statistic:?}").starts_with("Memory");
        assert_eq!(query.contains("[600s]"), !is_memory, "{query}");
        assert_eq!(query.ends_with("], 600)"), format!("{statistic:?}").ends_with("Forecast"), "{query}");
    }
}

#[test]
fn each_selector_has_the_matchers() {
    let some = series("instance", &[("cluster", "east"), ("job", "node")]);
    for (statistic, query) in queries(secs(3600), secs(60), &some, true).expect("queries") {
        let metrics = query.matches("node_cpu").count() + query.matches("node_memory").count();
        let matched = query.matches(r#"cluster="east",job="node"}"#).count();
        assert!(metrics > 0 && metrics == matched, "{statistic:?}: {query}");
    }
}

#[rstest]
#[case(3600, Duration::ZERO, Some(QueryError::Step))]
#[case(3600, secs(14), Some(QueryError::Step))]
#[case(3600, Duration::from_millis(15_500), Some(QueryError::Step))]
#[case(149, secs(15), Some(QueryError::Window))]
#[case(150, secs(15), None)]
#[case(0, secs(60), Some(QueryError::Window))]
#[case(86_400, secs(60), None)]
#[case(86_460, secs(60), Some(QueryError::Window))]
#[case(u64::MAX, secs(u64::MAX), Some(QueryError::Window))]
fn windows_have_some_steps(#[case] window: u64, #[case] step: Duration, #[case] expected: Option<QueryError>) {
    assert_eq!(queries(secs(window), step, &series("node", &[]), false).err(), expected);
}

#[test]
fn errors_have_words() {
    let words = [QueryError::Step, QueryError::Window].map(|error| error.to_string());
    let expected = [
        "the step must be a whole number of seconds, and at least 15 s",
        "the window must be a whole number of seconds, and 10 to 1440 steps long",
    ];
    assert_eq!(words, expected);
}
