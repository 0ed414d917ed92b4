//! The kubelets: they start pods, make them Ready (or not, according to their fate), and end them.

use std::sync::Arc;

use ganglion_api::reasons::Reason;
use ganglion_core::facts::Trouble;

use super::api::{Api, If};
use super::object::{FOREVER, Fate, Phase, Pod};

/// Advances one pod by one step; false if there is nothing to do now.
pub fn step(api: &mut Api) -> bool {
    let due: Vec<Arc<Pod>> = api.pods.values().filter(|pod| is_due(api, pod)).cloned().collect();
    api.rng.pick(&due).cloned().is_some_and(|pod| move_on(api, &pod))
}

/// Next time at which a kubelet has something to do without an event.
pub fn next_time(api: &Api) -> Option<i64> {
    let wait = |pod: &Arc<Pod>| {
        if pod.meta.deleted.is_some() && pod.has_ended() {
            return Some(pod.held_until).filter(|until| *until < FOREVER);
        }
        alive(api, pod)?;
        if let Some(deleted) = pod.meta.deleted {
            return Some(deleted + pod.linger);
        }
        match pod.phase {
            Phase::Pending => image_at(api, pod),
            Phase::Running if pod.ready_since.is_none() => ready_at(api, pod),
            Phase::Running | Phase::Unknown | Phase::Failed => None,
        }
    };
    api.pods.values().filter_map(wait).filter(|at| *at > api.seconds()).min()
}

/// Node of the pod, if its kubelet runs.
fn alive<'a>(api: &'a Api, pod: &Pod) -> Option<&'a super::object::Node> {
    let name = pod.node.as_ref()?;
    api.nodes.values().find(|node| node.meta.key.name == *name && node.ready).map(Arc::as_ref)
}

/// Fate of the pod: its own, unless its node has one for every pod.
fn fate(api: &Api, pod: &Pod) -> Fate {
    match alive(api, pod) {
        Some(node) if node.fate != Fate::Good => node.fate,
        _ => pod.fate,
    }
}

/// Time at which the image of a pod that waits for it is available.
fn image_at(api: &Api, pod: &Pod) -> Option<i64> {
    match fate(api, pod) {
        Fate::Late(seconds) if pod.trouble.is_some() => Some(pod.started + seconds),
        _ => None,
    }
}

fn ready_at(api: &Api, pod: &Pod) -> Option<i64> {
    let started = match fate(api, pod) {
        Fate::Good | Fate::Late(_) => pod.started,
        Fate::Slow(seconds) => pod.started + seconds,
        Fate::Never | Fate::Crash | Fate::NoImage | Fate::Rejected => return None,
    };
    Some(started.max(pod.unwell_until))
}

fn is_due(api: &Api, pod: &Pod) -> bool {
    if pod.meta.deleted.is_some() && pod.has_ended() {
        return pod.held_until <= api.seconds();
    }
    if alive(api, pod).is_none() {
        return false;
    }
    if let Some(deleted) = pod.meta.deleted {
        return deleted + pod.linger <= api.seconds();
    }
    match pod.phase {
        Phase::Pending => pod.trouble.is_none() || image_at(api, pod).is_some_and(|at| at <= api.seconds()),
        Phase::Running if pod.ready_since.is_some() || pod.trouble.is_some() => false,
        Phase::Running if fate(api, pod) == Fate::Crash => true,
        Phase::Running => ready_at(api, pod).is_some_and(|at| at <= api.seconds()),
        Phase::Unknown | Phase::Failed => false,
    }
}

fn move_on(api: &mut Api, pod: &Pod) -> bool {
    let key = &pod.meta.key;
    if pod.meta.deleted.is_some() {
        api.say(|| format!("kubelet: {key} has ended"));
        return api.end_pod(pod);
    }
    if pod.phase == Phase::Pending && (api.rejections > 0 || fate(api, pod) == Fate::Rejected) {
        api.rejections = api.rejections.saturating_sub(1);
        return fail(api, pod, "OutOfcpu: Pod was rejected");
    }
    let (now, fate) = (api.seconds(), fate(api, pod));
    let trouble = |reason, text: &str| Some(Trouble { reason, message: format!("container main: {text}") });
    let mut next = pod.clone();
    match (pod.phase, fate) {
        (Phase::Pending, Fate::Late(_)) if pod.trouble.is_none() => {
            next.started = now;
            next.trouble = trouble(Reason::ImagePullFailed, "ImagePullBackOff");
        }
        (Phase::Pending, Fate::NoImage) => next.trouble = trouble(Reason::ImagePullFailed, "ImagePullBackOff"),
        (Phase::Pending, _) => {
            next.phase = Phase::Running;
            next.started = now;
            next.trouble = None;
        }
        (_, Fate::Crash) => {
            next.restarts += 1;
            next.trouble = trouble(Reason::ReplacementCrashed, "CrashLoopBackOff");
        }
        _ => next.ready_since = Some(now),
    }
    api.say(|| match (&next.trouble, next.ready_since) {
        (Some(trouble), _) => format!("kubelet: {key} {}", trouble.message),
        (None, Some(_)) => format!("kubelet: {key} is Ready"),
        (None, None) => format!("kubelet: {key} runs"),
    });
    let version = pod.meta.version;
    api.update::<Pod>(key, If::version(version), |pod| *pod = next).is_ok()
}

/// Ends a pod in phase Failed, with the words of its kubelet: it was not admitted, or was evicted.
pub fn fail(api: &mut Api, pod: &Pod, words: &str) -> bool {
    api.say(|| format!("kubelet: {} ends, {words}", pod.meta.key));
    let fail = |pod: &mut Pod| {
        (pod.phase, pod.ready_since) = (Phase::Failed, None);
        pod.trouble = Some(Trouble { reason: Reason::ReplacementLost, message: words.to_owned() });
    };
    api.update::<Pod>(&pod.meta.key, If::uid(&pod.meta.uid), fail).is_ok()
}
