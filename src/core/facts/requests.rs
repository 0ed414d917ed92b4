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

impl Requests {
    /// Reads the amounts of a map; missing ones come from `other`. The API server has validated the amounts, so text
    /// that does not parse counts as missing.
    pub(super) fn of(amounts: Option<&ResourceList>, other: Self) -> Self {
        let amount = |name: &str| amounts.and_then(|amounts| amounts.get(name));
        let bytes = |name: &str, other| amount(name).and_then(|text| quantity::bytes(&text.0).ok()).unwrap_or(other);
        Self {
            cpu: amount("cpu").and_then(|text| quantity::cpu_millis(&text.0).ok()).unwrap_or(other.cpu),
            memory: bytes("memory", other.memory),
            gpu: bytes(GPU, other.gpu),
            storage: bytes("ephemeral-storage", other.storage),
        }
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

/// Effective request of a pod, as the scheduler computes it: the larger of (a) containers plus sidecars and (b) the
/// largest init container plus the sidecars started before it. The pod-level request overrides it, if set. The overhead
/// is added.
pub fn requests(spec: &PodSpec) -> Requests {
    let (mut side, mut peak) = (Requests::default(), Requests::default());
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            side = side + container(init);
            peak = peak.max(side);
        } else {
            peak = peak.max(side + container(init));
        }
    }
    let all = spec.containers.iter().map(container).fold(side, std::ops::Add::add).max(peak);
    let pod = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    Requests::of(pod, all) + Requests::of(spec.overhead.as_ref(), Requests::default())
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

/// CPU of a pod in millicores as WAO counts it: for each container its request, or else its limit.
pub fn cores(spec: &PodSpec) -> i64 {
    let cpu = |container: &Container| {
        let resources = container.resources.as_ref();
        let limit = Requests::of(resources.and_then(|resources| resources.limits.as_ref()), Requests::default());
        match self::container(container).cpu {
            0 => limit.cpu,
            request => request,
        }
    };
    spec.containers.iter().map(cpu).fold(0, i64::saturating_add)
}

fn container(container: &Container) -> Requests {
    let resources = container.resources.as_ref();
    Requests::of(resources.and_then(|resources| resources.requests.as_ref()), Requests::default())
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
