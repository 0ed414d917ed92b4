//! Requests and limits of one container, or of the pod as a whole, in the workload's running pods and in its pod
//! template.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::DynamicObject;
use kube::core::Selector;
use serde::de::IgnoredAny;
use serde_json::json;

use super::pods::{ResizablePod, ResizablePods, ResizeSurroundings, pod_seen, quantities};
use super::usage::{self, PodUsages};
use super::{Actor, PODS, Targets, discover, no_such_kind, replicas_path, unknown_kind};
use ganglion_api::closed_loop::action::{Resize, Rung};
use ganglion_api::closed_loop::metric::ResourceName;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::Quantities;
use ganglion_core::facts::{Key, NodeFact, Uid};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::kind_path::KindPath;
use ganglion_loops_plan::execution::ownership::template_paths;
use ganglion_loops_plan::execution::{
    ContainerAmounts, ObjectVersion, POD_LEVEL_FEATURE, PodResize, PodResources, ResizeTarget, TargetState,
    pod_level_refusal,
};
use ganglion_loops_plan::rung;
use ganglion_runtime::account::ObjectPath;
use ganglion_runtime::error::Error;

/// Maximum number of nodes whose declared features are read for one decision. For other nodes, the API server decides.
const NODES: usize = 32;

/// Reads the workload's pods that have the container, or resources at pod level. `plans`: a decision is planned, so the
/// versions of nodes and the usage of pods matter.
pub async fn read(
    targets: &Targets,
    actor: &Actor,
    rung: &Rung,
    resize: &Resize,
    plans: bool,
) -> Result<TargetState, Error> {
    let (ctx, discovery) = (&targets.ctx, &targets.discovery);
    let target = &actor.target;
    let unsupported = |words: String| Ok(TargetState::Unfit(LoopReason::NotSupported, format!("resize: {words}")));
    if !discovery.serves(ctx, "v1", "pods/resize").await? {
        let words = "the API server does not serve pods/resize, which Kubernetes has from version 1.33 on";
        return unsupported(words.to_owned());
    }
    if resize.container.is_none()
        && let Some(words) = pod_level_refusal(discovery.minor_version(ctx).await?)
    {
        return unsupported(format!("{words}: resize a container, or upgrade the cluster"));
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
    let sets: Vec<Uid> = ctx.store.read(|world| world.sets_of(&target.uid).map(|set| set.id.uid.clone()).collect());
    let is_owner = |owner: &OwnerReference| {
        owner.controller == Some(true) && (target.uid == *owner.uid || sets.iter().any(|set| *set == *owner.uid))
    };
    if pods.items.count > PODS {
        return Err(Error::Malformed(format!("the workload has {} pods, more than {PODS}", pods.items.count)));
    }
    let owned = pods.items.kept.into_iter().filter(|pod| pod.metadata.owner_references.iter().any(is_owner));
    let (running, others): (Vec<ResizablePod>, Vec<ResizablePod>) = owned.partition(ResizablePod::is_running);
    let starting = others.iter().filter(|pod| pod.is_starting()).map(|pod| pod.metadata.name.clone()).min();
    let (usage, usage_problem) = match plans && rung::lowers_memory_limits(rung) && !running.is_empty() {
        true => usage::read(actor, &selector, ctx.now()).await?,
        false => (PodUsages::default(), None),
    };
    let minor = match plans && running.iter().any(ResizablePod::has_whole) {
        true => discovery.minor_version(ctx).await?,
        false => None,
    };
    let declared = match plans && resize.container.is_none() {
        true => declared(targets, &running).await?,
        false => BTreeMap::new(),
    };
    let mut pods: Vec<PodResources> = ctx.store.read(|world| {
        let allocatable = |name: &str| world.get::<NodeFact>(&Key::new("", name)).map(|node| node.allocatable);
        let around = ResizeSurroundings {
            minor,
            allocatable: Some(&allocatable),
            declared: Some(&declared),
            usage: Some(&usage),
        };
        running.into_iter().filter_map(|pod| pod_seen(pod, resize, around)).collect()
    });
    pods.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(TargetState::Resources(Box::new(ResizeTarget { target, template, pods, starting, usage_problem })))
}

/// Whether the nodes of these pods declare that their kubelets resize pods at pod level, by name.
async fn declared(targets: &Targets, pods: &[ResizablePod]) -> Result<BTreeMap<String, bool>, Error> {
    let mut found = BTreeMap::new();
    let nodes: BTreeSet<&str> = pods.iter().map(ResizablePod::node_name).filter(|name| !name.is_empty()).collect();
    for node in nodes.into_iter().take(NODES) {
        if let Some(declares) = targets.discovery.declares(&targets.ctx, node, POD_LEVEL_FEATURE).await? {
            found.insert(node.to_owned(), declares);
        }
    }
    Ok(found)
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

fn template(workload: &DynamicObject, resize: &Resize) -> Option<(Option<usize>, Quantities)> {
    let spec = workload.data.pointer("/spec/template/spec")?;
    let (index, resources) = match &resize.container {
        Some(name) => {
            let containers = spec["containers"].as_array()?;
            let index = containers.iter().position(|container| container["name"] == json!(name))?;
            (Some(index), &containers[index]["resources"])
        }
        None => (None, spec.get("resources")?),
    };
    let resources: Option<ContainerAmounts> = serde_json::from_value(resources.clone()).ok();
    Some((index, quantities(resources.as_ref(), resize.resource)))
}

/// Resizes the pods one after another; stops at the first pod that has changed since it was read.
pub async fn act(
    actor: &Actor,
    pods: &[PodResize],
    container: Option<&str>,
    resource: ResourceName,
) -> Result<Option<String>, Error> {
    resize_each(actor, pods, container, resource, super::patch_of).await
}

/// Sets the pods back, as [`act`]. Any change since a pod was read, also of its status, is a conflict: its kubelet may
/// carry out the resize at this moment.
pub async fn take_back(
    actor: &Actor,
    pods: &[PodResize],
    container: Option<&str>,
    resource: ResourceName,
) -> Result<Option<String>, Error> {
    let exactly = |pod: &ObjectVersion| JsonPatch::at_version(&pod.uid, &pod.version);
    resize_each(actor, pods, container, resource, exactly).await
}

async fn resize_each(
    actor: &Actor,
    pods: &[PodResize],
    container: Option<&str>,
    resource: ResourceName,
    precondition: impl Fn(&ObjectVersion) -> JsonPatch,
) -> Result<Option<String>, Error> {
    let kind = pod_kind(actor)?;
    for pod in pods {
        let path = ObjectPath { kind: &kind, name: &pod.name, subresource: Some("resize") };
        let amounts = ResizedAmounts { at: &["spec"], index: pod.index, container, resource };
        let patch = amounts.patch(precondition(&pod.thing), &pod.from, &pod.to);
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
    index: Option<usize>,
    container: Option<&str>,
    change: (ResourceName, &Quantities, &Quantities),
) -> Result<Option<String>, Error> {
    let Some(found) = discover(targets, &actor.target).await? else { return Err(no_such_kind(&actor.target)) };
    let kind = found.path(&actor.loop_key.namespace)?;
    let path = ObjectPath { kind: &kind, name: &actor.target.name, subresource: None };
    let (resource, from, to) = change;
    let amounts = ResizedAmounts { at: &["spec", "template", "spec"], index, container, resource };
    let _: IgnoredAny = actor.account.json(path, amounts.patch(super::patch_of(target), from, to)).await?;
    Ok(None)
}

/// Amounts of one resource in a pod spec: of a container, or of the pod as a whole.
struct ResizedAmounts<'a> {
    /// Path of the pod spec.
    at: &'a [&'a str],
    index: Option<usize>,
    container: Option<&'a str>,
    resource: ResourceName,
}

impl ResizedAmounts<'_> {
    /// Adds the change to a JSON patch with preconditions.
    fn patch(&self, mut patch: JsonPatch, from: &Quantities, to: &Quantities) -> JsonPatch {
        let index = self.index.map(|index| index.to_string());
        let part = index.as_deref().map(|index| vec!["containers", index]).unwrap_or_default();
        let at = [self.at, &part].concat();
        if let (Some(_), Some(container)) = (self.index, self.container) {
            patch.test(&[at.as_slice(), &["name"]].concat(), container);
        }
        for (kind, from, to) in [("requests", &from.request, &to.request), ("limits", &from.limit, &to.limit)] {
            if let Some(to) = to.as_ref().filter(|_| from != to) {
                patch.replace(&[at.as_slice(), &["resources", kind, self.resource.as_str()]].concat(), json!(to));
            }
        }
        patch
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn patched(index: Option<usize>, container: Option<&str>) -> Value {
        let request = |text: &str| Quantities { request: Some(text.into()), limit: Some("8Gi".into()) };
        let amounts = ResizedAmounts { at: &["spec"], index, container, resource: ResourceName::Memory };
        let patch = amounts.patch(JsonPatch::at_version(&"u".into(), "7"), &request("2Gi"), &request("1Gi"));
        serde_json::to_value(patch).unwrap()
    }

    #[test]
    fn a_patch_has_its_preconditions_and_what_changes() {
        let first = json!([{"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]);
        let with =
            |more: Value| Value::from([first.as_array().unwrap().clone(), more.as_array().unwrap().clone()].concat());
        let container = json!([{"op": "test", "path": "/spec/containers/1/name", "value": "app"},
            {"op": "replace", "path": "/spec/containers/1/resources/requests/memory", "value": "1Gi"}]);
        assert_eq!(patched(Some(1), Some("app")), with(container));
        let pod = json!([{"op": "replace", "path": "/spec/resources/requests/memory", "value": "1Gi"}]);
        assert_eq!(patched(None, None), with(pod));
    }
}
