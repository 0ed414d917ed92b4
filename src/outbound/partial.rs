//! Ways in which servers say that an answer is partial, or that a value in it may be wrong. Such an answer has status
//! 200 and a number that is usually too low.
//!
//! Each object that contains the value is checked, since some servers say it beside the part that is missing.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use ganglion_core::document::{find, parsed};
use ganglion_core::items::Items;
use ganglion_core::words::cut;

/// Maximum number of warnings that are read. A server that sends more of them is not believed.
const MAX_WARNINGS: usize = 64;

/// Maximum length of a quoted warning, in bytes.
const MAX_QUOTE: usize = 200;

/// Prefix of a note on the style of a query. Prometheus 2.48 to 2.53 list such notes as warnings, later versions as
/// `infos`, which are ignored. The former list ten texts and the number of the others. These may be warnings, so this
/// number, which has no prefix, counts as a warning.
const INFO: &str = "PromQL info:";

/// Members of an object that say whether it is partial. All others are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Markers<'a> {
    /// VictoriaMetrics: a storage node did not answer.
    #[serde(borrow, rename = "isPartial")]
    victoria_metrics: Option<&'a RawValue>,
    /// Elasticsearch: an asynchronous search, or a query in its language ES|QL.
    #[serde(borrow, rename = "is_partial")]
    elasticsearch: Option<&'a RawValue>,
    /// InfluxDB: the result was cut.
    #[serde(borrow, rename = "partial")]
    influx_db: Option<&'a RawValue>,
    /// Elasticsearch and OpenSearch: the search ended early.
    #[serde(borrow)]
    timed_out: Option<&'a RawValue>,
    /// Elasticsearch and OpenSearch: the shards that answered.
    #[serde(borrow, rename = "_shards")]
    shards: Option<&'a RawValue>,
    /// Elasticsearch: the clusters that answered.
    #[serde(borrow, rename = "_clusters")]
    clusters: Option<&'a RawValue>,
    /// Google Cloud Monitoring: a part of the query failed.
    #[serde(borrow, rename = "executionErrors")]
    execution_errors: Option<&'a RawValue>,
    /// Prometheus and servers with its API (Thanos, Mimir, Loki): present together with `warnings`.
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    warnings: Option<&'a RawValue>,
}

/// Returns why the value at this path of a document is partial; None if no object that contains it says so.
pub fn reason(document: &[u8], path: &[String]) -> Option<String> {
    let mut part = document;
    for name in path {
        if let Some(reason) = reason_in(part) {
            return Some(reason);
        }
        part = find(part, &[name])?.as_bytes();
    }
    reason_in(part)
}

/// Returns why this object is partial.
fn reason_in(object: &[u8]) -> Option<String> {
    if !object.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let markers: Markers<'_> = parsed(object).ok()?;
    let flags = [
        ("isPartial", markers.victoria_metrics),
        ("is_partial", markers.elasticsearch),
        ("partial", markers.influx_db),
        ("timed_out", markers.timed_out),
    ];
    for (name, flag) in flags {
        if flag.is_some_and(|flag| flag.get() == "true") {
            return Some(format!("{name} is true"));
        }
    }
    let lists_errors =
        markers.execution_errors.and_then(|list| parsed::<Items<&RawValue, 0>>(list.get().as_bytes()).ok());
    if lists_errors.is_some_and(|errors| errors.count > 0) {
        return Some("executionErrors is not empty".to_owned());
    }
    shards_reason(markers.shards).or_else(|| clusters_reason(markers.clusters)).or_else(|| warning(&markers))
}

/// Number of this name in an object of counts; 0 if there is none.
fn count(counts: Option<&RawValue>, name: &str) -> u64 {
    let count = counts.and_then(|counts| find(counts.get().as_bytes(), &[name]));
    count.and_then(|count| parsed(count.as_bytes()).ok()).unwrap_or(0)
}

fn shards_reason(shards: Option<&RawValue>) -> Option<String> {
    let (total, successful, failed) = (count(shards, "total"), count(shards, "successful"), count(shards, "failed"));
    // A shard that is assigned to no node may be counted neither as successful nor as failed.
    let missing = failed.max(total.saturating_sub(successful));
    (missing > 0).then(|| format!("{missing} of {total} shards are missing"))
}

fn clusters_reason(clusters: Option<&RawValue>) -> Option<String> {
    let missing = ["skipped", "partial", "failed"].into_iter().find(|name| count(clusters, name) > 0)?;
    Some(format!("_clusters.{missing} is {}", count(clusters, missing)))
}

/// Returns the first warning of a server with the API of Prometheus, quoted. Its text is the only one of a server that
/// is passed on: without it, nobody can tell what is wrong with the value.
fn warning(markers: &Markers<'_>) -> Option<String> {
    markers.status.filter(|status| status.get() == "\"success\"")?;
    let warnings: Items<&RawValue, MAX_WARNINGS> = parsed(markers.warnings?.get().as_bytes()).ok()?;
    for warning in &warnings.kept {
        let text = parsed::<Cow<'_, str>>(warning.get().as_bytes()).unwrap_or_default();
        if !text.trim_start().starts_with(INFO) {
            let quoted: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            return Some(format!("the server warns {:?}", cut(&quoted, MAX_QUOTE)));
        }
    }
    (warnings.count > warnings.kept.len()).then(|| format!("the server sends {} warnings", warnings.count))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn reason_at(document: &str, path: &str) -> Option<String> {
        let path = ganglion_core::document::path_parts(path).unwrap();
        reason(document.as_bytes(), &path)
    }

    #[rstest]
    #[case::victoria_metrics(r#"{"isPartial": true, "a": 1}"#, Some("isPartial is true"))]
    #[case::victoria_metrics_whole(r#"{"isPartial": false, "a": 1}"#, None)]
    #[case::elasticsearch(r#"{"is_partial": true, "a": 1}"#, Some("is_partial is true"))]
    #[case::elasticsearch_slow(r#"{"took": 9, "timed_out": true, "a": 1}"#, Some("timed_out is true"))]
    #[case::elasticsearch_whole(
        r#"{"timed_out": false, "_shards": {"total": 2, "successful": 2, "skipped": 1, "failed": 0}, "a": 1}"#,
        None
    )]
    #[case::shard_failed(
        r#"{"_shards": {"total": 5, "successful": 4, "failed": 1}, "a": 1}"#,
        Some("1 of 5 shards are missing")
    )]
    #[case::shard_unassigned(
        r#"{"_shards": {"total": 5, "successful": 3, "failed": 0}, "a": 1}"#,
        Some("2 of 5 shards are missing")
    )]
    #[case::cluster(
        r#"{"_clusters": {"total": 2, "successful": 1, "skipped": 1}, "a": 1}"#,
        Some("_clusters.skipped is 1")
    )]
    #[case::influx_db(r#"{"partial": true, "a": 1}"#, Some("partial is true"))]
    #[case::google(r#"{"executionErrors": [{"code": 4}], "a": 1}"#, Some("executionErrors is not empty"))]
    #[case::google_whole(r#"{"executionErrors": [], "a": 1}"#, None)]
    #[case::thanos(
        r#"{"status": "success", "warnings": ["store b: no answer"], "a": 1}"#,
        Some(r#"the server warns "store b: no answer""#)
    )]
    #[case::warning(
        r#"{"status": "success", "warnings": ["PromQL info: x", "PromQL warning: y"], "a": 1}"#,
        Some(r#"the server warns "PromQL warning: y""#)
    )]
    #[case::info(r#"{"status": "success", "warnings": ["PromQL info: metric might not be a counter"], "a": 1}"#, None)]
    #[case::omitted(
        r#"{"status": "success", "warnings": ["PromQL info: x", "2 more annotations omitted"], "a": 1}"#,
        Some(r#"the server warns "2 more annotations omitted""#)
    )]
    #[case::infos(r#"{"status": "success", "infos": ["PromQL info: x"], "warnings": null, "a": 1}"#, None)]
    #[case::not_a_text(r#"{"status": "success", "warnings": [{}], "a": 1}"#, Some(r#"the server warns """#))]
    #[case::line_end(r#"{"status": "success", "warnings": ["a\nb"], "a": 1}"#, Some(r#"the server warns "a b""#))]
    #[case::other_api(r#"{"status": "ok", "warnings": ["wet floor"], "a": 1}"#, None)]
    #[case::other_types(r#"{"timed_out": "no", "_shards": 3, "partial": 1, "isPartial": null, "a": 1}"#, None)]
    #[case::beside(r#"{"other": {"isPartial": true}, "a": 1}"#, None)]
    fn servers_say_that_an_answer_is_partial(#[case] document: &str, #[case] expected: Option<&str>) {
        assert_eq!(reason_at(document, "a").as_deref(), expected);
    }

    #[test]
    fn each_object_around_the_value_is_checked() {
        let document = r#"{"responses": [{"hits": 1}, {"timed_out": true, "hits": {"total": 2}}], "rows": [{"a": 3}]}"#;
        assert_eq!(reason_at(document, "responses.1.hits.total").as_deref(), Some("timed_out is true"));
        assert_eq!(reason_at(document, "responses.0.hits"), None);
        assert_eq!(reason_at(document, "rows.0.a"), None);
    }

    #[test]
    fn warnings_are_bounded() {
        let infos = vec![r#""PromQL info: x""#; MAX_WARNINGS + 1].join(",");
        let many = format!(r#"{{"status": "success", "warnings": [{infos}], "a": 1}}"#);
        assert_eq!(reason_at(&many, "a").as_deref(), Some("the server sends 65 warnings"));
        let long = format!(r#"{{"status": "success", "warnings": ["{}"], "a": 1}}"#, "é".repeat(1000));
        assert_eq!(
            reason_at(&long, "a").map(|reason| reason.chars().count()),
            Some(100 + "the server warns \"\"".len())
        );
    }
}
