//! Texts that users write into objects: how much of them a fact keeps, and the memory that they occupy.
//!
//! The API server limits an object to about 1.5 MB, and its labels, selectors and templates by nothing else. In the
//! types of a fact, labels occupy ten times their JSON. So texts that cannot be long are cut, and the memory of the
//! others counts for their namespace. If the namespace has no room, a fact is *reduced*: it stays, without these texts,
//! and planners refuse what needs them. A fact is never dropped: a node must not look empty because its pods have long
//! labels.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm, Toleration};

use super::{
    BudgetFact, ConfigMapFact, DeploymentFact, Owner, PodFact, ReplicaSetFact, ScaleFact, Selector, ServiceFact,
    StatefulSetFact, TemplateFact,
};
use crate::words::cut;

/// Maximum bytes of a name, a uid, an API version, or the value of an annotation that is a number or a name. Longer
/// ones do not exist, so a cut one means nothing else than the whole one.
const NAME: usize = 253;

/// Maximum bytes of a message of another controller.
const MESSAGE: usize = 1 << 10;

/// Maximum bytes of an annotation of the operator that contains a list: at most 400 names of pods of a ReplicaSet.
/// These have at most 63 characters each.
const LIST: usize = 32 << 10;

/// Memory of the texts of a fact that does not count, in bytes: usual labels, selectors and templates.
pub const UNCOUNTED: usize = 4 << 10;

/// Memory of one allocated text besides its bytes.
const ALLOCATION: usize = 24 + 16;

/// Memory of one entry of a map of texts besides the bytes of its texts. Nodes of the tree may be half empty.
const ENTRY: usize = 160;

/// A fact that may lose the texts of users.
pub trait Reducible {
    /// Estimate of the memory that the texts occupy, in bytes.
    fn text_bytes(&self) -> usize;

    /// Removes the texts.
    fn reduce(&mut self);

    /// Whether the texts were removed.
    fn is_reduced(&self) -> bool;

    /// Bytes that count for the namespace.
    fn counted_bytes(&self) -> usize {
        self.text_bytes().saturating_sub(UNCOUNTED)
    }
}

/// A name, a uid, or the short value of an annotation.
pub fn name(text: &str) -> String {
    cut(text, NAME).to_owned()
}

/// A message of another controller.
pub fn message(text: &str) -> String {
    cut(text, MESSAGE).to_owned()
}

/// An annotation with a list.
pub fn list(text: &str) -> String {
    cut(text, LIST).to_owned()
}

/// Whether a list is longer than a reduced fact may have. Slots that use it wait meanwhile.
// `Option::take_if` calls it with this type.
#[expect(clippy::ptr_arg)]
fn is_long(text: &mut String) -> bool {
    text.len() > UNCOUNTED / 2
}

pub(super) fn of_text(text: &str) -> usize {
    text.len().saturating_add(ALLOCATION)
}

pub(super) fn of_texts<T: AsRef<str>>(texts: &[T]) -> usize {
    // A vector may be half empty.
    texts.iter().map(|text| of_text(text.as_ref()).saturating_add(24)).fold(0, usize::saturating_add)
}

fn of_map(map: &BTreeMap<String, String>) -> usize {
    let entry = |(key, value): (&String, &String)| ENTRY.saturating_add(key.len()).saturating_add(value.len());
    map.iter().map(entry).fold(0, usize::saturating_add)
}

fn of_selector(selector: &Selector) -> usize {
    let term = |(key, operator, values): &(String, String, Vec<String>)| {
        let texts = key.len().saturating_add(operator.len()).saturating_add(of_texts(values));
        texts.saturating_add(2 * size_of::<(String, String, Vec<String>)>() + 2 * ALLOCATION)
    };
    selector.expressions.iter().map(term).fold(of_map(&selector.labels), usize::saturating_add)
}

fn of_owner(owner: Option<&Owner>) -> usize {
    owner
        .map_or(0, |Owner { kind, name, uid }| kind.len().saturating_add(name.len()).saturating_add(uid.as_str().len()))
}

fn of_scale(scale: &ScaleFact) -> usize {
    scale.ledger.as_deref().map_or(0, of_text)
}

fn of_affinity(affinity: Option<&NodeSelector>) -> usize {
    let terms = affinity.into_iter().flat_map(|affinity| &affinity.node_selector_terms);
    let requirements = |term: &NodeSelectorTerm| {
        let all = [&term.match_expressions, &term.match_fields].into_iter().flatten().flatten();
        let of_one = all.map(|one| {
            let texts = one.key.len().saturating_add(one.operator.len()).saturating_add(2 * ALLOCATION);
            texts
                .saturating_add(of_texts(one.values.as_deref().unwrap_or_default()))
                .saturating_add(2 * size_of_val(one))
        });
        of_one.fold(2 * size_of::<NodeSelectorTerm>(), usize::saturating_add)
    };
    terms.map(requirements).fold(0, usize::saturating_add)
}

fn of_tolerations(tolerations: &[Toleration]) -> usize {
    let of_one = |one: &Toleration| {
        let texts = [&one.key, &one.value, &one.effect, &one.operator].into_iter().flatten();
        texts.map(|text| of_text(text)).fold(2 * size_of::<Toleration>(), usize::saturating_add)
    };
    tolerations.iter().map(of_one).fold(0, usize::saturating_add)
}

impl TemplateFact {
    /// Estimate of the memory that the texts occupy, in bytes.
    pub fn text_bytes(&self) -> usize {
        [
            self.json.len(),
            of_map(&self.labels),
            of_map(&self.node_selector),
            of_affinity(self.node_affinity.as_ref()),
            of_tolerations(&self.tolerations),
            of_texts(&self.claims),
            self.constraints.as_ref().map_or(0, |constraints| constraints.text_bytes()),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// The template without its texts; requests, cores, the gate and the membership stay.
    fn reduced(&self) -> Self {
        Self {
            cost: self.cost.clone(),
            requests: self.requests,
            cores: self.cores,
            gated: self.gated,
            membership: self.membership,
            ..Self::default()
        }
    }
}

impl Reducible for PodFact {
    fn text_bytes(&self) -> usize {
        let peers = self.marks.peers.as_deref().map_or(0, of_text);
        let constraints = self.constraints.as_ref().map_or(0, |constraints| constraints.text_bytes());
        let texts = of_map(&self.labels).saturating_add(peers).saturating_add(of_owner(self.controller.as_ref()));
        texts.saturating_add(constraints)
    }

    fn reduce(&mut self) {
        self.labels.clear();
        self.constraints = None;
        self.marks.peers.take_if(is_long);
        self.reduced = true;
    }

    fn is_reduced(&self) -> bool {
        self.reduced
    }
}

impl Reducible for ReplicaSetFact {
    fn text_bytes(&self) -> usize {
        let template = self.template.as_ref().map_or(0, |template| template.text_bytes());
        let texts = of_map(&self.labels).saturating_add(of_selector(&self.selector)).saturating_add(template);
        texts.saturating_add(of_scale(&self.scale)).saturating_add(of_owner(self.controller.as_ref()))
    }

    fn reduce(&mut self) {
        self.labels.clear();
        self.selector = Selector::default();
        self.template = self.template.take().map(|template| template.reduced().into());
        self.scale.ledger.take_if(is_long);
        self.reduced = true;
    }

    fn is_reduced(&self) -> bool {
        self.reduced
    }
}

impl Reducible for StatefulSetFact {
    fn text_bytes(&self) -> usize {
        let texts = of_texts(&self.claims).saturating_add(of_text(&self.selector));
        texts.saturating_add(self.set.text_bytes())
    }

    fn reduce(&mut self) {
        // Cleared ones would keep their memory.
        self.claims = Vec::new();
        self.selector = String::new();
        self.set.reduce();
    }

    fn is_reduced(&self) -> bool {
        self.set.reduced
    }
}

impl Reducible for DeploymentFact {
    fn text_bytes(&self) -> usize {
        of_map(&self.labels).saturating_add(of_text(&self.selector)).saturating_add(of_scale(&self.scale))
    }

    fn reduce(&mut self) {
        self.labels.clear();
        self.selector = String::new();
        self.scale.ledger.take_if(is_long);
        self.reduced = true;
    }

    fn is_reduced(&self) -> bool {
        self.reduced
    }
}

impl Reducible for ConfigMapFact {
    fn text_bytes(&self) -> usize {
        of_map(&self.labels).saturating_add(of_owner(self.controller.as_ref()))
    }

    fn reduce(&mut self) {
        self.labels.clear();
        self.reduced = true;
    }

    fn is_reduced(&self) -> bool {
        self.reduced
    }
}

impl Reducible for BudgetFact {
    fn text_bytes(&self) -> usize {
        let granted = self.granted.keys().map(|pod| pod.len().saturating_add(ENTRY));
        granted.fold(self.selector.as_ref().map_or(0, of_selector), usize::saturating_add)
    }

    fn reduce(&mut self) {
        self.selector = None;
        self.granted.clear();
        self.reduced = true;
    }

    fn is_reduced(&self) -> bool {
        self.reduced
    }
}

impl Reducible for ServiceFact {
    fn text_bytes(&self) -> usize {
        of_map(&self.selector)
    }

    fn reduce(&mut self) {
        self.selector.clear();
        self.reduced = true;
    }

    fn is_reduced(&self) -> bool {
        self.reduced
    }
}
