//! Loops that track a target beside HorizontalPodAutoscalers in kube-controller-manager: the same rules on the same
//! metrics, in one run, each side with Deployments of its own.
//!
//! Nothing creates pods: the plane runs without the deployment controller, and [`targets::Follower`] sets the status of
//! each Deployment as if its replicas were ready at once, on both sides.
//!
//! | file | content |
//! |---|---|
//! | `metrics` | the server of external.metrics.k8s.io that both sides read |
//! | `targets` | the Deployments, their status, and the changes of their replicas |

pub mod metrics;
pub mod targets;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::closed_loop::ClosedLoop;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::plane::audit::Audit;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::{self, Installed};
use testkit::testbed::loops::ACCOUNT;

use super::scene;
use crate::fleet;
use crate::frame::{Bench, default_garbage};

/// User of the autoscalers' controller.
pub const CONTROLLER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// Interval of the loops: the default of a ClosedLoop, and of the autoscalers' controller.
pub const INTERVAL: std::time::Duration = std::time::Duration::from_secs(15);

/// Value for each replica that both sides keep.
pub const TARGET: f64 = 10.0;

/// Maximum number of replicas, which is never reached.
const MAX: usize = 100;

/// Number of concurrent requests while objects are created or changed.
const WRITERS: usize = 8;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Autoscalers,
    Loops,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Autoscalers, Self::Loops];

    /// Namespace of its objects, which is also its name in the figures.
    pub fn namespace(self) -> &'static str {
        match self {
            Self::Autoscalers => "autoscalers",
            Self::Loops => "loops",
        }
    }
}

/// Pace of both sides.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Neither `behavior` nor `up` and `down`: at most twice the number in one interval, and a window of 300 s before
    /// it is lowered.
    Default,
    /// Lowers after 15 s.
    Window15,
    /// May reach any number in one interval.
    Unlimited,
}

impl Pace {
    /// Field `behavior` of an autoscaler.
    fn behavior(self) -> Value {
        match self {
            Self::Default => Value::Null,
            Self::Window15 => json!({"scaleDown": {"stabilizationWindowSeconds": 15}}),
            Self::Unlimited => {
                json!({"scaleUp": {"policies": [{"type": "Percent", "value": 10_000, "periodSeconds": 15}]}})
            }
        }
    }

    /// Adds `up` and `down` to the rung of a loop.
    fn add_to(self, scale: &mut Value) {
        match self {
            Self::Default => {}
            Self::Window15 => scale["down"] = json!({"window": "15s"}),
            Self::Unlimited => scale["up"] = json!({"policies": [{"percent": 10_000, "per": "15s"}]}),
        }
    }
}

/// Starts a plane with both namespaces, whose audit log has the requests of both sides.
pub async fn plane(bench: &Bench, part: &str) -> Result<(Cluster, Audit)> {
    let audit = Audit::beside(&bench.home(part)?, CONTROLLER)?;
    let without = ["--arg", "kcm=--controllers=-deployment-controller"].map(String::from);
    let cluster = bench.plane(part, 1, &[audit.options(), &default_garbage(), &without].concat()).await?;
    Installed::default().install(&cluster).await?;
    for side in Side::BOTH {
        fleet::namespace(&cluster.client, side.namespace()).await?;
    }
    let rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
        {"apiGroups": [metrics::GROUP], "resources": ["*"], "verbs": ["list"]},
    ]);
    scene::account(&cluster.client, Side::Loops.namespace(), ACCOUNT, &rules).await?;
    install::bind_loops(&cluster.client, Side::Loops.namespace()).await?;
    Ok((cluster, audit))
}

/// Creates an autoscaler on the Deployment of the same name.
pub async fn autoscaler(client: &Client, name: &str, pace: Pace) -> Result<()> {
    let object: HorizontalPodAutoscaler = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": MAX, "behavior": pace.behavior(),
            "metrics": [{"type": "External", "external": {
                "metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": TARGET.to_string()},
            }}],
        },
    }))?;
    autoscalers(client).create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Creates a loop on the Deployment of the same name.
pub async fn tracking_loop(client: &Client, name: &str, pace: Pace, mode: &str) -> Result<()> {
    let mut scale = json!({"track": {"type": "AverageValue", "target": TARGET.to_string()}, "min": 1, "max": MAX});
    pace.add_to(&mut scale);
    let object: ClosedLoop = serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": name},
        "spec": {
            "mode": mode, "interval": format!("{}s", INTERVAL.as_secs()), "serviceAccountName": ACCOUNT,
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "metrics": [{"name": "load", "source": {"external": {"metric": name}}}],
            "actions": [{"when": {"metric": "load", "side": "Target"}, "ladder": [{"scale": scale}]}],
        },
    }))?;
    loops(client).create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Sets the mode of a loop.
pub async fn set_mode(client: &Client, name: &str, mode: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"mode": mode}}));
    loops(client).patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

pub async fn delete_autoscalers(client: &Client) -> Result<()> {
    autoscalers(client).delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

/// Runs a request for each name.
pub async fn for_each<F>(names: impl Iterator<Item = String>, request: impl Fn(String) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    stream::iter(names).map(request).buffer_unordered(WRITERS).try_collect::<Vec<()>>().await?;
    Ok(())
}

/// Number of autoscalers or loops of this side that have read their metric and control their target.
pub async fn active(client: &Client, side: Side) -> Result<usize> {
    let is_true = |conditions: &[Condition]| {
        conditions.iter().any(|condition| condition.type_ == "Tracking" && condition.status == "True")
    };
    Ok(match side {
        Side::Autoscalers => {
            let all = autoscalers(client).list(&ListParams::default()).await?;
            let conditions = all.iter().filter_map(|one| one.status.as_ref()?.conditions.as_ref());
            let is_active = |conditions: &&Vec<_>| {
                let mut conditions = conditions.iter();
                conditions.any(|condition: &k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition| {
                    condition.type_ == "ScalingActive" && condition.status == "True"
                })
            };
            conditions.filter(is_active).count()
        }
        Side::Loops => {
            let all = loops(client).list(&ListParams::default()).await?;
            all.iter().filter(|one| one.status.as_ref().is_some_and(|status| is_true(&status.conditions))).count()
        }
    })
}

fn autoscalers(client: &Client) -> Api<HorizontalPodAutoscaler> {
    Api::namespaced(client.clone(), Side::Autoscalers.namespace())
}

fn loops(client: &Client) -> Api<ClosedLoop> {
    Api::namespaced(client.clone(), Side::Loops.namespace())
}
