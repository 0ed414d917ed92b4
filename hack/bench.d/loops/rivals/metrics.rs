//! The server of external.metrics.k8s.io behind the plane's API server. The metric of each Deployment has its name, and
//! the same values on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use testkit::plane::cluster::Cluster;
use testkit::servers::aggregation::{AggregationHost, aggregate};
use testkit::servers::http::{Authority, Manner, Server};

use super::Side;

pub const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "v1beta1";

/// The server, which stops with the tokio runtime.
pub struct MetricsServer {
    read: Arc<[AtomicUsize; 2]>,
    _server: Server,
}

impl MetricsServer {
    /// Starts it and registers it with the plane. `value` returns the value of a metric; None if there is none of this
    /// name.
    pub async fn start(cluster: &Cluster, value: impl Fn(&str) -> Option<f64> + Send + Sync + 'static) -> Result<Self> {
        let read = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let counts = Arc::clone(&read);
        let route = move |path: &str| answer(path, &counts, &value);
        let server = Server::secure(Manner::Routes(Arc::new(route)), &Authority::create()).await;
        let namespace = Side::Autoscalers.namespace();
        aggregate(AggregationHost { cluster, namespace }, GROUP, VERSION, server.address.port()).await?;
        let service = format!("apiservice/{VERSION}.{GROUP}");
        cluster.kubectl(&["wait", "--for=condition=Available", &service, "--timeout=60s"], None).await?;
        Ok(Self { read, _server: server })
    }

    /// Number of values that this side has read so far.
    pub fn read_by(&self, side: Side) -> usize {
        self.read[index(side)].load(Ordering::Relaxed)
    }
}

fn index(side: Side) -> usize {
    match side {
        Side::Autoscalers => 0,
        Side::Loops => 1,
    }
}

fn answer(path: &str, counts: &[AtomicUsize; 2], value: impl Fn(&str) -> Option<f64>) -> Manner {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let says = |body: Value| Manner::Says("200 OK\nContent-Type: application/json\r\n", body.to_string());
    let Some(rest) = path.strip_prefix(&format!("/apis/{GROUP}/{VERSION}")) else {
        return Manner::Says("404 Not Found", String::new());
    };
    let api_version = format!("{GROUP}/{VERSION}");
    let mut parts = rest.trim_start_matches("/namespaces/").splitn(2, '/');
    let (Some(namespace), Some(name)) = (parts.next(), parts.next()) else {
        return says(
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": []}),
        );
    };
    let side = Side::BOTH.into_iter().find(|side| side.namespace() == namespace);
    let (Some(side), Some(value)) = (side, value(name)) else {
        return Manner::Says("404 Not Found", String::new());
    };
    counts[index(side)].fetch_add(1, Ordering::Relaxed);
    let item = json!({
        "metricName": name, "metricLabels": {}, "timestamp": Timestamp::now().to_string(),
        "value": format!("{}m", (value * 1e3).round()),
    });
    says(json!({"kind": "ExternalMetricValueList", "apiVersion": api_version, "metadata": {}, "items": [item]}))
}
