//! Compares the resources that a pod would have after a resize with what its other containers, its node and the
//! versions of the API server and the kubelet allow.
//!
//! The API server refuses a resize that changes the QoS class of a pod, that takes a container above the resources of
//! the pod or the pod below those of its containers, and, from Kubernetes 1.36 on, one that takes the pod above what
//! its node can allocate (403 with the cause NodeCapacity); kubelets of older versions answer the last one with
//! Infeasible. Before 1.36, it refuses every resize of a pod with resources at pod level. None of these resizes is
//! possible before the pod, the node or a version changes, so it is not sent before. Source: `ValidatePodResize` and
//! the admission plugins `podresize` and `nodedeclaredfeatures` of Kubernetes 1.36.

use std::fmt::{Display, Formatter, Result as FmtResult};

use serde::Deserialize;

use ganglion_api::closed_loop::metric::ResourceName;
use ganglion_api::execution::Quantities;
use ganglion_core::amounts::Amounts;
use ganglion_core::facts::{ContainerRequests, Requests, ResourceAmounts};
use ganglion_core::quantity;

/// Feature that a node declares whose kubelet resizes pods at pod level.
pub const POD_LEVEL_FEATURE: &str = "InPlacePodLevelResourcesVerticalScaling";

/// Minor version of Kubernetes from which pods with resources at pod level can be resized.
const POD_LEVEL_MINOR: u32 = 36;

/// Both resources that determine the QoS class.
const RESOURCES: [ResourceName; 2] = [ResourceName::Cpu, ResourceName::Memory];

/// Resources of all containers of a pod, of the pod as a whole, and of its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodComposition {
    pub containers: Vec<ContainerAmounts>,
    /// Init containers in their order, and whether each one is a sidecar.
    pub inits: Vec<(ContainerAmounts, bool)>,
    /// Resources at pod level; None if the pod has none.
    pub whole: Option<ContainerAmounts>,
    pub overhead: Amounts,
    /// None if the pod is on no node.
    pub node: Option<PodNode>,
    /// Minor version of the API server, if it was asked for.
    pub minor: Option<u32>,
    /// Whether a running container has no resources in its status: kubelets before 1.33 report none.
    pub is_unreported: bool,
}

/// Requests and limits of a container.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ContainerAmounts {
    /// Name of the container.
    #[serde(skip)]
    pub name: String,
    pub requests: Amounts,
    pub limits: Amounts,
}

/// Node of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNode {
    pub name: String,
    /// None if the node is not in the cache.
    pub allocatable: Option<Requests>,
    /// Whether it declares [`POD_LEVEL_FEATURE`]. None if that is not known.
    pub resizes_pods: Option<bool>,
}

/// QoS class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Display for QosClass {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str(match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        })
    }
}

/// Returns why the API server cannot resize pods with resources at pod level, if so. `minor`: its minor version.
pub fn pod_level_refusal(minor: Option<u32>) -> Option<String> {
    let old = minor.filter(|minor| *minor < POD_LEVEL_MINOR)?;
    Some(format!(
        "pods with resources at pod level can be resized in place from Kubernetes 1.{POD_LEVEL_MINOR} on, and the API \
         server has version 1.{old}"
    ))
}

impl PodComposition {
    /// Returns why the API server or the kubelet would refuse this resize, if so. `name`: name of the pod. `index`:
    /// index of the container; None for the pod as a whole.
    pub fn refusal(&self, name: &str, index: Option<usize>, resource: ResourceName, to: &Quantities) -> Option<String> {
        if let Some(why) = self.unsupported(name, index.is_none()) {
            return Some(why);
        }
        let mut after = self.clone();
        match index {
            Some(index) => after.containers.get_mut(index)?,
            None => after.whole.as_mut()?,
        }
        .set(resource, to);
        let (is, would) = (self.class(), after.class());
        if is != would {
            return Some(format!(
                "pod {name} has the QoS class {is} and would get {would}, which a resize cannot change: set what, min \
                 and max so that {is} is kept"
            ));
        }
        let above = match index {
            Some(index) => after.above_pod(name, after.containers.get(index)?, resource),
            None => after.below_containers(name, resource),
        };
        above.or_else(|| after.above_node(name))
    }

    /// Returns what the version of the API server or of the node lacks, if anything.
    fn unsupported(&self, name: &str, is_of_pod: bool) -> Option<String> {
        if let Some(why) = self.whole.as_ref().and_then(|_| pod_level_refusal(self.minor)) {
            return Some(format!("pod {name} has resources at pod level: {why}"));
        }
        let node = self.node.as_ref().map(|node| node.name.as_str()).unwrap_or_default();
        if self.is_unreported {
            return Some(format!(
                "the kubelet of node {node} does not report the resources of pod {name}, as kubelets do from 1.33 on: \
                 upgrade the node, or move the pod"
            ));
        }
        let lacks = is_of_pod && self.node.as_ref().is_some_and(|node| node.resizes_pods == Some(false));
        lacks.then(|| {
            format!(
                "node {node} of pod {name} does not declare {POD_LEVEL_FEATURE}, as nodes do from Kubernetes \
                 1.{POD_LEVEL_MINOR} on: upgrade the node, or resize a container"
            )
        })
    }

    /// Computes the QoS class, from the resources at pod level if there are some.
    pub fn class(&self) -> QosClass {
        let parts: Vec<&ContainerAmounts> = match &self.whole {
            Some(whole) => vec![whole],
            None => self.containers.iter().chain(self.inits.iter().map(|(init, _)| init)).collect(),
        };
        let mut is_guaranteed = true;
        let mut is_best_effort = true;
        for resource in RESOURCES {
            let sum = |amount: fn(&ContainerAmounts) -> &Amounts| {
                parts
                    .iter()
                    .fold(0, |sum: i64, part| sum.saturating_add(amount_of(amount(part), resource).unwrap_or(0)))
            };
            let (requests, limits) = (sum(|part| &part.requests), sum(|part| &part.limits));
            is_best_effort &= requests == 0 && limits == 0;
            let is_limited =
                |part: &&ContainerAmounts| amount_of(&part.limits, resource).is_some_and(|limit| limit > 0);
            is_guaranteed &= requests == limits && parts.iter().all(is_limited);
        }
        match (is_best_effort, is_guaranteed) {
            (true, _) => QosClass::BestEffort,
            (false, true) => QosClass::Guaranteed,
            (false, false) => QosClass::Burstable,
        }
    }

    /// Requests of all containers, as the scheduler computes them.
    fn requests(&self) -> ContainerRequests {
        let mut sum = ContainerRequests::default();
        for (init, is_sidecar) in &self.inits {
            sum.add_init(resource_amounts(&init.requests), *is_sidecar);
        }
        for container in &self.containers {
            sum.add(resource_amounts(&container.requests), resource_amounts(&container.limits));
        }
        sum
    }

    /// Returns how the container leaves the resources of the pod, if it does.
    fn above_pod(&self, name: &str, container: &ContainerAmounts, resource: ResourceName) -> Option<String> {
        let whole = self.whole.as_ref()?;
        let message = |what: &str, (amount, of_pod)| {
            let (amount, of_pod) = (shown(resource, amount), shown(resource, of_pod));
            let word = resource.as_str();
            format!(
                "{what} would be {amount} {word}, more than the {of_pod} of pod {name} as a whole: lower max, or raise \
                 the resources of the pod first"
            )
        };
        let of_limits = limit_above(container, whole, resource).map(|pair| message("the limit of the container", pair));
        of_limits.or_else(|| Some(message("the requests of the containers", self.requests_above(whole, resource)?)))
    }

    /// Returns how the pod as a whole leaves what its containers have, if it does.
    fn below_containers(&self, name: &str, resource: ResourceName) -> Option<String> {
        let whole = self.whole.as_ref()?;
        let message = |what: &str, (amount, of_pod)| {
            let (amount, of_pod) = (shown(resource, amount), shown(resource, of_pod));
            let word = resource.as_str();
            format!(
                "pod {name} as a whole would have {of_pod} {word}, less than {what}, {amount}: set min, or lower that \
                 first"
            )
        };
        let of_limit = self.containers.iter().find_map(|container| {
            let pair = limit_above(container, whole, resource)?;
            Some(message(&format!("the limit of its container {}", container.name), pair))
        });
        of_limit.or_else(|| Some(message("the requests of its containers", self.requests_above(whole, resource)?)))
    }

    /// Returns the requests of all containers and that of the pod, if the containers request more.
    fn requests_above(&self, whole: &ContainerAmounts, resource: ResourceName) -> Option<(i64, i64)> {
        let none = ResourceAmounts::default();
        let requested = of(resource, self.requests().total(none, none));
        let most = amount_of(&whole.requests, resource)?;
        (requested > most).then_some((requested, most))
    }

    /// Returns how the pod leaves what its node can allocate, if it does.
    fn above_node(&self, name: &str) -> Option<String> {
        let PodNode { name: node, allocatable, .. } = self.node.as_ref()?;
        let allocatable = (*allocatable)?;
        let whole = self.whole.as_ref().map(|whole| resource_amounts(&whole.requests)).unwrap_or_default();
        let total = self.requests().total(whole, resource_amounts(&self.overhead));
        RESOURCES.into_iter().find_map(|resource| {
            let (requested, most) = (of(resource, total), of(resource, allocatable));
            (requested > most).then(|| {
                let (requested, most, word) = (shown(resource, requested), shown(resource, most), resource.as_str());
                format!(
                    "pod {name} would request {requested} {word}, and node {node} can allocate {most} in all: add a \
                     rung that adds replicas, or move the pod to a larger node"
                )
            })
        })
    }
}

impl ContainerAmounts {
    /// Whether there is an amount of cpu or memory.
    pub fn is_set(&self) -> bool {
        RESOURCES.into_iter().any(|resource| self.requests.of(resource).is_some() || self.limits.of(resource).is_some())
    }

    fn set(&mut self, resource: ResourceName, to: &Quantities) {
        for (amounts, to) in [(&mut self.requests, &to.request), (&mut self.limits, &to.limit)] {
            let amount = match resource {
                ResourceName::Cpu => &mut amounts.cpu,
                ResourceName::Memory => &mut amounts.memory,
            };
            if let Some(to) = to {
                *amount = Some(to.0.clone());
            }
        }
    }
}

/// Returns the limit of the container and that of the pod, if the container has the larger one.
fn limit_above(container: &ContainerAmounts, whole: &ContainerAmounts, resource: ResourceName) -> Option<(i64, i64)> {
    let (limit, most) = (amount_of(&container.limits, resource)?, amount_of(&whole.limits, resource)?);
    (limit > most).then_some((limit, most))
}

/// Amount in millicores or bytes. The API server has validated it, so text that does not parse counts as missing.
fn amount_of(amounts: &Amounts, resource: ResourceName) -> Option<i64> {
    let text = amounts.of(resource)?;
    match resource {
        ResourceName::Cpu => quantity::cpu_millis(text).ok(),
        ResourceName::Memory => quantity::bytes(text).ok(),
    }
}

fn resource_amounts(amounts: &Amounts) -> ResourceAmounts {
    let mut read = ResourceAmounts::default();
    for resource in RESOURCES {
        if let Some(text) = amounts.of(resource) {
            read.set(resource.as_str(), text);
        }
    }
    read
}

fn of(resource: ResourceName, requests: Requests) -> i64 {
    match resource {
        ResourceName::Cpu => requests.cpu,
        ResourceName::Memory => requests.memory,
    }
}

fn shown(resource: ResourceName, amount: i64) -> String {
    match resource {
        ResourceName::Cpu => quantity::show_millis(amount),
        ResourceName::Memory => quantity::show_bytes(amount),
    }
}
