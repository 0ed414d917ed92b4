//! The sources `prometheus` and `http`, with Secrets that the loop's account may read.

use std::time::Duration;

use super::SourceReader;
use crate::api::closed_loop::source::{Http, Prometheus};
use crate::clients::{json, prometheus as client};
use crate::controllers::outbound;
use crate::logic::closed_loop::monitoring::{SourceResult, SourceValue};

/// The value of a query.
pub async fn prometheus(reader: &SourceReader<'_>, source: &Prometheus, within: Duration) -> SourceResult {
    let (auth, ca) = (source.auth.as_ref(), source.ca.as_ref());
    let call = outbound::call(&reader.account, &source.url, auth, ca, within).await?;
    let web = &reader.controller.outbound.web;
    let found = client::instant(web, &call, &source.query).await.map_err(|error| error.to_string())?;
    Ok(SourceValue { value: found.value, at: Some(found.at) })
}

/// A number in a document.
pub async fn http(reader: &SourceReader<'_>, source: &Http, within: Duration) -> SourceResult {
    let (auth, ca) = (source.auth.as_ref(), source.ca.as_ref());
    let call = outbound::call(&reader.account, &source.url, auth, ca, within).await?;
    let web = &reader.controller.outbound.web;
    let found = json::number(web, &call, &source.path).await.map_err(|error| error.to_string())?;
    Ok(found.into())
}
