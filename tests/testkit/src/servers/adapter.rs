//! A real prometheus-adapter behind the API server's aggregation layer, which serves Prometheus metrics to autoscalers.

use anyhow::Result;

use crate::root;
use crate::servers::aggregation::Aggregated;
use crate::testbed::Testbed;

/// APIs of external metrics.
pub const EXTERNAL: [(&str, &str); 1] = [("external.metrics.k8s.io", "v1beta1")];

/// APIs of external and custom metrics.
pub const ALL: [(&str, &str); 3] =
    [EXTERNAL[0], ("custom.metrics.k8s.io", "v1beta1"), ("custom.metrics.k8s.io", "v1beta2")];

/// Starts it with the rules in this file, for the Prometheus at this address. It serves these APIs.
pub async fn start(testbed: &Testbed, prometheus: &str, rules: &str, apis: &[(&str, &str)]) -> Result<Aggregated> {
    let kubeconfig = ["lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"];
    let options = [
        "--metrics-relist-interval=2s".to_owned(),
        "--metrics-max-age=1m".to_owned(),
        format!("--prometheus-url={prometheus}"),
        format!("--config={}", root().join(rules).display()),
    ];
    Aggregated::start(testbed.into(), "prometheus-adapter", apis, &kubeconfig, &options).await
}
