//! Which arguments are names of objects, and of which kind.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::core::ApiResource;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::foreign::ScaledObject;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;

/// Source of the names that an argument accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSource {
    /// Contexts of the kubeconfig.
    Contexts,
    Namespaces,
    Nodes,
    Pods,
    Loops,
    Actions,
    Pools,
    Policies,
    Accounts,
    HorizontalPodAutoscalers,
    ScaledObjects,
}

impl NameSource {
    /// Source for the argument of a command, by the name of the command and the id of the argument. None: the argument
    /// is not a name of an object.
    pub fn of(command: &str, argument: &str) -> Option<Self> {
        Some(match (command, argument) {
            (_, "context") => Self::Contexts,
            (_, "namespace" | "watch_namespaces" | "lease_namespace" | "operator_namespace") => Self::Namespaces,
            ("drain", "nodes") | ("node", "name") => Self::Nodes,
            ("loop" | "push" | "approve", "name") | ("hpa" | "scaledobject", "loop_name") => Self::Loops,
            ("hpa", "name") => Self::HorizontalPodAutoscalers,
            ("scaledobject", "name") => Self::ScaledObjects,
            ("hpa" | "scaledobject", "service_account") => Self::Accounts,
            ("wa", "name") => Self::Actions,
            ("swp", "name") => Self::Pools,
            ("placement", "policy") => Self::Policies,
            ("placement", "pod") => Self::Pods,
            _ => return None,
        })
    }

    /// Kind of the objects. None: the names are not of the cluster.
    pub fn kind(self) -> Option<ApiResource> {
        Some(match self {
            Self::Contexts => return None,
            Self::Namespaces => ApiResource::erase::<Namespace>(&()),
            Self::Nodes => ApiResource::erase::<Node>(&()),
            Self::Pods => ApiResource::erase::<Pod>(&()),
            Self::Loops => ApiResource::erase::<ClosedLoop>(&()),
            Self::Actions => ApiResource::erase::<WorkloadAction>(&()),
            Self::Pools => ApiResource::erase::<SwarmPool>(&()),
            Self::Policies => ApiResource::erase::<PlacementPolicy>(&()),
            Self::Accounts => ApiResource::erase::<ServiceAccount>(&()),
            Self::HorizontalPodAutoscalers => ApiResource::erase::<HorizontalPodAutoscaler>(&()),
            Self::ScaledObjects => ApiResource::erase::<ScaledObject>(&()),
        })
    }

    /// Whether the objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::Pods | Self::Loops | Self::Actions | Self::Pools => true,
            Self::Accounts | Self::HorizontalPodAutoscalers | Self::ScaledObjects => true,
            Self::Contexts | Self::Namespaces | Self::Nodes | Self::Policies => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::builder::Command;
    use clap::{Arg, CommandFactory};

    use super::super::Cli;
    use super::*;

    /// Names of values that are no names of objects, as the help shows them.
    const VALUES: [&str; 20] = [
        "ADDR",
        "DIGEST",
        "DIR",
        "DURATION",
        "FILE",
        "FILTER",
        "FORMAT",
        "HOW",
        "KEY=NUMBER",
        "KIND",
        "LABELS",
        "METRIC=NUMBER",
        "METRIC=QUERY",
        "MODEL",
        "N",
        "NAME=VALUE",
        "SECONDS",
        "SHELL",
        "TIME",
        "URL",
    ];

    /// Arguments whose value is a name, but not of an object in the cluster.
    const OTHERS: [(&str, &str); 3] = [("run", "identity"), ("push", "field_manager"), ("swp", "job")];

    /// Calls `check` with each argument that takes a value, and the name of its command.
    fn each_value(command: &Command, check: &mut impl FnMut(&str, &Arg)) {
        let arguments = command.get_arguments().filter(|argument| argument.get_action().takes_values());
        arguments.for_each(|argument| check(command.get_name(), argument));
        command.get_subcommands().for_each(|below| each_value(below, check));
    }

    /// A new argument has a source, or is in one of the lists above.
    #[test]
    fn every_argument_that_is_a_name_has_a_source() {
        let mut found = 0;
        each_value(&Cli::command(), &mut |command, argument| {
            let id = argument.get_id().as_str();
            let value = argument.get_value_names().map_or("", |names| names[0].as_str());
            let is_name = !VALUES.contains(&value) && !OTHERS.contains(&(command, id));
            assert_eq!(NameSource::of(command, id).is_some(), is_name, "{command} {id} {value}");
            found += usize::from(is_name);
        });
        assert!(found > 20, "{found}");
    }

    #[test]
    fn kinds_are_namespaced_as_in_the_cluster() {
        for source in [NameSource::Loops, NameSource::Actions, NameSource::Pools] {
            let plural = source.kind().unwrap().plural;
            let found = ganglion_api::all().into_iter().find(|kind| kind.spec.names.plural == plural).unwrap();
            assert!(source.is_namespaced() && found.spec.scope == "Namespaced", "{plural}");
        }
        let policies = NameSource::Policies.kind().unwrap().plural;
        let found = ganglion_api::all().into_iter().find(|kind| kind.spec.names.plural == policies).unwrap();
        assert!(!NameSource::Policies.is_namespaced() && found.spec.scope == "Cluster");
    }
}
