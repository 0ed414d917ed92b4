//! The timeline of a SwarmPool, from its status and the record of its job lists.

use kube::ResourceExt;

use super::conditions::add_conditions;
use super::model::{Draft, EventHint, Lane, TimelineEntry};
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::status::PoolWorkerState;
use ganglion_core::layout::clock;
use ganglion_core::words::counted;
use ganglion_pools_plan::file::Published;

const KIND: &str = "SwarmPool";

/// Conditions of a pool that repeat what another one says.
const REPEATED: [&str; 2] = ["Reconciling", "Stalled"];

/// Maximum number of workers and jobs in the text about the state.
const LISTED: usize = 20;

/// The timeline of a pool without its events. `published`: the job lists; None if they could not be read.
pub fn pool_draft(pool: &SwarmPool, published: Option<&Published>) -> Draft {
    let workload = &pool.spec.workload;
    let mut draft = Draft {
        title: format!("{KIND} {}/{}", pool.namespace().unwrap_or_default(), pool.name_any()),
        about: format!("workers are the pods of {}/{}", workload.kind.as_str(), workload.name),
        ..Draft::default()
    };
    if let Some(created) = &pool.metadata.creation_timestamp {
        draft.add(TimelineEntry::new(created.0, Lane::Object, "created", "created"));
    }
    if let Some(deleted) = &pool.metadata.deletion_timestamp {
        draft.add(TimelineEntry::new(deleted.0, Lane::Object, "deleted", "its deletion was requested"));
    }
    // The record has the exact time of a change that the status has, too.
    if let Some(published) = published {
        add_record(&mut draft, pool, published);
    }
    add_last_change(&mut draft, pool);
    add_workers(&mut draft, pool);
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    add_conditions(&mut draft, KIND, conditions, |one| !REPEATED.contains(&one.type_.as_str()));
    draft
}

/// Entry about a version of the job lists, which may also be an event.
fn change(version: i64, at: jiff::Timestamp, why: &str, moved: Option<i64>) -> TimelineEntry {
    let moved = moved.map(|moved| format!("; {} to move to another worker", counted(moved, "job"))).unwrap_or_default();
    let hint =
        EventHint { kind: KIND, reasons: vec!["Dealt".to_owned()], note: Some(why.to_owned()), ..EventHint::default() };
    TimelineEntry::new(at, Lane::Jobs, format!("jobs/{version}"), format!("version {version}: {why}{moved}"))
        .told_by(hint)
}

fn add_last_change(draft: &mut Draft, pool: &SwarmPool) {
    let Some(status) = &pool.status else { return };
    if let Some(last) = &status.last_change {
        draft.add(change(last.version, last.at.0, &last.why, status.moved));
    }
    if let Some(since) = &status.waiting_since {
        let text = "waits for a worker, or for workers that are not Ready";
        draft.add(TimelineEntry::new(since.0, Lane::Jobs, format!("waiting/{}", since.0), text));
    }
}

/// Adds the recorded changes of the job lists, and the requests to workers.
fn add_record(draft: &mut Draft, pool: &SwarmPool, published: &Published) {
    let status = pool.status.clone().unwrap_or_default();
    for (version, one) in &published.changes {
        let is_last = status.last_change.as_ref().is_some_and(|last| last.version == *version);
        draft.add(change(*version, one.at, &one.why, status.moved.filter(|_| is_last)));
    }
    for (worker, list) in &published.lists {
        if let Some(asked) = &list.asked {
            let text = format!("{worker} was asked to run version {}", asked.version);
            draft.add(TimelineEntry::new(asked.at, Lane::Jobs, format!("asked/{worker}/{}", asked.version), text));
        }
        let listed = status.workers.iter().find(|listed| listed.name == *worker);
        let reported = listed.and_then(|listed| listed.observed_version);
        let open = list.releasing.iter().filter(|(_, version)| reported < Some(**version));
        for (job, version) in open.take(LISTED) {
            draft.now.push(format!("{worker} has to confirm that it stopped {job}, which version {version} removed"));
        }
    }
    draft.limits.push(format!(
        "The record of the job lists holds {}: those since which a worker has a job.",
        counted(published.changes.len() as u64, "version")
    ));
    if published.edited {
        draft
            .limits
            .push("Somebody else changed the ConfigMap of the job lists; its record may be incomplete.".to_owned());
    }
}

fn add_workers(draft: &mut Draft, pool: &SwarmPool) {
    let Some(status) = &pool.status else {
        draft.now.push("the operator has not reconciled this pool yet".to_owned());
        return;
    };
    let version = |version: Option<i64>| version.map_or_else(|| "none".to_owned(), |version| version.to_string());
    for worker in status.workers.iter().take(LISTED) {
        let state = worker.state.as_str();
        let versions = if worker.state == PoolWorkerState::Converged {
            format!("version {}", version(worker.observed_version))
        } else {
            format!("version {} of {}", version(worker.observed_version), version(worker.desired_version))
        };
        draft.now.push(format!("{}: {}, {versions}, {state}", worker.name, counted(worker.jobs, "job")));
    }
    if status.workers.len() > LISTED || status.truncated == Some(true) {
        draft.limits.push(format!("Only {LISTED} workers are shown."));
    }
    if let Some(left) = &status.unassigned {
        draft.now.push(format!("{} without a worker: {}", counted(left.count, "job"), left.names.join(" ")));
    }
    let follows = conditions_since(pool, "Ready");
    draft.limits.push(format!("Since when a worker has its state is not recorded{follows}."));
}

/// When the condition got its status, as text.
fn conditions_since(pool: &SwarmPool, kind: &str) -> String {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let found = ganglion_core::conditions::find(conditions, kind);
    found
        .map(|one| format!("; the pool has {kind}={} since {}", one.status, clock(one.last_transition_time.0)))
        .unwrap_or_default()
}
