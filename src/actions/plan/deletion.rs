//! Pods that others deleted, as text. Only the API server knows who deleted a pod, so nothing is guessed.

use ganglion_core::facts::PodFact;

/// Says that a pod was deleted, and by what if the API server says so: by an eviction, a preemption, a taint, or the
/// garbage collector. `what` names the pod, which may not exist any more.
pub fn words(what: &str, pod: Option<&PodFact>) -> String {
    let cause = pod.and_then(|pod| pod.end.as_ref()?.cause.as_deref());
    match cause {
        Some(cause) => format!("{what} was deleted ({cause})"),
        None => format!("{what} was deleted"),
    }
}

/// Says what keeps a pod that was deleted and does not terminate.
pub fn stuck_words(pod: &PodFact) -> String {
    format!("pod {} was deleted and does not terminate: {}", pod.id.key.name, keeper_words(pod))
}

/// Names the keeper of a pod that was deleted: its finalizers, or the kubelet of its node.
pub fn keeper_words(pod: &PodFact) -> String {
    match (&pod.end, &pod.node) {
        (Some(end), _) if end.finalizers.is_some() => {
            format!("its finalizers are {}", end.finalizers.as_deref().unwrap_or_default())
        }
        (Some(_), Some(node)) => format!("look at the kubelet of node {node}"),
        (Some(_), None) | (None, _) => "look at its finalizers and its node's kubelet".to_owned(),
    }
}
