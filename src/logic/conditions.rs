//! One condition of any kind, and how it follows the one before.
//!
//! Owns the form only: which conditions there are, and their reasons, are each kind's own.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The longest message, in characters.
const MAX_MESSAGE: usize = 1024;

/// Of what, and when.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Generation of the object that the condition speaks of.
    pub generation: i64,
    /// The time.
    pub now: Timestamp,
}

/// The condition; its transition time is the old one's as long as its status does not flip.
#[must_use]
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
