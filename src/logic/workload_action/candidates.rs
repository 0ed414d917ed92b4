//! The nodes that may take the replicas of one plan, best first.
//!
//! Each node is evaluated once, and again when a replica was assigned to it: with thousands of nodes and a `where`, this is most
//! of a plan's work.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::api::reasons::Reason;
use crate::api::workload_action::status::NodeChoice;
use crate::logic::facts::{NodeFact, Requests, TemplateFact};
use crate::logic::world::World;

use super::nodes::{NodeRefusal, Nodes, possible};
use super::place::Filter;

/// See the module. `'a`: the world; `'f`: the filter and the template.
pub struct Candidates<'a, 'f> {
    world: &'a World,
    nodes: Nodes<'a>,
    filter: &'f Filter<'f>,
    template: Option<&'f TemplateFact>,
    requests: Requests,
    /// The nodes that can take one more replica, best first: by the share that stays free, in thousandths, then by name.
    open: BTreeSet<(Reverse<i64>, &'a str)>,
    refused: Vec<NodeChoice>,
    /// The nodes that replicas were assigned to.
    chosen: Vec<NodeChoice>,
}

impl<'a, 'f> Candidates<'a, 'f> {
    /// The candidates for pods of this template, without the nodes that were tried before.
    pub fn new(
        (world, now): (&'a World, Timestamp),
        filter: &'f Filter<'f>,
        template: Option<&'f TemplateFact>,
        tried: &[String],
    ) -> Self {
        let mut all = Self {
            world,
            nodes: Nodes::new(world, now),
            filter,
            template,
            requests: template.map(|template| template.requests).unwrap_or_default(),
            open: BTreeSet::new(),
            refused: Vec::new(),
            chosen: Vec::new(),
        };
        // A node that the user's node name excludes is no candidate: the plan does not list it.
        for node in world.nodes().filter(|node| !filter.names_another(node)) {
            if tried.contains(&node.id.key.name) {
                all.refuse(&node.id.key.name, (Reason::NodeExcluded, "tried before and failed".to_owned()));
            } else {
                all.evaluate(node);
            }
        }
        all
    }

    fn evaluate(&mut self, node: &'a NodeFact) {
        let name = &node.id.key.name;
        let admitted = self.filter.admits(&self.nodes, node).map_err(|why| (Reason::NodeExcluded, why));
        match admitted.and_then(|()| self.nodes.assess(node, self.template)) {
            Ok(share) => drop(self.open.insert((Reverse(share), name))),
            Err(refusal) => self.refuse(name, refusal),
        }
    }

    fn refuse(&mut self, name: &str, (reason, message): NodeRefusal) {
        self.refused.push(NodeChoice { name: name.to_owned(), replicas: 0, message, refused: Some(reason) });
    }

    /// Refuses the node that the replicas leave. That they are there says more than that it is full.
    fn refuse_home(&mut self, home: Option<&str>) {
        let Some(home) = home else { return };
        let known = self.refused.len();
        self.open.retain(|(_, name)| *name != home);
        self.refused.retain(|node| node.name != home || node.refused == Some(Reason::NodeExcluded));
        let is_candidate = self.refused.len() < known || self.refused.iter().all(|node| node.name != home);
        if is_candidate && self.world.node(home).is_some_and(|node| !self.filter.names_another(node)) {
            self.refuse(home, (Reason::AlreadyOnTarget, format!("the replica is on node {home} already")));
        }
    }

    /// The open nodes but the replica's own, best first.
    pub fn best(&self, home: Option<&str>) -> impl Iterator<Item = &'a str> {
        self.open.iter().map(|(_, name)| *name).filter(move |name| home != Some(*name))
    }

    /// Assigns a replica from this node to the best other one. None: no node can take it.
    pub fn take(&mut self, home: Option<&str>) -> Option<&'a str> {
        let (share, name) = *self.open.iter().find(|(_, name)| home != Some(*name))?;
        self.open.remove(&(share, name));
        match self.chosen.iter_mut().find(|node| node.name == name) {
            Some(node) => node.replicas += 1,
            None => self.chosen.push(possible(name, share.0, 1)),
        }
        self.nodes.add(name, self.requests);
        if let Some(node) = self.world.node(name) {
            self.evaluate(node);
        }
        Some(name)
    }

    /// The refused nodes, when no node can take the replica from this one.
    pub fn refused(mut self, home: Option<&str>) -> Vec<NodeChoice> {
        self.refuse_home(home);
        self.refused
    }

    /// The nodes for the plan: those with replicas, those that could take one, and the refused ones, among them the node that
    /// all replicas leave.
    pub fn listed(mut self, home: Option<&str>) -> Vec<NodeChoice> {
        self.refuse_home(home);
        let Self { open, refused, mut chosen, .. } = self;
        let open = open.into_iter().map(|(Reverse(share), name)| possible(name, share, 0));
        let taken: BTreeSet<String> = chosen.iter().map(|node| node.name.clone()).collect();
        chosen.extend(open.chain(refused).filter(|node| !taken.contains(&node.name)));
        chosen
    }
}
