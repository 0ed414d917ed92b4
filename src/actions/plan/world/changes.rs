//! The last changes of nodes by actions. A measurement from before such a change says nothing about the node as it is.
//!
//! The pods of a node also change otherwise, by the scheduler or by other controllers. These changes do not count: they
//! do not depend on the same measurements as the actions do, and on a node with many short pods, no action would begin.
//! After a restart, those of the actions that still exist are known.

use std::cmp::Reverse;
use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use ganglion_api::workload_action::status::Slot;
use ganglion_core::facts::{NodeName, Uid};

/// Time for which a change counts at most. A mean over a longer time hardly changes by one replica.
const COUNTS_FOR: SignedDuration = SignedDuration::from_mins(10);

/// Maximum number of remembered changes of a node by one namespace: the last one, and the last one of another family.
const OF_NAMESPACE: usize = 2;

/// Number of nodes from which on those without a recent change are forgotten.
const MAX_NODES: usize = 8192;

/// Times at which slots that have ended changed the pods of nodes.
#[derive(Debug, Default)]
pub struct NodeChanges(HashMap<NodeName, Vec<NodeChange>>);

#[derive(Debug)]
struct NodeChange {
    namespace: String,
    /// See [`super::index::family_of`].
    family: Uid,
    at: Timestamp,
}

impl NodeChanges {
    /// Records the end of this slot for the nodes that its pods left and reached.
    pub fn put(&mut self, slot: &Slot, namespace: &str, family: &Uid) {
        let at = slot.since.0;
        let counts = |change: &NodeChange| at.duration_since(change.at) < COUNTS_FOR;
        for node in [&slot.victim, &slot.replacement].into_iter().flatten().map(|pod| &pod.node) {
            let changes = self.0.entry(node.clone()).or_default();
            changes.retain(|change| counts(change) && (change.family != *family || change.at > at));
            if changes.iter().all(|change| change.family != *family) {
                changes.push(NodeChange { namespace: namespace.to_owned(), family: family.clone(), at });
            }
            changes.sort_by_key(|change| Reverse(change.at));
            let mut of_namespace = 0;
            changes.retain(|change| {
                of_namespace += usize::from(change.namespace == namespace);
                change.namespace != namespace || of_namespace <= OF_NAMESPACE
            });
        }
        if self.0.len() > MAX_NODES {
            self.0.retain(|_, changes| changes.iter().any(counts));
        }
    }

    /// Time of the last change of the node that counts now, in this namespace or in any, apart from changes by this
    /// family.
    pub fn last(&self, node: &NodeName, family: &Uid, namespace: Option<&str>, now: Timestamp) -> Option<Timestamp> {
        let is_meant = |change: &&NodeChange| namespace.is_none_or(|namespace| change.namespace == namespace);
        let changes = self.0.get(node)?.iter().filter(|change| change.family != *family).filter(is_meant);
        // The clocks of two replicas of the operator may differ.
        changes.map(|change| change.at).filter(|at| now.duration_since(*at).abs() < COUNTS_FOR).max()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slot(from: &str, to: &str, second: i64) -> Slot {
        let pod = |node: &str| json!({"name": "p", "node": node});
        let since = Timestamp::from_second(second).unwrap().to_string();
        let slot = json!({
            "id": "s", "index": 0, "attempt": 0, "step": "Succeeded", "since": since, "label": "",
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicaSet": {"name": "web-1", "uid": "u"}, "victim": pod(from), "replacement": pod(to),
        });
        serde_json::from_value(slot).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_last_change_of_others_counts_for_ten_minutes() {
        let mut changes = NodeChanges::default();
        let (mine, other) = (Uid::from("mine"), Uid::from("other"));
        let last = |changes: &NodeChanges, node: &str, second: i64| {
            changes.last(&node.into(), &mine, None, at(second)).map(Timestamp::as_second)
        };
        changes.put(&slot("a", "b", 100), "shop", &other);
        changes.put(&slot("a", "c", 200), "shop", &other);
        changes.put(&slot("a", "b", 300), "shop", &mine);
        changes.put(&slot("a", "b", 50), "shop", &other);
        assert_eq!(["a", "b", "c", "d"].map(|node| last(&changes, node, 300)), [Some(200), Some(100), Some(200), None]);
        assert_eq!(["a", "b"].map(|node| last(&changes, node, 750)), [Some(200), None]);
        assert_eq!(last(&changes, "a", 800), None);
    }

    #[test]
    fn a_namespace_is_told_from_others() {
        let mut changes = NodeChanges::default();
        changes.put(&slot("a", "b", 100), "shop", &Uid::from("one"));
        changes.put(&slot("a", "b", 200), "other", &Uid::from("two"));
        let last = |namespace| changes.last(&"a".into(), &Uid::from("mine"), namespace, at(300));
        assert_eq!([None, Some("shop"), Some("third")].map(last), [Some(at(200)), Some(at(100)), None]);
    }

    /// A namespace with many changes displaces only its own.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut changes = NodeChanges::default();
        changes.put(&slot("a", "b", 1), "calm", &Uid::from("calm"));
        for action in 2..100 {
            changes.put(&slot("a", "b", action), "busy", &Uid::from(action.to_string()));
        }
        let found = changes.0[&NodeName::from("a")].iter().map(|change| change.at.as_second());
        assert_eq!(found.collect::<Vec<_>>(), [99, 98, 1]);
        for node in 0..MAX_NODES {
            changes.put(&slot("a", &format!("n{node}"), 100), "busy", &Uid::from("x"));
        }
        changes.put(&slot("a", "b", 701), "busy", &Uid::from("x"));
        assert_eq!(changes.0.len(), 2);
    }
}
