//! APIs with metrics that other servers, often called adapters, provide behind the API server: their groups and
//! versions, and what to do if one is missing or does not answer.

/// An API with metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsApi {
    pub group: &'static str,
    /// API versions in which it may be served. The first one is preferred.
    pub versions: &'static [&'static str],
    /// How to install a server for it.
    pub install: &'static str,
}

/// Usage of pods and nodes.
pub const RESOURCE_METRICS: MetricsApi = MetricsApi {
    group: "metrics.k8s.io",
    versions: &["metrics.k8s.io/v1beta1"],
    install: "install metrics-server (https://github.com/kubernetes-sigs/metrics-server)",
};

/// Metrics of Kubernetes objects.
pub const CUSTOM_METRICS: MetricsApi = MetricsApi {
    group: "custom.metrics.k8s.io",
    versions: &["custom.metrics.k8s.io/v1beta2", "custom.metrics.k8s.io/v1beta1"],
    install: "install an adapter, such as prometheus-adapter",
};

/// Metrics of anything else.
pub const EXTERNAL_METRICS: MetricsApi = MetricsApi {
    group: "external.metrics.k8s.io",
    versions: &["external.metrics.k8s.io/v1beta1"],
    install: "install an adapter, such as prometheus-adapter or KEDA",
};

impl MetricsApi {
    /// Message if no server is registered for the API.
    pub fn not_served(&self) -> String {
        format!("the API server does not serve {}: {}", self.group, self.install)
    }

    /// Message if its server does not answer. `answer`: the answer of the API server, such as `503 Service
    /// Unavailable`.
    pub fn unavailable(&self, api_version: &str, answer: &str) -> String {
        format!(
            "the API server answers {answer} for {}, so the adapter behind it is down or not reached: {} shows why",
            self.group,
            condition_command(api_version)
        )
    }

    /// Message if its server fails a request.
    pub fn failed(&self, answer: &str) -> String {
        format!("the adapter behind {} answers {answer}: its log says why", self.group)
    }

    /// Message if it has no such metric. `metric`: the metric and what it is a metric of.
    pub fn no_metric(&self, api_version: &str, metric: &str) -> String {
        format!(
            "the adapter behind {} has no {metric}: check the names and the rules of the adapter; kubectl get --raw \
             /apis/{api_version} lists its metrics",
            self.group
        )
    }
}

/// Command that shows the condition of the APIService of this API version.
fn condition_command(api_version: &str) -> String {
    let service =
        api_version.split_once('/').map_or_else(|| api_version.to_owned(), |(group, v)| format!("{v}.{group}"));
    format!("the condition Available of `kubectl describe apiservice {service}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_names_the_next_step() {
        let version = EXTERNAL_METRICS.versions[0];
        let down = EXTERNAL_METRICS.unavailable(version, "503 Service Unavailable");
        assert!(down.contains("kubectl describe apiservice v1beta1.external.metrics.k8s.io"), "{down}");
        let none = CUSTOM_METRICS.no_metric(CUSTOM_METRICS.versions[0], "metric a of pods in namespace shop");
        assert!(none.contains("kubectl get --raw /apis/custom.metrics.k8s.io/v1beta2 lists"), "{none}");
        for api in [RESOURCE_METRICS, CUSTOM_METRICS, EXTERNAL_METRICS] {
            assert!(api.versions.iter().all(|version| version.starts_with(&format!("{}/", api.group))), "{api:?}");
            assert!(api.not_served().contains(": install "), "{api:?}");
        }
    }
}
