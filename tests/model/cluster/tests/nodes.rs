//! The scheduler, and the pods of a deleted node.

use super::*;

#[test]
fn the_scheduler_honours_pins_cordons_and_room() {
    let mut cluster = settled(1, 1);
    let set = cluster.api.sets.values().next().cloned().unwrap();
    let pinned = |cluster: &mut SimulatedCluster, name: &str, node: &str| {
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

#[test]
fn the_scheduler_preempts_one_pod_for_one_with_a_priority() {
    let mut cluster = settled(1, 4);
    let set = cluster.api.sets.values().next().cloned().unwrap();
    for node in cluster.api.nodes.values().cloned().collect::<Vec<_>>() {
        cluster.api.update(&node.meta.key, If::any(), |node: &mut Node| node.pods = 1).unwrap();
    }
    let old: BTreeSet<Key> = cluster.api.pods.live.keys().cloned().collect();
    let mut pod = super::super::replica_set::from_template(&set, "urgent");
    pod.meta.labels.clear();
    pod.template = Arc::new(Template { prioritized: true, requests: set.template.requests, ..Template::default() });
    cluster.api.create_pod(pod).unwrap();
    while cluster.quiesce() {}
    assert!(cluster.api.pods.get(&key("urgent")).unwrap().is_serving());
    assert_eq!(old.iter().filter(|key| cluster.api.pods.get(key).is_none()).count(), 1);
    assert!(pods(&cluster).iter().any(|pod| pod.unschedulable.is_some()), "its successor has no room");
}

#[test]
fn a_kubelet_rejects_pods_and_their_set_creates_others() {
    let mut cluster = settled(1, 2);
    cluster.api.rejections = 2;
    let some = pods(&cluster)[0].meta.key.clone();
    cluster.api.delete_pod(&some, If::any()).unwrap();
    while cluster.quiesce() {}
    let failed = pods(&cluster).into_iter().filter(|pod| pod.phase == Phase::Failed);
    assert_eq!((failed.count(), serving(&cluster)), (2, 2));
}

#[test]
fn an_image_that_is_late_delays_a_pod() {
    let mut cluster = settled(1, 1);
    let node = cluster.api.nodes.live.keys().next().cloned().unwrap();
    for node in cluster.api.nodes.live.keys().filter(|other| **other != node).cloned().collect::<Vec<_>>() {
        cluster.api.update(&node, If::any(), |node: &mut Node| node.cordoned = true).unwrap();
    }
    cluster.api.update(&node, If::any(), |node: &mut Node| node.fate = Fate::Late(30)).unwrap();
    let some = pods(&cluster)[0].meta.key.clone();
    cluster.api.delete_pod(&some, If::any()).unwrap();
    while cluster.quiesce() {}
    assert!(pods(&cluster)[0].trouble.is_some() && serving(&cluster) == 0);
    let next = cluster.next_time().expect("the image arrives");
    cluster.api.clock = next * 1000;
    while cluster.quiesce() {}
    assert!(pods(&cluster)[0].trouble.is_none() && serving(&cluster) == 1);
}
