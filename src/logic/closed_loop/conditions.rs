//! The conditions of loops and their hops: summary conditions as kstatus reads them, and how a new one follows an old one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::closed_loop::reasons::LoopReason;
use crate::logic::conditions;
pub use crate::logic::conditions::Stamp;

/// How an object is, for its summary conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does what it should.
    Good(LoopReason, String),
    /// It is on its way there.
    Working(LoopReason, String),
    /// It does not do what it should, and may again by itself.
    Retrying(LoopReason, String),
    /// It will not by itself.
    Stalled(LoopReason, String),
}

/// Ready, with Reconciling or Stalled where they hold.
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

/// A condition with one of the loops' reasons, as it follows the old ones.
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

/// Whether two sets of conditions say the same, times and words aside.
#[must_use]
pub fn alike(a: &[Condition], b: &[Condition]) -> bool {
    let same = |a: &Condition, b: &Condition| {
        (&a.type_, &a.status, &a.reason, a.observed_generation)
            == (&b.type_, &b.status, &b.reason, b.observed_generation)
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}
