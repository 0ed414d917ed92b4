//! The unit of time: one server-side apply of the status of a WorkloadAction, as the operator sends it, on an otherwise
//! idle plane.

use std::time::{Duration, Instant};

use anyhow::Result;
use ganglion_api::workload_action::WorkloadAction;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::frame::{median, millis};

/// Time without requests after which the plane counts as idle.
const CALM: Duration = Duration::from_millis(400);

/// Measures the unit at several moments of one run.
pub struct Unit {
    actions: Api<WorkloadAction>,
    writes: u64,
    times: Vec<f64>,
}

impl Unit {
    /// Uses a namespace that no operator watches.
    pub async fn new(client: &Client, namespace: &str) -> Result<Self> {
        let actions: Api<WorkloadAction> = Api::namespaced(client.clone(), namespace);
        let action: WorkloadAction = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "metadata": {"name": "unit"},
            "spec": {"delete": {"pod": {"name": "none"}}},
        }))?;
        actions.create(&PostParams::default(), &action).await?;
        let mut unit = Self { actions, writes: 0, times: Vec::new() };
        // Warms up connections and caches.
        unit.write(50).await?;
        unit.times.clear();
        Ok(unit)
    }

    /// Measures this number of writes, once the plane is idle.
    pub async fn measure(&mut self, writes: usize) -> Result<()> {
        tokio::time::sleep(CALM).await;
        self.write(writes).await
    }

    async fn write(&mut self, writes: usize) -> Result<()> {
        let params = PatchParams::apply("bench").force();
        for _ in 0..writes {
            self.writes += 1;
            let status = self.status();
            let began = Instant::now();
            self.actions.patch_status("unit", &params, &Patch::Apply(&status)).await?;
            self.times.push(millis(began.elapsed()));
        }
        Ok(())
    }

    /// Status of about the size of a running move's. It differs each time, because an unchanged status would not be
    /// written.
    fn status(&self) -> serde_json::Value {
        let message = format!("web-1 from node-1 to node-2: waiting until the new pod is Ready ({})", self.writes);
        let time = "2026-01-01T00:00:00Z";
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "Readying", "message": message, "observedGeneration": 1,
                "lastTransitionTime": time,
            })
        };
        json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "metadata": {"name": "unit"},
            "status": {
                "observedGeneration": 1,
                "conditions": [condition("Ready", "Unknown"), condition("Reconciling", "True")],
                "summary": {"action": "Move", "workload": "Deployment/web", "from": "node-1", "to": "node-2", "done": "0/1"},
                "slots": [{
                    "id": "0123456789abcdef", "index": 0, "attempt": 0, "step": "Readying", "since": time,
                    "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                    "replicaSet": {"name": "web-1", "uid": "5c9c9f0e-6f1b-4a52-9d3e-0c1d5b0a7e11"},
                    "label": "pod-template-hash",
                    "victim": {"name": "web-1-a", "uid": "5c9c9f0e-6f1b-4a52-9d3e-0c1d5b0a7e12", "node": "node-1"},
                    "replacement": {"name": "web-1-b", "uid": "5c9c9f0e-6f1b-4a52-9d3e-0c1d5b0a7e13", "node": "node-2"},
                }],
            },
        })
    }

    /// The unit, in milliseconds.
    pub fn millis(&self) -> f64 {
        median(&self.times)
    }
}
