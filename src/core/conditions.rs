//! Conditions common to all kinds: the summary for kstatus, and the transition from the previous conditions.
//!
//! Each kind defines its further conditions and its reasons.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition of an object that reads data: whether the data that it needs is there. Ready does not depend on it, so
/// deployment tools (`kubectl wait`, Helm, Flux, Argo CD) do not wait for the first data or a machine that is off.
pub const DATA_AVAILABLE: &str = "DataAvailable";

/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 1024;

/// Generation of the object that a condition describes, and the current time.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub generation: i64,
    pub now: Timestamp,
}

/// Health of an object, from which its summary conditions are derived. `R` is the set of reasons of the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health<R> {
    /// The object works, or has completed.
    Good(R, String),
    /// The object makes progress: `reason` is its current stage, `cause` the reason why it is not further.
    Working { reason: R, cause: R, message: String },
    /// The object waits because a user suspended it.
    Suspended(R, String),
    /// The object does not work, but may recover without a change of the spec.
    Retrying(R, String),
    /// The object does not work until somebody changes it.
    Stalled(R, String),
}

impl<R: Copy> Health<R> {
    /// The object makes progress; `reason` is both stage and cause.
    pub fn working(reason: R, message: String) -> Self {
        Self::Working { reason, cause: reason, message }
    }
}

/// Types of the summary conditions.
pub const SUMMARY: [&str; 3] = ["Ready", "Reconciling", "Stalled"];

/// Type of the condition of an object that has ended: its summary conditions are its result.
pub const FINISHED: &str = "Finished";

/// The summary conditions: Ready, and Reconciling or Stalled if true. Never both, and never with status `False`, as
/// kstatus expects.
pub fn summary<R: AsRef<str>>(old: &[Condition], health: &Health<R>, stamp: Stamp) -> Vec<Condition> {
    let new = |kind, status, reason: &R, message: &str| condition(old, kind, status, reason.as_ref(), message, stamp);
    match health {
        Health::Good(reason, message) => vec![new("Ready", "True", reason, message)],
        Health::Working { reason, cause, message } => {
            vec![new("Ready", "Unknown", reason, message), new("Reconciling", "True", cause, message)]
        }
        Health::Suspended(reason, message) => vec![new("Ready", "Unknown", reason, message)],
        Health::Retrying(reason, message) => vec![
            new("Ready", "False", reason, message),
            condition(old, "Reconciling", "True", "ProgressingWithRetry", message, stamp),
        ],
        Health::Stalled(reason, message) => {
            vec![new("Ready", "False", reason, message), new("Stalled", "True", reason, message)]
        }
    }
}

/// Conditions of an object that is not kept: Stalled, with the error and advice. Conditions outside the summary stay.
pub fn unread(old: &[Condition], reason: &str, error: &str, advice: &str, stamp: Stamp) -> Vec<Condition> {
    stalled(old, reason, format!("{error}; {advice}"), stamp)
}

/// Conditions of an object that does not work until somebody changes something. Conditions outside the summary stay.
pub fn stalled(old: &[Condition], reason: &str, message: String, stamp: Stamp) -> Vec<Condition> {
    let others = old.iter().filter(|one| !SUMMARY.contains(&one.type_.as_str()));
    let mut conditions = summary(old, &Health::Stalled(reason, message), stamp);
    conditions.extend(others.cloned());
    conditions
}

/// The condition of this type.
pub fn find<'a>(all: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    all.iter().find(|condition| condition.type_ == kind)
}

/// Whether the object has ended.
pub fn is_finished(all: &[Condition]) -> bool {
    find(all, FINISHED).is_some_and(|finished| finished.status == "True")
}

/// Whether a summary condition has another status or reason. Messages do not count.
pub fn summary_differs(one: &[Condition], other: &[Condition]) -> bool {
    let says =
        |all: &[Condition], kind: &str| find(all, kind).map(|found| (found.status.clone(), found.reason.clone()));
    SUMMARY.iter().any(|kind| says(one, kind) != says(other, kind))
}

/// Creates a condition. If the status is unchanged, keeps the transition time of the old condition.
pub fn condition(old: &[Condition], kind: &str, status: &str, reason: &str, message: &str, stamp: Stamp) -> Condition {
    let kept = old.iter().find(|old| old.type_ == kind && old.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(MAX_MESSAGE).collect(),
        observed_generation: Some(stamp.generation),
        last_transition_time: kept.map_or(Time(stamp.now), |old| old.last_transition_time.clone()),
    }
}

/// Whether two lists of conditions have the same types, statuses and generations.
pub fn alike(a: &[Condition], b: &[Condition]) -> bool {
    let same = |a: &Condition, b: &Condition| {
        (&a.type_, &a.status, a.observed_generation) == (&b.type_, &b.status, b.observed_generation)
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganglion_api::reasons::Reason;

    /// Type and status of each condition.
    fn shown(health: &Health<Reason>) -> Vec<(String, String)> {
        let stamp = Stamp { generation: 1, now: Timestamp::UNIX_EPOCH };
        summary(&[], health, stamp).into_iter().map(|condition| (condition.type_, condition.status)).collect()
    }

    #[test]
    fn the_summary_is_that_of_kstatus() {
        let (reason, message) = (Reason::Queued, String::new);
        for (health, expected) in [
            (Health::Good(reason, message()), &[("Ready", "True")][..]),
            (Health::working(reason, message()), &[("Ready", "Unknown"), ("Reconciling", "True")]),
            (Health::Suspended(reason, message()), &[("Ready", "Unknown")]),
            (Health::Retrying(reason, message()), &[("Ready", "False"), ("Reconciling", "True")]),
            (Health::Stalled(reason, message()), &[("Ready", "False"), ("Stalled", "True")]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(kind, status)| ((*kind).into(), (*status).into())).collect();
            assert_eq!(shown(&health), expected, "{health:?}");
        }
    }

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ready = |old: &[Condition], status, reason, second| {
            condition(old, "Ready", status, reason, "", Stamp { generation: second, now: at(second) })
        };
        let first = ready(&[], "True", "Running", 1);
        let second = ready(std::slice::from_ref(&first), "True", "Paused", 2);
        assert_eq!((second.last_transition_time.0, second.observed_generation), (at(1), Some(2)));
        assert_eq!(ready(&[second], "False", "Failed", 3).last_transition_time.0, at(3));
    }
}
