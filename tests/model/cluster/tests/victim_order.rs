//! The order in which a ReplicaSet deletes its pods.

use super::*;

const NOW: i64 = 1_000_000;

fn pod(uid: &str) -> Pod {
    let mut pod = Pod { node: Some("a".into()), phase: Phase::Running, ready_since: Some(100), ..Pod::default() };
    pod.meta = Meta { uid: uid.into(), created: 100, ..Meta::named(NAMESPACE, uid) };
    pod
}

/// Checks that the first pod is deleted before the second, regardless of their uids.
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
