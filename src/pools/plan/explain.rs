//! Explains a pool in a terminal: its workers; or, for one job, its worker, and since when and why it is there.
//!
//! Reads the pool and the published job lists.

use jiff::Timestamp;
use kube::ResourceExt;

use super::file::Published;
use super::replicas::FOLLOWS_WORKLOAD;
use ganglion_api::swarm_pool::status::PoolWorker;
use ganglion_api::swarm_pool::{SwarmPool, SwarmPoolStatus};
use ganglion_core::layout::{age, paragraph, table};
use ganglion_core::words::counted;

/// Input of [`explain`].
#[derive(Clone, Copy, Debug)]
pub struct ExplainedPool<'a> {
    pub pool: &'a SwarmPool,
    pub published: &'a Published,
    /// Explains only this job.
    pub job: Option<&'a str>,
    pub now: Timestamp,
}

/// Returns the explanation. Lines have at most 120 columns, except for long names and commands.
pub fn explain(subject: ExplainedPool) -> String {
    match subject.job {
        Some(job) => explain_job(subject, job),
        None => explain_pool(subject),
    }
}

fn explain_pool(subject: ExplainedPool) -> String {
    let ExplainedPool { pool, now, .. } = subject;
    let status = pool.status.clone().unwrap_or_default();
    let Some(ready) = status.conditions.iter().find(|condition| condition.type_ == "Ready") else {
        return paragraph("", "The operator has not reconciled this pool yet.");
    };
    let mut text = paragraph(&format!("{}: ", ready.reason), &ready.message);
    if let Some(follows) = status.conditions.iter().find(|condition| condition.type_ == FOLLOWS_WORKLOAD) {
        text.push_str(&paragraph("", &format!("{FOLLOWS_WORKLOAD} is {}: {}", follows.status, follows.message)));
    }
    if let Some(change) = &status.last_change {
        let moved = counted(status.moved.unwrap_or(0), "job");
        let summary = format!("{}, {} ago; {moved} moved.", change.why, age(change.at.0, now));
        text.push_str(&paragraph("Last change: ", &summary));
    }
    if !status.workers.is_empty() {
        let header = ["WORKER", "JOBS", "WEIGHT", "VERSION", "REPORTS", "STATE"];
        text.push_str(&table(header, status.workers.iter().map(row).collect()));
    }
    if status.truncated == Some(true) {
        text.push_str(&paragraph("", "More workers exist; those that have not converged are listed with priority."));
    }
    text.push_str(&unassigned(&status));
    text
}

fn row(worker: &PoolWorker) -> [String; 6] {
    let version = |version: Option<i64>| version.map_or_else(|| "-".to_owned(), |version| version.to_string());
    [
        worker.name.clone(),
        worker.jobs.to_string(),
        worker.weight.to_string(),
        version(worker.desired_version),
        version(worker.observed_version),
        worker.state.as_str().to_owned(),
    ]
}

fn unassigned(status: &SwarmPoolStatus) -> String {
    let Some(left) = &status.unassigned else { return String::new() };
    let more = if i64::try_from(left.names.len()).is_ok_and(|shown| shown < left.count) { " …" } else { "" };
    paragraph("", &format!("{} without a worker: {}{more}", counted(left.count, "job"), left.names.join(" ")))
}

fn explain_job(subject: ExplainedPool, job: &str) -> String {
    let ExplainedPool { pool, published, now, .. } = subject;
    let mut text = String::new();
    for (worker, list) in &published.lists {
        if let Some(held) = list.jobs.iter().find(|held| *held.name == *job) {
            let since = published.changes.get(&held.since).map_or_else(
                || format!("since version {} or before", held.since),
                |change| format!("since version {}, {} ago: {}", held.since, age(change.at, now), change.why),
            );
            text.push_str(&paragraph("", &format!("{job} is with {worker}, {since}.")));
        }
        if let Some(version) = list.unknown.filter(|version| reported(pool, worker) < Some(*version)) {
            let warning = format!(
                "{worker} may run any job: it has not confirmed version {version}, and has read a list that this pool did \
                 not write."
            );
            text.push_str(&paragraph("", &warning));
        }
        if let Some(removed) = list.releasing.get(job).filter(|removed| reported(pool, worker) < Some(**removed)) {
            let warning =
                format!("{worker} may still run {job}: it has not confirmed version {removed}, which removes the job.");
            text.push_str(&paragraph("", &warning));
        }
    }
    if text.is_empty() {
        let name = pool.name_any();
        text.push_str(&paragraph("", &format!("No worker of {name} has {job}, and none may still run it.")));
        text.push_str(&paragraph("-> ", "Check that the pool's sources list it; see the pool's state without --job."));
    }
    text
}

/// Version that a worker reports, from the status.
fn reported(pool: &SwarmPool, worker: &str) -> Option<i64> {
    let workers = pool.status.as_ref().map(|status| status.workers.as_slice()).unwrap_or_default();
    workers.iter().find(|listed| listed.name == worker)?.observed_version
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::file::{JobList, ListChange, ListedJob};

    fn pool() -> SwarmPool {
        serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "metadata": {"name": "cameras"},
            "spec": {
                "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w"},
                "jobs": {"inline": [{"name": "a"}]}, "output": {"configMap": "jobs"},
            },
            "status": {
                "moved": 1,
                "lastChange": {"at": "2026-11-21T09:59:00Z", "version": 2, "why": "1 to 2 workers"},
                "unassigned": {"count": 3, "names": ["x", "y"]},
                "workers": [
                    {"name": "w-0", "jobs": 1, "weight": 3, "desiredVersion": 2, "observedVersion": 1, "state": "Releasing"},
                    {"name": "w-1", "jobs": 0, "weight": 0, "state": "Waiting"},
                ],
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "Releasing", "message": "1 job moves", "lastTransitionTime": "2026-11-21T10:00:00Z"}],
            },
        }))
        .unwrap()
    }

    fn published() -> Published {
        let change = ListChange { at: "2026-11-21T09:00:00Z".parse().unwrap(), why: "first deal".to_owned() };
        let held = |name: &str, since| ListedJob { name: name.into(), since };
        let first = JobList {
            version: 2,
            jobs: vec![held("a", 1), held("old", 0)],
            releasing: [("b".into(), 2)].into(),
            ..JobList::default()
        };
        Published {
            lists: [("w-0".to_owned(), first)].into(),
            version: 2,
            changes: [(1, change)].into(),
            ..Published::default()
        }
    }

    fn text(job: Option<&str>) -> String {
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        explain(ExplainedPool { pool: &pool(), published: &published(), job, now })
    }

    #[test]
    fn a_pool_is_explained_by_its_workers() {
        let expected = "Releasing: 1 job moves\n\
                        Last change: 1 to 2 workers, 60s ago; 1 job moved.\n\
                        WORKER  JOBS  WEIGHT  VERSION  REPORTS  STATE\n\
                        w-0     1     3       2        1        Releasing\n\
                        w-1     0     0       -        -        Waiting\n\
                        3 jobs without a worker: x y …\n";
        assert_eq!(text(None), expected);
    }

    #[test]
    fn a_job_is_explained_by_where_it_is_since_when_and_why() {
        assert_eq!(text(Some("a")), "a is with w-0, since version 1, 60m ago: first deal.\n");
        assert_eq!(text(Some("old")), "old is with w-0, since version 0 or before.\n");
        assert_eq!(text(Some("b")), "w-0 may still run b: it has not confirmed version 2, which removes the job.\n");
        assert!(text(Some("z")).starts_with("No worker of cameras has z"));
    }
}
