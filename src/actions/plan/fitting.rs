//! The checks of a node for one more pod of a workload, as the scheduler makes them: the node and its room, other pods,
//! spread constraints, and volumes.

use ganglion_api::reasons::Reason;
use ganglion_core::facts::{NodeFact, TemplateFact};

use super::neighbors::{Departing, Neighbors};
use super::nodes::{NodeRefusal, Nodes};
use super::scope::Scope;
use super::spread::SpreadRules;
use super::volumes::BoundVolumes;

/// A pod of a workload and what decides on which nodes it fits. `'a`: the world; `'f`: the template.
pub struct Fitting<'a, 'f> {
    pub nodes: Nodes<'a>,
    template: Option<&'f TemplateFact>,
    /// None if the template is not known.
    neighbors: Option<Neighbors<'a, 'f>>,
    spread: SpreadRules,
    volumes: BoundVolumes<'a>,
}

/// Why a node cannot take the pod.
#[derive(Debug)]
pub enum Misfit {
    /// By the node itself, its taints and labels, or its room.
    Node(NodeRefusal),
    /// By affinity or anti-affinity.
    Neighbors(NodeRefusal),
    /// By a spread constraint only; one more pod elsewhere may change that.
    Spread(NodeRefusal),
    Volumes(NodeRefusal),
}

impl<'a, 'f> Fitting<'a, 'f> {
    /// The fitting of a pod of this set, with the loads of nodes and the volumes of the pod.
    pub fn of(nodes: Nodes<'a>, scope: &Scope<'f>, departing: &Departing, volumes: BoundVolumes<'a>) -> Self {
        let world = nodes.world();
        Self {
            template: scope.set.template.as_deref(),
            neighbors: Neighbors::of(world, scope, departing),
            spread: SpreadRules::of(world, scope, departing),
            nodes,
            volumes,
        }
    }

    /// The share that stays free, see [`Nodes::assess`], or why the node cannot take the pod.
    pub fn assess(&self, node: &NodeFact) -> Result<i64, Misfit> {
        let share = self.nodes.assess(node, self.template).map_err(Misfit::Node)?;
        self.closed(node).map_or(Ok(share), Err)
    }

    /// Why the node cannot take the pod, whatever room it has.
    pub fn closed(&self, node: &NodeFact) -> Option<Misfit> {
        let by_neighbors = self.neighbors.as_ref().and_then(|neighbors| neighbors.refusal(node));
        by_neighbors
            .map(Misfit::Neighbors)
            .or_else(|| self.volumes.refusal(node).map(Misfit::Volumes))
            .or_else(|| self.spread.refusal(node).map(Misfit::Spread))
    }

    /// Places a pod on this node. Returns whether that can open or close other nodes.
    pub fn add(&mut self, node: &'a NodeFact) -> bool {
        self.nodes.add(&node.name(), self.template);
        self.spread.add(node);
        let closes = self.neighbors.as_mut().is_some_and(|neighbors| neighbors.add(node));
        closes || !self.spread.is_empty()
    }
}

impl Misfit {
    /// Whether pods that leave the node can change it.
    pub fn is_by_load(&self) -> bool {
        matches!(self, Self::Node((Reason::NodeFull | Reason::NodeOccupied, _)))
    }
}

impl From<Misfit> for NodeRefusal {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::Node(refusal) | Misfit::Neighbors(refusal) | Misfit::Spread(refusal) | Misfit::Volumes(refusal) => {
                refusal
            }
        }
    }
}
