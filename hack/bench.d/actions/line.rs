//! A line of 3,000 waiting actions of one namespace: the cost of a plan and of a change, relative to a line of 30. Both
//! hold the store's lock, so a long line of one tenant would delay all others.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use ganglion::operator::world::world;
use ganglion_actions_plan::rank::NoRanker;
use ganglion_actions_plan::{Limits, next};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{DeploymentFact, Key, ReplicaSet, ReplicaSetFact};
use ganglion_core::world::{Origin, World};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::frame::{Bench, Bound};

const NAMESPACE: &str = "shop";
const SHORT: usize = 30;
const LONG: usize = 3000;

/// Number of plans, and of changes, that are measured at a time.
const REPEATS: usize = 200;

/// Number of measurements of each line, of which the best counts. Both lines alternate.
const ROUNDS: usize = 15;

/// Maximum cost behind the long line, relative to the short one.
const TIMES: f64 = 3.0;

pub fn run(bench: &mut Bench) -> Result<()> {
    let (mut short, mut long) = (Line::of(SHORT)?, Line::of(LONG)?);
    let mut best = [[f64::MAX; 2]; 2];
    for _ in 0..ROUNDS {
        for (line, best) in [&mut short, &mut long].into_iter().zip(&mut best) {
            best[0] = best[0].min(line.plan());
            best[1] = best[1].min(line.change()?);
        }
    }
    let [[short_plan, short_change], [long_plan, long_change]] = best;
    let name = format!("behind {LONG} waiting actions, relative to {SHORT}");
    bench.claim(&format!("a plan {name}"), long_plan / short_plan, "times", Bound::AtMost(TIMES));
    bench.note("  a plan", long_plan * 1e6, "µs");
    bench.claim(&format!("a change {name}"), long_change / short_change, "times", Bound::AtMost(TIMES));
    bench.note("  a change", long_change * 1e6, "µs");
    Ok(())
}

/// A world with waiting actions, and the last one of them.
struct Line {
    world: World,
    last: Key,
    version: usize,
}

impl Line {
    fn of(length: usize) -> Result<Self> {
        let mut world = world();
        let labels = json!({"app": "web"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
        let spec = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": template});
        let metadata = |name: &str| json!({"namespace": NAMESPACE, "name": name, "uid": name, "resourceVersion": "1"});
        let deployment: Deployment = serde_json::from_value(json!({"metadata": metadata("web"), "spec": spec}))?;
        world.apply(DeploymentFact::from(deployment), Origin::Watch);
        let mut set = json!({"metadata": metadata("web-1"), "spec": spec});
        set["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true}]);
        let set: ReplicaSet = serde_json::from_str(&set.to_string())?;
        world.apply(ReplicaSetFact::from(set), Origin::Watch);
        for number in 0..length {
            world.apply(waiting(number, 1, false)?, Origin::Watch);
        }
        Ok(Self { world, last: Key::new(NAMESPACE, name(length - 1)), version: 1 })
    }

    /// Seconds for one plan of the last action.
    fn plan(&self) -> f64 {
        let limits = Limits { in_all: Some(50), per_namespace: Some(25), ..Limits::default() };
        let (now, begun) = (Timestamp::UNIX_EPOCH, Instant::now());
        for _ in 0..REPEATS {
            black_box(next(&self.last, &self.world, now, &limits, &NoRanker));
        }
        begun.elapsed().as_secs_f64() / REPEATS as f64
    }

    /// Seconds for one change of the first action, which alternates between a running slot and none.
    fn change(&mut self) -> Result<f64> {
        let mut changes = Vec::new();
        for _ in 0..REPEATS {
            self.version += 1;
            changes.push(waiting(0, self.version, self.version.is_multiple_of(2))?);
        }
        let begun = Instant::now();
        for change in changes {
            black_box(self.world.apply(change, Origin::Watch));
        }
        Ok(begun.elapsed().as_secs_f64() / REPEATS as f64)
    }
}

fn name(number: usize) -> String {
    format!("a{number:04}")
}

/// An action that waits for the limit of the cluster. `runs`: it has a running slot instead.
fn waiting(number: usize, version: usize, runs: bool) -> Result<WorkloadAction> {
    let name = name(number);
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let slot = json!({
        "id": name, "index": 0, "attempt": 0, "step": "Creating", "since": "2026-01-01T00:00:00Z", "label": "app",
        "workload": workload, "replicaSet": {"name": "web-1", "uid": "web-1"},
    });
    let slots: Vec<Value> = if runs { vec![slot] } else { Vec::new() };
    Ok(serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"namespace": NAMESPACE, "name": name, "uid": name, "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
        "spec": {"move": {"workload": workload, "to": {"nodeName": "d"}}, "timeouts": {"queueSeconds": 86_400}},
        "status": {"queuedAt": "1970-01-01T00:00:00Z", "slots": slots, "conditions": [{
            "type": "Reconciling", "status": "True", "reason": Reason::LimitReached.as_str(), "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    }))?)
}
