//! Pods as a resize needs them: the fields of a `PodList` that are used, and their translation.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::json;

use super::PODS;
use super::usage::PodUsages;
use ganglion_api::closed_loop::action::{Bounds, Resize};
use ganglion_api::closed_loop::metric::ResourceName;
use ganglion_api::execution::Quantities;
use ganglion_api::marks;
use ganglion_api::scalars::Number;
use ganglion_core::amounts::{Amounts, or_default};
use ganglion_core::facts::{FieldPath, Requests, Uid};
use ganglion_core::items::Items;
use ganglion_loops_plan::execution::{
    ContainerAmounts, ObjectVersion, PendingResize, PodComposition, PodNode, PodResources,
};

/// Maximum length of a quoted message of a kubelet, in characters.
const MAX_MESSAGE: usize = 500;

/// Maximum number of managers of a pod that have resized it.
const RESIZERS: usize = 8;

/// Used fields of a `PodList`: whole pods take many times the size of the list.
#[derive(Deserialize)]
pub struct ResizablePods {
    pub items: Items<ResizablePod, PODS>,
}

#[derive(Deserialize)]
pub struct ResizablePod {
    pub metadata: ResizableMeta,
    #[serde(default)]
    spec: ResizableSpec,
    #[serde(default)]
    status: ResizableStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizableMeta {
    pub name: String,
    uid: String,
    #[serde(default)]
    generation: i64,
    resource_version: String,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    pub owner_references: Vec<OwnerReference>,
    #[serde(default, deserialize_with = "resizers")]
    managed_fields: Vec<ManagedFieldsEntry>,
}

/// Reads the managers that have resized the pod in place. Other entries, which take more memory than all other fields
/// of a pod, are not kept.
fn resizers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ManagedFieldsEntry>, D::Error> {
    struct Resizers;

    impl<'de> Visitor<'de> for Resizers {
        type Value = Vec<ManagedFieldsEntry>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of managed fields")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut kept = Vec::new();
            while let Some(entry) = entries.next_element::<ManagedFieldsEntry>()? {
                if entry.subresource.as_deref() == Some("resize") && kept.len() < RESIZERS {
                    kept.push(entry);
                }
            }
            Ok(kept)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }
    }

    deserializer.deserialize_any(Resizers)
}

/// Client that has resized a pod in place.
#[derive(Default)]
struct PodResizer {
    /// Manager that last set one of the amounts by a resize, except the execution of a loop.
    other: Option<String>,
    /// Whether the execution of a loop was the last to set one of the amounts, and nobody else another one.
    is_loop: bool,
}

/// Returns who last set these amounts of the container, or of the pod as a whole, by a resize.
fn resizer(managers: Vec<ManagedFieldsEntry>, container: Option<&str>, amounts: &[&str]) -> PodResizer {
    if managers.is_empty() {
        return PodResizer::default();
    }
    let pod = json!({"spec": {"containers": [{"name": container}]}});
    let meta = ObjectMeta { managed_fields: Some(managers), ..ObjectMeta::default() };
    let at: &[&str] =
        if container.is_some() { &["spec", "containers", "0", "resources"] } else { &["spec", "resources"] };
    let paths = amounts.iter().map(|amount| at.iter().copied().chain(amount.split('.')).collect::<Vec<&str>>());
    let paths: Vec<Vec<&str>> = paths.collect();
    let mut fields = paths.iter().map(|path| FieldPath::new(&pod, path));
    let other = fields.clone().find_map(|field| field.last_writer(&meta));
    let is_loop = other.is_none() && fields.any(|field| field.has_manager(&meta, marks::EXECUTION_MANAGER));
    PodResizer { other, is_loop }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResizableSpec {
    containers: Vec<ResizableContainer>,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<ResizableContainer>,
    resources: Option<ContainerAmounts>,
    #[serde(deserialize_with = "or_default")]
    overhead: Amounts,
    node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResizableStatus {
    phase: String,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ResizableContainer>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<PodCondition>,
    /// Resources at pod level that the kubelet has set.
    resources: Option<ContainerAmounts>,
    /// Requests at pod level that the kubelet has allocated.
    allocated_resources: Option<Amounts>,
}

/// Container, or the status of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResizableContainer {
    name: String,
    #[serde(default)]
    resources: Option<ContainerAmounts>,
    /// Requests that the kubelet has allocated.
    #[serde(default)]
    allocated_resources: Option<Amounts>,
    #[serde(default, deserialize_with = "or_default")]
    state: ContainerState,
    /// Restart policy; `Always` makes an init container a sidecar.
    #[serde(default)]
    restart_policy: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    /// Generation of the pod that the condition is about. Kubelets before 1.34 do not set it.
    #[serde(default)]
    observed_generation: Option<i64>,
}

impl ResizablePod {
    pub fn is_running(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && self.status.phase == "Running"
    }

    pub fn is_starting(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && self.status.phase == "Pending"
    }

    /// Whether the pod has resources at pod level.
    pub fn has_whole(&self) -> bool {
        self.spec.resources.as_ref().is_some_and(ContainerAmounts::is_set)
    }

    pub fn node_name(&self) -> &str {
        &self.spec.node_name
    }
}

/// Allocatable resources of a node, if it is known.
type AllocatableOf<'a> = &'a dyn Fn(&str) -> Option<Requests>;

/// Facts about the surroundings of pods.
#[derive(Clone, Copy, Default)]
pub struct ResizeSurroundings<'a> {
    /// Minor version of the API server, if it matters.
    pub minor: Option<u32>,
    /// Allocatable resources of a node, by name.
    pub allocatable: Option<AllocatableOf<'a>>,
    /// Whether nodes declare the feature of pod level.
    pub declared: Option<&'a BTreeMap<String, bool>>,
    /// Memory usage of pods.
    pub usage: Option<&'a PodUsages>,
}

/// Returns the resources of the container, or of the pod as a whole, if the pod has it.
pub fn pod_seen(pod: ResizablePod, resize: &Resize, around: ResizeSurroundings) -> Option<PodResources> {
    let ResizablePod { metadata, spec, status } = pod;
    let container = resize.container.as_deref();
    let index = match container {
        Some(name) => Some(spec.containers.iter().position(|container| container.name == name)?),
        None => None,
    };
    let (wanted, reported, requests) = match index {
        Some(index) => {
            let reported = status.container_statuses.iter().find(|status| Some(status.name.as_str()) == container);
            let requests = reported.and_then(|status| status.allocated_resources.as_ref());
            (spec.containers[index].resources.as_ref(), reported.and_then(|status| status.resources.as_ref()), requests)
        }
        None => {
            let whole = spec.resources.as_ref().filter(|whole| whole.is_set())?;
            (Some(whole), status.resources.as_ref(), status.allocated_resources.as_ref())
        }
    };
    let wants = quantities(wanted, resize.resource);
    let has = reported.map(|has| quantities(Some(has), resize.resource));
    let allocated = has.clone().map(|has| Quantities {
        request: requests.and_then(|requests| number(requests, resize.resource)).or(has.request),
        limit: has.limit,
    });
    let is_current = |condition: &&PodCondition| {
        condition.observed_generation.is_none_or(|generation| generation >= metadata.generation)
    };
    let pending = status.conditions.iter().find(|condition| is_pending(condition) && is_current(condition));
    let pending = pending.map(|PodCondition { reason, message, .. }| PendingResize {
        reason: reason.clone(),
        message: message.chars().take(MAX_MESSAGE).collect(),
    });
    let amounts = ["requests", "limits"].map(|part| format!("{part}.{}", resize.resource.as_str()));
    let amounts: Vec<&str> = match resize.what.unwrap_or(Bounds::Both) {
        Bounds::Requests => vec![&amounts[0]],
        Bounds::Limits => vec![&amounts[1]],
        Bounds::Both => vec![&amounts[0], &amounts[1]],
    };
    let by = resizer(metadata.managed_fields, container, &amounts);
    Some(PodResources {
        usage: around.usage.and_then(|usages| usages.of(&metadata.name, container)),
        name: metadata.name,
        thing: ObjectVersion {
            uid: Uid::from(metadata.uid),
            generation: metadata.generation,
            version: metadata.resource_version,
            written_by: by.other,
            ..ObjectVersion::default()
        },
        index,
        wants,
        has,
        allocated,
        pending,
        is_resized_by_loop: by.is_loop,
        composition: PodComposition { is_unreported: is_unreported(&status), ..composition(spec, around) },
    })
}

/// All resources of the pod.
fn composition(spec: ResizableSpec, around: ResizeSurroundings) -> PodComposition {
    let amounts = |container: ResizableContainer| ContainerAmounts {
        name: container.name,
        ..container.resources.unwrap_or_default()
    };
    let inits = spec.init_containers.into_iter().map(|init| {
        let is_sidecar = init.restart_policy == "Always";
        (amounts(init), is_sidecar)
    });
    let node = spec.node_name;
    PodComposition {
        inits: inits.collect(),
        containers: spec.containers.into_iter().map(amounts).collect(),
        whole: spec.resources.filter(ContainerAmounts::is_set),
        overhead: spec.overhead,
        node: (!node.is_empty()).then(|| PodNode {
            allocatable: around.allocatable.and_then(|allocatable| allocatable(&node)),
            resizes_pods: around.declared.and_then(|declared| declared.get(&node).copied()),
            name: node,
        }),
        minor: around.minor,
        is_unreported: false,
    }
}

/// Whether the kubelet reports no resources, so that the API server refuses a resize. It looks at the first container
/// that runs.
fn is_unreported(status: &ResizableStatus) -> bool {
    let first = status.container_statuses.iter().find(|container| container.state.running.is_some());
    first.is_some_and(|container| container.resources.is_none())
}

/// Whether the condition says that a resize waits, or that the kubelet could not carry it out.
fn is_pending(condition: &PodCondition) -> bool {
    let PodCondition { kind, status, reason, .. } = condition;
    let is_error = kind == "PodResizeInProgress" && reason == "Error";
    status == "True" && (kind == "PodResizePending" || is_error)
}

/// Amounts of one resource.
pub fn quantities(resources: Option<&ContainerAmounts>, resource: ResourceName) -> Quantities {
    Quantities {
        request: resources.and_then(|all| number(&all.requests, resource)),
        limit: resources.and_then(|all| number(&all.limits, resource)),
    }
}

fn number(amounts: &Amounts, resource: ResourceName) -> Option<Number> {
    amounts.of(resource).map(|amount| Number(amount.to_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn entry(manager: &str, subresource: &str, part: &str) -> Value {
        let resources = json!({"f:resources": {part: {"f:memory": {}}}});
        let containers = json!({"k:{\"name\":\"app\"}": resources});
        json!({"manager": manager, "operation": "Update", "subresource": subresource, "time": "2026-11-26T10:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:containers": containers}}})
    }

    #[rstest]
    #[case::nobody(json!([entry("kube-controller-manager", "", "f:requests")]), None, false)]
    #[case::the_loop(json!([entry(marks::EXECUTION_MANAGER, "resize", "f:requests")]), None, true)]
    #[case::somebody(json!([entry("creator", "", "f:requests"), entry("updater", "resize", "f:requests")]), Some("updater"), false)]
    #[case::both(json!([entry(marks::EXECUTION_MANAGER, "resize", "f:requests"), entry("updater", "resize", "f:limits")]), Some("updater"), false)]
    #[case::limits(json!([entry("updater", "resize", "f:limits")]), Some("updater"), false)]
    #[case::another_resource(json!([entry("updater", "resize", "f:claims")]), None, false)]
    #[case::null(Value::Null, None, false)]
    fn who_resized_a_pod_in_place_is_known(
        #[case] managers: Value,
        #[case] expected: Option<&str>,
        #[case] is_loop: bool,
    ) {
        let container =
            json!({"name": "app", "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}});
        let pod: ResizablePod = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "a", "resourceVersion": "1", "managedFields": managers},
            "spec": {"containers": [{"name": "proxy"}, container]},
        }))
        .unwrap();
        let resize = json!({"container": "app", "resource": "memory", "factor": "2", "max": "4Gi"});
        let seen = pod_seen(pod, &serde_json::from_value(resize).unwrap(), ResizeSurroundings::default()).unwrap();
        assert_eq!((seen.index, seen.thing.written_by.as_deref()), (Some(1), expected));
        assert_eq!(seen.is_resized_by_loop, is_loop);
    }

    #[rstest]
    #[case::current(json!({"observedGeneration": 3}), true)]
    #[case::older(json!({"observedGeneration": 2}), false)]
    #[case::not_set(json!({}), true)]
    fn a_condition_of_an_older_generation_says_nothing(#[case] members: Value, #[case] counts: bool) {
        let mut condition = json!({"type": "PodResizePending", "status": "True", "reason": "Deferred"});
        condition.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let pod: ResizablePod = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "a", "resourceVersion": "1", "generation": 3},
            "spec": {"containers": [{"name": "app"}]}, "status": {"phase": "Running", "conditions": [condition]},
        }))
        .unwrap();
        let resize = json!({"container": "app", "resource": "memory", "factor": "2", "max": "4Gi"});
        let seen = pod_seen(pod, &serde_json::from_value(resize).unwrap(), ResizeSurroundings::default()).unwrap();
        assert_eq!(seen.pending.is_some(), counts);
    }

    #[test]
    fn all_resources_of_a_pod_and_its_node_are_read() {
        let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let spec: ResizableSpec = serde_json::from_value(json!({
            "nodeName": "n1", "overhead": {"cpu": "10m"}, "resources": {"limits": {"memory": "1Gi"}},
            "containers": [{"name": "app", "resources": cpu("1")}, {"name": "other"}],
            "initContainers": [{"name": "side", "restartPolicy": "Always", "resources": cpu("2")}, {"name": "init"}],
        }))
        .unwrap();
        let known = Requests { cpu: 4000, ..Requests::default() };
        let (allocatable, declared) =
            (|name: &str| (name == "n1").then_some(known), BTreeMap::from([("n1".into(), true)]));
        let around = ResizeSurroundings {
            allocatable: Some(&allocatable),
            declared: Some(&declared),
            ..ResizeSurroundings::default()
        };
        let composition = composition(spec, around);
        let node = PodNode { name: "n1".into(), allocatable: Some(known), resizes_pods: Some(true) };
        assert_eq!(composition.node, Some(node));
        assert_eq!(composition.containers[1].name, "other");
        let requests: Vec<_> = composition.containers.iter().map(|one| one.requests.cpu.as_deref()).collect();
        assert_eq!(requests, [Some("1"), None]);
        let inits: Vec<_> =
            composition.inits.iter().map(|(one, is_sidecar)| (one.requests.cpu.as_deref(), *is_sidecar)).collect();
        assert_eq!(inits, [(Some("2"), true), (None, false)]);
        let whole = composition.whole.map(|whole| whole.limits.memory);
        assert_eq!((whole, composition.overhead.cpu.as_deref()), (Some(Some("1Gi".into())), Some("10m")));
    }

    /// Pod with a container of 1Gi and 2Gi as a whole, whose resize to twice as much is deferred.
    fn deferred() -> ResizablePod {
        let amounts = |request: &str| json!({"requests": {"memory": request}, "limits": {"memory": "8Gi"}});
        let status = |request: &str, allocated: &str| {
            json!({"name": "app", "state": {"running": {}}, "resources": amounts(request),
                "allocatedResources": {"memory": allocated}})
        };
        let mut whole = status("2Gi", "3Gi");
        whole["phase"] = json!("Running");
        whole["containerStatuses"] = json!([status("1Gi", "1536Mi")]);
        let spec = json!({"containers": [{"name": "app", "resources": amounts("2Gi")}], "resources": amounts("4Gi")});
        let meta = json!({"name": "a", "uid": "a", "resourceVersion": "1", "generation": 3});
        serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": whole})).unwrap()
    }

    #[rstest]
    #[case::container(json!({"container": "app"}), ["2Gi", "1Gi", "1536Mi"])]
    #[case::pod(json!({"pod": true}), ["4Gi", "2Gi", "3Gi"])]
    fn wanted_set_and_allocated_resources_are_those_of_the_container_or_the_pod(
        #[case] part: Value,
        #[case] expected: [&str; 3],
    ) {
        let mut resize = json!({"resource": "memory", "factor": "2", "max": "4Gi"});
        resize.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        let resize = serde_json::from_value(resize).unwrap();
        let seen = pod_seen(deferred(), &resize, ResizeSurroundings::default()).unwrap();
        let found = [Some(seen.wants), seen.has, seen.allocated].map(|all| all.unwrap().request.unwrap().0);
        assert_eq!(found, expected);
        assert!(!seen.composition.is_unreported);
        let mut without = deferred();
        without.spec.resources = None;
        assert_eq!(pod_seen(without, &resize, ResizeSurroundings::default()).is_some(), resize.container.is_some());
        let mut old = deferred();
        old.status.container_statuses[0].resources = None;
        assert!(pod_seen(old, &resize, ResizeSurroundings::default()).unwrap().composition.is_unreported);
    }

    #[test]
    fn few_managers_of_a_pod_are_kept() {
        let managers: Vec<Value> = (0..100).map(|index| entry(&format!("m{index}"), "resize", "f:requests")).collect();
        let meta = json!({"name": "a", "uid": "a", "resourceVersion": "1", "managedFields": managers});
        let meta: ResizableMeta = serde_json::from_value(meta).unwrap();
        assert_eq!(meta.managed_fields.len(), RESIZERS);
    }
}
