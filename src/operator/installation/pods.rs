//! Why replicas of the operator are not ready: the Deployment cannot create pods, no node takes one, an image cannot be
//! pulled, a container ends. Pure.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};

/// Reasons of a waiting container whose image is not on the node.
const NO_IMAGE: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "ImageInspectError",
];

/// Reason of a container that waits between two starts.
const CRASHES: &str = "CrashLoopBackOff";

/// Cause why a replica is not ready, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct ReplicaObstacle {
    pub words: String,
    pub advice: String,
}

/// The container of the operator: the one that is called so, or else the first one.
pub fn container(deployment: &Deployment) -> Option<&Container> {
    let containers = &deployment.spec.as_ref()?.template.spec.as_ref()?.containers;
    containers.iter().find(|one| one.name == "ganglion").or_else(|| containers.first())
}

/// The first known cause why replicas of this Deployment are not ready.
pub fn obstacle(deployment: &Deployment, pods: &[Pod]) -> Option<ReplicaObstacle> {
    of_deployment(deployment).or_else(|| pods.iter().find_map(|pod| of_pod(deployment, pod)))
}

fn of_deployment(deployment: &Deployment) -> Option<ReplicaObstacle> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let failure = conditions.iter().find(|one| one.type_ == "ReplicaFailure" && one.status == "True")?;
    Some(ReplicaObstacle {
        words: failure.message.clone().unwrap_or_default(),
        advice:
            "change what the message names (a quota, a policy, a webhook, the service account), or the Deployment in \
            your overlay; the ReplicaSet tries again by itself"
                .to_owned(),
    })
}

fn of_pod(deployment: &Deployment, pod: &Pod) -> Option<ReplicaObstacle> {
    let status = pod.status.as_ref()?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let scheduled = status.conditions.iter().flatten().find(|one| one.type_ == "PodScheduled");
    if let Some(refused) = scheduled.filter(|one| one.status == "False") {
        return Some(ReplicaObstacle {
            words: format!("no node takes pod {name}: {}", refused.message.as_deref().unwrap_or_default()),
            advice:
                "make room on a node, or change requests, affinity or tolerations of the Deployment in your overlay"
                    .to_owned(),
        });
    }
    status.container_statuses.iter().flatten().find_map(|one| of_container(deployment, pod, one))
}

fn of_container(deployment: &Deployment, pod: &Pod, status: &ContainerStatus) -> Option<ReplicaObstacle> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let message = waiting.message.as_deref().unwrap_or_default();
    let (name, namespace) = (pod.metadata.name.as_deref()?, pod.metadata.namespace.as_deref().unwrap_or_default());
    if NO_IMAGE.contains(&reason) {
        let image = container(deployment).and_then(|container| container.image.as_deref()).unwrap_or(&status.image);
        return Some(ReplicaObstacle {
            words: format!("pod {name}: {reason}: {message}"),
            advice: format!(
                "check that the registry has {image} for the architecture of the node, and that nodes may pull it \
                 (imagePullSecrets); otherwise push the image, or name another in your overlay (kustomize edit set image \
                 ganglion=IMAGE), and apply it"
            ),
        });
    }
    if reason == CRASHES {
        let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let end = last.map_or_else(String::new, |last| {
            format!(" with exit code {} ({})", last.exit_code, last.reason.as_deref().unwrap_or("no reason"))
        });
        return Some(ReplicaObstacle {
            words: format!("pod {name} ended {} times, the last time{end}", status.restart_count),
            advice: format!("kubectl logs -n {namespace} {name} --previous: its last line says why"),
        });
    }
    (!message.is_empty()).then(|| ReplicaObstacle {
        words: format!("pod {name}: {reason}: {message}"),
        advice: "create what the message names, or change the Deployment in your overlay".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn deployment(conditions: Value) -> Deployment {
        let containers = json!([{"name": "ganglion", "image": "registry.example.com/ganglion:0.1.0"}]);
        let spec = json!({"selector": {}, "template": {"spec": {"containers": containers}}});
        serde_json::from_value(json!({"spec": spec, "status": {"conditions": conditions}})).unwrap()
    }

    fn pod(status: Value) -> Pod {
        let metadata = json!({"name": "ganglion-1", "namespace": "ganglion-system"});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn waits(reason: &str, message: &str) -> Value {
        json!({"containerStatuses": [{
            "name": "ganglion", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }]})
    }

    #[rstest]
    #[case::image(
        waits("ImagePullBackOff", "Back-off pulling image \"i\": ErrImagePull: not found"),
        "pod ganglion-1: ImagePullBackOff: Back-off pulling image \"i\": ErrImagePull: not found",
        "the registry has registry.example.com/ganglion:0.1.0"
    )]
    #[case::name(waits("InvalidImageName", "bad"), "pod ganglion-1: InvalidImageName: bad", "push the image")]
    #[case::crash(
        waits("CrashLoopBackOff", "back-off 40s"),
        "pod ganglion-1 ended 3 times, the last time with exit code 137 (OOMKilled)",
        "kubectl logs -n ganglion-system ganglion-1 --previous"
    )]
    #[case::map(
        waits("CreateContainerConfigError", "configmap \"ganglion-settings\" not found"),
        "pod ganglion-1: CreateContainerConfigError: configmap \"ganglion-settings\" not found",
        "create what the message names"
    )]
    #[case::node(
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}),
        "no node takes pod ganglion-1: 0/3 nodes are available",
        "make room"
    )]
    fn the_cause_is_named_with_advice(#[case] status: Value, #[case] words: &str, #[case] advice: &str) {
        let found = obstacle(&deployment(json!([])), &[pod(json!({})), pod(status)]).unwrap();
        assert_eq!(found.words, words);
        assert!(found.advice.contains(advice), "{}", found.advice);
    }

    #[test]
    fn a_deployment_that_cannot_create_pods_says_so() {
        let refused = json!([{"type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity"}]);
        let found = obstacle(&deployment(refused), &[]).unwrap();
        assert_eq!(found.words, "violates PodSecurity");
    }

    #[test]
    fn a_container_that_is_being_created_is_no_obstacle() {
        let pods = [pod(json!({})), pod(waits("ContainerCreating", "")), pod(waits("PodInitializing", ""))];
        assert_eq!(obstacle(&deployment(json!([])), &pods), None);
    }
}
