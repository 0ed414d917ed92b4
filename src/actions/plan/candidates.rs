//! The nodes that can take the replicas of one plan, best first.
//!
//! Each node is evaluated once, and again after a replica was assigned to it: with thousands of nodes and a `where`,
//! this is most of the work of a plan. A policy ranks all nodes again after each assignment, since one replica may
//! change the score of every node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{LIST_LIMIT, NodeChoice};
use ganglion_core::facts::{NodeFact, NodeName, TemplateFact};
use ganglion_core::world::World;

use super::context::PlanContext;
use super::neighbors::{Departing, Neighbors};
use super::nodes::{Load, NodeRefusal, Nodes, possible};
use super::place::Filter;
use super::rank::{NodeRanking, RankedPod};
use super::scope::{Scope, StartRefusal};
use super::spread::SpreadRules;

/// Order of the nodes: by preference, by score of the policy (in millionths), by share that stays free (in
/// thousandths), by name.
type NodeRank = (usize, Reverse<i64>, Reverse<i64>, NodeName);

/// How well a node fits, apart from the policy.
#[derive(Clone, Copy)]
struct Fit {
    /// See [`Filter::preference`].
    preference: usize,
    /// Share that stays free with one more replica, in thousandths.
    share: i64,
}

/// The candidate nodes of one plan. `'a`: the world; `'f`: the filter and the template.
pub struct Candidates<'a, 'f> {
    world: &'a World,
    nodes: Nodes<'a>,
    filter: &'f Filter<'f>,
    template: Option<&'f TemplateFact>,
    /// None if the template is not known.
    neighbors: Option<Neighbors<'a, 'f>>,
    spread: SpreadRules,
    /// Nodes that only the spread constraints refuse; one more pod elsewhere may open them.
    uneven: Vec<NodeName>,
    /// Nodes that can take a replica.
    fit: BTreeMap<NodeName, Fit>,
    /// The nodes in `fit` that the policy does not reject, best first.
    open: BTreeSet<NodeRank>,
    refused: Vec<NodeChoice>,
    /// Nodes that the policy currently rejects.
    rejected: Vec<NodeChoice>,
    /// Nodes that replicas were assigned to.
    chosen: Vec<NodeChoice>,
    policy: Option<Box<dyn NodeRanking>>,
}

impl<'a, 'f> Candidates<'a, 'f> {
    /// The candidates for pods of this ReplicaSet, without the nodes that were tried before. Fails if the policy of the
    /// action cannot be used.
    pub fn new(
        ctx: &PlanContext<'a>,
        filter: &'f Filter<'f>,
        scope: &Scope<'f>,
        tried: &[NodeName],
        departing: &Departing,
    ) -> Result<Self, StartRefusal> {
        Self::among(ctx, Nodes::new(ctx.world, ctx.now), filter, scope, tried, departing)
    }

    /// The same with the given loads of nodes.
    pub fn among(
        ctx: &PlanContext<'a>,
        nodes: Nodes<'a>,
        filter: &'f Filter<'f>,
        scope: &Scope<'f>,
        tried: &[NodeName],
        departing: &Departing,
    ) -> Result<Self, StartRefusal> {
        let template = scope.set.template.as_deref();
        let policy = ctx.work.to.and_then(|to| to.policy.as_deref());
        let policy = policy.zip(template).map(|(policy, template)| {
            let pod = RankedPod { set: scope.set, template };
            ctx.ranker.begin(ctx.world, policy, pod, ctx.now).map_err(|error| error.stop(policy))
        });
        let mut all = Self {
            world: ctx.world,
            nodes,
            filter,
            template,
            neighbors: Neighbors::of(ctx.world, scope, departing),
            spread: SpreadRules::of(ctx.world, scope, departing),
            uneven: Vec::new(),
            fit: BTreeMap::new(),
            open: BTreeSet::new(),
            refused: Vec::new(),
            rejected: Vec::new(),
            chosen: Vec::new(),
            policy: policy.transpose()?,
        };
        // A node that the user's node name excludes is no candidate, so the plan does not list it.
        for node in ctx.world.nodes().filter(|node| !filter.names_another(node)) {
            if tried.contains(&node.name()) {
                all.refuse(node.name(), (Reason::NodeExcluded, "tried before and failed".to_owned()));
            } else {
                all.evaluate(node);
            }
        }
        all.count_arrivals();
        all.order();
        Ok(all)
    }

    /// Adds the replicas of other actions that are in motion to the counts of the policy.
    fn count_arrivals(&mut self) {
        let Some(policy) = &mut self.policy else { return };
        for name in self.fit.keys() {
            let (pods, requests) = self.world.usage(name);
            let load = self.nodes.load(name);
            if load.pods > pods {
                let (pods, requests) = (load.pods - pods, load.requests - requests);
                policy.add(name, Load { pods, requests, cores: load.cores });
            }
        }
    }

    fn evaluate(&mut self, node: &'a NodeFact) {
        let name = node.name();
        let admitted = self.filter.admits(&self.nodes, node).map_err(|why| (Reason::NodeExcluded, why));
        let fits = admitted.and_then(|()| self.nodes.assess(node, self.template));
        let neighbor = self.neighbors.as_ref().and_then(|neighbors| neighbors.refusal(node));
        match fits.and_then(|share| neighbor.map_or(Ok(share), Err)) {
            Ok(_) if let Some(refusal) = self.spread.refusal(node) => {
                self.fit.remove(&name);
                self.uneven.push(name.clone());
                self.refuse(name, refusal);
            }
            Ok(share) => {
                let preference = self.filter.preference(&self.nodes, node);
                self.fit.insert(name, Fit { preference, share });
            }
            Err(refusal) => {
                self.fit.remove(&name);
                self.refuse(name, refusal);
            }
        }
    }

    /// Refuses the nodes from which the replicas of this plan keep one another away.
    fn close(&mut self) {
        let closed: Vec<(NodeName, NodeRefusal)> = self
            .fit
            .keys()
            .filter_map(|name| Some((name.clone(), self.neighbors.as_ref()?.refusal(self.world.node(name)?)?)))
            .collect();
        for (name, refusal) in closed {
            self.fit.remove(&name);
            self.open.retain(|(_, _, _, open)| *open != name);
            self.refuse(name, refusal);
        }
    }

    /// Evaluates the nodes again that the spread constraints may open or close.
    fn level(&mut self) {
        let uneven = std::mem::take(&mut self.uneven);
        self.refused.retain(|choice| !uneven.contains(&choice.name));
        let names: Vec<NodeName> = self.fit.keys().cloned().chain(uneven).collect();
        for node in names.iter().filter_map(|name| self.world.node(name)) {
            self.evaluate(node);
        }
        if self.policy.is_none() {
            self.order();
        }
    }

    /// Sorts the nodes that fit.
    fn order(&mut self) {
        let Some(policy) = &self.policy else {
            self.open = self.fit.iter().map(|(name, fit)| fit.rank(0, name)).collect();
            return;
        };
        let names: Vec<&NodeName> = self.fit.keys().collect();
        self.open.clear();
        self.rejected.clear();
        for ((name, fit), rank) in self.fit.iter().zip(policy.rank(&names)) {
            match rank {
                Ok(score) => drop(self.open.insert(fit.rank(millionths(score), name))),
                Err(why) => self.rejected.push(refusal(name.clone(), (Reason::PolicyRejected, why))),
            }
        }
    }

    fn refuse(&mut self, name: NodeName, why: NodeRefusal) {
        self.refused.push(refusal(name, why));
    }

    /// Refuses the node that the replicas leave. The reason that they are already there says more than that the node is
    /// full.
    fn refuse_home(&mut self, home: Option<&NodeName>) {
        self.refused.append(&mut self.rejected);
        let Some(home) = home else { return };
        let known = self.refused.len();
        self.open.retain(|(_, _, _, name)| name != home);
        self.refused.retain(|node| node.name != *home || node.refused == Some(Reason::NodeExcluded));
        let is_candidate = self.refused.len() < known || self.refused.iter().all(|node| node.name != *home);
        if is_candidate && self.world.node(home).is_some_and(|node| !self.filter.names_another(node)) {
            self.refuse(home.clone(), (Reason::AlreadyOnTarget, format!("the replica is on node {home} already")));
        }
    }

    /// Refuses the nodes that one replica cannot use, although others can. Such a reason also replaces that of a node
    /// that is full, since it lasts.
    pub fn narrow(&mut self, why: impl Fn(&NodeFact) -> Option<NodeRefusal>) {
        for choice in self.refused.iter_mut().filter(|choice| choice.refused != Some(Reason::NodeExcluded)) {
            if let Some(refusal) = self.world.node(&choice.name).and_then(&why) {
                *choice = self::refusal(choice.name.clone(), refusal);
            }
        }
        let names: Vec<NodeName> = self.fit.keys().cloned().collect();
        for name in names {
            if let Some(refusal) = self.world.node(&name).and_then(&why) {
                self.fit.remove(&name);
                self.open.retain(|(_, _, _, open)| *open != name);
                self.refuse(name, refusal);
            }
        }
    }

    /// The open nodes except the replica's own node, best first.
    pub fn best(&self, home: Option<&NodeName>) -> impl Iterator<Item = &NodeName> {
        self.open.iter().map(|(_, _, _, name)| name).filter(move |name| home != Some(*name))
    }

    /// Assigns a replica from this node to the best other node that it may use. None if no node can take it.
    pub fn take(&mut self, home: Option<&NodeName>, allows: &dyn Fn(&NodeFact) -> bool) -> Option<NodeName> {
        let is_allowed = |name: &NodeName| home != Some(name) && self.world.node(name).is_some_and(allows);
        let best = self.open.iter().find(|(_, _, _, name)| is_allowed(name))?.clone();
        let name = best.3.clone();
        match self.chosen.iter().position(|node| node.name == name) {
            Some(at) => self.chosen[at].replicas += 1,
            None => self.chosen.push(self.possible(&best, 1)),
        }
        self.nodes.add(&name, self.template);
        if let Some(node) = self.world.node(&name) {
            if self.neighbors.as_mut().is_some_and(|neighbors| neighbors.add(node)) {
                self.close();
            }
            if self.spread.is_empty() {
                self.evaluate(node);
            } else {
                self.spread.add(node);
                self.level();
            }
        }
        match &mut self.policy {
            Some(policy) => {
                policy.assign(&name);
                self.order();
            }
            None if !self.spread.is_empty() => {}
            // Only this node has changed.
            None => {
                self.open.remove(&best);
                self.open.extend(self.fit.get(&name).map(|fit| fit.rank(0, &name)));
            }
        }
        Some(name)
    }

    /// Entry of the plan for a node that can take replicas.
    fn possible(&self, (preference, _, Reverse(share), name): &NodeRank, replicas: i32) -> NodeChoice {
        let mut choice = possible(name, *share, replicas);
        if self.filter.has_preferences() {
            let met = if self.filter.prefers(*preference) {
                format!("preference {}", preference + 1)
            } else {
                "no preference".into()
            };
            choice.message = format!("meets {met}; {}", choice.message);
        }
        if let Some(policy) = &self.policy {
            choice.message = format!("{}; {}", policy.words(name), choice.message);
        }
        choice
    }

    /// The refused nodes if no node can take the replica from this one.
    pub fn refused(mut self, home: Option<&NodeName>) -> Vec<NodeChoice> {
        self.refuse_home(home);
        self.refused
    }

    /// The nodes with assigned replicas, and the loads that include them.
    pub fn taken(self) -> (Vec<NodeChoice>, Nodes<'a>) {
        (self.chosen, self.nodes)
    }

    /// The nodes for the plan: nodes with replicas, nodes that could take one, and refused nodes, including the node
    /// that all replicas leave.
    pub fn listed(mut self, home: Option<&NodeName>) -> Vec<NodeChoice> {
        self.refuse_home(home);
        let mut listed = std::mem::take(&mut self.chosen);
        let taken: BTreeSet<NodeName> = listed.iter().map(|node| node.name.clone()).collect();
        let open = self.open.iter().filter(|(_, _, _, name)| !taken.contains(name));
        // A policy takes time to describe a node, and a plan lists only some nodes.
        listed.extend(
            open.enumerate().map(
                |(at, rank)| {
                    if at < LIST_LIMIT { self.possible(rank, 0) } else { possible(&rank.3, rank.2.0, 0) }
                },
            ),
        );
        let Self { mut refused, .. } = self;
        // The list is cut, and nodes that the action does not name matter least.
        refused.sort_by_key(|node| node.refused == Some(Reason::NodeExcluded));
        listed.extend(refused.into_iter().filter(|node| !taken.contains(&node.name)));
        listed
    }
}

impl Fit {
    fn rank(self, score: i64, name: &NodeName) -> NodeRank {
        (self.preference, Reverse(score), Reverse(self.share), name.clone())
    }
}

fn refusal(name: NodeName, (reason, message): NodeRefusal) -> NodeChoice {
    NodeChoice { name, replicas: 0, message, refused: Some(reason) }
}

#[expect(clippy::cast_possible_truncation, reason = "scores are small, and casts of floats saturate")]
fn millionths(score: f64) -> i64 {
    (score * 1e6).round() as i64
}
