//! The sources `prometheus` and `http`, with Secrets of the loop's namespace.

use std::time::Duration;

use super::SourceReader;
use ganglion_api::closed_loop::source::{Http, Prometheus};
use ganglion_loops_plan::monitoring::SourceValue;
use ganglion_outbound::client::{Outgoing, Unanswered};
use ganglion_outbound::prometheus as client;

type WebResult = Result<SourceValue, Unanswered>;

/// Queries Prometheus.
pub async fn prometheus(reader: &SourceReader<'_>, source: &Prometheus, within: Duration) -> WebResult {
    let url = client::query_url(&source.url, &source.query)?;
    let request = Outgoing { url: url.as_str(), auth: source.auth.as_ref(), ca: source.ca.as_ref(), within };
    let answer = reader.sources.outbound.get(&reader.account, request).await?;
    let found = client::point(answer.status, answer.body())?;
    Ok(SourceValue { value: found.value, at: Some(found.at) })
}

/// Reads a number in a JSON document.
pub async fn http(reader: &SourceReader<'_>, source: &Http, within: Duration) -> WebResult {
    let request = Outgoing { url: &source.url, auth: source.auth.as_ref(), ca: source.ca.as_ref(), within };
    let answer = reader.sources.outbound.get(&reader.account, request).await?;
    Ok(answer.number(&source.path)?.into())
}
