//! The API server: preconditions, generations, finalizers, graceful deletion and quota.

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
    assert_eq!(last.meta.version, api.version(), "the answer has the version of the deletion");
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

#[test]
fn a_finalizer_keeps_a_pod_that_has_ended() {
    let mut cluster = settled(1, 1);
    let some = pods(&cluster)[0].meta.key.clone();
    let until = cluster.api.seconds() + 60;
    cluster.api.update(&some, If::any(), |pod: &mut Pod| pod.held_until = until).unwrap();
    cluster.api.delete_pod(&some, If::any()).unwrap();
    while cluster.quiesce() {}
    let kept = cluster.api.pods.get(&some).expect("it is kept");
    assert!(kept.meta.deleted.is_some() && kept.phase == Phase::Failed && serving(&cluster) == 1);
    cluster.api.clock = until * 1000;
    while cluster.quiesce() {}
    assert!(cluster.api.pods.get(&some).is_none());
}

#[test]
fn a_webhook_that_fails_refuses_new_pods_and_evictions_for_a_while() {
    let mut cluster = settled(1, 1);
    let some = pods(&cluster)[0].meta.key.clone();
    let until = cluster.api.seconds() + 60;
    cluster.api.webhook = Some(FailingWebhook { until, delay: 10 });
    assert!(matches!(cluster.api.evict(&some, If::any()), Err(Refused::Webhook(_))));
    assert_eq!(cluster.api.seconds(), until - 50, "the answer was late");
    cluster.api.clock = until * 1000;
    assert!(cluster.api.evict(&some, If::any()).is_ok());
}
