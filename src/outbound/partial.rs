//! Ways in which servers say that an answer is partial, or that a value in it may be wrong. Such an answer has status
//! 200 and a number that is usually too low.
//!
//! Each object that contains the value is checked, since some servers say it beside the part that is missing.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use ganglion_core::document::{find, parsed};
use ganglion_core::items::Items;
use ganglion_core::words::{cut, quoted};

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
    /// Elasticsearch and OpenSearch: each shard stopped after a number of documents.
    #[serde(borrow)]
    terminated_early: Option<&'a RawValue>,
    /// Azure Monitor: an object with the code `PartialError`.
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// CloudWatch: the status of a query.
    #[serde(borrow, rename = "StatusCode")]
    cloud_watch: Option<&'a RawValue>,
    /// GraphQL: present beside `data` if some fields could not be resolved.
    #[serde(borrow)]
    errors: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    /// Google Cloud Monitoring: a part of the query failed.
    #[serde(borrow, rename = "executionErrors")]
    execution_errors: Option<&'a RawValue>,
    /// Prometheus and servers with its API (Thanos, Mimir, Loki): present together with `warnings`.
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    warnings: Option<&'a RawValue>,
}

/// Values of the status of a query of CloudWatch that did not return all data.
const CLOUD_WATCH: [&str; 3] = ["PartialData", "InternalError", "Forbidden"];

/// Returns why the value at this path of a document is partial; None if no object that contains it says so.
pub fn reason(document: &[u8], path: &[String]) -> Option<String> {
    let mut part = document;
    for name in path {
        if let Some(reason) = reason_in(part).or_else(|| reason_beside(part, name)) {
            return Some(reason);
        }
        part = find(part, &[name])?.as_bytes();
    }
    reason_in(part)
}

/// Returns why the member of this name is partial, although the other members of the object may not be.
fn reason_beside(object: &[u8], name: &str) -> Option<String> {
    // Elasticsearch and OpenSearch count at most 10000 hits unless the query asks for more.
    if name == "value" && text(find(object, &["relation"])).as_deref() == Some("gte") {
        return Some("relation is gte: the value is a lower limit (Elasticsearch: set track_total_hits)".to_owned());
    }
    // Lists of Kubernetes, of OData and of Redfish that are sent in several answers.
    let next = match name {
        "items" => find(object, &["metadata", "continue"]),
        "value" => find(object, &["@odata.nextLink"]),
        _ => find(object, &[format!("{name}@odata.nextLink").as_str()]),
    };
    text(next).is_some_and(|next| !next.is_empty()).then(|| "the list has further pages".to_owned())
}

/// Content of a JSON text in quotes.
fn text(raw: Option<&str>) -> Option<Cow<'_, str>> {
    parsed(raw?.as_bytes()).ok()
}

/// Whether this is a list with at least one item.
fn has_items(list: Option<&RawValue>) -> bool {
    let items = list.and_then(|list| parsed::<Items<&RawValue, 0>>(list.get().as_bytes()).ok());
    items.is_some_and(|items| items.count > 0)
}

/// Returns why this object is partial.
fn reason_in(object: &[u8]) -> Option<String> {
    if !object.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    // The document was parsed before, so that only a member that occurs twice can fail.
    let Ok(markers) = parsed::<Markers<'_>>(object) else {
        return Some("it says twice whether it is partial".to_owned());
    };
    let flags = [
        ("isPartial", markers.victoria_metrics),
        ("is_partial", markers.elasticsearch),
        ("partial", markers.influx_db),
        ("timed_out", markers.timed_out),
        ("terminated_early", markers.terminated_early),
    ];
    for (name, flag) in flags {
        if flag.is_some_and(|flag| flag.get() == "true") {
            return Some(format!("{name} is true"));
        }
    }
    if has_items(markers.execution_errors) {
        return Some("executionErrors is not empty".to_owned());
    }
    if markers.data.is_some() && has_items(markers.errors) {
        return Some("errors is not empty".to_owned());
    }
    if text(markers.error.and_then(|error| find(error.get().as_bytes(), &["code"]))).as_deref() == Some("PartialError")
    {
        return Some("error.code is PartialError".to_owned());
    }
    let status = text(markers.cloud_watch.map(RawValue::get)).unwrap_or_default();
    if let Some(status) = CLOUD_WATCH.into_iter().find(|partial| *partial == status) {
        return Some(format!("StatusCode is {status}"));
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
            return Some(format!("the server warns {}", quoted(cut(&text, MAX_QUOTE))));
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
    #[case::azure(r#"{"error": {"code": "PartialError", "message": "x"}, "a": 1}"#, Some("error.code is PartialError"))]
    #[case::azure_other(r#"{"error": {"code": "Ok"}, "a": 1}"#, None)]
    #[case::cloud_watch(r#"{"StatusCode": "PartialData", "a": 1}"#, Some("StatusCode is PartialData"))]
    #[case::cloud_watch_failed(r#"{"StatusCode": "InternalError", "a": 1}"#, Some("StatusCode is InternalError"))]
    #[case::cloud_watch_whole(r#"{"StatusCode": "Complete", "a": 1}"#, None)]
    #[case::other_code(r#"{"StatusCode": 200, "a": 1}"#, None)]
    #[case::elasticsearch_early(r#"{"terminated_early": true, "a": 1}"#, Some("terminated_early is true"))]
    #[case::errors_without_data(r#"{"errors": [{"message": "x"}], "a": 1}"#, None)]
    #[case::twice(r#"{"isPartial": false, "isPartial": true, "a": 1}"#, Some("it says twice whether it is partial"))]
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

    #[rstest]
    #[case::graph_ql(r#"{"data": {"a": 1}, "errors": [{"message": "x"}]}"#, "data.a", Some("errors is not empty"))]
    #[case::graph_ql_whole(r#"{"data": {"a": 1}, "errors": []}"#, "data.a", None)]
    #[case::graph_ql_null(r#"{"data": {"a": 1}, "errors": null}"#, "data.a", None)]
    #[case::hits(
        r#"{"hits": {"total": {"value": 10000, "relation": "gte"}, "max_score": 2}}"#,
        "hits.total.value",
        Some("relation is gte: the value is a lower limit (Elasticsearch: set track_total_hits)")
    )]
    #[case::hits_counted(r#"{"hits": {"total": {"value": 3, "relation": "eq"}}}"#, "hits.total.value", None)]
    #[case::beside_the_hits(
        r#"{"hits": {"total": {"value": 10000, "relation": "gte"}, "max_score": 2}}"#,
        "hits.max_score",
        None
    )]
    #[case::kubernetes(
        r#"{"metadata": {"continue": "x"}, "items": [{"a": 1}]}"#,
        "items.0.a",
        Some("the list has further pages")
    )]
    #[case::kubernetes_last(r#"{"metadata": {"continue": ""}, "items": [{"a": 1}]}"#, "items.0.a", None)]
    #[case::kubernetes_count(
        r#"{"metadata": {"continue": "x", "remainingItemCount": 5}, "items": []}"#,
        "metadata.remainingItemCount",
        None
    )]
    #[case::odata(r#"{"@odata.nextLink": "x", "value": [{"a": 1}]}"#, "value.0.a", Some("the list has further pages"))]
    #[case::odata_count(r#"{"@odata.count": 7, "@odata.nextLink": "x", "value": []}"#, "['@odata.count']", None)]
    #[case::redfish(
        r#"{"Members@odata.nextLink": "x", "Members": [{"a": 1}]}"#,
        "Members.0.a",
        Some("the list has further pages")
    )]
    #[case::cloud_watch(
        r#"{"MetricDataResults": [{"StatusCode": "PartialData", "Values": [5]}]}"#,
        "MetricDataResults[0].Values[0]",
        Some("StatusCode is PartialData")
    )]
    fn a_part_of_an_answer_is_partial(#[case] document: &str, #[case] path: &str, #[case] expected: Option<&str>) {
        assert_eq!(reason_at(document, path).as_deref(), expected);
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
