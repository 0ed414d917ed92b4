//! Attempts against servers on loopback: reconciles start and record attempts, and wait for none.

use std::time::Instant;

use serde_json::{Value, json};
use testkit::servers::http::{Manner, Server};

use super::super::tests::scripted::{Scripted, key, scripted, status};
use super::*;
use ganglion_core::world::Origin;
use ganglion_runtime::run::Action;

const STATUS: &str = "/apis/ganglion.dev/v1alpha1/namespaces/shop/workloadactions/go/status";

/// An action that has ended and must notify these receivers.
fn ended(urls: &[String], secret: Option<&str>) -> WorkloadAction {
    let receiver = |url: &String| match secret {
        Some(name) => json!({"url": url, "secretRef": {"name": name}}),
        None => json!({"url": url}),
    };
    let notify: Vec<Value> = urls.iter().map(receiver).collect();
    let conditions = json!([{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "done",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]);
    let mut action: WorkloadAction = serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"namespace": "shop", "name": "go", "uid": "u1", "resourceVersion": "1", "generation": 1},
        "spec": {"delete": {"pod": {"name": "a"}}, "notify": notify},
        "status": {"observedGeneration": 1, "finishedAt": "2026-01-01T00:00:00Z", "conditions": conditions},
    }))
    .unwrap();
    action.status.as_mut().unwrap().notifications = notify::begun(action.spec.notify.as_deref());
    action
}

fn knows(api: &Scripted, action: &WorkloadAction) {
    api.controller.ctx.store.write(|world| world.apply(action.clone(), Origin::Watch));
}

/// The API server permanently refuses the status; the test reads the request body.
fn refuses() -> (u16, Value) {
    status(422, "Invalid", "no")
}

/// Waits until no attempt is running.
async fn made(api: &Scripted) {
    let none = async {
        while !api.controller.notifier.memory().by_namespace.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), none).await.expect("the attempts have an end");
}

/// The notifications that the next reconcile records.
async fn recorded(api: &Scripted) -> Vec<Value> {
    made(api).await;
    api.reconcile().await.ok();
    let asked = api.asked();
    let at = asked.iter().rposition(|one| one.contains(STATUS)).unwrap_or_else(|| panic!("no status in {asked:?}"));
    api.body(at)["status"]["notifications"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_no_reconcile_and_no_other_receiver() {
    let (hangs, takes) = (Server::start(Manner::Hangs).await, Server::start(says("204 No Content")).await);
    let api = scripted([refuses()]);
    knows(&api, &ended(&[hangs.url("/a"), takes.url("/b")], None));
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let waits = async {
        while takes.heard().is_empty() || hangs.heard().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(4), waits).await.unwrap();
    let all = recorded(&api).await;
    assert_eq!((&all[0]["outcome"], &all[0]["attempts"]), (&json!("Pending"), &json!(1)));
    assert_eq!(all[0]["message"], "no answer within 5 s");
    assert_eq!((&all[1]["outcome"], &all[1]["code"]), (&json!("Delivered"), &json!(204)));
    assert_eq!((hangs.asked.lock().unwrap().len(), takes.asked.lock().unwrap().len()), (1, 1), "each is asked once");
    assert!(takes.heard().to_lowercase().contains("content-type: application/cloudevents+json; charset=utf-8"));
    assert!(!takes.heard().contains("webhook-"), "it is unsigned");
}

fn says(status: &'static str) -> Manner {
    Manner::Says(status, String::new())
}

#[tokio::test]
async fn redirects_are_not_followed_and_what_comes_after_a_status_is_not_read() {
    let elsewhere = Server::start(says("200 OK")).await;
    let location = format!("307 Temporary Redirect\nLocation: {}\r\n", elsewhere.url("/")).leak();
    let (redirects, floods) = (Server::start(says(location)).await, Server::start(Manner::Floods).await);
    let api = scripted([refuses()]);
    knows(&api, &ended(&[redirects.url("/a"), floods.url("/b")], None));
    api.reconcile().await.unwrap();
    let all = recorded(&api).await;
    assert_eq!((&all[0]["outcome"], &all[0]["code"]), (&json!("Failed"), &json!(307)));
    assert_eq!(all[1]["outcome"], "Delivered");
    assert_eq!(elsewhere.heard(), "");
}

#[tokio::test]
async fn without_its_secret_nothing_is_sent() {
    let takes = Server::start(says("200 OK")).await;
    let missing = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "m"});
    let secret = |value: &str| json!({"kind": "Secret", "data": {"hmac": value}});
    for (answer, words) in [
        ((404, missing), "it was not sent: there is no Secret keys in namespace shop"),
        ((200, json!({"kind": "Secret", "data": {"other": ""}})), "it was not sent: Secret keys has no key hmac"),
        ((200, secret("")), "it was not sent: key hmac of Secret keys is empty"),
    ] {
        let api = scripted([answer, refuses()]);
        knows(&api, &ended(&[takes.url("/a")], Some("keys")));
        api.reconcile().await.unwrap();
        let all = recorded(&api).await;
        assert_eq!((&all[0]["outcome"], &all[0]["message"]), (&json!("Pending"), &json!(words)));
        assert!(all[0]["nextAttemptAt"].is_string());
    }
    assert_eq!(takes.heard(), "");
    let api = scripted([(200, secret("c2VzYW1l")), refuses()]);
    knows(&api, &ended(&[takes.url("/a")], Some("keys")));
    api.reconcile().await.unwrap();
    assert_eq!(recorded(&api).await[0]["outcome"], "Delivered");
    assert_eq!(api.asked()[0], "GET /api/v1/namespaces/shop/secrets/keys");
    assert!(takes.heard().contains("webhook-signature: v1,"), "{}", takes.heard());
}

#[tokio::test]
async fn the_attempts_of_a_namespace_are_bounded_and_those_of_others_are_made_meanwhile() {
    let (hangs, takes) = (Server::start(Manner::Hangs).await, Server::start(says("200 OK")).await);
    let api = scripted([]);
    let notifier = &api.controller.notifier;
    for number in 0..100 {
        let mut action = ended(&[hangs.url("/a")], None);
        action.metadata.name = Some(format!("go-{number}"));
        notifier.begin(&Arc::new(action));
    }
    assert_eq!(notifier.memory().by_namespace.count("shop"), MOST);
    let mut other = ended(&[takes.url("/b")], None);
    other.metadata.namespace = Some("other".into());
    notifier.begin(&Arc::new(other));
    let begun = Instant::now();
    while notifier.memory().by_namespace.count("other") > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(hangs.asked.lock().unwrap().len() <= ATTEMPTS / 4);
}

#[tokio::test]
async fn an_attempt_of_an_object_that_is_gone_counts_for_no_later_one() {
    let takes = Server::start(says("200 OK")).await;
    let api = scripted([]);
    let notifier = &api.controller.notifier;
    let first = Arc::new(ended(&[takes.url("/a")], None));
    notifier.begin(&first);
    notifier.forget(&key());
    made(&api).await;
    assert!(notifier.memory().actions.is_empty() && !takes.heard().is_empty(), "it was sent and is not kept");

    let refuses = Server::start(says("404 Not Found")).await;
    notifier.begin(&Arc::new(ended(&[refuses.url("/a")], None)));
    let mut second = ended(&[takes.url("/b")], None);
    second.metadata.uid = Some("u2".into());
    let second = Arc::new(second);
    notifier.begin(&second);
    made(&api).await;
    assert_eq!(notifier.record(&first), None);
    let results: Vec<AttemptResult> =
        notifier.memory().actions[&key()].made.iter().map(|made| made.result.clone()).collect();
    assert_eq!(results, [AttemptResult::Accepted { code: 200 }]);
    assert!(notifier.record(&second).is_some());
}
