//! The contenders: schedulers, each with a way to scale services.

mod policy;
mod spread;
mod stock;
mod trimaran;

#[cfg(test)]
pub(crate) mod tests;

use anyhow::Result;
use ganglion_loops_plan::forecast::ForecastRules;
use serde_json::{Value, json};

pub use policy::PolicyScheduler;
pub use stock::{FitStrategy, StockScheduler};
pub use trimaran::{TrimaranPlugin, TrimaranScheduler};

use crate::cluster::{LabNode, MoveRules, Placer, ReplicaScaling, RunSettings};
use crate::fleet::ServerFleet;

/// Scheduler of a contender.
#[derive(Clone, Debug, PartialEq)]
pub enum LabScheduler {
    Stock(FitStrategy),
    Trimaran(TrimaranPlugin),
    /// Agents of a PlacementPolicy, as in `spec.agents`.
    Policy(Value),
}

/// One of those that are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Name without commas, so that it can be a field of a CSV file.
    pub name: String,
    pub placement: LabScheduler,
    pub scaling: ReplicaScaling,
    pub moves: MoveRules,
}

/// Name of the contender to which all others are compared.
pub const BASELINE: &str = "least allocated + HPA";

impl Contender {
    fn new(name: &str, placement: LabScheduler, scaling: ReplicaScaling) -> Self {
        Self { name: name.to_owned(), placement, scaling, moves: MoveRules::None }
    }

    /// All contenders. The baseline is among them.
    pub fn all() -> Vec<Self> {
        let stock = LabScheduler::Stock;
        let (least, most) = (FitStrategy::LeastAllocated, FitStrategy::MostAllocated);
        let (packing, risk) = (TrimaranPlugin::TargetLoadPacking, TrimaranPlugin::LoadVariationRiskBalancing);
        let hpa = ReplicaScaling::Tracking;
        let safe = json!({"name": "safe", "weight": 5, "safe": {}});
        let congestion = json!({"name": "congestion", "weight": 5, "congestion": {}});
        let power = json!({"name": "power", "weight": 5, "power": {}});
        let policy = |agents: &[&Value]| LabScheduler::Policy(json!(agents));
        vec![
            Self::new("least allocated", stock(least), ReplicaScaling::Fixed),
            Self::new("most allocated", stock(most), ReplicaScaling::Fixed),
            Self::new(BASELINE, stock(least), hpa),
            Self::new("most allocated + HPA", stock(most), hpa),
            Self::new("TargetLoadPacking + HPA", LabScheduler::Trimaran(packing), hpa),
            Self::new("LoadVariationRiskBalancing + HPA", LabScheduler::Trimaran(risk), hpa),
            Self::new("safe + HPA", policy(&[&safe]), hpa),
            Self::new("congestion + HPA", policy(&[&congestion]), hpa),
            Self::new("power + HPA", policy(&[&power]), hpa),
            Self::new("safe and power + HPA", policy(&[&safe, &power]), hpa),
            Self::new("least allocated with loop + HPA", stock(least), hpa).moving(MoveRules::Relief),
            Self::new("safe with loop + HPA", policy(&[&safe]), hpa).moving(MoveRules::Relief),
            Self::new("power with moves + HPA", policy(&[&power]), hpa).moving(MoveRules::Consolidation),
            Self::new("safe and power + forecast", policy(&[&safe, &power]), forecast()),
        ]
    }

    /// Contenders whose scheduler runs on a control plane, without moves and without plugins of other projects.
    pub fn on_plane() -> Vec<Self> {
        let mut all = Self::all();
        all.retain(|contender| {
            let is_stock = !matches!(contender.placement, LabScheduler::Trimaran(_));
            is_stock && contender.moves == MoveRules::None && contender.scaling == ReplicaScaling::Tracking
        });
        all
    }

    fn moving(self, moves: MoveRules) -> Self {
        Self { moves, ..self }
    }

    /// Whether it is one of ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.placement, LabScheduler::Policy(_)) || self.moves != MoveRules::None
    }

    /// Settings of a run. `warm_up`: seconds at the begin that do not count.
    pub fn settings(&self, seed: u64, warm_up: i64) -> RunSettings<'_> {
        let agents = match &self.placement {
            LabScheduler::Policy(agents) => Some(agents),
            LabScheduler::Stock(_) | LabScheduler::Trimaran(_) => None,
        };
        RunSettings { seed, warm_up, scaling: self.scaling, moves: self.moves, agents }
    }

    /// Its scheduler, on an empty fleet.
    pub fn placer(&self, fleet: &ServerFleet) -> Result<Box<dyn Placer>> {
        Ok(match &self.placement {
            LabScheduler::Stock(strategy) => Box::new(StockScheduler(*strategy)),
            LabScheduler::Trimaran(plugin) => Box::new(TrimaranScheduler(*plugin)),
            LabScheduler::Policy(agents) => {
                let nodes: Vec<LabNode> = fleet.servers.iter().cloned().map(LabNode::new).collect();
                Box::new(PolicyScheduler::new(agents, &nodes)?)
            }
        })
    }
}

fn forecast() -> ReplicaScaling {
    let ahead = jiff::SignedDuration::from_mins(10);
    ReplicaScaling::Forecast(ForecastRules { ahead, season: jiff::SignedDuration::from_hours(24) })
}
