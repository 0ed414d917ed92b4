//! The nodes that can take the replicas of one plan, best first.
//!
//! Each node is evaluated once, and again after a replica was assigned to it: with thousands of nodes and a `where`,
//! this is most of the work of a plan. All nodes are ranked again after each assignment, since one replica may
//! change the score of every node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{LIST_LIMIT, NodeChoice};
use ganglion_core::facts::{NodeFact, NodeName};
use ganglion_core::world::World;

use super::admission;
use super::context::PlanContext;
use super::fitting::{Fitting, Misfit};
use super::neighbors::Departing;
use super::nodes::{Load, NodeRefusal, Nodes, possible};
use super::place::Filter;
use super::preferences::Preferences;
use super::rank::{NodeRanking, RankedPod};
use super::scope::{Scope, StartRefusal};
use super::volumes::BoundVolumes;

/// Order of the nodes, best first. Declarations of the action come before preferences of the scheduler.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeRank {
    /// See [`Filter::preference`].
    preference: usize,
    /// Score of the policy, in millionths.
    policy: Reverse<i64>,
    /// See [`Preferences::scores`].
    score: Reverse<i64>,
    /// Share that stays free, in thousandths.
    share: Reverse<i64>,
    name: NodeName,
}

/// How well a node fits, apart from the policy and the preferences of the pods.
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
    /// Without volumes, which differ between the replicas of a StatefulSet.
    fitting: Fitting<'a, 'f>,
    filter: &'f Filter<'f>,
    /// None if the template is not known.
    preferences: Option<Preferences<'a, 'f>>,
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
    /// The candidates for an action that is about to begin.
    pub fn at_begin(
        ctx: &PlanContext<'a>,
        filter: &'f Filter<'f>,
        scope: &Scope<'f>,
        departing: &Departing,
    ) -> Result<Self, StartRefusal> {
        Self::among(ctx, admission::nodes_at_begin(ctx), filter, scope, &[], departing)
    }

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
            fitting: Fitting::of(nodes, scope, departing, BoundVolumes::default()),
            filter,
            preferences: Preferences::of(ctx.world, scope, departing),
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
            let load = self.fitting.nodes.load(name);
            if load.pods > pods {
                let (pods, requests) = (load.pods - pods, load.requests - requests);
                policy.add(name, Load { pods, requests, cores: load.cores });
            }
        }
    }

    fn evaluate(&mut self, node: &'a NodeFact) {
        let name = node.name();
        if let Err(why) = self.filter.admits(&self.fitting.nodes, node) {
            self.fit.remove(&name);
            return self.refuse(name, why);
        }
        match self.fitting.assess(node) {
            Ok(share) => {
                let preference = self.filter.preference(&self.fitting.nodes, node);
                self.fit.insert(name, Fit { preference, share });
            }
            Err(misfit) => {
                self.fit.remove(&name);
                if matches!(misfit, Misfit::Spread(_)) {
                    self.uneven.push(name.clone());
                }
                self.refuse(name, misfit.into());
            }
        }
    }

    /// Evaluates the nodes again that the replicas of this plan may open or close.
    fn evaluate_others(&mut self) {
        let uneven = std::mem::take(&mut self.uneven);
        self.refused.retain(|choice| !uneven.contains(&choice.name));
        let names: Vec<NodeName> = self.fit.keys().cloned().chain(uneven).collect();
        for node in names.iter().filter_map(|name| self.world.node(name)) {
            self.evaluate(node);
        }
    }

    /// Sorts the nodes that fit.
    fn order(&mut self) {
        self.open.clear();
        self.rejected.clear();
        let names: Vec<&NodeName> = self.fit.keys().collect();
        let by_policy = self.policy.as_ref().map(|policy| policy.rank(&names));
        let mut by_policy = by_policy.into_iter().flatten();
        let nodes: Vec<&NodeFact> = names.iter().filter_map(|name| self.world.node(name)).collect();
        let scores = self.preferences.as_ref().map_or_else(Vec::new, |preferences| preferences.scores(&nodes));
        let mut scores = scores.into_iter();
        for (name, fit) in &self.fit {
            let score = scores.next().unwrap_or(0);
            match by_policy.next().unwrap_or(Ok(0.0)) {
                Ok(policy) => drop(self.open.insert(fit.rank(millionths(policy), score, name))),
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
        self.open.retain(|rank| rank.name != *home);
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
                self.open.retain(|rank| rank.name != name);
                self.refuse(name, refusal);
            }
        }
    }

    /// The open nodes except the replica's own node, best first.
    pub fn best(&self, home: Option<&NodeName>) -> impl Iterator<Item = &NodeName> {
        self.open.iter().map(|rank| &rank.name).filter(move |name| home != Some(*name))
    }

    /// Assigns a replica from this node to the best other node that it may use. None if no node can take it.
    pub fn take(&mut self, home: Option<&NodeName>, allows: &dyn Fn(&NodeFact) -> bool) -> Option<NodeName> {
        let is_allowed = |name: &NodeName| home != Some(name) && self.world.node(name).is_some_and(allows);
        let best = self.open.iter().find(|rank| is_allowed(&rank.name))?.clone();
        let name = best.name.clone();
        match self.chosen.iter().position(|node| node.name == name) {
            Some(at) => self.chosen[at].replicas += 1,
            None => self.chosen.push(self.possible(&best, 1)),
        }
        if let Some(node) = self.world.node(&name) {
            if let Some(preferences) = &mut self.preferences {
                preferences.add(node);
            }
            if self.fitting.add(node) {
                self.evaluate_others();
            } else {
                self.evaluate(node);
            }
        }
        if let Some(policy) = &mut self.policy {
            policy.assign(&name);
        }
        self.order();
        Some(name)
    }

    /// Entry of the plan for a node that can take replicas.
    fn possible(&self, rank: &NodeRank, replicas: i32) -> NodeChoice {
        let NodeRank { preference, share: Reverse(share), name, .. } = rank;
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
        (self.chosen, self.fitting.nodes)
    }

    /// The nodes for the plan: nodes with replicas, nodes that could take one, and refused nodes, including the node
    /// that all replicas leave.
    pub fn listed(mut self, home: Option<&NodeName>) -> Vec<NodeChoice> {
        self.refuse_home(home);
        let mut listed = std::mem::take(&mut self.chosen);
        let taken: BTreeSet<NodeName> = listed.iter().map(|node| node.name.clone()).collect();
        let open = self.open.iter().filter(|rank| !taken.contains(&rank.name));
        // A policy takes time to describe a node, and a plan lists only some nodes.
        listed.extend(open.enumerate().map(|(at, rank)| {
            if at < LIST_LIMIT { self.possible(rank, 0) } else { possible(&rank.name, rank.share.0, 0) }
        }));
        let Self { mut refused, .. } = self;
        // The list is cut, and nodes that the action does not name matter least.
        refused.sort_by_key(|node| node.refused == Some(Reason::NodeExcluded));
        listed.extend(refused.into_iter().filter(|node| !taken.contains(&node.name)));
        listed
    }
}

impl Fit {
    fn rank(self, policy: i64, score: i64, name: &NodeName) -> NodeRank {
        let Self { preference, share } = self;
        let [policy, score, share] = [policy, score, share].map(Reverse);
        NodeRank { preference, policy, score, share, name: name.clone() }
    }
}

fn refusal(name: NodeName, (reason, message): NodeRefusal) -> NodeChoice {
    NodeChoice { name, replicas: 0, message, refused: Some(reason) }
}

#[expect(clippy::cast_possible_truncation, reason = "scores are small, and casts of floats saturate")]
fn millionths(score: f64) -> i64 {
    (score * 1e6).round() as i64
}
