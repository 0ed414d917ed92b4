//! The rights that the user of a drain needs.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter, Result};

use super::progress::DrainProgress;

/// A right that the user of a command needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserRight {
    pub verb: &'static str,
    pub group: &'static str,
    /// Resource, or resource and subresource.
    pub resource: &'static str,
    pub namespace: Option<String>,
    pub name: Option<String>,
}

impl Display for UserRight {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { verb, group, resource, namespace, name } = self;
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if let Some(name) = name {
            write!(f, " ({name})")?;
        }
        namespace.as_ref().map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
    }
}

impl DrainProgress<'_> {
    /// Rights for everything that the drain would do now. An action requires the right to evict pods, too.
    pub fn rights(&self) -> Vec<UserRight> {
        let acting: BTreeSet<String> = self.due().map(|of| of.namespace.clone()).collect();
        let evicting = self.evictable().map(|pod| pod.key.namespace.clone()).chain(acting.iter().cloned());
        let evicting: BTreeSet<String> = evicting.collect();
        let in_namespace = |group, resource, namespace: String| UserRight {
            verb: "create",
            group,
            resource,
            namespace: Some(namespace),
            name: None,
        };
        let cordon =
            |node: String| UserRight { verb: "patch", group: "", resource: "nodes", namespace: None, name: Some(node) };
        let mut all: Vec<UserRight> = self.nodes.iter().map(|node| cordon(node.to_string())).collect();
        all.extend(acting.into_iter().map(|name| in_namespace("ganglion.dev", "workloadactions", name)));
        all.extend(evicting.into_iter().map(|name| in_namespace("", "pods/eviction", name)));
        all
    }
}
