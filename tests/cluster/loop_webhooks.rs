//! Events of loops: CloudEvents 1.0 to a real server, sent once, regardless of the answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ganglion_api::decision::Outcome;
use ganglion_api::execution::{Execution, ExecutionState};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::Testbed;
use testkit::testbed::loops::{
    account, loop_story, make, on, push, ready, says, travelled, until, until_decision_status,
};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Time without any event after which a state counts as stable.
const CALM: Duration = Duration::from_secs(3);

/// A server that records requests, and answers under control of the test.
struct Hook {
    url: String,
    shared: Arc<WebhookState>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct WebhookState {
    events: Mutex<Vec<(HeaderMap, Value)>>,
    came: Notify,
    /// It never answers.
    hangs: bool,
    status: StatusCode,
}

impl Hook {
    async fn start(status: StatusCode, hangs: bool) -> Result<Self> {
        let shared = Arc::new(WebhookState { hangs, status, ..WebhookState::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let router = Router::new().fallback(take).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, shared, server })
    }

    fn events(&self) -> Vec<(HeaderMap, Value)> {
        self.shared.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn rung(&self) -> Value {
        let headers = json!([
            {"name": "X-Scope-OrgID", "value": "shop"},
            {"name": "X-Route", "secret": {"name": "hooks", "key": "route"}},
        ]);
        let auth = json!({"bearer": {"name": "hooks", "key": "token"}});
        on("Low", json!([{"webhook": {"url": self.url, "auth": auth, "headers": headers}}]))
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(shared): State<Arc<WebhookState>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let event = serde_json::from_slice(&body).unwrap_or_default();
    shared.events.lock().unwrap_or_else(PoisonError::into_inner).push((headers, event));
    shared.came.notify_one();
    if shared.hangs {
        std::future::pending::<()>().await;
    }
    shared.status
}

async fn scene(testbed: &Testbed, hook: &Hook) -> Result<()> {
    account(testbed, &[]).await?;
    let data = json!({"token": "sesame\n", "route": "blue\n"});
    testbed.create::<Secret>(json!({"metadata": {"name": "hooks"}, "stringData": data})).await?;
    make(testbed, "web", hook.rung()).await?;
    ready(testbed, "web", "True", "Running").await.map(drop)
}

async fn ends(testbed: &Testbed, state: ExecutionState) -> Result<String> {
    until::<Execution, _>(testbed, "web", &format!("the end {state:?}"), |one| {
        let status = one.status?;
        (status.state? == state).then_some(status.message?)
    })
    .await
}

#[test]
fn an_event_says_what_was_decided() {
    loop_story("webhook-event", async |testbed| {
        let hook = Hook::start(StatusCode::NO_CONTENT, false).await?;
        scene(testbed, &hook).await?;
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        let execution = travelled(testbed, "web", time).await?.2.context("it did not act")?;
        ensure!(ends(testbed, ExecutionState::Done).await?.starts_with("carried out: event "), "{execution:?}");
        let events = hook.events();
        ensure!(events.len() == 1, "{events:?}");
        let (headers, event) = &events[0];
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        ensure!(header("content-type") == "application/cloudevents+json; charset=utf-8", "{headers:?}");
        ensure!(header("authorization") == "Bearer sesame", "{headers:?}");
        ensure!([header("x-scope-orgid"), header("x-route")] == ["shop", "blue"], "{headers:?}");
        let id = format!("{}/1", execution.uid().unwrap_or_default());
        let source = format!("/apis/ganglion.dev/v1alpha1/namespaces/{}/closedloops/web", testbed.ns);
        for (pointer, expected) in [
            ("/specversion", json!("1.0")),
            ("/id", json!(id)),
            ("/source", json!(source)),
            ("/type", json!("dev.ganglion.closedloop.decision")),
            ("/subject", json!("Deployment/web")),
            ("/data/loop/name", json!("web")),
            ("/data/seq", json!(1)),
            ("/data/metric", json!("cpu")),
            ("/data/side", json!("Low")),
            ("/data/value", json!("2")),
            ("/data/message", json!("React to cpu")),
        ] {
            ensure!(event.pointer(pointer) == Some(&expected), "{pointer} is not {expected} in {event}");
        }
        ensure!(event["time"].as_str().is_some_and(|time| time.parse::<jiff::Timestamp>().is_ok()), "{event}");
        Ok(())
    });
}

#[test]
fn killed_before_the_answer_it_is_lost_and_not_sent_again() {
    loop_story("webhook-killed", async |testbed| {
        let hook = Hook::start(StatusCode::OK, true).await?;
        scene(testbed, &hook).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        tokio::time::timeout(Duration::from_secs(20), hook.shared.came.notified()).await.context("nothing was sent")?;
        testbed.kill_and_restart().await?;
        let message = ends(testbed, ExecutionState::Lost).await?;
        ensure!(message == "it may have been sent when the operator ended; it is not sent again", "{message}");
        until_decision_status(testbed, "web", "the decision to be lost", |one| {
            (one.chosen?.outcome? == Outcome::Lost).then_some(())
        })
        .await?;
        tokio::time::sleep(CALM).await;
        ensure!(hook.events().len() == 1, "{:?}", hook.events());
        Ok(())
    });
}

#[test]
fn killed_before_the_result_is_recorded_it_is_lost_though_it_arrived() {
    loop_story("webhook-recorded", async |testbed| {
        let hook = Hook::start(StatusCode::OK, false).await?;
        scene(testbed, &hook).await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| {
            write.is_on("executions/status") && write.body.pointer("/status/state") == Some(&json!("Done"))
        });
        push(testbed, "web", json!({"cpu": "2"})).await?;
        held.reached().await.context("nothing was recorded")?;
        {
            let mut operator = testbed.operator.lock().await;
            operator.kill();
            held.lose();
            operator.start()?;
        }
        ends(testbed, ExecutionState::Lost).await?;
        tokio::time::sleep(CALM).await;
        ensure!(hook.events().len() == 1, "{:?}", hook.events());
        Ok(())
    });
}

#[test]
fn a_server_that_refuses_and_a_secret_that_is_not_there_are_told_of() {
    loop_story("webhook-refused", async |testbed| {
        let hook = Hook::start(StatusCode::FORBIDDEN, false).await?;
        account(testbed, &[]).await?;
        make(testbed, "web", hook.rung()).await?;
        // The preflight has detected the problem, but the action is tried nevertheless.
        ready(testbed, "web", "False", "Failed").await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = ends(testbed, ExecutionState::Failed).await?;
        ensure!(message.starts_with("it was not sent: there is no Secret hooks"), "{message}");
        ensure!(hook.events().is_empty(), "{:?}", hook.events());
        let data = json!({"token": "x", "route": "y"});
        testbed.create::<Secret>(json!({"metadata": {"name": "hooks"}, "stringData": data})).await?;
        make(testbed, "other", hook.rung()).await?;
        ready(testbed, "other", "True", "Running").await?;
        push(testbed, "other", json!({"cpu": "2"})).await?;
        let message = says(testbed, "other", "LastActionSucceeded", ("False", "Failed")).await?;
        ensure!(message == "the server answers 403 Forbidden", "{message}");
        ensure!(hook.events().len() == 1, "{:?}", hook.events());
        Ok(())
    });
}
