//! A real Jaeger on loopback that keeps traces in memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::TIMEOUT;
use crate::process::{LoggedProcess, attached, free_port};
use crate::servers::prometheus::peer;
use crate::servers::serves;

/// Jaeger. Dropping it kills it.
pub struct Jaeger {
    server: LoggedProcess,
    receiver: u16,
    query: u16,
    _home: TempDir,
}

/// A span as Jaeger's query API returns it. Times are in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSpan {
    pub trace: String,
    pub id: String,
    pub parent: Option<String>,
    pub name: String,
    pub start: i64,
    pub end: i64,
    /// Attributes, and what Jaeger makes of the status.
    pub tags: BTreeMap<String, String>,
}

impl Jaeger {
    pub async fn start() -> Result<Self> {
        let home = TempDir::new()?;
        let (receiver, query) = (free_port()?, free_port()?);
        let mut ports = vec![("collector.otlp.http.host-port", receiver), ("query.http-server.host-port", query)];
        for other in [
            "admin.http.host-port",
            "collector.grpc-server.host-port",
            "collector.http-server.host-port",
            "collector.otlp.grpc.host-port",
            "query.grpc-server.host-port",
        ] {
            ports.push((other, free_port()?));
        }
        let mut command = attached(peer("jaeger")?);
        command.args(ports.iter().map(|(option, port)| format!("--{option}=127.0.0.1:{port}")));
        let mut server = LoggedProcess::start(command, home.path().join("log"))?;
        let deadline = Instant::now() + TIMEOUT;
        while !serves(query, "/api/services").await {
            server.ensure_running()?;
            if Instant::now() > deadline {
                bail!("Jaeger does not answer:\n{}", server.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { server, receiver, query, _home: home })
    }

    /// URL for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.receiver)
    }

    /// All traces of this service, each with its spans by start.
    pub async fn traces(&self, service: &str) -> Result<Vec<Vec<StoredSpan>>> {
        let url = format!("http://127.0.0.1:{}/api/traces?service={service}&limit=1000&lookback=24h", self.query);
        let text = reqwest::get(url).await?.error_for_status().with_context(|| self.server.log())?.text().await?;
        let answer: Value = serde_json::from_str(&text)?;
        answer["data"].as_array().into_iter().flatten().map(spans).collect()
    }
}

fn spans(trace: &Value) -> Result<Vec<StoredSpan>> {
    let mut spans: Vec<StoredSpan> =
        trace["spans"].as_array().into_iter().flatten().map(span).collect::<Result<_>>()?;
    spans.sort_by_key(|span| span.start);
    Ok(spans)
}

fn span(span: &Value) -> Result<StoredSpan> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let start = span["startTime"].as_i64().context("no startTime")?;
    let tag = |tag: &Value| {
        let value = text(&tag["value"]).unwrap_or_else(|| tag["value"].to_string());
        Some((text(&tag["key"])?, value))
    };
    Ok(StoredSpan {
        trace: text(&span["traceID"]).context("no traceID")?,
        id: text(&span["spanID"]).context("no spanID")?,
        parent: text(&span["references"][0]["spanID"]),
        name: text(&span["operationName"]).context("no operationName")?,
        start,
        end: start + span["duration"].as_i64().context("no duration")?,
        tags: span["tags"].as_array().into_iter().flatten().filter_map(tag).collect(),
    })
}
