//! Past actions of a loop, as the limits count them.
//!
//! A Decision stores only the actions that its limits need. If a changed policy needs more of them, they are taken from
//! the history of decisions.

use super::rules::DecisionRules;
use crate::rung;
use ganglion_api::decision::{Act, DecisionStatus, Entry, Outcome};

/// Returns the past actions, the oldest first.
pub fn action_history(rules: &DecisionRules, status: &DecisionStatus) -> Vec<Act> {
    let is_kept = |entry: &Entry| status.acts.iter().any(|act| act.seq == entry.seq);
    let came_to_something = |entry: &Entry| entry.outcome != Some(Outcome::Limited);
    let listed = status.history.iter().filter(|entry| came_to_something(entry) && !is_kept(entry));
    let mut actions: Vec<Act> = listed.map(|entry| act(rules, entry)).chain(status.acts.iter().cloned()).collect();
    actions.sort_by_key(|act| act.seq);
    actions
}

/// Returns the action of a history entry. If its rung was removed from the spec, direction and dimension are unknown.
fn act(rules: &DecisionRules, entry: &Entry) -> Act {
    let rung = usize::try_from(entry.rung).ok().and_then(|index| rules.rung(&entry.metric, entry.side, index));
    Act {
        seq: entry.seq,
        at: entry.ended.as_ref().unwrap_or(&entry.at).clone(),
        direction: rung.map(rung::direction).unwrap_or_default(),
        dimension: rung.map(rung::dimension).unwrap_or_default(),
    }
}
