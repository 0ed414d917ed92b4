//! The limits on concurrent work, counted over the statuses of all actions in the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ganglion_actions_plan::Limits;
use ganglion_api::workload_action::status::Step;

use super::{Violation, violation};
use crate::cluster::api::Api;
use crate::cluster::object::Action;

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
                add("source", victim.node.to_string());
            }
            if let Some(replacement) = slot.replacement.as_ref().filter(|_| !slot.scheduled) {
                add("target", replacement.node.to_string());
            }
        }
    }
    for application in api.actions.values() {
        let Some(spec) = &application.spec.move_application else { continue };
        let moves = api.actions.values().filter(|action| action.meta.is_of(&application.meta.uid));
        let at_work = |action: &Arc<Action>| action.open_slots().filter(|slot| slot.step != Step::Queued).count();
        let count: usize = moves.map(at_work).sum();
        if i32::try_from(count).is_ok_and(|count| count > spec.max_parallel.unwrap_or(1)) {
            let text = format!("{count} replicas of {} at once, limit {:?}", application.meta.key, spec.max_parallel);
            return violation("OverLimit", text);
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
