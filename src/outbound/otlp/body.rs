//! The body of a request: an ExportTraceServiceRequest in the JSON form of OTLP, and the answer.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use ganglion_core::trace::{Span, SpanValue};

/// SPAN_KIND_INTERNAL: a stage is neither a request nor its answer.
const INTERNAL: u8 = 1;
/// STATUS_CODE_ERROR.
const ERROR: u8 = 2;

/// Returns the body of a request with these spans.
pub fn request<'a>(resource: &[(String, String)], spans: impl Iterator<Item = &'a Span>) -> Vec<u8> {
    let resource: Vec<Value> =
        resource.iter().map(|(key, value)| attribute(key, json!({"stringValue": value}))).collect();
    let spans: Vec<Value> = spans.map(span).collect();
    // No version: a span that is sent again after an upgrade would differ.
    let scope = json!({"name": "ganglion"});
    let scopes = json!([{"scope": scope, "spans": spans}]);
    json!({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": scopes}]}).to_string().into_bytes()
}

fn span(span: &Span) -> Value {
    let attributes = span.attributes.iter().map(|(key, value)| match value {
        SpanValue::Text(text) => attribute(key, json!({"stringValue": text})),
        // 64-bit integers are texts in the JSON form of protobuf.
        SpanValue::Number(number) => attribute(key, json!({"intValue": number.to_string()})),
    });
    let mut value = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes.collect::<Vec<Value>>(),
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = json!(parent.to_string());
    }
    if let Some(error) = &span.error {
        value["status"] = json!({"code": ERROR, "message": error});
    }
    value
}

fn attribute(key: &str, value: Value) -> Value {
    json!({"key": key, "value": value})
}

/// Times before 1970 do not exist in OTLP.
fn nanoseconds(time: Timestamp) -> String {
    time.as_nanosecond().max(0).to_string()
}

/// Answer of an endpoint.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ExportAnswer {
    partial_success: PartialSuccess,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    rejected_spans: Value,
}

/// Returns the number of spans that the endpoint says it did not accept. An answer that is not JSON says nothing.
pub fn rejected(answer: &[u8]) -> u64 {
    let answer: ExportAnswer = serde_json::from_slice(answer).unwrap_or_default();
    match answer.partial_success.rejected_spans {
        Value::String(text) => text.parse().unwrap_or(0),
        Value::Number(number) => number.as_u64().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use ganglion_core::trace::TraceId;

    use super::*;

    #[test]
    fn a_request_has_the_documented_form() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let trace = TraceId::new("u", Timestamp::UNIX_EPOCH, 1);
        let times = (at("2026-11-21T10:00:03.000001Z"), at("2026-11-21T10:00:04Z"));
        let first = Span::new(trace, ("sample", ""), times).text("a", "b").number("n", 7);
        let second = Span::new(trace, ("execution", "1"), times).after(first.id).failed(Some("Forbidden"));
        let resource = [("service.name".to_owned(), "ganglion".to_owned())];
        let body: Value = serde_json::from_slice(&request(&resource, [&first, &second].into_iter())).unwrap();
        let part = &body["resourceSpans"][0];
        let name = json!([{"key": "service.name", "value": {"stringValue": "ganglion"}}]);
        assert_eq!(part["resource"]["attributes"], name);
        let spans = &part["scopeSpans"][0]["spans"];
        assert_eq!(spans[0]["traceId"], trace.to_string());
        assert_eq!(spans[0]["startTimeUnixNano"], "1795255203000001000");
        assert_eq!(spans[0]["attributes"][1], json!({"key": "n", "value": {"intValue": "7"}}));
        assert!(spans[0].get("parentSpanId").is_none() && spans[0].get("status").is_none());
        assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
        assert_eq!(spans[1]["status"], json!({"code": 2, "message": "Forbidden"}));
    }

    #[test]
    fn an_answer_says_how_many_spans_were_not_accepted() {
        assert_eq!(rejected(br#"{"partialSuccess": {"rejectedSpans": "3"}}"#), 3);
        assert_eq!(rejected(br#"{"partialSuccess": {"rejectedSpans": 2}}"#), 2);
        for nothing in ["", "{}", "<html>", r#"{"partialSuccess": {}}"#, r#"{"partialSuccess": {"rejectedSpans": -1}}"#]
        {
            assert_eq!(rejected(nothing.as_bytes()), 0, "{nothing}");
        }
    }
}
