//! The simulated cluster against what is known of real ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use ganglion::api::marks;
use ganglion::logic::facts::Key;

use super::api::{Api, If, Refused};
use super::build::{NAMESPACE, PodShape};
use super::object::{Action, Deployment, Fate, Meta, Node, Phase, Pod, Rule, Set};
use super::{Cluster, Part, victims};
use crate::random::Rng;

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

fn shape() -> PodShape {
    PodShape { cpu: 100, grace: 30, ..PodShape::default() }
}

/// Four nodes and a Deployment `web` that has settled an hour ago.
fn settled(seed: u64, replicas: i32) -> Cluster {
    let mut cluster = Cluster::new(Api::new(Rng::new(seed)));
    for index in 0..4 {
        cluster.api.add_node(&format!("node-{index}"), "a", 10_000, 50, Fate::Good);
    }
    cluster.api.add_deployment("web", replicas, &shape());
    while cluster.quiesce() {}
    cluster.api.clock += 3_600_000;
    while cluster.quiesce() {}
    cluster
}

fn pods(cluster: &Cluster) -> Vec<Arc<Pod>> {
    cluster.api.pods.values().cloned().collect()
}

fn serving(cluster: &Cluster) -> usize {
    cluster.api.pods.values().filter(|pod| pod.is_serving()).count()
}

mod victim_order {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn pod(uid: &str) -> Pod {
        let mut pod = Pod { node: Some("a".into()), phase: Phase::Running, ready_since: Some(100), ..Pod::default() };
        pod.meta = Meta { uid: uid.into(), created: 100, ..Meta::named(NAMESPACE, uid) };
        pod
    }

    /// Whether the first goes before the second, whatever their uids.
    fn goes_first(change_a: impl Fn(&mut Pod), change_b: impl Fn(&mut Pod)) {
        for (uid_a, uid_b) in [("1", "2"), ("2", "1")] {
            let (mut a, mut b) = (pod(uid_a), pod(uid_b));
            change_a(&mut a);
            change_b(&mut b);
            let all = [Arc::new(a), Arc::new(b)];
            let mut sorted = vec![Arc::clone(&all[1]), Arc::clone(&all[0])];
            victims::sort(&mut sorted, &all, NOW * 1000);
            assert_eq!(sorted[0].meta.uid, uid_a);
        }
    }

    fn cost(cost: &'static str) -> impl Fn(&mut Pod) {
        move |pod| {
            pod.meta.annotations.insert(marks::DELETION_COST.into(), cost.into());
        }
    }

    #[test]
    fn each_rule_decides_before_the_next() {
        goes_first(|pod| pod.node = None, |pod| pod.phase = Phase::Pending);
        goes_first(|pod| pod.phase = Phase::Pending, |pod| pod.phase = Phase::Unknown);
        goes_first(|pod| pod.phase = Phase::Unknown, |pod| pod.ready_since = None);
        goes_first(|pod| pod.ready_since = None, cost("-2147483648"));
        goes_first(cost("-1"), |_| ());
        goes_first(|_| (), cost("1"));
        goes_first(|pod| pod.ready_since = Some(NOW - 1), |pod| pod.restarts = 9);
        goes_first(|pod| pod.restarts = 1, |pod| pod.meta.created = NOW - 1);
        goes_first(|pod| pod.meta.created = NOW - 1, |_| ());
    }

    #[test]
    fn crowded_nodes_go_before_what_was_ready_for_less_time() {
        let crowded = |uid: &str| Pod { node: Some("b".into()), ..pod(uid) };
        let young = Pod { ready_since: Some(NOW - 1), ..pod("3") };
        let all: Vec<Arc<Pod>> = [young, crowded("1"), crowded("2")].into_iter().map(Arc::new).collect();
        let mut sorted = all.clone();
        victims::sort(&mut sorted, &all, NOW * 1000);
        assert_eq!(sorted[2].meta.uid, "3");
    }

    #[test]
    fn about_equally_old_pods_go_by_uid() {
        let at = |uid: &str, since| Pod { ready_since: Some(since), ..pod(uid) };
        let all: Vec<Arc<Pod>> = [at("2", 1001), at("1", 1000)].into_iter().map(Arc::new).collect();
        let mut sorted = all.clone();
        victims::sort(&mut sorted, &all, NOW * 1000);
        assert_eq!(sorted[0].meta.uid, "1");
    }
}

mod api_server {
    use super::*;

    #[test]
    fn preconditions_hold_and_nothing_new_is_no_write() {
        let mut cluster = settled(1, 1);
        let api = &mut cluster.api;
        let pod = pods_of(api).remove(0);
        let name = pod.meta.key.clone();
        let mark = |pod: &mut Pod| {
            pod.meta.annotations.insert("a".into(), "b".into());
        };
        assert_eq!(api.update(&name, If::uid("other"), mark).unwrap_err(), Refused::Conflict);
        assert_eq!(api.update(&name, If::version(pod.meta.version - 1), mark).unwrap_err(), Refused::Conflict);
        assert_eq!(api.update::<Pod>(&key("none"), If::any(), mark).unwrap_err(), Refused::NotFound);
        let once = api.update(&name, If::version(pod.meta.version), mark).unwrap();
        assert!(once.meta.version > pod.meta.version);
        let twice = api.update(&name, If::any(), mark).unwrap();
        assert_eq!(twice.meta.version, once.meta.version);
        assert_eq!(api.create(Pod::clone(&pod)).unwrap_err(), Refused::Exists);
    }

    fn pods_of(api: &Api) -> Vec<Arc<Pod>> {
        api.pods.values().cloned().collect()
    }

    #[test]
    fn generations_count_changes_of_the_spec_only() {
        let mut cluster = settled(1, 1);
        let api = &mut cluster.api;
        let scaled = api.update::<Deployment>(&key("web"), If::any(), |one| one.replicas = 2).unwrap();
        let noted = api
            .update::<Deployment>(&key("web"), If::any(), |one| {
                one.meta.annotations.insert("a".into(), "b".into());
            })
            .unwrap();
        assert_eq!(scaled.meta.generation, noted.meta.generation);
        assert!(noted.meta.version > scaled.meta.version);
    }

    #[test]
    fn finalizers_keep_what_is_deleted() {
        let mut api = Api::new(Rng::new(1));
        api.add_action("a", Default::default()).unwrap();
        let hold =
            |on: bool| move |action: &mut Action| action.meta.finalizers = if on { vec!["x".into()] } else { vec![] };
        api.update(&key("a"), If::any(), hold(true)).unwrap();
        api.delete::<Action>(&key("a"), If::any()).unwrap();
        assert!(api.actions.get(&key("a")).unwrap().meta.deleted.is_some());
        let last = api.update(&key("a"), If::any(), hold(false)).unwrap();
        assert!(api.actions.get(&key("a")).is_none());
        assert_eq!(last.meta.version, api.version(), "the answer bears the version of the deletion");
    }

    #[test]
    fn pods_end_gracefully_where_a_kubelet_has_them() {
        let mut cluster = settled(1, 1);
        let pod = pods(&cluster).remove(0);
        assert!(cluster.api.delete_pod(&pod.meta.key, If::any()).unwrap().is_some());
        let waiting = Pod { meta: Meta::named(NAMESPACE, "waiting"), ..Pod::default() };
        let waiting = cluster.api.create(waiting).unwrap();
        assert!(cluster.api.delete_pod(&waiting.meta.key, If::any()).unwrap().is_none());
    }

    #[test]
    fn a_quota_counts_pods() {
        let mut cluster = settled(1, 1);
        cluster.api.quota = Some(1);
        let pod = Pod { meta: Meta::named(NAMESPACE, "more"), ..Pod::default() };
        assert!(matches!(cluster.api.create_pod(pod), Err(Refused::Quota(_))));
    }
}

mod budgets {
    use super::*;

    fn guarded(rule: Rule) -> Cluster {
        let mut cluster = settled(1, 3);
        cluster.api.add_budget("web", "web", rule);
        while cluster.quiesce() {}
        cluster
    }

    fn evict(cluster: &mut Cluster, index: usize) -> Result<(), Refused> {
        let pod = pods(cluster).remove(index);
        cluster.api.evict(&pod.meta.key, If::uid(&pod.meta.uid)).map(|_| ())
    }

    #[test]
    fn every_eviction_counts_before_the_controller_looks() {
        let mut cluster = guarded(Rule::MinAvailable(2));
        assert_eq!(evict(&mut cluster, 0), Ok(()));
        assert!(matches!(evict(&mut cluster, 1), Err(Refused::Budget(_))));
        assert_eq!(evict(&mut cluster, 0), Ok(()), "what is ending skips budgets");
        while cluster.quiesce() {}
        assert_eq!(serving(&cluster), 3);
        assert_eq!(evict(&mut cluster, 0), Ok(()));
    }

    /// From the trials: with minAvailable 3 of 3, one Ready pod more without a controller allows one eviction.
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
}

mod replica_sets {
    use super::*;

    #[test]
    fn it_does_not_act_again_before_it_saw_what_it_did() {
        let mut cluster = settled(1, 3);
        let pod = pods(&cluster).remove(0);
        cluster.api.remove::<Pod>(&pod.meta.key, If::any()).unwrap();
        let hear = |cluster: &mut Cluster| while cluster.step(Part::SetsHearPod) {};
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

    /// Takes one pod out and another one in, with everything else going on at random; `mark` as the protocol has it. Tells
    /// whether exactly the substitute went.
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
        let mut random = |cluster: &mut Cluster, steps: usize| {
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

    /// The figures of the trials: with the mark every exchange is exact, without it some are not.
    #[test]
    fn only_a_marked_exchange_is_exact() {
        assert!((0..200).all(|seed| exchange(seed, 300, true)));
        let exact = |pause| (0..200).filter(|seed| exchange(*seed, pause, false)).count();
        let (at_once, later) = (exact(40), exact(300));
        assert!((150..200).contains(&at_once), "back to back {at_once} of 200 were exact");
        assert!((20..180).contains(&later), "with a pause {later} of 200 were exact");
    }
}

mod deployments {
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

    /// What stands in a Deployment's annotations is copied to its set, and stays there.
    #[test]
    fn annotations_are_copied_for_good() {
        let mut cluster = settled(1, 1);
        let ledger = |cluster: &Cluster| {
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
}

mod nodes {
    use super::*;

    #[test]
    fn the_scheduler_honours_pins_cordons_and_room() {
        let mut cluster = settled(1, 1);
        let set = cluster.api.sets.values().next().cloned().unwrap();
        let pinned = |cluster: &mut Cluster, name: &str, node: &str| {
            let mut pod = super::super::replica_set::from_template(&set, name);
            pod.meta.labels.remove(marks::POD_TEMPLATE_HASH);
            pod.pin = Some(node.into());
            cluster.api.create_pod(pod).unwrap();
            while cluster.quiesce() {}
            cluster.api.pods.get(&key(name)).cloned().unwrap()
        };
        assert_eq!(pinned(&mut cluster, "a", "node-2").node.as_deref(), Some("node-2"));
        let cordon = |on| move |node: &mut Node| node.cordoned = on;
        cluster.api.update(&Key::new("", "node-2"), If::any(), cordon(true)).unwrap();
        assert!(pinned(&mut cluster, "b", "node-2").unschedulable.is_some());
        cluster.api.update(&Key::new("", "node-2"), If::any(), cordon(false)).unwrap();
        while cluster.quiesce() {}
        assert!(cluster.api.pods.get(&key("b")).unwrap().is_serving());
        cluster.api.update(&Key::new("", "node-3"), If::any(), |node: &mut Node| node.capacity.cpu = 50).unwrap();
        assert!(pinned(&mut cluster, "c", "node-3").unschedulable.is_some());
    }

    #[test]
    fn pods_of_a_node_or_owner_that_is_gone_go() {
        let mut cluster = settled(1, 3);
        let node = pods(&cluster)[0].node.clone().unwrap();
        cluster.api.delete::<Node>(&Key::new("", node.as_str()), If::any()).unwrap();
        while cluster.quiesce() {}
        assert!(pods(&cluster).iter().all(|pod| pod.node.as_ref() != Some(&node)));
        assert_eq!(serving(&cluster), 3);
        cluster.api.delete::<Deployment>(&key("web"), If::any()).unwrap();
        while cluster.quiesce() {}
        assert!(pods(&cluster).is_empty() && cluster.api.sets.live.is_empty());
    }
}
