//! A HorizontalPodAutoscaler and a loop, each with a Deployment of its own, in the same situation. The page of the kind
//! has the table of what each does.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use testkit::block_on;
use testkit::plane::Plane;
use testkit::servers::usage::{self, uses};
use testkit::testbed::loops::{ACCOUNT, SCALES, account, grant_more, put, replicas, until, with_loops};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};
use testkit::verdict::APP;

/// Number of pods of each Deployment before it is scaled.
const PODS: i32 = 5;

/// A Deployment whose pods request one core and are not measured: metrics-server drops a pod that uses no memory.
fn unmeasured(name: &str) -> Workload {
    let replicas = usize::try_from(PODS).unwrap_or_default();
    Workload::deployment(name, replicas).requests(json!({"cpu": "1"})).annotate("kwok.x-k8s.io/usage-memory", "0")
}

/// Names of the pods of this Deployment.
async fn pods(testbed: &Testbed, name: &str) -> Result<Vec<String>> {
    let pods = testbed.api::<Pod>().list(&ListParams::default().labels(&format!("{APP}={name}"))).await?;
    Ok(pods.items.iter().map(ResourceExt::name_any).collect())
}

/// Waits until the autoscaler and the loop work by this usage, in percent of the request of the measured pods.
async fn both_see(testbed: &Testbed, percent: i32) -> Result<()> {
    let is_near = |value: f64| (value - f64::from(percent)).abs() <= 0.1 * f64::from(percent).max(10.0);
    until::<HorizontalPodAutoscaler, _>(testbed, "hpa", &format!("the autoscaler to see {percent} %"), |hpa| {
        let metric = hpa.status?.current_metrics?.into_iter().next()?;
        is_near(f64::from(metric.resource?.current.average_utilization?)).then_some(())
    })
    .await?;
    until::<Monitoring, _>(testbed, "loop", &format!("the loop to see {percent} %"), |monitoring| {
        let value = monitoring.status?.values.into_iter().next()?.value;
        is_near(value.as_str().parse().ok()?).then_some(())
    })
    .await
}

/// Waits until a Deployment has this number of replicas.
async fn scaled(testbed: &Testbed, name: &str, number: i32) -> Result<()> {
    until::<Deployment, _>(testbed, name, &format!("{name} to have {number} replicas"), |deployment| {
        (deployment.spec?.replicas? == number).then_some(())
    })
    .await
}

#[test]
fn pods_that_are_not_measured_count_for_a_loop_as_for_an_autoscaler() {
    // A separate plane, because it registers an API for the whole plane.
    let plane = block_on(Plane::own("loop-hpa", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "loop-hpa", async |testbed| {
        let server = usage::start(testbed, Duration::from_secs(10)).await?;
        let told = beside_each_other(testbed).await.map_err(|error| error.context(server.log()));
        match told {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}

async fn beside_each_other(testbed: &Testbed) -> Result<()> {
    for name in ["hpa", "loop"] {
        unmeasured(name).make(testbed).await?;
    }
    account(testbed, SCALES).await?;
    grant_more(testbed, "reads", &[("metrics.k8s.io", "pods", "list"), ("", "pods", "list")]).await?;
    let mut measured = Vec::new();
    for name in ["hpa", "loop"] {
        measured.push(pods(testbed, name).await?.into_iter().next().context("no pod")?);
    }
    let use_one = async |cpu: &str| {
        for pod in &measured {
            uses(testbed, pod, cpu, "64Mi").await?;
        }
        anyhow::Ok(())
    };
    use_one("40m").await?;
    // Without a window, the autoscaler lowers as soon as its metric says so.
    let resource = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
    testbed
        .create::<HorizontalPodAutoscaler>(json!({
            "metadata": {"name": "hpa"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hpa"},
                "minReplicas": 1, "maxReplicas": 9,
                "metrics": [{"type": "Resource", "resource": resource}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        }))
        .await?;
    let action = |side: &str, scale: serde_json::Value| json!({"when": {"metric": "cpu", "side": side}, "ladder": [{"scale": scale}]});
    let spec = json!({
        "interval": "1s",
        // Otherwise, a value that raises no alarm is written with the next heartbeat.
        "trace": "EverySample",
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "loop"},
        "metrics": [{
            "name": "cpu", "source": {"resource": {"resource": "cpu", "unit": "Utilization"}},
            "low": {"raise": "40"}, "high": {"raise": "54"},
        }],
        "actions": [action("Low", json!({"by": -1, "min": 1})), action("High", json!({"by": 1, "max": 9}))],
    });
    put(testbed, "loop", spec).await?;

    // 4 % is far below the target. With the missing pods at 100 %, it is 81 %: neither lowers.
    both_see(testbed, 4).await?;
    // 90 % is far above the target. With the missing pods at 0, it is 18 %: neither raises.
    use_one("900m").await?;
    both_see(testbed, 90).await?;
    // With the missing pods at 0, 290 % is 58 %, and 48 % with a sixth pod: both add this one, and no other.
    use_one("2900m").await?;
    both_see(testbed, 290).await?;
    for name in ["hpa", "loop"] {
        scaled(testbed, name, PODS + 1).await?;
    }
    // With the missing pods at 0, 240 % is 40 %: they stay.
    use_one("2400m").await?;
    both_see(testbed, 240).await?;
    for name in ["hpa", "loop"] {
        let (generation, number) = replicas(testbed, name).await?;
        ensure!(
            (generation, number) == (2, PODS + 1),
            "{name} was scaled to {number}, and {generation} times with that"
        );
    }
    // All pods are measured, so both lower.
    for name in ["hpa", "loop"] {
        for pod in pods(testbed, name).await? {
            uses(testbed, &pod, "40m", "64Mi").await?;
        }
    }
    scaled(testbed, "hpa", 1).await?;
    scaled(testbed, "loop", 1).await
}
