//! Traces of loops in a real Jaeger: one decision is one trace, whichever processes carry it out and however they end;
//! and an endpoint that does not answer changes nothing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_core::trace::{SpanId, TraceId};
use serde_json::json;
use testkit::operator::{Operator, SHORT_LEASE};
use testkit::proxy::gate::HoldPoint;
use testkit::servers::http::{Manner, Server};
use testkit::servers::jaeger::{Jaeger, StoredSpan};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{SCALES, account, demo, loop_story, make, push, ready, replicas, travelled};
use testkit::testbed::nodes::Size;
use testkit::testbed::workload::{Workload, settled};
use testkit::{TIMEOUT, wait_for};

use crate::crash::kill_at;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// A Deployment `web` with one replica, an account that may scale it, and the demo's loop.
async fn scene(testbed: &Testbed) -> Result<()> {
    Workload::deployment("web", 1).make(testbed).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", demo()).await?;
    ready(testbed, "web", "True", "Running").await.map(drop)
}

/// Restarts the testbed's operator with this endpoint.
async fn restart(testbed: &Testbed, endpoint: &str) -> Result<()> {
    let mut operator = testbed.operator.lock().await;
    operator.set_variables(&[(ENDPOINT, endpoint)]);
    operator.kill();
    operator.start()?;
    operator.ready().await
}

/// Waits until Jaeger has spans of all these stages. Returns all its traces.
async fn until_stages(jaeger: &Jaeger, stages: &[&str]) -> Result<Vec<Vec<StoredSpan>>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let traces = jaeger.traces("ganglion").await?;
        let has = |stage: &&str| traces.iter().flatten().any(|span| span.name == *stage);
        if stages.iter().all(has) {
            return Ok(traces);
        }
        if Instant::now() > deadline {
            bail!("not all of {stages:?} in {traces:#?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Value of the metric of spans with this outcome.
async fn spans(operator: &Operator, outcome: &str) -> Result<u64> {
    let text = operator.get("/metrics").await?;
    let name = format!("ganglion_trace_spans_total{{outcome=\"{outcome}\"}} ");
    Ok(text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0))
}

async fn until_spans(operator: &Operator, outcome: &str, least: u64) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while spans(operator, outcome).await? < least {
        ensure!(Instant::now() < deadline, "{} spans are {outcome}, not {least}", spans(operator, outcome).await?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

const STAGES: [&str; 4] = ["sample", "decision", "execution", "rollout"];

/// Checks that these are the spans of the loop's last decision, each once, one after the other.
async fn is_one_trace(testbed: &Testbed, traces: &[Vec<StoredSpan>]) -> Result<()> {
    ensure!(traces.len() == 1, "{} traces: {traces:#?}", traces.len());
    let spans = &traces[0];
    let mut names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    let mut expected = STAGES;
    expected.sort_unstable();
    ensure!(names == expected, "{names:?}");
    let parent = testbed.api::<ClosedLoop>().get("web").await?;
    let decision = testbed.api::<Decision>().get("web").await?.status.and_then(|status| status.chosen);
    let chosen = decision.context("no decision")?;
    let tag = chosen.tag.context("the decision has no tag")?;
    let trace = TraceId::new(parent.metadata.uid.as_deref().unwrap_or_default(), tag.time.0, tag.sequence);
    let seq = chosen.seq.to_string();
    let id = |name: &str| SpanId::new(trace, name, if name == "sample" { "" } else { &seq }).to_string();
    let mut before: Option<&StoredSpan> = None;
    for name in STAGES {
        let span = spans.iter().find(|span| span.name == name).context("a stage")?;
        ensure!(span.trace == trace.to_string() && span.id == id(name), "other ids: {span:?}");
        ensure!(span.parent == before.map(|before| before.id.clone()), "the parent of {span:?}");
        ensure!(before.is_none_or(|before| span.start == before.end), "a gap before {span:?}");
        ensure!(!span.tags.contains_key("error"), "{span:?}");
        before = Some(span);
    }
    Ok(())
}

/// The operator is killed between decision and execution, and its successor between the change and its record, after
/// which another replica leads. A third leader reports everything again.
#[test]
fn one_decision_is_one_trace_over_a_restart_and_other_leaders() {
    loop_story("traces", async |testbed| {
        let jaeger = Jaeger::start().await?;
        testbed.settings(SHORT_LEASE)?;
        restart(testbed, &jaeger.endpoint()).await?;
        let _nodes = testbed.nodes(1, Size::default()).await?;
        scene(testbed).await?;
        let mut claim = testbed.proxy.hold(1, HoldPoint::Before, |write| {
            write.is_on("executions/status")
                && write.body.pointer("/status/state").is_some_and(|state| state == "Claimed")
        });
        let time = push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
        tokio::time::timeout(TIMEOUT, claim.reached()).await?.context("there was no claim")?;
        ensure!(replicas(testbed, "web").await?.1 == 1, "nothing was done yet");
        let mut end = testbed.proxy.hold(1, HoldPoint::Before, |write| {
            write.is_on("executions/status") && write.body.pointer("/status/state").is_some_and(|state| state == "Done")
        });
        kill_at(testbed, claim).await?;
        tokio::time::timeout(TIMEOUT, end.reached()).await?.context("nothing was done")?;
        let mut second = testbed.another("two")?;
        second.set_variables(&[(ENDPOINT, &jaeger.endpoint())]);
        second.start()?;
        second.ready().await?;
        testbed.operator.lock().await.kill();
        end.lose();
        let done = travelled(testbed, "web", time).await?.2;
        ensure!(done.is_some() || replicas(testbed, "web").await?.1 == 2, "it was not carried out");
        settled(testbed, "web", 2).await?;
        let traces = until_stages(&jaeger, &STAGES).await?;
        is_one_trace(testbed, &traces).await?;

        second.stop().await?;
        restart(testbed, &jaeger.endpoint()).await?;
        until_spans(&*testbed.operator.lock().await, "sent", 4).await?;
        is_one_trace(testbed, &until_stages(&jaeger, &STAGES).await?).await
    });
}

#[test]
fn nothing_is_sent_unless_a_variable_says_so() {
    loop_story("traces-off", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", demo()).await?;
        ready(testbed, "web", "True", "Running").await?;
        let time = push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
        travelled(testbed, "web", time).await?.2.context("the loop did not act")?;
        let operator = testbed.operator.lock().await;
        ensure!(!operator.get("/metrics").await?.contains("ganglion_trace_spans_total{"), "spans were counted");
        Ok(())
    });
}

/// The writes of a loop that acts, and the time in which the operator stops, are the same.
#[test]
fn an_endpoint_that_hangs_changes_nothing() {
    loop_story("traces-hang", async |testbed| {
        let server = Server::start(Manner::Hangs).await;
        restart(testbed, &server.url("/")).await?;
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", demo()).await?;
        ready(testbed, "web", "True", "Running").await?;
        for _ in 0..3 {
            let time = push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
            travelled(testbed, "web", time).await?.2.context("the loop did not act")?;
        }
        wait_for("spans to be sent", || *server.connections.lock().expect("connections") > 0).await?;
        let mut operator = testbed.operator.lock().await;
        operator.signal("-TERM")?;
        let begun = Instant::now();
        let ended = operator.end().await?.context("it did not end")?;
        ensure!(ended.success() && begun.elapsed() < Duration::from_secs(5), "{ended} after {:?}", begun.elapsed());
        operator.kill();
        operator.start()?;
        operator.ready().await
    });
}

/// The operator says what is wrong with a variable, and does not start without an endpoint that can be used.
#[test]
fn a_wrong_variable_is_named() {
    loop_story("traces-wrong", async |testbed| {
        let mut other = testbed.another("two")?;
        other.set_variables(&[(ENDPOINT, "collector:4318")]);
        other.start()?;
        let ended = other.end().await?.context("it runs")?;
        // A backtrace follows.
        let log = other.log_tail(60);
        ensure!(!ended.success() && log.contains(&format!("environment variable {ENDPOINT}: only http")), "{log}");
        other.kill();
        other.set_variables(&[(ENDPOINT, "http://127.0.0.1:1"), ("OTEL_TRACES_SAMPLER", "sometimes")]);
        other.start()?;
        other.ready().await?;
        let log = other.log_tail(50);
        ensure!(log.contains("OTEL_TRACES_SAMPLER") && log.contains("there is no such sampler"), "{log}");
        other.stop().await
    });
}
