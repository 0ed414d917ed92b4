//! The limits on how much may be at work at once, counted over every action's status in the API server.

use std::collections::{BTreeMap, BTreeSet};

use ganglion::api::workload_action::status::Step;
use ganglion::logic::workload_action::Limits;

use super::{Violation, violation};
use crate::cluster::api::Api;

pub fn check(limits: &Limits, suspended: &BTreeSet<String>, api: &Api) -> Result<(), Violation> {
    let mut count: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for action in api.actions.values().filter(|action| !action.finished()) {
        let namespace = &action.meta.key.namespace;
        for slot in action.open_slots().filter(|slot| slot.step != Step::Queued) {
            let mut add = |what, name: String| *count.entry((what, name)).or_default() += 1;
            add("namespace", namespace.clone());
            add("workload", slot.workload.name.clone());
            if suspended.contains(&action.meta.uid) {
                continue;
            }
            add("all", String::new());
            if let Some(victim) = &slot.victim {
                add("source", victim.node.clone());
            }
            if let Some(replacement) = &slot.replacement {
                add("target", replacement.node.clone());
            }
        }
    }
    for ((what, name), count) in count {
        let limit = match what {
            "all" => limits.in_all,
            "namespace" => limits.per_namespace,
            "workload" => limits.per_workload,
            "source" => limits.per_source_node,
            _ => limits.per_target_node,
        };
        if limit.is_some_and(|limit| count > limit) {
            return violation("OverLimit", format!("{count} slots at work, {what} {name}, limit {limit:?}"));
        }
    }
    Ok(())
}
