//! Requests and limits of one container, in the workload's running pods and in its pod template.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ManagedFieldsEntry, ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use kube::core::Selector;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::json;

use super::{Actor, Targets, discover, no_such_kind, replicas_path, unknown_kind};
use ganglion_api::closed_loop::action::{Bounds, Resize, Rung};
use ganglion_api::closed_loop::metric::ResourceName;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::Quantities;
use ganglion_api::scalars::Number;
use ganglion_core::amounts::{Amounts, or_default};
use ganglion_core::facts::{FieldPath, Key, NodeFact, Requests, Uid};
use ganglion_core::items::Items;
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::kind_path::KindPath;
use ganglion_loops_plan::execution::ownership::template_paths;
use ganglion_loops_plan::execution::{
    ContainerAmounts, ObjectVersion, PendingResize, PodComposition, PodNode, PodResize, PodResources, ResizeTarget,
    TargetState,
};
use ganglion_runtime::account::ObjectPath;
use ganglion_runtime::error::Error;

/// Maximum number of pods of a workload.
const PODS: usize = 10_000;

/// Maximum length of a quoted message of a kubelet, in characters.
const MAX_MESSAGE: usize = 500;

/// Maximum number of managers of a pod that have resized it.
const RESIZERS: usize = 8;

/// Used fields of a `PodList`: whole pods take many times the size of the list.
#[derive(Deserialize)]
struct ResizablePods {
    items: Items<ResizablePod, PODS>,
}

#[derive(Deserialize)]
struct ResizablePod {
    metadata: ResizableMeta,
    #[serde(default)]
    spec: ResizableSpec,
    #[serde(default)]
    status: ResizableStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResizableMeta {
    name: String,
    uid: String,
    #[serde(default)]
    generation: i64,
    resource_version: String,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
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

/// Manager that last set these amounts of the container by a resize, except the execution of a loop.
fn resized_by(managers: Vec<ManagedFieldsEntry>, container: &str, amounts: &[&str]) -> Option<String> {
    if managers.is_empty() {
        return None;
    }
    let pod = json!({"spec": {"containers": [{"name": container}]}});
    let meta = ObjectMeta { managed_fields: Some(managers), ..ObjectMeta::default() };
    let writer = |amount: &&str| {
        let parts: Vec<&str> = ["spec", "containers", "0", "resources"].into_iter().chain(amount.split('.')).collect();
        FieldPath::new(&pod, &parts).last_writer(&meta)
    };
    amounts.iter().find_map(writer)
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
    container_statuses: Vec<ResizableContainer>,
    conditions: Vec<PodCondition>,
}

/// Container, or the status of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResizableContainer {
    name: String,
    #[serde(default)]
    resources: Option<ContainerAmounts>,
    /// Restart policy; `Always` makes an init container a sidecar.
    #[serde(default)]
    restart_policy: String,
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

/// Reads the workload's pods that have the container.
pub async fn read(targets: &Targets, actor: &Actor, rung: &Rung, resize: &Resize) -> Result<TargetState, Error> {
    let target = &actor.target;
    if !targets.discovery.serves(&targets.ctx, "v1", "pods/resize").await? {
        let words = "resize: the API server does not serve pods/resize, which Kubernetes has from version 1.33 on";
        return Ok(TargetState::Unfit(LoopReason::NotSupported, words.to_owned()));
    }
    let Some(found) = discover(targets, target).await? else { return Ok(unknown_kind(target)) };
    let kind = found.path(&actor.loop_key.namespace)?;
    let workload: DynamicObject =
        actor.account.get(ObjectPath { kind: &kind, name: &target.name, subresource: None }).await?;
    let Some(selector) = selector(&workload) else {
        let words = format!("{} {} has no selector for its pods", target.kind, target.name);
        return Ok(TargetState::Unfit(LoopReason::NotScalable, words));
    };
    let template = template(&workload, resize);
    let paths = template.as_ref().map(|(index, _)| template_paths(resize, *index)).unwrap_or_default();
    let known_path = replicas_path(&found, &workload);
    let target = actor.field_version(&workload, rung, &paths, known_path.as_deref());
    let pods: ResizablePods = actor.account.list(&pod_kind(actor)?, &selector).await?;
    let sets: Vec<Uid> =
        targets.ctx.store.read(|world| world.sets_of(&target.uid).map(|set| set.id.uid.clone()).collect());
    let is_owner = |owner: &OwnerReference| {
        owner.controller == Some(true) && (target.uid == *owner.uid || sets.iter().any(|set| *set == *owner.uid))
    };
    if pods.items.count > PODS {
        return Err(Error::Malformed(format!("the workload has {} pods, more than {PODS}", pods.items.count)));
    }
    let owned = pods.items.kept.into_iter().filter(|pod| pod.metadata.owner_references.iter().any(is_owner));
    let (running, others): (Vec<ResizablePod>, Vec<ResizablePod>) = owned.partition(is_running);
    let is_starting = |pod: &&ResizablePod| pod.status.phase == "Pending" && pod.metadata.deletion_timestamp.is_none();
    let starting = others.iter().filter(is_starting).map(|pod| pod.metadata.name.clone()).min();
    let mut pods: Vec<PodResources> = targets.ctx.store.read(|world| {
        let node = |name: &str| world.get::<NodeFact>(&Key::new("", name)).map(|node| node.allocatable);
        running.into_iter().filter_map(|pod| pod_seen(pod, resize, node)).collect()
    });
    pods.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(TargetState::Resources(Box::new(ResizeTarget { target, template, pods, starting })))
}

fn pod_kind(actor: &Actor) -> Result<KindPath, Error> {
    Ok(KindPath::namespaced("v1", &actor.loop_key.namespace, "pods")?)
}

/// Returns the pod selector of the workload. A ReplicationController has a plain map of labels as its selector.
fn selector(workload: &DynamicObject) -> Option<String> {
    let value = workload.data.pointer("/spec/selector")?;
    let plain: Option<BTreeMap<String, String>> = serde_json::from_value(value.clone()).ok();
    let full = || serde_json::from_value::<LabelSelector>(value.clone()).ok()?.try_into().ok();
    let selector: Option<Selector> = plain.map(|labels| labels.into_iter().collect()).or_else(full);
    // An empty selector would match every pod.
    selector.map(|selector| selector.to_string()).filter(|text| !text.is_empty())
}

fn is_running(pod: &ResizablePod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && pod.status.phase == "Running"
}

/// Returns the resources of the container, if the pod has it.
fn pod_seen(
    pod: ResizablePod,
    resize: &Resize,
    allocatable: impl Fn(&str) -> Option<Requests>,
) -> Option<PodResources> {
    let ResizablePod { metadata, spec, status } = pod;
    let index = spec.containers.iter().position(|container| container.name == resize.container)?;
    let container = status.container_statuses.iter().find(|container| container.name == resize.container);
    let is_current = |condition: &PodCondition| {
        condition.observed_generation.is_none_or(|generation| generation >= metadata.generation)
    };
    let pending = status.conditions.into_iter().find(|condition| is_pending(condition) && is_current(condition));
    let (uid, generation) = (Uid::from(metadata.uid), metadata.generation);
    let amounts = ["requests", "limits"].map(|part| format!("{part}.{}", resize.resource.as_str()));
    let amounts: Vec<&str> = match resize.what.unwrap_or(Bounds::Both) {
        Bounds::Requests => vec![&amounts[0]],
        Bounds::Limits => vec![&amounts[1]],
        Bounds::Both => vec![&amounts[0], &amounts[1]],
    };
    let written_by = resized_by(metadata.managed_fields, &resize.container, &amounts);
    let version = metadata.resource_version;
    Some(PodResources {
        name: metadata.name,
        thing: ObjectVersion { uid, generation, version, written_by, ..ObjectVersion::default() },
        index,
        wants: quantities(spec.containers[index].resources.as_ref(), resize.resource),
        has: container
            .and_then(|container| container.resources.as_ref())
            .map(|has| quantities(Some(has), resize.resource)),
        pending: pending.map(|PodCondition { reason, message, .. }| PendingResize {
            reason,
            message: message.chars().take(MAX_MESSAGE).collect(),
        }),
        composition: composition(spec, allocatable),
    })
}

/// All resources of the pod. `allocatable`: what the node of this name can allocate.
fn composition(spec: ResizableSpec, allocatable: impl Fn(&str) -> Option<Requests>) -> PodComposition {
    let inits = spec.init_containers.into_iter().map(|init| {
        let is_sidecar = init.restart_policy == "Always";
        (init.resources.unwrap_or_default(), is_sidecar)
    });
    PodComposition {
        inits: inits.collect(),
        containers: spec.containers.into_iter().map(|container| container.resources.unwrap_or_default()).collect(),
        whole: spec.resources.filter(ContainerAmounts::is_set),
        overhead: spec.overhead,
        node: allocatable(&spec.node_name).map(|allocatable| PodNode { name: spec.node_name, allocatable }),
    }
}

/// Whether the condition says that a resize waits, or that the kubelet could not carry it out.
fn is_pending(condition: &PodCondition) -> bool {
    let PodCondition { kind, status, reason, .. } = condition;
    let is_error = kind == "PodResizeInProgress" && reason == "Error";
    status == "True" && (kind == "PodResizePending" || is_error)
}

fn quantities(resources: Option<&ContainerAmounts>, resource: ResourceName) -> Quantities {
    let part = |amounts: &Amounts| amounts.of(resource).map(|amount| Number(amount.to_owned()));
    Quantities {
        request: resources.and_then(|all| part(&all.requests)),
        limit: resources.and_then(|all| part(&all.limits)),
    }
}

fn template(workload: &DynamicObject, resize: &Resize) -> Option<(usize, Quantities)> {
    let containers = workload.data.pointer("/spec/template/spec/containers")?.as_array()?;
    let index = containers.iter().position(|container| container["name"] == json!(resize.container))?;
    let resources = serde_json::from_value(containers[index]["resources"].clone()).ok();
    Some((index, quantities(resources.as_ref(), resize.resource)))
}

/// Resizes the pods one after another; stops at the first pod that has changed since it was read.
pub async fn act(
    actor: &Actor,
    pods: &[PodResize],
    container: &str,
    resource: ResourceName,
) -> Result<Option<String>, Error> {
    let kind = pod_kind(actor)?;
    for pod in pods {
        let path = ObjectPath { kind: &kind, name: &pod.name, subresource: Some("resize") };
        let index = pod.index.to_string();
        let at = ["spec", "containers", &index];
        let patch = patch(&pod.thing, &at, container, resource, &pod.from, &pod.to);
        let done: Result<IgnoredAny, Error> = actor.account.json(path, patch).await;
        // Neither the message for a node that is too small nor the one for another platform names the node.
        done.map_err(|error| match (error, &pod.node) {
            (Error::Denied(words), Some(node)) => Error::Denied(format!("{words} (the pod runs on node {node})")),
            (error, _) => error,
        })?;
    }
    Ok(None)
}

/// Writes the pod template.
pub async fn act_on_template(
    targets: &Targets,
    actor: &Actor,
    target: &ObjectVersion,
    index: usize,
    container: &str,
    change: (ResourceName, &Quantities, &Quantities),
) -> Result<Option<String>, Error> {
    let Some(found) = discover(targets, &actor.target).await? else { return Err(no_such_kind(&actor.target)) };
    let kind = found.path(&actor.loop_key.namespace)?;
    let path = ObjectPath { kind: &kind, name: &actor.target.name, subresource: None };
    let index = index.to_string();
    let at = ["spec", "template", "spec", "containers", &index];
    let (resource, from, to) = change;
    let patch = patch(target, &at, container, resource, from, to);
    let _: IgnoredAny = actor.account.json(path, patch).await?;
    Ok(None)
}

/// Returns the JSON patch for one container. It tests the generation that was read.
fn patch(
    thing: &ObjectVersion,
    at: &[&str],
    container: &str,
    resource: ResourceName,
    from: &Quantities,
    to: &Quantities,
) -> JsonPatch {
    let mut patch = super::patch_of(thing);
    patch.test(&[at, &["name"]].concat(), container);
    for (kind, from, to) in [("requests", &from.request, &to.request), ("limits", &from.limit, &to.limit)] {
        if let Some(to) = to.as_ref().filter(|_| from != to) {
            patch.replace(&[at, &["resources", kind, resource.as_str()]].concat(), json!(to));
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use ganglion_api::marks;

    fn entry(manager: &str, subresource: &str, part: &str) -> Value {
        let resources = json!({"f:resources": {part: {"f:memory": {}}}});
        let containers = json!({"k:{\"name\":\"app\"}": resources});
        json!({"manager": manager, "operation": "Update", "subresource": subresource, "time": "2026-11-26T10:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:containers": containers}}})
    }

    #[rstest]
    #[case::nobody(json!([entry("kube-controller-manager", "", "f:requests")]), None)]
    #[case::the_loop(json!([entry(marks::EXECUTION_MANAGER, "resize", "f:requests")]), None)]
    #[case::somebody(json!([entry("creator", "", "f:requests"), entry("updater", "resize", "f:requests")]), Some("updater"))]
    #[case::limits(json!([entry("updater", "resize", "f:limits")]), Some("updater"))]
    #[case::another_resource(json!([entry("updater", "resize", "f:claims")]), None)]
    #[case::null(Value::Null, None)]
    fn who_resized_a_pod_in_place_is_known(#[case] managers: Value, #[case] expected: Option<&str>) {
        let container =
            json!({"name": "app", "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}});
        let pod: ResizablePod = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "a", "resourceVersion": "1", "managedFields": managers},
            "spec": {"containers": [{"name": "proxy"}, container]},
        }))
        .unwrap();
        let resize = json!({"container": "app", "resource": "memory", "factor": "2", "max": "4Gi"});
        let seen = pod_seen(pod, &serde_json::from_value(resize).unwrap(), |_| None).unwrap();
        assert_eq!((seen.index, seen.thing.written_by.as_deref()), (1, expected));
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
        let seen = pod_seen(pod, &serde_json::from_value(resize).unwrap(), |_| None).unwrap();
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
        let composition = composition(spec, |name| (name == "n1").then_some(known));
        assert_eq!(composition.node, Some(PodNode { name: "n1".into(), allocatable: known }));
        let requests: Vec<_> = composition.containers.iter().map(|one| one.requests.cpu.as_deref()).collect();
        assert_eq!(requests, [Some("1"), None]);
        let inits: Vec<_> =
            composition.inits.iter().map(|(one, is_sidecar)| (one.requests.cpu.as_deref(), *is_sidecar)).collect();
        assert_eq!(inits, [(Some("2"), true), (None, false)]);
        let whole = composition.whole.map(|whole| whole.limits.memory);
        assert_eq!((whole, composition.overhead.cpu.as_deref()), (Some(Some("1Gi".into())), Some("10m")));
    }

    #[test]
    fn few_managers_of_a_pod_are_kept() {
        let managers: Vec<Value> = (0..100).map(|index| entry(&format!("m{index}"), "resize", "f:requests")).collect();
        let meta = json!({"name": "a", "uid": "a", "resourceVersion": "1", "managedFields": managers});
        let meta: ResizableMeta = serde_json::from_value(meta).unwrap();
        assert_eq!(meta.managed_fields.len(), RESIZERS);
    }
}
