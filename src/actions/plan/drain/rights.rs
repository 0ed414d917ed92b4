//! Requirements of a drain outside its pods: rights of its user, and an operator.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter, Result};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;

use super::progress::{DrainProgress, MoveState};
use ganglion_core::layout::age;

/// A right that the user of a drain needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainRight {
    pub verb: &'static str,
    pub group: &'static str,
    /// Resource, or resource and subresource.
    pub resource: &'static str,
    pub namespace: Option<String>,
    pub name: Option<String>,
}

impl Display for DrainRight {
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
    pub fn rights(&self) -> Vec<DrainRight> {
        let moves = self.plan.moves.iter().filter(|of| matches!(self.state(of), MoveState::ToDo));
        let acting: BTreeSet<String> = moves.map(|of| of.namespace.clone()).collect();
        let evicting = self.evictable().map(|pod| pod.key.namespace.clone()).chain(acting.iter().cloned());
        let evicting: BTreeSet<String> = evicting.collect();
        let in_namespace = |group, resource, namespace: String| DrainRight {
            verb: "create",
            group,
            resource,
            namespace: Some(namespace),
            name: None,
        };
        let cordon = |node: String| DrainRight {
            verb: "patch",
            group: "",
            resource: "nodes",
            namespace: None,
            name: Some(node),
        };
        let mut all: Vec<DrainRight> = self.nodes.iter().map(|node| cordon(node.to_string())).collect();
        all.extend(acting.into_iter().map(|name| in_namespace("ganglion.dev", "workloadactions", name)));
        all.extend(evicting.into_iter().map(|name| in_namespace("", "pods/eviction", name)));
        all
    }
}

/// Message if no operator holds one of these leases.
pub fn no_operator(leases: &[Lease], name: &str, now: Timestamp) -> Option<String> {
    let mut states = Vec::new();
    for lease in leases {
        let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        let is_held = spec.holder_identity.is_some_and(|holder| !holder.is_empty());
        let Some(renewed) = spec.renew_time.filter(|_| is_held) else {
            states.push(format!("released in namespace {namespace}"));
            continue;
        };
        let lasts = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(0)));
        if now <= renewed.0 + lasts {
            return None;
        }
        states.push(format!("last renewed in namespace {namespace} {} ago", age(renewed.0, now)));
    }
    let state = if states.is_empty() { "there is none".to_owned() } else { states.join(", ") };
    Some(format!("no operator holds the lease {name} ({state}), so no replica moves until an operator runs"))
}
