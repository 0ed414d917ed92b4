//! Success and failure of a pod's containers, as far as they indicate a problem of their node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

/// State of the containers of a pod.
///
/// Most pods run and never failed; nothing is stored for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodRun {
    /// Says nothing about the node: the pod starts, has succeeded, or runs again after a failure that was reported
    /// before.
    #[default]
    Neutral,
    /// The pod runs, and no container has failed.
    Steady,
    /// Containers, or the pod as a whole, have failed.
    Failing(Box<[RunFailure]>),
}

/// Failure of the current run of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFailure {
    /// Name of the container; empty for the pod as a whole.
    pub container: String,
    /// Number of earlier restarts of the container.
    pub restarts: i32,
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// End of the previous run, if that run failed, too.
    pub failed_before: Option<Timestamp>,
}

impl From<&Pod> for PodRun {
    fn from(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        match status.and_then(|status| status.phase.as_deref()) {
            Some("Failed" | "Unknown") => {
                let finished = containers.iter().filter_map(ended).filter_map(|end| Some(end.finished_at.as_ref()?.0));
                Self::Failing([RunFailure { finished: finished.max(), ..RunFailure::default() }].into())
            }
            Some("Running") => running(containers),
            _ => Self::Neutral,
        }
    }
}

fn running(containers: &[ContainerStatus]) -> PodRun {
    let failures: Box<[RunFailure]> = containers.iter().filter_map(failure).collect();
    if !failures.is_empty() {
        return PodRun::Failing(failures);
    }
    let runs = |one: &ContainerStatus| {
        one.state.as_ref().is_some_and(|state| state.running.is_some())
            && one.last_state.as_ref().is_none_or(|state| state.terminated.is_none())
    };
    // A container that ended without a failure has completed.
    let settled = containers.iter().all(|one| runs(one) || ended(one).is_some());
    if settled && containers.iter().any(runs) { PodRun::Steady } else { PodRun::Neutral }
}

fn ended(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn failure(container: &ContainerStatus) -> Option<RunFailure> {
    let failed = |end: &&ContainerStateTerminated| end.exit_code != 0;
    let end = ended(container).filter(failed)?;
    let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref()).filter(failed);
    Some(RunFailure {
        container: container.name.clone(),
        restarts: container.restart_count,
        started: end.started_at.as_ref().map(|time| time.0),
        finished: end.finished_at.as_ref().map(|time| time.0),
        failed_before: before.and_then(|end| end.finished_at.as_ref()).map(|time| time.0),
    })
}

/// Type of a pod: the first non-empty label of `podtype`, `app` and `name`; otherwise its name.
pub fn pod_type<'a>(labels: &'a BTreeMap<String, String>, name: &'a str) -> &'a str {
    let label = |key: &str| labels.get(key).map(String::as_str).filter(|value| !value.is_empty());
    ["podtype", "app", "name"].into_iter().find_map(label).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    fn end(code: i32, started: i64, finished: i64) -> Value {
        json!({"terminated": {"exitCode": code, "startedAt": at(started), "finishedAt": at(finished)}})
    }

    fn container(name: &str, restarts: i32, state: &Value, before: &Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
            "lastState": before})
    }

    fn of(phase: &str, containers: &[Value]) -> PodRun {
        let pod = json!({"metadata": {"name": "p"}, "status": {"phase": phase, "containerStatuses": containers}});
        PodRun::from(&serde_json::from_value::<Pod>(pod).expect("a pod"))
    }

    fn runs(name: &str) -> Value {
        container(name, 0, &json!({"running": {}}), &json!({}))
    }

    fn done(name: &str) -> Value {
        container(name, 0, &end(0, 0, 5), &json!({}))
    }

    #[rstest]
    #[case::running(&[runs("a")], PodRun::Steady)]
    #[case::no_container(&[], PodRun::Neutral)]
    #[case::starting(&[container("a", 0, &json!({"waiting": {}}), &json!({}))], PodRun::Neutral)]
    #[case::one_of_two_starts(&[runs("a"), container("b", 0, &json!({}), &json!({}))], PodRun::Neutral)]
    #[case::done(&[done("a")], PodRun::Neutral)]
    #[case::done_beside_running(&[done("a"), runs("b")], PodRun::Steady)]
    #[case::again_after_failure(&[container("a", 1, &json!({"running": {}}), &end(1, 0, 5))], PodRun::Neutral)]
    #[case::waits_after_failure(&[container("a", 1, &json!({"waiting": {}}), &end(1, 0, 5)), runs("b")], PodRun::Neutral)]
    fn nothing_is_stored_of_pods_that_have_not_failed(#[case] containers: &[Value], #[case] expected: PodRun) {
        assert_eq!(of("Running", containers), expected);
    }

    #[test]
    fn failures_are_those_of_the_present_runs() {
        let containers = [
            container("first", 0, &end(1, 1, 5), &json!({})),
            runs("runs"),
            container("again", 3, &end(137, 40, 65), &end(1, 2, 9)),
            container("after-success", 1, &end(2, 40, 65), &end(0, 2, 9)),
            done("done"),
        ];
        let failure = |name: &str, restarts, started, finished, failed_before| RunFailure {
            container: name.to_owned(),
            restarts,
            started: at(started),
            finished: at(finished),
            failed_before,
        };
        let expected = [
            failure("first", 0, 1, 5, None),
            failure("again", 3, 40, 65, at(9)),
            failure("after-success", 1, 40, 65, None),
        ];
        assert_eq!(of("Running", &containers), PodRun::Failing(expected.into()));
    }

    #[test]
    fn a_failed_pod_failed_when_its_last_container_ended() {
        let last = RunFailure { finished: at(9), ..RunFailure::default() };
        let containers = [container("a", 0, &end(1, 1, 5), &json!({})), container("b", 0, &end(0, 1, 9), &json!({}))];
        assert_eq!(of("Failed", &containers), PodRun::Failing([last].into()));
        assert_eq!(of("Failed", &[]), PodRun::Failing([RunFailure::default()].into()));
        assert_eq!(of("Succeeded", &containers), PodRun::Neutral);
        assert_eq!(of("Pending", &[]), PodRun::Neutral);
        assert!(size_of::<PodRun>() <= 24, "every pod has one");
    }

    #[test]
    fn types_are_read_off_labels() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(pod_type(&labels(&[("app", "a"), ("podtype", "t"), ("name", "n")]), "pod"), "t");
        assert_eq!(pod_type(&labels(&[("app", "a"), ("name", "n")]), "pod"), "a");
        assert_eq!(pod_type(&labels(&[("app", ""), ("name", "n")]), "pod"), "n");
        assert_eq!(pod_type(&labels(&[]), "pod"), "pod");
    }
}
