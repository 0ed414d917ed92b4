//! Election of the policy that publishes the usage of nodes, and its parsed options.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Statistic;
use super::queries::queries;
use crate::record::SampleRules;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::{PlacementPolicy, PrometheusServer, PublishUsage};
use ganglion_api::scalars::DurationText;
use ganglion_core::duration;
use ganglion_core::exporter_series::ExporterSeries;
use ganglion_core::namespaces::Namespaces;

const WINDOW: Duration = Duration::from_secs(3600);
const STEP: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(60);
const LABEL: &str = "instance";

/// Parsed options of the policy that publishes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UsagePublication {
    /// Name of the policy.
    pub policy: String,
    pub server: PrometheusServer,
    /// Series of the nodes.
    pub series: ExporterSeries,
    pub interval: Duration,
    /// Age at which annotations that are not renewed are removed.
    pub max_age: SignedDuration,
    /// Queries by statistic; at least one.
    pub queries: Vec<(Statistic, String)>,
}

/// Reason and message of a policy that does not publish.
pub type PublishProblem = (PolicyReason, String);

impl UsagePublication {
    /// Parses the options of a policy. Fails if an option is invalid, or if the operator must not read Secrets in the
    /// namespace.
    pub fn parse(
        policy: &PlacementPolicy,
        options: &PublishUsage,
        allowed: Namespaces,
    ) -> Result<Self, PublishProblem> {
        let PublishUsage { prometheus, node_label, matchers, window, step, interval, forecast } = options;
        let server = prometheus.clone();
        if let Some(words) = server.namespace.as_deref().and_then(|namespace| allowed.refusal(namespace)) {
            return Err((PolicyReason::NamespaceRefused, words));
        }
        let invalid = |words: String| (PolicyReason::SpecInvalid, format!("publishUsage: {words}"));
        let all = BTreeMap::new();
        let series = ExporterSeries::new(node_label.as_deref().unwrap_or(LABEL), matchers.as_ref().unwrap_or(&all))
            .map_err(|error| invalid(error.to_string()))?;
        let (window, step) = (time("window", window.as_ref(), WINDOW)?, time("step", step.as_ref(), STEP)?);
        let queries =
            queries(window, step, &series, forecast.unwrap_or(false)).map_err(|error| invalid(error.to_string()))?;
        let interval = time("interval", interval.as_ref(), INTERVAL)?;
        let name = policy.metadata.name.clone().unwrap_or_default();
        Ok(Self { policy: name, server, series, interval, max_age: max_age(policy), queries })
    }

    /// Maximum pause after failed polls, so that annotations of an earlier poll do not expire before the next one.
    pub fn longest_pause(&self) -> Duration {
        Duration::try_from(self.max_age / 3).unwrap_or_default().max(self.interval)
    }
}

/// `maxAge` of a policy; the default if it is unset or invalid.
fn max_age(policy: &PlacementPolicy) -> SignedDuration {
    let parsed = policy.spec.max_age.as_ref().and_then(|text| duration::parse(text.as_str()).ok());
    parsed.unwrap_or(SampleRules::default().max_age)
}

fn time(field: &str, text: Option<&DurationText>, default: Duration) -> Result<Duration, PublishProblem> {
    let Some(text) = text else { return Ok(default) };
    let invalid = |words: String| (PolicyReason::SpecInvalid, format!("publishUsage.{field}: {words}"));
    let parsed = duration::parse(text.as_str()).map_err(|error| invalid(error.to_string()))?;
    Duration::try_from(parsed).map_err(|error| invalid(error.to_string()))
}

/// Policies that are not terminating.
fn present<'a, P: AsRef<PlacementPolicy> + 'a>(
    policies: impl Iterator<Item = &'a P>,
) -> impl Iterator<Item = &'a PlacementPolicy> {
    policies.map(AsRef::as_ref).filter(|policy| policy.metadata.deletion_timestamp.is_none())
}

/// Elects the policy that publishes: the oldest one with valid `publishUsage` options. A new policy does not change the
/// winner.
pub fn publisher<'a, P: AsRef<PlacementPolicy> + 'a>(
    policies: impl Iterator<Item = &'a P>,
    allowed: Namespaces,
) -> Option<UsagePublication> {
    let mut wants: Vec<_> =
        present(policies).filter_map(|policy| Some((policy, policy.spec.publish_usage.as_ref()?))).collect();
    wants.sort_by_cached_key(|(policy, _)| {
        let made = policy.metadata.creation_timestamp.as_ref();
        (made.map_or(Timestamp::MAX, |time| time.0), policy.metadata.name.clone())
    });
    wants.into_iter().find_map(|(policy, options)| UsagePublication::parse(policy, options, allowed).ok())
}

/// Shortest `maxAge` of all policies; None without a policy.
pub fn shortest_age<'a, P: AsRef<PlacementPolicy> + 'a>(
    policies: impl Iterator<Item = &'a P>,
) -> Option<SignedDuration> {
    present(policies).map(max_age).min()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, made: &str, spec: Value) -> Arc<PlacementPolicy> {
        let metadata = json!({"name": name, "creationTimestamp": made});
        Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a policy"))
    }

    fn spec(publish: Value) -> Value {
        json!({"agents": [{"name": "safe", "safe": {}}], "maxAge": "10m", "publishUsage": publish})
    }

    fn parsed(publish: Value, allowed: Namespaces) -> Result<UsagePublication, PublishProblem> {
        let policy = policy("p", "2026-01-01T00:00:00Z", spec(publish));
        UsagePublication::parse(&policy, policy.spec.publish_usage.as_ref().expect("options"), allowed)
    }

    fn with(member: &str, value: Value) -> Value {
        let mut publish = json!({"prometheus": {"url": "http://prometheus:9090"}});
        publish[member] = value;
        publish
    }

    #[test]
    fn the_options_have_defaults() {
        let plain = parsed(with("forecast", json!(false)), Namespaces::default()).expect("valid");
        assert_eq!((plain.series.label(), plain.interval), ("instance", Duration::from_secs(60)));
        assert_eq!((plain.max_age, plain.queries.len()), (SignedDuration::from_mins(10), 6));
        assert!(
            plain
                .queries
                .iter()
                .filter(|(statistic, _)| !matches!(statistic, Statistic::Samples | Statistic::Exporters))
                .all(|(_, text)| text.ends_with("[3600s:60s])"))
        );
        let forecast = parsed(with("forecast", json!(true)), Namespaces::default()).expect("valid");
        assert_eq!(forecast.queries.len(), 8);
    }

    #[rstest]
    #[case("window", "9m", "publishUsage: the window must be")]
    #[case("window", "25h", "publishUsage: the window must be")]
    #[case("step", "14s", "publishUsage: the step must be")]
    #[case("interval", "soon", "publishUsage.interval: \"soon\" is not a duration")]
    #[case("nodeLabel", "a-b", "publishUsage: the node label is not")]
    #[case("matchers", json!({"a-b": "c"}), "publishUsage: matchers contains a name that is not")]
    fn an_invalid_option_is_named(#[case] member: &str, #[case] value: impl Into<Value>, #[case] words: &str) {
        let (reason, said) = parsed(with(member, value.into()), Namespaces::default()).expect_err("invalid");
        assert!(reason == PolicyReason::SpecInvalid && said.starts_with(words), "{reason:?} {said}");
    }

    #[test]
    fn secrets_of_kubernetes_itself_are_read_where_the_settings_allow_it() {
        let server = json!({"url": "http://a", "namespace": "kube-system", "auth": {"basic": {"name": "s"}}});
        let refused = parsed(json!({"prometheus": server}), Namespaces::default()).map_err(|(reason, _)| reason);
        assert_eq!(refused, Err(PolicyReason::NamespaceRefused));
        assert!(parsed(json!({"prometheus": server}), Namespaces { allow_kube: true }).is_ok());
    }

    #[test]
    fn the_oldest_of_those_that_want_to_publishes() {
        let publish = || spec(json!({"prometheus": {"url": "http://a"}}));
        let silent = || json!({"agents": [{"name": "safe", "safe": {}}]});
        let (first, second) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let of = |all: &[Arc<PlacementPolicy>]| {
            publisher(all.iter(), Namespaces::default()).map(|elected| elected.policy).unwrap_or_default()
        };
        assert_eq!(of(&[policy("a", second, publish()), policy("b", first, publish())]), "b");
        assert_eq!(of(&[policy("b", first, publish()), policy("a", first, publish())]), "a", "by name");
        assert_eq!(of(&[policy("a", first, silent()), policy("b", second, publish())]), "b");
        assert_eq!(of(&[policy("a", first, silent())]), "");
        let mut going = (*policy("a", first, publish())).clone();
        going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
        assert_eq!(of(&[Arc::new(going), policy("b", second, publish())]), "b", "one that is being deleted");
        let invalid = || spec(with("window", json!("9m")));
        assert_eq!(of(&[policy("a", first, invalid()), policy("b", second, publish())]), "b", "an invalid one");
        assert_eq!(of(&[policy("a", first, invalid())]), "");
    }

    #[test]
    fn the_shortest_age_is_that_of_all_policies() {
        let of = |all: &[Arc<PlacementPolicy>]| shortest_age(all.iter()).map(|age| age.as_secs());
        let made = "2026-01-01T00:00:00Z";
        let aged = |age: &str| policy("p", made, json!({"agents": [{"name": "safe", "safe": {}}], "maxAge": age}));
        let plain = || policy("p", made, json!({"agents": [{"name": "safe", "safe": {}}]}));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[plain()]), Some(300));
        assert_eq!(of(&[aged("10m"), plain(), aged("1m")]), Some(60));
    }

    #[rstest]
    #[case("1m", "10m", 200)]
    #[case("1s", "10s", 3)]
    #[case("1m", "1m", 60)] // An interval that the schema does not allow.
    fn polls_that_fail_are_repeated_before_the_values_are_too_old(
        #[case] interval: &str,
        #[case] age: &str,
        #[case] expected: u64,
    ) {
        let mut spec = spec(with("interval", json!(interval)));
        spec["maxAge"] = json!(age);
        let policy = policy("p", "2026-01-01T00:00:00Z", spec);
        let elected = publisher([&policy].into_iter(), Namespaces::default()).expect("valid");
        assert_eq!(elected.longest_pause().as_secs(), expected);
    }
}
