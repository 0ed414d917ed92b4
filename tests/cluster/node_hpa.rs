//! An autoscaler that scales by values of nodes, through a real Prometheus and a real prometheus-adapter.

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::json;
use testkit::block_on;
use testkit::plane::Plane;
use testkit::servers::adapter;
use testkit::servers::prometheus::{PrometheusProcess, PrometheusVersion};
use testkit::testbed::loops::until;
use testkit::testbed::nodes::Size;
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, story_on};

/// Rules file in the repository.
const RULES: &str = "config/prometheus-adapter/rules.yaml";

#[test]
fn an_autoscaler_scales_by_the_inlet_temperature_of_a_node() {
    // A separate plane, because it registers an API for the whole cluster.
    let plane = block_on(Plane::own("node-hpa", 1)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "node-hpa", async |testbed| {
        let nodes = testbed.nodes(1, Size::default()).await?;
        let node = nodes.names[0].as_str();
        let config = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "one"},
            "spec": {"nodeName": node, "metricsCollector": {"inletTemp": {"type": "Fake", "fetchInterval": "1s"}}},
        });
        testbed.kubectl(&["apply", "-f", "-"], Some(&config.to_string())).await?;
        Workload::deployment("web", 1).create(testbed).await?;
        let operator = testbed.operator.lock().await.address();
        let prometheus = PrometheusProcess::scraping(PrometheusVersion::V2_42, &operator).await?;
        let adapter = adapter::start(testbed, &prometheus.url(), RULES, &adapter::EXTERNAL).await?;
        // 15.5 degrees are half as much again as 10.
        let selector = json!({"matchLabels": {"node": node}});
        let metric = json!({"name": "ganglion_node_inlet_temperature_celsius", "selector": selector});
        testbed
            .create::<HorizontalPodAutoscaler>(json!({
                "metadata": {"name": "web"},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                    "minReplicas": 1, "maxReplicas": 2,
                    "metrics": [{"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "10"}}}],
                },
            }))
            .await?;
        let scaled = until::<Deployment, _>(testbed, "web", "the autoscaler to act", |one| {
            (one.spec?.replicas? == 2).then_some(())
        })
        .await;
        ensure!(scaled.is_ok(), "{scaled:?}\n{}", adapter.log());
        let seen = testbed
            .kubectl(&["get", "hpa", "web", "-o", "jsonpath={.status.currentMetrics[0].external.current.value}"], None)
            .await?;
        ensure!(seen.trim() == "15500m", "{seen}");
        Ok(())
    });
}
