//! Two racks: each node has a BMC that reports its inlet temperature.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{NODES, PORT, RACK};
use crate::plane::cluster::Cluster;
use crate::servers::bmc::HeatedMachine;

/// Inlet temperatures in °C.
pub const COOL: f64 = 24.0;
pub const HOT: f64 = 38.0;

/// Change of the temperature of rack a each second, as fans hunt: more than the deadband of a NodeConfig.
const SWING: f64 = 1.2;

/// A node with its rack and BMC.
struct Unit {
    rack: &'static str,
    machine: HeatedMachine,
}

pub struct Racks {
    units: Arc<BTreeMap<String, Unit>>,
    /// Node of rack b that is nearly full.
    pub full: String,
    /// Lower temperature of rack a.
    celsius: watch::Sender<f64>,
    _fans: AbortOnDropHandle<()>,
}

impl Racks {
    /// Puts one half of the simulated nodes, and of these workers, into each rack.
    pub async fn set(cluster: &Cluster, workers: &[String]) -> Result<Self> {
        let api: Api<Node> = Api::all(cluster.client.clone());
        let all = api.list_metadata(&ListParams::default()).await?;
        let mut simulated: Vec<String> = all.items.iter().map(ResourceExt::name_any).collect();
        simulated.retain(|node| !workers.contains(node));
        simulated.sort();
        ensure!(simulated.len() == NODES, "{} simulated nodes instead of {NODES}", simulated.len());
        let mut units = BTreeMap::new();
        for half in [&simulated[..], workers] {
            for (nth, node) in half.iter().enumerate() {
                let rack = if nth < half.len() / 2 { "a" } else { "b" };
                units.insert(node.clone(), Unit { rack, machine: HeatedMachine::start(COOL).await? });
            }
        }
        let full = simulated.last().cloned().context("no node")?;
        for (node, unit) in &units {
            let capacity = api.get(node).await?.status.and_then(|status| status.capacity?.get("cpu").cloned());
            let cores: f64 = capacity.context("a node without a capacity")?.0.parse()?;
            let used = cores * 1000.0 * if *node == full { 0.95 } else { 0.5 };
            let labels = json!({RACK: unit.rack, PORT: unit.machine.port().to_string()});
            let usage = json!({"mean-used-cpu": used.to_string(), "std-used-cpu": "500"});
            let patch = Patch::Merge(json!({"metadata": {"labels": labels, "annotations": usage}}));
            api.patch(node, &PatchParams::default(), &patch).await?;
        }
        let units = Arc::new(units);
        let celsius = watch::channel(COOL).0;
        let fans = AbortOnDropHandle::new(tokio::spawn(hunt(Arc::clone(&units), celsius.subscribe())));
        Ok(Self { units, full, celsius, _fans: fans })
    }

    /// Sets the lower temperature of rack a.
    pub fn set_inlet(&self, celsius: f64) {
        self.celsius.send_replace(celsius);
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Whether the node is in rack a.
    pub fn is_hot(&self, node: &str) -> bool {
        self.units.get(node).is_some_and(|unit| unit.rack == "a")
    }
}

/// Lets the temperature of rack a swing.
async fn hunt(units: Arc<BTreeMap<String, Unit>>, celsius: watch::Receiver<f64>) {
    for beat in 0_u64.. {
        let now = *celsius.borrow() + if beat % 2 == 0 { 0.0 } else { SWING };
        for unit in units.values().filter(|unit| unit.rack == "a") {
            unit.machine.set_inlet(now).expect("the folder of a BMC");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
