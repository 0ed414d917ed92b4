//! Conditions of loops and their hops: the summary conditions of kstatus, and how a new condition follows the old one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::closed_loop::reasons::LoopReason;
use crate::logic::conditions;
pub use crate::logic::conditions::Stamp;

/// Health of an object, from which its summary conditions are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The object works.
    Good(LoopReason, String),
    /// The object is on its way to work.
    Working(LoopReason, String),
    /// The object does not work; it recovers without a change of the spec.
    Retrying(LoopReason, String),
    /// The object does not work until somebody changes it.
    Stalled(LoopReason, String),
}

/// The condition Ready, and Reconciling or Stalled where they are true.
#[must_use]
pub fn summary(old: &[Condition], health: &Health, stamp: Stamp) -> Vec<Condition> {
    match health {
        Health::Good(reason, message) => vec![condition(old, "Ready", "True", *reason, message, stamp)],
        Health::Working(reason, message) => vec![
            condition(old, "Ready", "Unknown", *reason, message, stamp),
            condition(old, "Reconciling", "True", *reason, message, stamp),
        ],
        Health::Retrying(reason, message) => vec![
            condition(old, "Ready", "False", *reason, message, stamp),
            Condition {
                reason: "ProgressingWithRetry".into(),
                ..condition(old, "Reconciling", "True", *reason, message, stamp)
            },
        ],
        Health::Stalled(reason, message) => vec![
            condition(old, "Ready", "False", *reason, message, stamp),
            condition(old, "Stalled", "True", *reason, message, stamp),
        ],
    }
}

/// A condition with a reason of loops. It keeps the transition time of the old condition if the status is the same.
#[must_use]
pub fn condition(
    old: &[Condition],
    kind: &str,
    status: &str,
    reason: LoopReason,
    message: &str,
    stamp: Stamp,
) -> Condition {
    conditions::condition(old, kind, status, reason.as_str(), message, stamp)
}

/// Whether two lists of conditions are equal except for times and messages.
#[must_use]
pub fn alike(a: &[Condition], b: &[Condition]) -> bool {
    let same = |a: &Condition, b: &Condition| {
        (&a.type_, &a.status, &a.reason, a.observed_generation)
            == (&b.type_, &b.status, &b.reason, b.observed_generation)
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}
