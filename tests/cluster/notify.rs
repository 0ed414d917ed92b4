//! Notifications about the end of actions: CloudEvents 1.0 to real servers, at least once, signed. Whatever happens to
//! them, the action ends as it would without them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{Notification, NotificationOutcome};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testkit::action::{deployment, move_pod, with};
use testkit::proxy::gate::HoldPoint;
use testkit::servers::http::{Manner, Server};
use testkit::servers::receiver::{EventReceiver, Sdk};
use testkit::testbed::{Testbed, stories, story};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::admission::{EVICT, KINDS, allowed, creates, refused, users};
use crate::crash::{kill_at, reached};
use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Time without any event after which a state counts as stable.
const CALM: Duration = Duration::from_secs(3);

/// A key in the format of Standard Webhooks.
const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver that records requests, and answers under control of the test.
struct Hook {
    address: String,
    shared: Arc<ReceiverState>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct ReceiverState {
    came: Mutex<Vec<(HeaderMap, Bytes)>>,
    /// The next answers; None sends no answer. After the last one, 204.
    answers: Mutex<VecDeque<Option<u16>>>,
    notify: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hook {
    async fn start(answers: &[Option<u16>]) -> Result<Self> {
        let shared = Arc::new(ReceiverState {
            answers: Mutex::new(answers.iter().copied().collect()),
            ..ReceiverState::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let router = Router::new().fallback(take).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, shared, server })
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    fn came(&self) -> Vec<(HeaderMap, Bytes)> {
        locked(&self.shared.came).clone()
    }

    /// Waits for the next request.
    async fn next(&self) -> Result<()> {
        let next = tokio::time::timeout(Duration::from_secs(60), self.shared.notify.notified());
        next.await.context("nothing was sent")
    }

    /// Received events, in order.
    fn events(&self) -> Result<Vec<Value>> {
        self.came().iter().map(|(_, body)| Ok(serde_json::from_slice(body)?)).collect()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(shared): State<Arc<ReceiverState>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    locked(&shared.came).push((headers, body));
    shared.notify.notify_one();
    let answer = locked(&shared.answers).pop_front().unwrap_or(Some(204));
    match answer {
        Some(code) => StatusCode::from_u16(code).unwrap_or_default(),
        None => std::future::pending().await,
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// A workload, and the action `go`, which moves one of its replicas and notifies these receivers.
async fn moves(testbed: &Testbed, notify: Value) -> Result<Scene> {
    moves_with(testbed, json!({"notify": notify})).await
}

async fn moves_with(testbed: &Testbed, more: Value) -> Result<Scene> {
    let scene = Scene::guarded(testbed, "web", 2).await?;
    testbed.act("go", with(move_pod(&scene.pod(0).0, &scene.free(0)), more)).await?;
    Ok(scene)
}

/// Checks that the action did exactly what was requested.
async fn done(testbed: &Testbed, scene: &Scene) -> Result<Arc<WorkloadAction>> {
    let action = testbed.ends("go", DONE).await?;
    scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await?;
    Ok(action)
}

fn condition(action: &WorkloadAction) -> Option<&Condition> {
    action.status.as_ref()?.conditions.iter().find(|one| one.type_ == "Notified")
}

/// Waits until the condition Notified has this status and reason. Returns the action.
async fn notified(testbed: &Testbed, name: &str, (status, reason): (&str, &str)) -> Result<Arc<WorkloadAction>> {
    let found = testbed
        .eye
        .until(&format!("Notified={status}, {reason}, of action {name}"), |seen| {
            let action = seen.actions.get(name)?;
            let notified = condition(action)?;
            (notified.status == status && notified.reason == reason).then(|| Arc::clone(action))
        })
        .await?;
    Ok(found)
}

fn all(action: &WorkloadAction) -> Vec<Notification> {
    action.status.as_ref().map(|status| status.notifications.clone()).unwrap_or_default()
}

async fn secret(testbed: &Testbed, name: &str) -> Result<()> {
    let manifest = json!({"metadata": {"name": name}, "stringData": {"hmac": format!("{KEY}\n")}});
    testbed.create::<Secret>(manifest).await.map(drop)
}

#[test]
fn an_event_says_how_an_action_ended_after_it_has_ended() {
    story("notify-event", async |testbed| {
        let (signed, plain) = (Hook::start(&[]).await?, Hook::start(&[]).await?);
        secret(testbed, "keys").await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| {
            write.is_on("workloadactions/status") && write.body.pointer("/status/finishedAt").is_some()
        });
        let receivers =
            json!([{"url": format!("{}?token=x", signed.url()), "secretRef": {"name": "keys"}}, {"url": plain.url()}]);
        let scene = moves(testbed, receivers).await?;
        let write = held.reached().await.context("it never ended")?;
        let pending = write.body.pointer("/status/notifications/1/outcome");
        ensure!(pending == Some(&json!("Pending")), "{write}: {:?}", write.body);
        tokio::time::sleep(CALM).await;
        ensure!(signed.came().is_empty() && plain.came().is_empty(), "an event came before the end was recorded");
        held.release();
        let action = done(testbed, &scene).await?;
        let action_uid = action.uid().context("no uid")?;
        let action = notified(testbed, "go", ("True", "Delivered")).await?;
        for one in all(&action) {
            ensure!(
                one.outcome == NotificationOutcome::Delivered && one.attempts == 1 && one.code == Some(204),
                "{one:?}"
            );
            ensure!(one.last_attempt_at.is_some() && one.next_attempt_at.is_none() && one.message.is_none(), "{one:?}");
        }
        ensure!(all(&action)[0].url == signed.url(), "{:?}", all(&action));
        let (headers, body) = signed.came().remove(0);
        ensure!(header(&headers, "content-type") == "application/cloudevents+json; charset=utf-8", "{headers:?}");
        let event: Value = serde_json::from_slice(&body)?;
        let source = format!("/apis/ganglion.dev/v1alpha1/namespaces/{}/workloadactions/go", testbed.ns);
        let (node, to) = (scene.pod(0).1, scene.free(0));
        for (pointer, expected) in [
            ("/specversion", json!("1.0")),
            ("/id", json!(format!("{action_uid}-succeeded"))),
            ("/source", json!(source)),
            ("/type", json!("dev.ganglion.workloadaction.succeeded")),
            ("/subject", json!(format!("Pod/{}", scene.pod(0).0))),
            ("/time", json!(action.status.as_ref().and_then(|status| status.finished_at.clone()))),
            ("/data/namespace", json!(testbed.ns)),
            ("/data/name", json!("go")),
            ("/data/action", json!("Move")),
            ("/data/reason", json!("Succeeded")),
            ("/data/message", json!(testkit::kstatus::message(&action))),
            ("/data/summary/done", json!("1/1")),
            ("/data/replicas/0/from", json!(node)),
            ("/data/replicas/0/to", json!(to)),
            ("/data/replicas/0/step", json!("Succeeded")),
        ] {
            ensure!(event.pointer(pointer) == Some(&expected), "{pointer} is not {expected} in {event}");
        }
        ensure!(header(&headers, "webhook-id") == format!("{action_uid}-succeeded"), "{headers:?}");
        ensure!(header(&headers, "webhook-signature").starts_with("v1,"), "{headers:?}");
        let (plain_headers, plain_body) = plain.came().remove(0);
        ensure!(plain_body == body && plain_headers.get("webhook-signature").is_none(), "{plain_headers:?}");
        tokio::time::sleep(CALM).await;
        ensure!(signed.came().len() == 1 && plain.came().len() == 1, "an accepted event is sent once");
        Ok(())
    });
}

#[test]
fn the_sdks_of_receivers_read_and_verify_it() {
    let cases = [("python", Sdk::Python), ("node", Sdk::Node)];
    stories(cases.map(|(name, sdk)| (format!("notify-{name}"), sdk)).into(), async |testbed, sdk| {
        let receiver = EventReceiver::start(*sdk, KEY).await?;
        let stranger = EventReceiver::start(*sdk, "whsec_c29tZXRoaW5nIGVsc2U=").await?;
        secret(testbed, "keys").await?;
        let to = |url: String| json!({"url": url, "secretRef": {"name": "keys"}});
        let scene = moves(testbed, json!([to(receiver.url()), to(stranger.url())])).await?;
        done(testbed, &scene).await?;
        let action = notified(testbed, "go", ("False", "DeliveryFailed")).await?;
        let codes: Vec<_> = all(&action).iter().map(|one| one.code).collect();
        ensure!(codes == [Some(204), Some(400)], "{:?} {:?}", receiver.read(), stranger.read());
        ensure!(stranger.read()?[0]["error"].is_string(), "{:?}", stranger.read());
        let read = receiver.read()?.remove(0);
        let finished = action.status.as_ref().and_then(|status| status.finished_at.clone()).context("no end")?;
        for (pointer, expected) in [
            ("/id", json!(format!("{}-succeeded", action.uid().unwrap_or_default()))),
            ("/type", json!("dev.ganglion.workloadaction.succeeded")),
            ("/datacontenttype", json!("application/json")),
            ("/data/name", json!("go")),
            ("/data/replicasTotal", json!(1)),
        ] {
            ensure!(read.pointer(pointer) == Some(&expected), "{pointer} is not {expected} in {read}");
        }
        let time = read["time"].as_f64().context("no time")?;
        ensure!((time - finished.0.as_duration().as_secs_f64()).abs() < 0.01, "{read} {finished:?}");
        Ok(())
    });
}

#[test]
fn a_receiver_that_fails_is_asked_again_with_the_same_event() {
    story("notify-again", async |testbed| {
        let hook = Hook::start(&[Some(500), Some(429)]).await?;
        let scene = moves(testbed, json!([{"url": hook.url()}])).await?;
        let action = done(testbed, &scene).await?;
        let waiting = notified(testbed, "go", ("Unknown", "DeliveryRetrying")).await?;
        let words = condition(&waiting).map(|one| one.message.clone()).unwrap_or_default();
        ensure!(words.contains("attempt 1 of 10 failed: the server answers 500"), "{words}");
        let delivered = notified(testbed, "go", ("True", "Delivered")).await?;
        ensure!(all(&delivered)[0].attempts == 3, "{:?}", all(&delivered));
        let events = hook.events()?;
        ensure!(events.len() == 3 && events.iter().all(|event| *event == events[0]), "{events:?}");
        // Clients that wait for the action do not wait for its receivers.
        let finished = |action: &WorkloadAction| action.status.as_ref().and_then(|status| status.finished_at.clone());
        ensure!(finished(&action) == finished(&delivered), "the end moved");
        ensure!(testkit::kstatus::complaints(&delivered).is_empty(), "{:?}", testkit::kstatus::complaints(&delivered));
        Ok(())
    });
}

#[test]
fn what_receivers_do_changes_nothing_else() {
    story("notify-manners", async |testbed| {
        let elsewhere = Server::start(Manner::Says("200 OK", String::new())).await;
        let location: &str = format!("302 Found\nLocation: {}\r\n", elsewhere.url("/")).leak();
        let says = |status| Manner::Says(status, "secret words".to_owned());
        let servers = [
            Server::start(says(location)).await,
            Server::start(Manner::Floods).await,
            Server::start(says("404 Not Found")).await,
            Server::start(Manner::Hangs).await,
            Server::start(Manner::Stops).await,
        ];
        let mut receivers: Vec<Value> = servers.iter().map(|server| json!({"url": server.url("/a")})).collect();
        // The first has no listener; the other two are never called.
        receivers.push(json!({"url": "http://127.0.0.1:1/"}));
        receivers.push(json!({"url": "http://user:password@127.0.0.1:1/"}));
        receivers.push(json!({"url": "http://169.254.169.254/"}));
        let scene = moves(testbed, json!(receivers)).await?;
        done(testbed, &scene).await?;
        let made = |seen: &testkit::eye::Seen| {
            let action = seen.actions.get("go")?;
            all(action).iter().all(|one| one.attempts > 0).then(|| Arc::clone(action))
        };
        let action = testbed.eye.until("an attempt for each receiver", made).await?;
        let outcome = |at: usize| {
            let one = all(&action)[at].clone();
            (one.outcome, one.code, one.message.unwrap_or_default())
        };
        let (pending, failed) = (NotificationOutcome::Pending, NotificationOutcome::Failed);
        ensure!(outcome(0) == (failed, Some(302), "the server answers 302, a redirect, which is not followed".into()));
        ensure!(outcome(1) == (NotificationOutcome::Delivered, Some(200), String::new()), "{:?}", outcome(1));
        ensure!(outcome(2) == (failed, Some(404), "the server answers 404 Not Found".into()), "{:?}", outcome(2));
        ensure!(outcome(3) == (pending, None, "no answer within 5 s".into()), "{:?}", outcome(3));
        ensure!(outcome(4).0 == NotificationOutcome::Delivered, "{:?}", outcome(4));
        ensure!(outcome(5).0 == pending && outcome(5).2.starts_with("cannot connect: "), "{:?}", outcome(5));
        let words = "the address is refused: it contains a user or password";
        ensure!(outcome(6).0 == failed && outcome(6).2.starts_with(words), "{:?}", outcome(6));
        ensure!(all(&action)[6].url == "http://127.0.0.1:1/", "{:?}", all(&action));
        ensure!(outcome(7).0 == failed && outcome(7).2.contains("is a link-local address"), "{:?}", outcome(7));
        ensure!(elsewhere.heard().is_empty(), "it followed to {}", elsewhere.heard());
        ensure!(!serde_json::to_string(&action.status)?.contains("secret words"), "an answer is shown");
        Ok(())
    });
}

#[test]
fn a_receiver_that_is_given_up_is_told_of_in_an_event() {
    story("notify-given-up", async |testbed| {
        let hook = Hook::start(&[Some(410)]).await?;
        let moving = move_pod("nobody", "node-1");
        testbed.act("go", with(moving, json!({"notify": [{"url": hook.url()}]}))).await?;
        testbed.ends("go", ("False", "PodNotFound")).await?;
        notified(testbed, "go", ("False", "DeliveryFailed")).await?;
        ensure!(hook.events()?[0]["type"] == "dev.ganglion.workloadaction.failed", "{:?}", hook.events());
        let told = async {
            loop {
                let events = testbed.api::<Event>().list(&ListParams::default()).await?;
                let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.clone()).collect();
                if ["PodNotFound", "DeliveryFailed"].iter().all(|reason| reasons.iter().any(|one| one == reason)) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), told).await.context("no event")?
    });
}

#[test]
fn nothing_is_sent_without_the_secret_that_is_to_sign_it() {
    story("notify-secret", async |testbed| {
        let hook = Hook::start(&[]).await?;
        let scene = moves(testbed, json!([{"url": hook.url(), "secretRef": {"name": "keys"}}])).await?;
        done(testbed, &scene).await?;
        let action = notified(testbed, "go", ("Unknown", "DeliveryRetrying")).await?;
        let words = all(&action)[0].message.clone().unwrap_or_default();
        ensure!(words == format!("it was not sent: there is no Secret keys in namespace {}", testbed.ns), "{words}");
        ensure!(hook.came().is_empty(), "it was sent unsigned");
        secret(testbed, "keys").await?;
        notified(testbed, "go", ("True", "Delivered")).await?;
        let came = hook.came();
        ensure!(came.len() == 1 && header(&came[0].0, "webhook-signature").starts_with("v1,"), "{came:?}");
        Ok(())
    });
}

#[test]
fn killed_between_the_end_and_the_notification_it_is_sent_by_the_next() {
    let cases =
        [HoldPoint::Before, HoldPoint::After].map(|when| (format!("notify-killed-{when:?}").to_lowercase(), when));
    stories(cases.into(), async |testbed, when| {
        let hook = Hook::start(&[]).await?;
        let mut held = testbed.proxy.hold(1, *when, |write| {
            write.is_on("workloadactions/status") && write.body.pointer("/status/finishedAt").is_some()
        });
        let scene = moves(testbed, json!([{"url": hook.url()}])).await?;
        held.reached().await.context("it never ended")?;
        kill_at(testbed, held).await?;
        let action = done(testbed, &scene).await?;
        notified(testbed, "go", ("True", "Delivered")).await?;
        let events = hook.events()?;
        let id = format!("{}-succeeded", action.uid().unwrap_or_default());
        ensure!(events.len() == 1 && events[0]["id"] == id, "{events:?}");
        Ok(())
    });
}

#[test]
fn killed_before_the_answer_it_is_sent_again_under_the_same_id() {
    story("notify-answer", async |testbed| {
        let hook = Hook::start(&[None]).await?;
        let scene = moves(testbed, json!([{"url": hook.url()}])).await?;
        hook.next().await?;
        testbed.kill_and_restart().await?;
        done(testbed, &scene).await?;
        let action = notified(testbed, "go", ("True", "Delivered")).await?;
        let events = hook.events()?;
        ensure!(events.len() == 2 && events[0] == events[1], "{events:?}");
        ensure!(all(&action)[0].attempts == 1, "the first was not recorded: {:?}", all(&action));
        Ok(())
    });
}

/// Each life of the operator makes one write, and is killed before it receives the answer.
#[test]
fn killed_after_every_single_write_it_is_delivered() {
    story("notify-lives", async |testbed| {
        let hook = Hook::start(&[Some(500)]).await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::After, |_| true);
        let scene = moves(testbed, json!([{"url": hook.url()}])).await?;
        let mut lives = 1;
        while reached(testbed, &mut held, "go", CALM).await?.is_some() {
            let next = testbed.proxy.hold(1, HoldPoint::After, |_| true);
            kill_at(testbed, std::mem::replace(&mut held, next)).await?;
            lives += 1;
            ensure!(lives < 40, "no end after {lives} lives");
        }
        held.release();
        ensure!(lives > 5, "only {lives} lives");
        let action = done(testbed, &scene).await?;
        notified(testbed, "go", ("True", "Delivered")).await?;
        let (events, id) = (hook.events()?, format!("{}-succeeded", action.uid().unwrap_or_default()));
        ensure!(events.len() > 1 && events.iter().all(|event| event["id"] == id), "{events:?}");
        Ok(())
    });
}

/// One after the other, a hundred receivers that never answer would take eight minutes.
#[test]
fn receivers_that_hang_hold_up_no_other_action() {
    story("notify-hang", async |testbed| {
        let hangs = Server::start(Manner::Hangs).await;
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let first = tokio::time::Instant::now();
        let receivers: Vec<Value> = (0..8).map(|at| json!({"url": hangs.url(&format!("/{at}"))})).collect();
        for number in 0..13 {
            let name = format!("hang-{number}");
            testbed.act(&name, with(move_pod("nobody", "node-1"), json!({"notify": receivers}))).await?;
        }
        for number in 0..13 {
            testbed.ends(&format!("hang-{number}"), ("False", "PodNotFound")).await?;
        }
        let begun = tokio::time::Instant::now();
        testbed.act("go", move_pod(&scene.pod(0).0, &scene.free(0))).await?;
        done(testbed, &scene).await?;
        ensure!(begun.elapsed() < Duration::from_secs(30), "it took {:?}", begun.elapsed());
        let asked = hangs.asked.lock().map(|asked| asked.len()).unwrap_or_default();
        // Eight at a time per namespace.
        let most = 8 * (usize::try_from(first.elapsed().as_secs())? / 5 + 2);
        ensure!((1..=most).contains(&asked), "{asked} requests, not at most {most}");
        Ok(())
    });
}

#[test]
fn a_deletion_by_ttl_waits_for_the_notification() {
    story("notify-ttl", async |testbed| {
        let hook = Hook::start(&[Some(503)]).await?;
        let scene = moves_with(testbed, json!({"notify": [{"url": hook.url()}], "ttlSecondsAfterFinished": 0})).await?;
        notified(testbed, "go", ("Unknown", "DeliveryRetrying")).await?;
        let gone = |seen: &testkit::eye::Seen| (!seen.actions.contains_key("go")).then_some(());
        testbed.eye.until("the action to be deleted", gone).await?;
        let events = hook.events()?;
        ensure!(events.len() == 2 && events[0] == events[1], "{events:?}");
        scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await.map(drop)
    });
}

#[test]
fn a_deleted_action_is_let_go_at_once_and_its_receivers_hear_of_it() {
    story("notify-deleted", async |testbed| {
        let (hangs, hook) = (Server::start(Manner::Hangs).await, Hook::start(&[]).await?);
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("pods/eviction"));
        let scene = moves(testbed, json!([{"url": hangs.url("/a")}, {"url": hook.url()}])).await?;
        held.reached().await.context("no eviction")?;
        testbed.api::<WorkloadAction>().delete("go", &DeleteParams::default()).await?;
        held.release();
        let begun = tokio::time::Instant::now();
        let gone = |seen: &testkit::eye::Seen| (!seen.actions.contains_key("go")).then_some(());
        testbed.eye.until("the action to be gone", gone).await?;
        ensure!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
        hook.next().await?;
        let events = hook.events()?;
        ensure!(events[0]["type"] == "dev.ganglion.workloadaction.succeeded", "{events:?}");
        scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await.map(drop)
    });
}

#[test]
fn the_author_may_create_pods_and_get_the_secrets() {
    story("notify-author", async |testbed| {
        let pods = ("", "pods", "create", "");
        let get = |name: &'static str| ("", "secrets", "get", name);
        let named = [KINDS, EVICT, pods, get("a"), get("b")];
        let all: &[(&str, &[crate::admission::Right])] = &[
            ("evicts", &[KINDS, EVICT]),
            ("maker", &[KINDS, EVICT, pods]),
            ("named", &named),
            ("reader", &[KINDS, EVICT, pods, get("")]),
        ];
        users(testbed, all).await?;
        let to = json!({"nodeName": "node-1"});
        let spec = |secrets: &[&str]| {
            let receiver = |secret: &&str| match *secret {
                "" => json!({"url": "http://a.example"}),
                name => json!({"url": "http://a.example", "secretRef": {"name": name}}),
            };
            let notify: Vec<Value> = secrets.iter().map(receiver).collect();
            json!({"move": {"workload": deployment("web"), "to": to}, "notify": notify})
        };
        let says = async |user: &str, secrets: &[&str]| creates(testbed, user, "WorkloadAction", &spec(secrets)).await;
        let (ns, get) = (testbed.ns.as_str(), "cannot get resource \"secrets\"");
        allowed(&says("evicts", &[]).await)?;
        refused(&says("evicts", &[""]).await, "\"evicts\" cannot create resource \"pods\"", ns)?;
        allowed(&says("maker", &["", ""]).await)?;
        refused(&says("maker", &["", "a"]).await, get, ns)?;
        allowed(&says("named", &["a", "", "b", "a"]).await)?;
        for secrets in [["e", "a"], ["a", "e"]] {
            let answer = says("named", &secrets).await;
            refused(&answer, get, ns)?;
            ensure!(answer.is_err_and(|words| words.contains("it is missing for Secret e")));
        }
        refused(&says("named", &["a", "b", "e"]).await, "notify names more than two", ns)?;
        allowed(&says("reader", &["a", "b", "c", "d", "e", "f", "g", "h"]).await)
    });
}
