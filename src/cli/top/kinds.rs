//! The kinds of `ganglion top`: names, resources, and what is watched for each.

use clap_complete::engine::CompletionCandidate;
use kube::core::ApiResource;

use ganglion_api::GROUP;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;

/// A watched kind. The last three are shown in the row of their loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopKind {
    Action,
    Loop,
    Pool,
    Node,
    Policy,
    Monitoring,
    Decision,
    Execution,
}

impl TopKind {
    /// Kinds with rows, in the order of the tabs.
    pub const SHOWN: [Self; 5] = [Self::Action, Self::Loop, Self::Pool, Self::Node, Self::Policy];

    /// Children of a loop.
    const CHILDREN: [Self; 3] = [Self::Monitoring, Self::Decision, Self::Execution];

    /// The kinds to watch for these rows.
    pub fn watched(shown: &[Self]) -> Vec<Self> {
        let children = if shown.contains(&Self::Loop) { &Self::CHILDREN[..] } else { &[] };
        shown.iter().chain(children).copied().collect()
    }

    /// Parses the name of a kind as kubectl accepts it: `wa`, `closedloops`, `SwarmPool`.
    pub fn parse(word: &str) -> Result<Self, String> {
        let word = word.to_lowercase();
        let plain = word.strip_suffix(&format!(".{GROUP}")).unwrap_or(&word);
        let named = |kind: &Self| {
            let resource = kind.resource();
            let names = [resource.plural, resource.kind.to_lowercase(), kind.short().to_owned()];
            names.iter().any(|name| name == plain) || kind.title().to_lowercase() == plain
        };
        Self::SHOWN.into_iter().find(named).ok_or_else(|| {
            let known: Vec<&str> = Self::SHOWN.iter().map(|kind| kind.short()).collect();
            format!("not a kind of this view; the kinds are {}", known.join(", "))
        })
    }

    /// Short names, with the kinds as help.
    pub fn candidates() -> Vec<CompletionCandidate> {
        let candidate = |kind: Self| CompletionCandidate::new(kind.short()).help(Some(kind.kind().into()));
        Self::SHOWN.into_iter().map(candidate).collect()
    }

    /// The resource in the API.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Action => ApiResource::erase::<WorkloadAction>(&()),
            Self::Loop => ApiResource::erase::<ClosedLoop>(&()),
            Self::Pool => ApiResource::erase::<SwarmPool>(&()),
            Self::Node => ApiResource::erase::<NodeConfig>(&()),
            Self::Policy => ApiResource::erase::<PlacementPolicy>(&()),
            Self::Monitoring => ApiResource::erase::<Monitoring>(&()),
            Self::Decision => ApiResource::erase::<Decision>(&()),
            Self::Execution => ApiResource::erase::<Execution>(&()),
        }
    }

    /// Name of the kind.
    pub fn kind(self) -> String {
        self.resource().kind
    }

    /// Whether the objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        self != Self::Policy
    }

    /// Short name, as in the CRD.
    pub fn short(self) -> &'static str {
        match self {
            Self::Action => "wa",
            Self::Loop => "loop",
            Self::Pool => "swp",
            Self::Node => "ncfg",
            Self::Policy => "plpol",
            Self::Monitoring => "mon",
            Self::Decision => "dec",
            Self::Execution => "exe",
        }
    }

    /// Title of the tab.
    pub fn title(self) -> &'static str {
        match self {
            Self::Action => "Actions",
            Self::Loop => "Loops",
            Self::Pool => "Pools",
            Self::Node => "Nodes",
            Self::Policy => "Policies",
            Self::Monitoring => "Monitorings",
            Self::Decision => "Decisions",
            Self::Execution => "Executions",
        }
    }

    /// The resource with its group, such as `workloadactions.ganglion.dev`.
    pub fn full_name(self) -> String {
        format!("{}.{GROUP}", self.plural())
    }

    /// Plural of the resource.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Action => "workloadactions",
            Self::Loop => "closedloops",
            Self::Pool => "swarmpools",
            Self::Node => "nodeconfigs",
            Self::Policy => "placementpolicies",
            Self::Monitoring => "monitorings",
            Self::Decision => "decisions",
            Self::Execution => "executions",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TopKind as K;

    #[test]
    fn names_are_those_of_the_definitions() {
        for kind in K::watched(&K::SHOWN) {
            let crds = ganglion_api::all();
            let crd = crds.iter().find(|crd| crd.spec.names.kind == kind.kind()).unwrap();
            assert_eq!(crd.spec.names.plural, kind.plural(), "{kind:?}");
            assert_eq!(crd.spec.names.short_names.as_deref(), Some(&[kind.short().to_owned()][..]), "{kind:?}");
            assert_eq!(crd.spec.scope == "Namespaced", kind.is_namespaced(), "{kind:?}");
        }
    }

    #[test]
    fn a_kind_is_named_as_kubectl_names_it() {
        for word in ["wa", "workloadaction", "WorkloadActions", "workloadactions.ganglion.dev", "actions"] {
            assert_eq!(K::parse(word), Ok(K::Action), "{word}");
        }
        assert_eq!(K::parse("pods").unwrap_err(), "not a kind of this view; the kinds are wa, loop, swp, ncfg, plpol");
        assert!(K::parse("mon").is_err());
    }

    #[test]
    fn children_are_watched_for_loops_alone() {
        assert_eq!(K::watched(&[K::Pool]), [K::Pool]);
        assert_eq!(K::watched(&[K::Loop]), [K::Loop, K::Monitoring, K::Decision, K::Execution]);
    }
}
