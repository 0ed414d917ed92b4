//! A real prometheus-adapter behind the API server's aggregation layer, which serves Prometheus metrics to autoscalers.

use anyhow::Result;

use crate::root;
use crate::servers::aggregation::Aggregated;
use crate::testbed::Testbed;

/// Starts it with the rules in this file, for the Prometheus at this address. It serves external metrics.
pub async fn start(testbed: &Testbed, prometheus: &str, rules: &str) -> Result<Aggregated> {
    let kubeconfig = ["lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"];
    let options = [
        "--metrics-relist-interval=2s".to_owned(),
        "--metrics-max-age=1m".to_owned(),
        format!("--prometheus-url={prometheus}"),
        format!("--config={}", root().join(rules).display()),
    ];
    let api = ("external.metrics.k8s.io", "v1beta1");
    Aggregated::start(testbed, "prometheus-adapter", api, &kubeconfig, &options).await
}
