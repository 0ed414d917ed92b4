//! The Deployment controller: rollouts, scaling and copied annotations.

use super::*;

#[test]
fn a_rollout_loses_nothing_and_ends() {
    for seed in 0..30 {
        let mut cluster = settled(seed, 3);
        let new = super::super::build::template("web", &PodShape { revision: 1, ..shape() }, &Default::default());
        cluster.api.update::<Deployment>(&key("web"), If::any(), |one| one.template = new).unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..4000 {
            cluster.step(*rng.pick(&Part::ALL).unwrap());
            assert!(serving(&cluster) >= 3);
            let wanted: i32 = cluster.api.sets.values().map(|set| set.replicas).sum();
            assert!(wanted <= 4, "{wanted} pods");
        }
        while cluster.quiesce() {}
        let web = cluster.api.deployments.get(&key("web")).unwrap();
        assert_eq!((web.status.updated, web.status.replicas, serving(&cluster)), (3, 3, 3));
    }
}

#[test]
fn scaling_changes_the_only_set() {
    let mut cluster = settled(1, 3);
    for replicas in [5, 2, 0, 1] {
        cluster.api.update::<Deployment>(&key("web"), If::any(), |one| one.replicas = replicas).unwrap();
        while cluster.quiesce() {}
        assert_eq!(serving(&cluster), usize::try_from(replicas).unwrap());
    }
}

/// A Deployment's annotations are copied to its ReplicaSet, and stay there.
#[test]
fn annotations_are_copied_for_good() {
    let mut cluster = settled(1, 1);
    let ledger = |cluster: &SimulatedCluster| {
        let set: &Arc<Set> = cluster.api.sets.values().next().unwrap();
        set.meta.annotations.get(marks::LEDGER).cloned()
    };
    let write = |one: &mut Deployment| {
        one.meta.annotations.insert(marks::LEDGER.into(), "x".into());
    };
    cluster.api.update(&key("web"), If::any(), write).unwrap();
    while cluster.quiesce() {}
    assert_eq!(ledger(&cluster).as_deref(), Some("x"));
    let clear = |one: &mut Deployment| {
        one.meta.annotations.remove(marks::LEDGER);
    };
    cluster.api.update(&key("web"), If::any(), clear).unwrap();
    while cluster.quiesce() {}
    assert_eq!(ledger(&cluster).as_deref(), Some("x"));
}
