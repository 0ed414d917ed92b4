//! The figures of a run.

use super::node::{LabNode, OVERLOAD};

const HOUR: f64 = 3600.0;

/// A figure of a run. Less is better, except for the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureKind {
    /// CPU that was wanted and not there.
    Shortage,
    /// Time of nodes above [`OVERLOAD`].
    Overload,
    /// Energy of all nodes.
    Energy,
    /// Energy of the nodes that have pods: the owner switches the others off.
    EnergySwitched,
    /// Energy per core hour of completed work, of all nodes.
    EnergyPerWork,
    /// The same of the nodes that have pods.
    EnergyPerWorkSwitched,
    /// Completed work.
    Work,
    /// Mean time from the creation of a pod until it is bound.
    Pending,
    /// Pods that were moved to another node.
    Moves,
    /// Pods that were evicted.
    Evictions,
    /// Replicas of services over time.
    Replicas,
    /// Mean time from the moment at which a node is short of CPU until it no longer is.
    Reaction,
    /// Highest temperature of the intake air.
    Inlet,
}

/// All figures, in the order of the tables.
pub const MEASURES: [MeasureKind; 13] = [
    MeasureKind::Shortage,
    MeasureKind::Overload,
    MeasureKind::Energy,
    MeasureKind::EnergySwitched,
    MeasureKind::EnergyPerWork,
    MeasureKind::EnergyPerWorkSwitched,
    MeasureKind::Work,
    MeasureKind::Pending,
    MeasureKind::Moves,
    MeasureKind::Evictions,
    MeasureKind::Replicas,
    MeasureKind::Reaction,
    MeasureKind::Inlet,
];

impl MeasureKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Shortage => "missing CPU",
            Self::Overload => "overload",
            Self::Energy => "energy",
            Self::EnergySwitched => "energy, empty nodes off",
            Self::EnergyPerWork => "energy per work",
            Self::EnergyPerWorkSwitched => "energy per work, empty nodes off",
            Self::Work => "work",
            Self::Pending => "pending",
            Self::Moves => "moves",
            Self::Evictions => "evictions",
            Self::Replicas => "replicas",
            Self::Reaction => "reaction",
            Self::Inlet => "highest inlet",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Shortage | Self::Work => "core h",
            Self::Overload => "node min",
            Self::Energy | Self::EnergySwitched => "kWh",
            Self::EnergyPerWork | Self::EnergyPerWorkSwitched => "Wh per core h",
            Self::Pending | Self::Reaction => "s",
            Self::Moves | Self::Evictions => "",
            Self::Replicas => "replica h",
            Self::Inlet => "°C",
        }
    }

    /// Whether a smaller value is better.
    pub fn is_cost(self) -> bool {
        self != Self::Work
    }
}

/// Figures of a run, in the order of [`MEASURES`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunMeasures([f64; MEASURES.len()]);

impl RunMeasures {
    /// Figures in the order of [`MEASURES`].
    pub fn new(values: [f64; MEASURES.len()]) -> Self {
        Self(values)
    }

    pub fn get(&self, kind: MeasureKind) -> f64 {
        MEASURES.iter().zip(self.0).find(|(found, _)| **found == kind).map_or(0.0, |(_, value)| value)
    }
}

/// Sums over the steps of a run.
#[derive(Debug, Default)]
pub struct RunLedger {
    shortage: f64,
    overload: f64,
    energy: f64,
    energy_switched: f64,
    work: f64,
    pending: f64,
    pods: usize,
    moves: usize,
    evictions: usize,
    replicas: f64,
    short_seconds: f64,
    short_episodes: usize,
    inlet: f64,
    /// Whether each node was short of CPU in the last step.
    is_short: Vec<bool>,
}

impl RunLedger {
    /// Adds a step of the nodes.
    pub fn add_nodes(&mut self, nodes: &[LabNode], inlets: &[f64], seconds: f64) {
        self.is_short.resize(nodes.len(), false);
        for (node, is_short) in nodes.iter().zip(&mut self.is_short) {
            let joules = node.watts() * seconds;
            self.energy += joules;
            self.energy_switched += if node.pods.is_empty() { 0.0 } else { joules };
            self.work += node.used * seconds;
            self.overload += if node.usage() > OVERLOAD { seconds } else { 0.0 };
            let missing = node.wanted - node.used;
            let was_short = std::mem::replace(is_short, missing > 1e-9);
            if *is_short {
                self.shortage += missing * seconds;
                self.short_seconds += seconds;
                self.short_episodes += usize::from(!was_short);
            }
        }
        self.inlet = inlets.iter().copied().fold(self.inlet, f64::max);
    }

    /// Adds demand of a service that has no ready replica, in cores.
    pub fn add_unserved(&mut self, cores: f64, seconds: f64) {
        self.shortage += cores * seconds;
    }

    /// Adds replicas of services that exist for a step.
    pub fn add_replicas(&mut self, replicas: usize, seconds: f64) {
        self.replicas += replicas as f64 * seconds;
    }

    /// Adds a pod that waited for this many seconds.
    pub fn add_pending(&mut self, seconds: f64) {
        self.pending += seconds;
        self.pods += 1;
    }

    /// Adds a move, which evicts a pod after its replacement has started.
    pub fn add_move(&mut self) {
        self.moves += 1;
        self.evictions += 1;
    }

    pub fn measures(&self) -> RunMeasures {
        let value = |kind: MeasureKind| match kind {
            MeasureKind::Shortage => self.shortage / HOUR,
            MeasureKind::Overload => self.overload / 60.0,
            MeasureKind::Energy => self.energy / HOUR / 1000.0,
            MeasureKind::EnergySwitched => self.energy_switched / HOUR / 1000.0,
            MeasureKind::EnergyPerWork => ratio(self.energy, self.work),
            MeasureKind::EnergyPerWorkSwitched => ratio(self.energy_switched, self.work),
            MeasureKind::Work => self.work / HOUR,
            MeasureKind::Pending => ratio(self.pending, self.pods as f64),
            MeasureKind::Moves => self.moves as f64,
            MeasureKind::Evictions => self.evictions as f64,
            MeasureKind::Replicas => self.replicas / HOUR,
            MeasureKind::Reaction => ratio(self.short_seconds, self.short_episodes as f64),
            MeasureKind::Inlet => self.inlet,
        };
        RunMeasures::new(MEASURES.map(value))
    }
}

/// Ratio; 0 if there is nothing to relate to.
fn ratio(value: f64, unit: f64) -> f64 {
    if unit > 0.0 { value / unit } else { 0.0 }
}
