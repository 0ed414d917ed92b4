//! Resource requests of pods and resources of nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

/// Resource name that counts as GPU.
pub const GPU: &str = "nvidia.com/gpu";

/// ResourceList of resources: CPU in millicores, memory and ephemeral storage in bytes, whole GPUs ([`GPU`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub cpu: i64,
    pub memory: i64,
    pub gpu: i64,
    pub storage: i64,
}

type ResourceList = BTreeMap<String, Quantity>;

/// Amounts of a list of resources, in the units of [`Requests`]; None for a missing one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAmounts {
    cpu: Option<i64>,
    memory: Option<i64>,
    gpu: Option<i64>,
    storage: Option<i64>,
}

impl ResourceAmounts {
    /// Whether the resource is one of these.
    pub fn has(resource: &str) -> bool {
        matches!(resource, "cpu" | "memory" | GPU | "ephemeral-storage")
    }

    /// Reads the amount of a resource. The API server has validated the amounts, so text that does not parse counts as
    /// missing.
    pub fn set(&mut self, resource: &str, text: &str) {
        match resource {
            "cpu" => self.cpu = quantity::cpu_millis(text).ok(),
            "memory" => self.memory = quantity::bytes(text).ok(),
            GPU => self.gpu = quantity::bytes(text).ok(),
            "ephemeral-storage" => self.storage = quantity::bytes(text).ok(),
            _ => {}
        }
    }

    /// The amounts; missing ones come from `other`.
    pub fn or(self, other: Requests) -> Requests {
        Requests {
            cpu: self.cpu.unwrap_or(other.cpu),
            memory: self.memory.unwrap_or(other.memory),
            gpu: self.gpu.unwrap_or(other.gpu),
            storage: self.storage.unwrap_or(other.storage),
        }
    }
}

impl From<Option<&ResourceList>> for ResourceAmounts {
    fn from(list: Option<&ResourceList>) -> Self {
        let mut amounts = Self::default();
        for (resource, quantity) in list.into_iter().flatten() {
            amounts.set(resource, &quantity.0);
        }
        amounts
    }
}

impl Requests {
    /// Reads the amounts of a map; missing ones come from `other`.
    pub(super) fn of(amounts: Option<&ResourceList>, other: Self) -> Self {
        ResourceAmounts::from(amounts).or(other)
    }

    fn zip(self, other: Self, join: fn(i64, i64) -> i64) -> Self {
        Self {
            cpu: join(self.cpu, other.cpu),
            memory: join(self.memory, other.memory),
            gpu: join(self.gpu, other.gpu),
            storage: join(self.storage, other.storage),
        }
    }

    fn max(self, other: Self) -> Self {
        self.zip(other, i64::max)
    }
}

impl std::ops::Add for Requests {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, i64::saturating_add)
    }
}

impl std::ops::Sub for Requests {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.zip(other, i64::saturating_sub)
    }
}

/// Requests of the containers of a pod, added one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    containers: Requests,
    sidecars: Requests,
    /// Largest request while init containers run.
    peak: Requests,
    cores: i64,
}

impl ContainerRequests {
    /// Adds a container.
    pub fn add(&mut self, requests: ResourceAmounts, limits: ResourceAmounts) {
        let request = requests.or(Requests::default());
        self.containers = self.containers + request;
        let cores = if request.cpu == 0 { limits.or(Requests::default()).cpu } else { request.cpu };
        self.cores = self.cores.saturating_add(cores);
    }

    /// Adds the next init container.
    pub fn add_init(&mut self, requests: ResourceAmounts, is_sidecar: bool) {
        let request = requests.or(Requests::default());
        if is_sidecar {
            self.sidecars = self.sidecars + request;
            self.peak = self.peak.max(self.sidecars);
        } else {
            self.peak = self.peak.max(self.sidecars + request);
        }
    }

    /// The sum with the init containers of the same pod.
    #[must_use]
    pub fn with_inits(self, inits: Self) -> Self {
        Self { sidecars: inits.sidecars, peak: inits.peak, ..self }
    }

    /// Effective request of the pod, as the scheduler computes it: the larger of (a) containers plus sidecars and (b)
    /// the largest init container plus the sidecars started before it. The pod-level request overrides it, if set. The
    /// overhead is added.
    pub fn total(&self, pod: ResourceAmounts, overhead: ResourceAmounts) -> Requests {
        pod.or((self.sidecars + self.containers).max(self.peak)) + overhead.or(Requests::default())
    }

    /// CPU of the pod in millicores as WAO counts it: for each container its request, or else its limit.
    pub fn cores(&self) -> i64 {
        self.cores
    }
}

impl From<&PodSpec> for ContainerRequests {
    fn from(spec: &PodSpec) -> Self {
        let mut sum = Self::default();
        for init in spec.init_containers.iter().flatten() {
            sum.add_init(amounts(init).0, init.restart_policy.as_deref() == Some("Always"));
        }
        for container in &spec.containers {
            let (requests, limits) = amounts(container);
            sum.add(requests, limits);
        }
        sum
    }
}

/// Requests and limits of a container.
fn amounts(container: &Container) -> (ResourceAmounts, ResourceAmounts) {
    let Some(resources) = &container.resources else { return Default::default() };
    (resources.requests.as_ref().into(), resources.limits.as_ref().into())
}

/// Effective request of a pod; see [`ContainerRequests::total`].
pub fn requests(spec: &PodSpec) -> Requests {
    let pod = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    ContainerRequests::from(spec).total(pod.into(), spec.overhead.as_ref().into())
}

/// Adds the requests that the API server adds to pods, but not to the templates of controllers: a container that limits
/// a resource without requesting it requests the limit.
pub fn default_requests(spec: &mut PodSpec) {
    let inits = spec.init_containers.iter_mut().flatten();
    for container in inits.chain(spec.containers.iter_mut()) {
        let Some(resources) = &mut container.resources else { continue };
        for (resource, limit) in resources.limits.iter().flatten() {
            let requests = resources.requests.get_or_insert_with(ResourceList::new);
            requests.entry(resource.clone()).or_insert_with(|| limit.clone());
        }
    }
}

/// CPU of a pod in millicores; see [`ContainerRequests::cores`].
pub fn cores(spec: &PodSpec) -> i64 {
    ContainerRequests::from(spec).cores()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn asking(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[rstest]
    #[case::sum(json!({"containers": [asking("1"), asking("500m")]}), 1500)]
    #[case::nothing(json!({"containers": [{"name": "c"}]}), 0)]
    #[case::large_init(json!({"containers": [asking("1")], "initContainers": [asking("3")]}), 3000)]
    #[case::sidecar_beside_init(json!({"containers": [asking("1")], "initContainers": [sidecar("1"), asking("3")]}), 4000)]
    #[case::init_before_sidecar(json!({"containers": [asking("1")], "initContainers": [asking("3"), sidecar("1")]}), 3000)]
    #[case::sidecar_beside_containers(json!({"containers": [asking("2")], "initContainers": [sidecar("1")]}), 3000)]
    #[case::overhead(json!({"containers": [asking("1")], "overhead": {"cpu": "250m"}}), 1250)]
    #[case::whole_pod(json!({"containers": [asking("1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}}), 5000)]
    fn requests_are_counted_as_the_scheduler_does(#[case] spec: Value, #[case] millis: i64) {
        let spec: PodSpec = serde_json::from_value(spec).expect("a pod spec");
        assert_eq!(requests(&spec).cpu, millis);
    }

    /// A container, or the pod as a whole, in the format of the agents' test vectors.
    fn from_vector(vector: &Value) -> Value {
        json!({
            "name": "c",
            "resources": {"requests": vector},
            "restartPolicy": vector.get("restart_policy"),
        })
    }

    #[test]
    fn requests_meet_the_vectors_of_the_agents() {
        let vectors: Value =
            serde_json::from_str(include_str!("../../placement/plan/tests/agents_vectors.json")).expect("JSON");
        let vectors = vectors["public"]["safe"].as_array().expect("a list");
        assert!(!vectors.is_empty());
        for vector in vectors {
            let (pod, expected) = (&vector["pod"], &vector["expected"]["pod_request"]);
            let all =
                |key: &str| -> Vec<Value> { pod[key].as_array().into_iter().flatten().map(from_vector).collect() };
            let spec = json!({
                "containers": all("containers"),
                "initContainers": all("init_containers"),
                "resources": pod.get("pod_level").map(|requests| json!({"requests": requests})),
                "overhead": pod.get("overhead"),
            });
            let Requests { cpu, memory, .. } = requests(&serde_json::from_value(spec).expect("a pod spec"));
            let expected = (expected["cpu_millicores"].as_i64(), expected["memory_bytes"].as_i64());
            assert_eq!((Some(cpu), Some(memory)), expected, "{}", vector["id"]);
        }
    }

    #[rstest]
    #[case::requests(json!({"containers": [asking("1"), asking("500m")]}), 1500)]
    #[case::limits(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}, asking("1")]}), 3000)]
    #[case::nothing(json!({"containers": [{"name": "c"}]}), 0)]
    #[case::init_containers_do_not_count(json!({"containers": [asking("1")], "initContainers": [asking("3")]}), 1000)]
    fn cores_are_counted_as_wao_does(#[case] spec: Value, #[case] millis: i64) {
        let spec: PodSpec = serde_json::from_value(spec).expect("a pod spec");
        assert_eq!(cores(&spec), millis);
    }

    #[rstest]
    #[case::a_limit(json!({"containers": [limited(json!({}))]}), 2000)]
    #[case::a_request_comes_first(json!({"containers": [limited(json!({"cpu": "1"}))]}), 1000)]
    #[case::even_one_for_nothing(json!({"containers": [limited(json!({"cpu": "0"}))]}), 0)]
    #[case::by_resource(json!({"containers": [limited(json!({"memory": "1"}))]}), 2000)]
    #[case::init_containers(json!({"containers": [asking("1")], "initContainers": [limited(json!({}))]}), 2000)]
    #[case::without_limits(json!({"containers": [{"name": "c"}]}), 0)]
    fn what_is_limited_is_requested(#[case] spec: Value, #[case] millis: i64) {
        let mut spec: PodSpec = serde_json::from_value(spec).expect("a pod spec");
        default_requests(&mut spec);
        assert_eq!(requests(&spec).cpu, millis);
    }

    fn limited(requests: Value) -> Value {
        json!({"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": requests}})
    }

    #[test]
    fn gpus_and_storage_are_counted() {
        let resources = json!({"requests": {GPU: "2", "ephemeral-storage": "1Gi"}});
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        let found = requests(&serde_json::from_value(spec).expect("a pod spec"));
        assert_eq!((found.gpu, found.storage), (2, 1 << 30));
    }
}
