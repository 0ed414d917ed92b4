//! The ReplicaSet controller: pods that it creates, deletes and adopts, and its status.

use super::*;

#[test]
fn it_does_not_act_again_before_it_saw_what_it_did() {
    let mut cluster = settled(1, 3);
    let pod = pods(&cluster).remove(0);
    cluster.api.remove::<Pod>(&pod.meta.key, If::any()).unwrap();
    let hear = |cluster: &mut SimulatedCluster| while cluster.step(Part::SetsHearPod) {};
    hear(&mut cluster);
    assert!(cluster.step(Part::SetsSync));
    assert_eq!(pods(&cluster).len(), 3);
    cluster.sets.resync();
    assert!(cluster.step(Part::SetsSync));
    assert_eq!(pods(&cluster).len(), 3, "it expects one");
    hear(&mut cluster);
    while cluster.step(Part::SetsSync) {}
    assert_eq!(pods(&cluster).len(), 3);
}

#[test]
fn it_lets_go_of_a_pod_without_the_label_and_takes_it_back() {
    let mut cluster = settled(1, 2);
    let pod = pods(&cluster).remove(0);
    let hash = pod.meta.labels[marks::POD_TEMPLATE_HASH].clone();
    let change = |pod: &mut Pod| {
        pod.meta.labels.remove(marks::POD_TEMPLATE_HASH);
    };
    cluster.api.update(&pod.meta.key, If::any(), change).unwrap();
    while cluster.quiesce() {}
    assert_eq!(pods(&cluster).len(), 3);
    assert!(cluster.api.pods.get(&pod.meta.key).unwrap().meta.controller().is_none());
    let back = |pod: &mut Pod| {
        pod.meta.labels.insert(marks::POD_TEMPLATE_HASH.into(), hash);
    };
    cluster.api.update(&pod.meta.key, If::any(), back).unwrap();
    while cluster.quiesce() {}
    assert_eq!(pods(&cluster).iter().filter(|pod| pod.is_active()).count(), 2);
}

#[test]
fn it_says_when_a_quota_refuses_pods() {
    let mut cluster = settled(1, 2);
    cluster.api.quota = Some(2);
    cluster.api.update::<Deployment>(&key("web"), If::any(), |one| one.replicas = 3).unwrap();
    while cluster.quiesce() {}
    assert!(cluster.api.sets.values().next().unwrap().status.failure.is_some());
    cluster.api.quota = None;
    while cluster.quiesce() {}
    assert_eq!(serving(&cluster), 3);
    assert!(cluster.api.sets.values().next().unwrap().status.failure.is_none());
}

/// Releases one pod and attaches another, with all other steps in random order; `mark` follows the protocol. Returns
/// whether exactly the substitute was deleted.
fn exchange(seed: u64, pause: usize, mark: bool) -> bool {
    let mut cluster = settled(seed, 3);
    let mut rng = Rng::new(seed ^ 0xabcd);
    let set = cluster.api.sets.values().next().cloned().unwrap();
    let old = pods(&cluster);
    let hash = set.selector[marks::POD_TEMPLATE_HASH].clone();
    let mut replacement = super::super::replica_set::from_template(&set, "replacement");
    replacement.meta.labels.remove(marks::POD_TEMPLATE_HASH);
    cluster.api.create_pod(replacement).unwrap();
    while cluster.quiesce() {}
    let detach = |pod: &mut Pod| {
        pod.meta.labels.remove(marks::POD_TEMPLATE_HASH);
        pod.meta.owners.clear();
    };
    cluster.api.update(&old[0].meta.key, If::any(), detach).unwrap();
    let mut random = |cluster: &mut SimulatedCluster, steps: usize| {
        for _ in 0..steps {
            cluster.step(*rng.pick(&Part::ALL).unwrap());
            cluster.api.clock += 1;
        }
    };
    random(&mut cluster, pause);
    if mark {
        let known: BTreeSet<&Key> = old.iter().map(|pod| &pod.meta.key).collect();
        let new = |pod: &&Arc<Pod>| !known.contains(&pod.meta.key) && pod.meta.key.name != "replacement";
        let surplus = pods(&cluster).iter().find(new).map(|pod| pod.meta.key.clone()).unwrap();
        let cheap = |pod: &mut Pod| {
            pod.meta.annotations.insert(marks::DELETION_COST.into(), marks::LOWEST_COST.into());
        };
        cluster.api.update(&surplus, If::any(), cheap).unwrap();
        random(&mut cluster, 20);
    }
    let adopt = |pod: &mut Pod| {
        pod.meta.labels.insert(marks::POD_TEMPLATE_HASH.into(), hash);
    };
    cluster.api.update(&key("replacement"), If::any(), adopt).unwrap();
    random(&mut cluster, 100);
    while cluster.quiesce() {}
    let lives = |name: &Key| cluster.api.pods.get(name).is_some_and(|pod| pod.is_active());
    old.iter().all(|pod| lives(&pod.meta.key)) && lives(&key("replacement")) && pods(&cluster).len() == 4
}

/// Results of the trials: with the mark, every exchange is exact; without it, some are not.
#[test]
fn only_a_marked_exchange_is_exact() {
    assert!((0..200).all(|seed| exchange(seed, 300, true)));
    let exact = |pause| (0..200).filter(|seed| exchange(*seed, pause, false)).count();
    let (at_once, later) = (exact(40), exact(300));
    assert!((150..200).contains(&at_once), "back to back {at_once} of 200 were exact");
    assert!((20..180).contains(&later), "with a pause {later} of 200 were exact");
}
