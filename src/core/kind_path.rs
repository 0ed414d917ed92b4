//! URL paths of the API server. Every path that contains text of a user is built here, from checked segments: no text
//! addresses anything but the objects of one kind.

use thiserror::Error;

use crate::names::{is_api_version, is_name};
use crate::words::quoted;

/// URL path of the objects of a kind, in a namespace or in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindPath(String);

/// The text cannot be part of a path.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{} cannot be part of a path of the API server", quoted(.0))]
pub struct BadSegment(String);

impl KindPath {
    /// Path of the namespaced objects of this kind.
    pub fn namespaced(api_version: &str, namespace: &str, plural: &str) -> Result<Self, BadSegment> {
        let Self(version) = Self::of_version(api_version)?;
        Ok(Self(format!("{version}/namespaces/{}/{}", segment(namespace)?, segment(plural)?)))
    }

    /// Path of an API version, where the API server lists its kinds.
    pub fn of_version(api_version: &str) -> Result<Self, BadSegment> {
        if !is_api_version(api_version) {
            return Err(BadSegment(api_version.to_owned()));
        }
        let root = if api_version.contains('/') { "apis" } else { "api" };
        Ok(Self(format!("/{root}/{api_version}")))
    }

    /// Path of the reviews of this kind, which have neither name nor namespace.
    pub fn of_review(api_version: &str, plural: &str) -> Result<Self, BadSegment> {
        let Self(version) = Self::of_version(api_version)?;
        Ok(Self(format!("{version}/{}", segment(plural)?)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// URL path and query of the values of a metric, at an API with metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricPath(String);

/// Name of a metric, with the selector of its values and the namespace in which they are read.
#[derive(Clone, Copy, Debug)]
pub struct MetricQuery<'a> {
    pub api_version: &'a str,
    pub namespace: &'a str,
    pub metric: &'a str,
    /// Label selector as text; empty: none.
    pub selector: &'a str,
}

impl MetricPath {
    /// Path of an external metric. It has a namespace, even if the adapter ignores it.
    pub fn external(query: MetricQuery<'_>) -> Result<Self, BadSegment> {
        Self::of(query, "", [("labelSelector", query.selector)])
    }

    /// Path of a custom metric of the pods that this selector selects.
    pub fn of_pods(query: MetricQuery<'_>, pods: &str) -> Result<Self, BadSegment> {
        Self::of(query, "pods/*/", [("labelSelector", pods), ("metricLabelSelector", query.selector)])
    }

    /// Path of a custom metric of an object. `resource`: plural of its kind, with the API group after a dot unless that
    /// is the core group.
    pub fn of_object(query: MetricQuery<'_>, resource: &str, name: &str) -> Result<Self, BadSegment> {
        let object = format!("{}/{}/", segment(resource)?, segment(name)?);
        Self::of(query, &object, [("metricLabelSelector", query.selector)])
    }

    /// Path of a custom metric of the namespace itself.
    pub fn of_namespace(query: MetricQuery<'_>) -> Result<Self, BadSegment> {
        Self::of(query, "metrics/", [("metricLabelSelector", query.selector)])
    }

    fn of<const N: usize>(
        query: MetricQuery<'_>,
        object: &str,
        parameters: [(&str, &str); N],
    ) -> Result<Self, BadSegment> {
        let MetricQuery { api_version, namespace, metric, .. } = query;
        let KindPath(version) = KindPath::of_version(api_version)?;
        let is_valid = !metric.contains(['/', '%']) && !metric.trim_matches('.').is_empty();
        if !is_valid || metric.contains(char::is_control) {
            return Err(BadSegment(metric.to_owned()));
        }
        let mut path = format!("{version}/namespaces/{}/{object}{}", segment(namespace)?, escaped(metric));
        let mut separator = '?';
        for (name, value) in parameters.into_iter().filter(|(_, value)| !value.is_empty()) {
            path += &format!("{separator}{name}={}", escaped(value));
            separator = '&';
        }
        Ok(Self(path))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes all characters that mean something in a URL, as RFC 3986 has it.
fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let escape = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

/// Checks text that becomes a segment of a path.
pub fn segment(text: &str) -> Result<&str, BadSegment> {
    is_name(text).then_some(text).ok_or_else(|| BadSegment(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("v1", "shop", "pods", "/api/v1/namespaces/shop/pods")]
    #[case("apps/v1", "shop", "deployments", "/apis/apps/v1/namespaces/shop/deployments")]
    fn paths_of_kinds(#[case] version: &str, #[case] namespace: &str, #[case] plural: &str, #[case] expected: &str) {
        let path = KindPath::namespaced(version, namespace, plural);
        assert_eq!(path.as_ref().map(KindPath::as_str), Ok(expected));
    }

    #[rstest]
    #[case::a_kind_of_the_cluster("apps/v1/replicasets", "a", "b")]
    #[case::a_name("v1", "a", "b/c")]
    #[case::another_namespace("v1", "a/../b", "c")]
    #[case::up("v1", "..", "c")]
    #[case::query("apps/v1?watch=true", "a", "b")]
    #[case::escaped("apps%2Fv1", "a", "b")]
    #[case::empty("", "a", "b")]
    #[case::no_version("apps/", "a", "b")]
    fn text_that_leads_elsewhere_is_refused(#[case] version: &str, #[case] namespace: &str, #[case] plural: &str) {
        assert!(KindPath::namespaced(version, namespace, plural).is_err());
    }

    fn query<'a>(metric: &'a str, selector: &'a str) -> MetricQuery<'a> {
        MetricQuery { api_version: "a.b/v1", namespace: "shop", metric, selector }
    }

    #[test]
    fn paths_of_metrics() {
        let path = |path: Result<MetricPath, BadSegment>| path.unwrap().as_str().to_owned();
        let external = path(MetricPath::external(query("queue:length|a@b", "q in (a,b),!c")));
        let selector = "q%20in%20%28a%2Cb%29%2C%21c";
        assert_eq!(external, format!("/apis/a.b/v1/namespaces/shop/queue%3Alength%7Ca%40b?labelSelector={selector}"));
        let pods = path(MetricPath::of_pods(query("hits", "q=a"), "app=web"));
        let expected = "/apis/a.b/v1/namespaces/shop/pods/*/hits?labelSelector=app%3Dweb&metricLabelSelector=q%3Da";
        assert_eq!(pods, expected);
        let object = path(MetricPath::of_object(query("hits", ""), "deployments.apps", "web"));
        assert_eq!(object, "/apis/a.b/v1/namespaces/shop/deployments.apps/web/hits");
        let namespace = path(MetricPath::of_namespace(query("hits", "q=a")));
        assert_eq!(namespace, "/apis/a.b/v1/namespaces/shop/metrics/hits?metricLabelSelector=q%3Da");
    }

    proptest! {
        #[test]
        fn no_metric_adds_a_segment_or_a_parameter(metric in ".{0,20}", selector in ".{0,20}", name in ".{0,20}") {
            if let Ok(path) = MetricPath::of_object(query(&metric, &selector), "pods", &name) {
                let (path, query) = path.as_str().split_once('?').unwrap_or((path.as_str(), ""));
                let parts: Vec<&str> = path.split('/').skip(1).collect();
                prop_assert_eq!(&parts[..7], ["apis", "a.b", "v1", "namespaces", "shop", "pods", &name]);
                prop_assert!(parts.len() == 8 && !parts[7].trim_matches('.').is_empty());
                prop_assert!(!query.contains(['&', '#', ' ']) && query.matches('=').count() <= 1);
            }
        }

        #[test]
        fn no_text_adds_or_removes_a_segment(version in ".{0,20}", namespace in ".{0,20}", plural in ".{0,20}") {
            if let Ok(path) = KindPath::namespaced(&version, &namespace, &plural) {
                let parts: Vec<&str> = path.as_str().split('/').skip(1).collect();
                let own = if version.contains('/') { 3 } else { 2 };
                prop_assert_eq!(parts.len(), own + 3);
                prop_assert_eq!(&parts[own..], ["namespaces", &namespace, &plural]);
                prop_assert!(parts.iter().all(|part| !part.trim_matches('.').is_empty()));
                prop_assert!(!path.as_str().contains(['?', '#', '%', ' ']));
            }
        }
    }
}
