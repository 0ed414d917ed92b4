//! Plans which NodeConfigs of a template to create, change and delete.
//!
//! | node | its NodeConfig | action |
//! |---|---|---|
//! | matches, rendering succeeded | none | create |
//! | | owned by the template, and different | change |
//! | | owned by the template and being deleted, or by a deleted template of the same name | wait until it is gone |
//! | | owned by somebody else | leave the node out |
//! | matches, rendering failed | any | leave the node out; the NodeConfig is unchanged |
//! | deleted, or does not match | owned by the template | delete |
//!
//! A template that is wrong for every node writes nothing. Rendered specs are cached, so that a pass renders only for
//! nodes that changed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kube::{Resource, ResourceExt};

use super::{CompiledTemplate, RenderError, name, render};
use crate::world::NodesWorld;
use ganglion_api::marks;
use ganglion_api::node_config::{LeftOut, NodeConfig, NodeConfigSpec, NodeConfigTemplate, NodePreview};
use ganglion_core::facts::{Key, NodeFact, NodeName, Owner, Selector, Uid};
use ganglion_core::world::World;

/// Maximum number of writes per pass, so that progress can be reported in between.
pub const MAX_WRITES: usize = 256;

/// Maximum number of nodes rendered per pass: rendering delays other work.
const MAX_RENDERS: usize = 512;

/// Maximum number of left-out nodes in the status.
const MAX_LEFT_OUT: usize = 10;

/// Maximum length of the message about a left-out node, in characters.
const MAX_MESSAGE: usize = 400;

/// Node that the selector matches, and the object with the name of its NodeConfig, if one exists.
#[derive(Clone, Debug)]
pub struct Match {
    node: Arc<NodeFact>,
    name: String,
    found: Option<Arc<NodeConfig>>,
}

/// Input of a plan.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Sorted by name.
    matches: Vec<Match>,
    /// NodeConfigs of the template without a matching node.
    surplus: Vec<Arc<NodeConfig>>,
}

/// Reads nodes and NodeConfigs from the store.
pub fn observe(world: &World, template: &NodeConfigTemplate, selector: &Selector) -> Observed {
    let (namespace, own) = (template.namespace().unwrap_or_default(), template.name_any());
    let nodes = world.table::<NodeFact>().values().filter(|node| selector.matches(&node.labels));
    let matches: Vec<Match> = nodes
        .map(|node| {
            let name = name::of(&own, &node.id.key.name);
            let found = world.table::<NodeConfig>().get(&Key::new(namespace.clone(), name.clone())).cloned();
            Match { node: Arc::clone(node), name, found }
        })
        .collect();
    let wanted: HashSet<&str> = matches.iter().map(|one| one.name.as_str()).collect();
    let owned = world.node_configs_by(&Uid::of(template.meta()));
    let surplus = owned.filter(|config| !wanted.contains(config.name_any().as_str())).cloned().collect();
    Observed { matches, surplus }
}

/// Write to a NodeConfig.
#[derive(Clone, Debug)]
pub enum ConfigWrite {
    Create { name: String, spec: Arc<NodeConfigSpec> },
    Change { config: Arc<NodeConfig>, spec: Arc<NodeConfigSpec> },
    Delete { config: Arc<NodeConfig> },
}

/// Render result, and the node that it was computed for.
#[derive(Debug)]
struct Rendered {
    node: Arc<NodeFact>,
    result: Result<Arc<NodeConfigSpec>, RenderError>,
}

/// Cache of render results, by node name. It may be lost.
#[derive(Debug, Default)]
pub struct Renders {
    known: HashMap<NodeName, Rendered>,
    /// Number of renders since the cache was created.
    count: usize,
}

impl Renders {
    fn get(&mut self, compiled: &CompiledTemplate, node: &Arc<NodeFact>) -> &Result<Arc<NodeConfigSpec>, RenderError> {
        let count = &mut self.count;
        let mut rendered = || {
            *count += 1;
            Rendered { node: Arc::clone(node), result: render(compiled, node).map(Arc::new) }
        };
        let known = match self.known.entry(node.name()) {
            Entry::Vacant(free) => free.insert(rendered()),
            Entry::Occupied(known) => {
                let known = known.into_mut();
                if is_same(&known.node, node) {
                    // Frees the older fact.
                    known.node = Arc::clone(node);
                } else {
                    *known = rendered();
                }
                known
            }
        };
        &known.result
    }

    /// Number of renders since the cache was created.
    pub fn count(&self) -> usize {
        self.count
    }

    fn forget_others(&mut self, matches: &[Match]) {
        if self.known.len() > matches.len() {
            let there: HashSet<NodeName> = matches.iter().map(|one| one.node.name()).collect();
            self.known.retain(|name, _| there.contains(name));
        }
    }
}

/// Nodes without an up-to-date NodeConfig.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeftOuts {
    /// First nodes by name.
    pub listed: Vec<LeftOut>,
    pub count: usize,
    /// Number of nodes that are left out because the name of their NodeConfig is taken.
    pub taken: usize,
}

impl LeftOuts {
    fn add(&mut self, node: &NodeFact, message: &str) {
        self.count += 1;
        if self.listed.len() < MAX_LEFT_OUT {
            let message = message.chars().take(MAX_MESSAGE).collect();
            self.listed.push(LeftOut { node: node.name(), message });
        }
    }
}

/// Plan of one pass.
#[derive(Clone, Debug, Default)]
pub struct TemplatePlan {
    pub writes: Vec<ConfigWrite>,
    /// More work remains than fits in this pass.
    pub more: bool,
    /// Why the template is wrong for every node. If set, nothing is written.
    pub invalid: Option<String>,
    /// Number of nodes that the selector matches.
    pub nodes: usize,
    /// Number of matching nodes whose NodeConfig is up to date.
    pub current: usize,
    pub left_out: LeftOuts,
    /// Names of the template's NodeConfigs that are not up to date.
    pub outdated: BTreeSet<String>,
    pub preview: Option<NodePreview>,
}

impl TemplatePlan {
    /// Whether all NodeConfigs were checked and no write is needed.
    pub fn is_settled(&self) -> bool {
        self.writes.is_empty() && !self.more
    }
}

pub fn plan(
    template: &NodeConfigTemplate,
    observed: &Observed,
    compiled: &CompiledTemplate,
    renders: &mut Renders,
) -> TemplatePlan {
    renders.forget_others(&observed.matches);
    let mut plan = TemplatePlan { nodes: observed.matches.len(), ..TemplatePlan::default() };
    let (before, mut wrong) = (renders.count, Vec::new());
    for one in &observed.matches {
        if plan.writes.len() >= MAX_WRITES || renders.count - before >= MAX_RENDERS {
            plan.more = true;
            break;
        }
        match renders.get(compiled, &one.node) {
            Ok(spec) => {
                plan.preview.get_or_insert_with(|| preview(spec));
                consider(&mut plan, template, one, spec);
            }
            Err(RenderError::Text { .. }) if plan.invalid.is_some() => {}
            Err(error @ RenderError::Text { .. }) => plan.invalid = Some(error.to_string()),
            Err(error) => {
                wrong.extend(matches!(error, RenderError::Value { .. }).then(|| error.to_string()));
                plan.left_out.add(&one.node, &error.to_string());
                plan.outdated.extend(one.found.as_ref().map(|config| config.name_any()));
            }
        }
        if plan.invalid.is_some() {
            break;
        }
    }
    if !plan.more && plan.nodes > 0 && wrong.len() == plan.nodes {
        plan.invalid = wrong.into_iter().next();
    }
    if let Some(problem) = plan.invalid.take() {
        let nodes = plan.nodes;
        return TemplatePlan { invalid: Some(problem), nodes, ..TemplatePlan::default() };
    }
    let gone = observed.surplus.iter().filter(|config| config.meta().deletion_timestamp.is_none());
    for config in gone {
        if plan.writes.len() >= MAX_WRITES {
            plan.more = true;
            break;
        }
        plan.writes.push(ConfigWrite::Delete { config: Arc::clone(config) });
    }
    plan.outdated.extend(observed.surplus.iter().map(|config| config.name_any()));
    plan
}

/// Plans the action for a node whose rendering succeeded.
fn consider(plan: &mut TemplatePlan, template: &NodeConfigTemplate, one: &Match, spec: &Arc<NodeConfigSpec>) {
    let Some(config) = &one.found else {
        plan.writes.push(ConfigWrite::Create { name: one.name.clone(), spec: Arc::clone(spec) });
        return;
    };
    match Owner::controller_of(config.meta()) {
        Some(owner) if owner.uid == Uid::of(template.meta()) => {}
        // The garbage collector deletes it.
        Some(owner) if owner.kind == NodeConfigTemplate::kind(&()) && owner.name == template.name_any() => return,
        Some(_) | None => {
            plan.left_out.taken += 1;
            let message = format!(
                "NodeConfig {} exists and does not belong to this template: delete it, or rename the template",
                one.name
            );
            plan.left_out.add(&one.node, &message);
            return;
        }
    }
    if config.meta().deletion_timestamp.is_some() {
        plan.outdated.insert(one.name.clone());
    } else if config.spec == **spec && is_labelled(config, &template.name_any()) {
        plan.current += 1;
    } else {
        plan.outdated.insert(one.name.clone());
        plan.writes.push(ConfigWrite::Change { config: Arc::clone(config), spec: Arc::clone(spec) });
    }
}

/// Whether the NodeConfig has the label with the template's name; true if the name is too long for a label.
fn is_labelled(config: &NodeConfig, template: &str) -> bool {
    name::label(template).is_none_or(|label| config.labels().get(marks::TEMPLATE).is_some_and(|found| found == label))
}

/// Whether a template renders to the same result for both.
fn is_same(one: &Arc<NodeFact>, other: &Arc<NodeFact>) -> bool {
    Arc::ptr_eq(one, other) || (one.labels == other.labels && one.addresses == other.addresses)
}

fn preview(spec: &NodeConfigSpec) -> NodePreview {
    let NodeConfigSpec { node_name, suspend: _, metrics_collector, predictor } = spec.clone();
    NodePreview { node_name, metrics_collector, predictor }
}
