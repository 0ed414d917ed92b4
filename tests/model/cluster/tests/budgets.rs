//! Disruption budgets: their count, and the evictions that they allow.

use super::*;

fn guarded(rule: Rule) -> SimulatedCluster {
    let mut cluster = settled(1, 3);
    cluster.api.add_budget("web", "web", rule);
    while cluster.quiesce() {}
    cluster
}

fn evict(cluster: &mut SimulatedCluster, index: usize) -> Result<(), Refused> {
    let pod = pods(cluster).remove(index);
    cluster.api.evict(&pod.meta.key, If::uid(&pod.meta.uid)).map(|_| ())
}

#[test]
fn every_eviction_counts_before_the_controller_looks() {
    let mut cluster = guarded(Rule::MinAvailable(2));
    assert_eq!(evict(&mut cluster, 0), Ok(()));
    assert!(matches!(evict(&mut cluster, 1), Err(Refused::Budget(_))));
    assert_eq!(evict(&mut cluster, 0), Ok(()), "terminating pods skip budgets");
    while cluster.quiesce() {}
    assert_eq!(serving(&cluster), 3);
    assert_eq!(evict(&mut cluster, 0), Ok(()));
}

/// Measured on real clusters: with minAvailable 3 of 3, an additional Ready pod without a controller allows one
/// eviction.
#[test]
fn a_ready_replacement_makes_room() {
    for rule in [Rule::MinAvailable(3), Rule::MaxUnavailable(0)] {
        let mut cluster = guarded(rule);
        assert!(matches!(evict(&mut cluster, 0), Err(Refused::Budget(_))));
        let set = cluster.api.sets.values().next().cloned().unwrap();
        let mut replacement = super::super::replica_set::from_template(&set, "replacement");
        replacement.meta.labels.remove(marks::POD_TEMPLATE_HASH);
        cluster.api.create_pod(replacement).unwrap();
        while cluster.quiesce() {}
        assert_eq!(pods(&cluster).len(), 4, "the set does not count it");
        assert_eq!(evict(&mut cluster, 0), Ok(()));
    }
}

#[test]
fn two_budgets_stop_every_eviction() {
    let mut cluster = guarded(Rule::MinAvailable(1));
    cluster.api.add_budget("again", "web", Rule::MinAvailable(1));
    while cluster.quiesce() {}
    assert!(matches!(evict(&mut cluster, 0), Err(Refused::Budgets(_))));
}

#[test]
fn the_budget_pays_even_if_the_uid_is_another() {
    let mut cluster = guarded(Rule::MinAvailable(2));
    let pod = pods(&cluster).remove(0);
    assert_eq!(cluster.api.evict(&pod.meta.key, If::uid("other")).unwrap_err(), Refused::Conflict);
    assert!(matches!(evict(&mut cluster, 1), Err(Refused::Budget(_))));
}
