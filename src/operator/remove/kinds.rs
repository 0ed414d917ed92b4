//! The kinds of the operator, in the order of their deletion, and the rights that a removal needs.

use kube::Resource;
use kube::api::ApiResource;

use ganglion_actions_plan::drain::UserRight;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;

/// A kind, as the API server names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKind {
    pub resource: ApiResource,
    pub is_namespaced: bool,
}

impl NamedKind {
    /// A namespaced kind.
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self { resource: ApiResource::erase::<K>(&()), is_namespaced: true }
    }

    /// A cluster-scoped kind.
    pub fn of_cluster<K: Resource<DynamicType = ()>>() -> Self {
        Self { is_namespaced: false, ..Self::of::<K>() }
    }
}

/// All kinds but receipts. Loops come first, so that they start nothing more, and children after their owners, so that
/// no owner creates them again. Actions come last: the policy that one of them uses may go before, since nothing new
/// begins.
pub fn of_users() -> Vec<NamedKind> {
    vec![
        NamedKind::of::<ClosedLoop>(),
        NamedKind::of::<Execution>(),
        NamedKind::of::<Decision>(),
        NamedKind::of::<Monitoring>(),
        NamedKind::of::<NodeConfigTemplate>(),
        NamedKind::of::<NodeConfig>(),
        NamedKind::of::<SwarmPool>(),
        NamedKind::of_cluster::<PlacementPolicy>(),
        actions(),
    ]
}

pub fn actions() -> NamedKind {
    NamedKind::of::<WorkloadAction>()
}

/// Receipts go after all actions: a receipt proves that a running action has begun.
pub fn receipts() -> NamedKind {
    NamedKind::of::<WorkloadActionReceipt>()
}

/// Verbs for a resource, in each of the namespaces; in all namespaces if there are none.
struct NeededVerbs {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

const fn needed(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> NeededVerbs {
    NeededVerbs { group, resource, verbs }
}

/// Rights on the objects of users.
const OF_OBJECTS: [NeededVerbs; 15] = [
    needed("ganglion.dev", "closedloops", &["list", "delete"]),
    needed("ganglion.dev", "executions", &["list", "delete"]),
    needed("ganglion.dev", "decisions", &["list", "delete"]),
    needed("ganglion.dev", "monitorings", &["list", "delete"]),
    needed("ganglion.dev", "nodeconfigtemplates", &["list", "delete"]),
    needed("ganglion.dev", "nodeconfigs", &["list", "delete"]),
    needed("ganglion.dev", "swarmpools", &["list", "delete"]),
    needed("ganglion.dev", "workloadactions", &["list", "delete", "patch"]),
    needed("ganglion.dev", "workloadactionreceipts", &["list", "delete"]),
    needed("", "pods", &["get", "list", "patch"]),
    needed("apps", "deployments", &["get", "list", "patch"]),
    needed("apps", "replicasets", &["get", "list", "patch"]),
    needed("apps", "statefulsets", &["get", "list", "patch"]),
    needed("autoscaling", "horizontalpodautoscalers", &["get", "list", "patch"]),
    needed("", "configmaps", &["get", "list", "patch", "delete"]),
];

/// Rights in the operator's namespace, to see whether an operator runs.
const OF_OBSERVER: [NeededVerbs; 1] = [needed("coordination.k8s.io", "leases", &["get"])];

/// Rights on objects without a namespace.
const OF_CLUSTER: [NeededVerbs; 2] =
    [needed("ganglion.dev", "placementpolicies", &["list", "delete"]), needed("", "nodes", &["get", "list", "patch"])];

/// Rights of the controllers that run in this process if no operator does.
const OF_CONTROLLERS: [NeededVerbs; 13] = [
    needed("ganglion.dev", "workloadactions", &["watch"]),
    needed("ganglion.dev", "workloadactions/status", &["update"]),
    needed("ganglion.dev", "workloadactionreceipts", &["watch", "patch"]),
    needed("", "pods", &["watch", "create", "delete"]),
    needed("", "pods/eviction", &["create"]),
    needed("apps", "deployments", &["watch"]),
    needed("apps", "replicasets", &["watch"]),
    needed("apps", "statefulsets", &["watch"]),
    needed("policy", "poddisruptionbudgets", &["list", "watch"]),
    needed("autoscaling", "horizontalpodautoscalers", &["watch"]),
    needed("", "persistentvolumeclaims", &["list", "watch"]),
    needed("", "services", &["list", "watch"]),
    needed("", "nodes", &["watch"]),
];

/// Rights in the operator's namespace if no operator runs.
const OF_LEADER: [NeededVerbs; 2] = [
    needed("coordination.k8s.io", "leases", &["create", "update", "delete"]),
    needed("", "secrets", &["get", "delete"]),
];

/// Rights that a removal needs. `scope`: the namespaces whose objects go; None: all, and those of the cluster.
/// `is_leader`: no operator runs, so that this process completes its work.
pub fn rights(scope: Option<&[String]>, namespace: &str, is_leader: bool) -> Vec<UserRight> {
    let places: Vec<Option<&str>> =
        scope.map_or_else(|| vec![None], |names| names.iter().map(|name| Some(name.as_str())).collect());
    let mut rights = spread(&OF_OBJECTS, &places);
    rights.extend(spread(&OF_OBSERVER, &[Some(namespace)]));
    if scope.is_none() {
        rights.extend(spread(&OF_CLUSTER, &[None]));
    }
    if is_leader {
        let (of_nodes, others): (Vec<_>, Vec<_>) =
            spread(&OF_CONTROLLERS, &places).into_iter().partition(|right| right.resource == "nodes");
        rights.extend(others);
        rights.extend(of_nodes.into_iter().map(|right| UserRight { namespace: None, ..right }));
        rights.extend(spread(&OF_LEADER, &[Some(namespace)]));
    }
    rights
}

fn spread(needed: &[NeededVerbs], places: &[Option<&str>]) -> Vec<UserRight> {
    let mut rights = Vec::new();
    for NeededVerbs { group, resource, verbs } in needed {
        for verb in *verbs {
            for place in places {
                let namespace = place.map(str::to_owned);
                rights.push(UserRight { verb, group, resource, namespace, name: None });
            }
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_kind_is_forgotten() {
        let all: BTreeSet<String> = ganglion_api::all().into_iter().map(|crd| crd.spec.names.kind).collect();
        let mut kinds = of_users();
        kinds.push(receipts());
        let removed: BTreeSet<String> = kinds.iter().map(|kind| kind.resource.kind.clone()).collect();
        assert_eq!(removed, all);
        let asked: BTreeSet<&str> = OF_OBJECTS.iter().chain(&OF_CLUSTER).map(|needed| needed.resource).collect();
        for kind in kinds {
            assert!(
                asked.contains(kind.resource.plural.as_str()),
                "no permission for {} is checked",
                kind.resource.plural
            );
        }
        for crd in ganglion_api::all() {
            let mut kinds = of_users().into_iter().chain([receipts()]);
            let kind = kinds.find(|kind| kind.resource.kind == crd.spec.names.kind);
            assert_eq!(kind.map(|kind| kind.is_namespaced), Some(crd.spec.scope == "Namespaced"));
        }
    }

    #[test]
    fn rights_are_asked_where_they_are_used() {
        let names = ["shop".to_owned()];
        let limited = rights(Some(&names), "ops", true);
        let is_asked = |verb: &str, resource: &str, place: Option<&str>| {
            limited
                .iter()
                .any(|right| (right.verb, right.resource, right.namespace.as_deref()) == (verb, resource, place))
        };
        assert!(is_asked("patch", "pods", Some("shop")) && is_asked("watch", "nodes", None));
        assert!(is_asked("delete", "secrets", Some("ops")) && !is_asked("patch", "nodes", None));
        let follower = rights(None, "ops", false);
        assert!(follower.iter().all(|right| right.verb != "watch" && right.resource != "secrets"), "{follower:?}");
    }
}
