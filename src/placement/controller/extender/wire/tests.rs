//! Tests of the wire format: parsed requests, refused requests with their messages, and encoded replies.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use ganglion_placement_plan::preempted::PreemptionNode;
use ganglion_placement_plan::question::{NodeRejection, PlacedPod};

const POD: &str = r#"{"metadata":{"name":"p","namespace":"d"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;

fn parse(body: &str) -> Result<ExtenderRequest<'_>, WireError> {
    ExtenderRequest::parse(body.as_bytes(), MAX_NODES)
}

/// Names, and JSON texts of full nodes.
fn read(body: &str) -> (Vec<String>, Option<Vec<String>>) {
    let request = parse(body).unwrap();
    assert_eq!(request.pod.key.name, "p");
    let raw = match &request.candidates {
        CandidateNodes::Names(_) => None,
        CandidateNodes::Nodes(nodes) => Some(nodes.iter().map(|node| node.raw.get().to_owned()).collect()),
    };
    (request.candidates.names().map(str::to_owned).collect(), raw)
}

/// Body with these members after the pod.
fn with_pod(rest: &str) -> String {
    format!(r#"{{"Pod":{POD}{rest}}}"#)
}

#[rstest]
#[case::go(r#"{"Pod":<pod>,"Nodes":null,"NodeNames":["a","b"]}"#)]
#[case::lower(r#"{"pod":<pod>,"nodes":null,"nodenames":["a","b"]}"#)]
#[case::upper(r#"{"POD":<pod>,"NODES":null,"NODENAMES":["a","b"]}"#)]
#[case::camel(r#"{"pod":<pod>,"nodeNames":["a","b"]}"#)]
#[case::escaped(r#"{"\u0050od":<pod>,"Node\u004eames":["\u0061","b"]}"#)]
#[case::order("\n{ \"NodeNames\" : [ \"a\" , \"b\" ] ,\r\n\t\"Pod\" : <pod> } \n")]
#[case::unknown(
    r#"{"x":{"Pod":1,"Nodes":[1e999]},"Pod":<pod>,"items":1,"metadata":2,"name":3,"NodeNames":["a","b"],"":0}"#
)]
#[case::last_list(r#"{"Pod":<pod>,"NodeNames":["z"],"nodeNames":["a","b"]}"#)]
#[case::last_pod(r#"{"pod":{"metadata":{"name":"q"}},"Pod":null,"Pod":<pod>,"NodeNames":["a","b"]}"#)]
#[case::last_null(r#"{"Pod":<pod>,"Nodes":{"items":[]},"nodes":null,"NodeNames":["a","b"]}"#)]
fn names_are_read(#[case] body: &str) {
    let body = body.replace("<pod>", POD);
    assert_eq!(read(&body), (vec!["a".into(), "b".into()], None));
}

#[rstest]
#[case(r#"{"metadata":{"name":"a"}}"#)]
#[case(r#"{"metadata":{"name":"a"},"spec":{"metadata":{"name":"z"}}}"#)]
#[case(r#"{"spec":{"name":"z"},"name":"z","metadata":{"labels":{"name":"z"},"name":"a"}}"#)]
#[case(r#"{"METADATA":{"Name":"a"}}"#)]
#[case(r#"{ "metadata" : { "na\u006de" : "\u0061" } , "x" : 1e999 }"#)]
#[case(r#"{"metadata":{"labels":{}},"metadata":{"name":"a"}}"#)]
#[case::first_counts(r#"{"metadata":{"name":"a","name":"z"},"Metadata":{"name":"z"}}"#)]
fn the_name_of_a_full_node_is_read(#[case] node: &str) {
    let body = with_pod(&format!(r#","Nodes":{{"metadata":{{}},"items":[ {node} ]}},"NodeNames":null"#));
    assert_eq!(read(&body), (vec!["a".into()], Some(vec![node.to_owned()])));
}

#[rstest]
#[case(r#","NodeNames":[]"#, None)]
#[case(r#","Nodes":{}"#, Some(vec![]))]
#[case(r#","Nodes":{"items":null}"#, Some(vec![]))]
#[case(r#","Nodes":{"ITEMS":[]}"#, Some(vec![]))]
#[case(r#","Nodes":{"items":[{"metadata":{"name":"z"}}],"Items":[]}"#, Some(vec![]))]
fn there_may_be_no_candidates(#[case] rest: &str, #[case] raw: Option<Vec<String>>) {
    let body = with_pod(rest);
    assert_eq!(read(&body), (vec![], raw));
    let request = parse(&body).unwrap();
    assert!(request.candidates.is_empty());
    assert_eq!(prioritize_reply(&request.candidates, &[1]), b"[]");
}

const NOT_JSON: &str = "the request is not JSON: ";
const FORM: &str = "the request does not have the form of ExtenderArgs: ";
const NEITHER: &str = "the request has neither Nodes nor NodeNames";
const BOTH: &str = "the request has both Nodes and NodeNames: one of them must be null";
const ARGS: &str = "expected an object with Pod and either Nodes or NodeNames";

#[rstest]
#[case::empty("", NOT_JSON, "EOF while parsing a value at line 1, column 0")]
#[case::spaces(" \n ", NOT_JSON, "EOF while parsing a value at line 2, column 1")]
#[case::words("hello", NOT_JSON, "expected value at line 1, column 1")]
#[case::mark("\u{feff}{}", NOT_JSON, "expected value at line 1, column 1")]
#[case::null("null", FORM, &format!("{ARGS} at line 1, column 4"))]
#[case::list("[]", FORM, &format!("{ARGS} at line 1, column 0"))]
#[case::text(r#""hunter2""#, FORM, &format!("{ARGS} at line 1, column 9"))]
#[case::cut(r#"{"Pod":{"#, NOT_JSON, "EOF while parsing an object at line 1, column 8")]
#[case::comma(r#"{"x":1,}"#, NOT_JSON, "trailing comma at line 1, column 8")]
#[case::trailing(r#"{"Pod":{},"NodeNames":[]} x"#, NOT_JSON, "trailing characters at line 1, column 27")]
#[case::twice(r#"{"Pod":{},"NodeNames":[]}{}"#, NOT_JSON, "trailing characters at line 1, column 26")]
#[case::nothing("{}", "the request has no Pod", "")]
#[case::no_pod(r#"{"NodeNames":[]}"#, "the request has no Pod", "")]
#[case::pod_null(r#"{"Pod":null,"NodeNames":[]}"#, "the request has no Pod", "")]
#[case::pod_last_null(r#"{"Pod":{},"pod":null,"NodeNames":[]}"#, "the request has no Pod", "")]
#[case::pod_number(r#"{"Pod":7,"NodeNames":[]}"#, FORM, "expected struct PodParts at line 1, column 8")]
#[case::pod_key(
    r#"{"Pod":{"spec":{"containers":"hunter2"}},"NodeNames":[]}"#,
    FORM,
    "expected a list or null at line 1, column 38"
)]
#[case::pod_amount(
    r#"{"Pod":{"spec":{"containers":[{"resources":{"requests":{"cpu":5}}}]}},"NodeNames":[]}"#,
    FORM,
    "expected a string at line 1, column 63"
)]
#[case::neither(r#"{"Pod":{}}"#, NEITHER, "")]
#[case::nulls(r#"{"Pod":{},"Nodes":null,"NodeNames":null}"#, NEITHER, "")]
#[case::both(r#"{"Pod":{},"Nodes":{"items":[]},"NodeNames":[]}"#, BOTH, "")]
#[case::both_lower(r#"{"pod":{},"nodes":{"items":null},"nodenames":["a"]}"#, BOTH, "")]
#[case::names_text(r#"{"Pod":{},"NodeNames":"hunter2"}"#, FORM, "expected a list or null at line 1, column 31")]
#[case::names_object(r#"{"Pod":{},"NodeNames":{}}"#, FORM, "expected a list or null at line 1, column 24")]
#[case::name_number(r#"{"Pod":{},"NodeNames":["a",5]}"#, FORM, "expected the name of a node at line 1, column 28")]
#[case::name_null(r#"{"Pod":{},"NodeNames":[null]}"#, FORM, "expected the name of a node at line 1, column 27")]
#[case::name_half(
    r#"{"Pod":{},"NodeNames":["\ud800"]}"#,
    NOT_JSON,
    "unexpected end of hex escape at line 1, column 31"
)]
#[case::nodes_list(r#"{"Pod":{},"Nodes":[]}"#, FORM, "expected a NodeList or null at line 1, column 20")]
#[case::items_object(r#"{"Pod":{},"Nodes":{"items":{}}}"#, FORM, "expected a list or null at line 1, column 29")]
fn a_bad_request_has_words(#[case] body: &str, #[case] start: &str, #[case] detail: &str) {
    assert_eq!(parse(body).unwrap_err().to_string(), format!("{start}{detail}"));
}

#[rstest]
#[case("{}")]
#[case("null")]
#[case("7")]
#[case("[]")]
#[case(r#"{"metadata":null}"#)]
#[case(r#"{"metadata":{}}"#)]
#[case(r#"{"metadata":[]}"#)]
#[case(r#"{"metadata":{"name":null}}"#)]
#[case(r#"{"metadata":{"name":7}}"#)]
#[case(r#"{"metadata":{"name":""}}"#)]
#[case(r#"{"metadata":{"name":"\udc00"}}"#)]
#[case(r#"{"name":"a","spec":{"metadata":{"name":"a"}}}"#)]
fn a_full_node_needs_a_name(#[case] node: &str) {
    let body = with_pod(&format!(r#","Nodes":{{"items":[{{"metadata":{{"name":"a"}}}},{node}]}}"#));
    assert_eq!(parse(&body).unwrap_err(), WireError::NoNodeName(2));
}

#[rstest]
#[case(b"\xff", 0)]
#[case(b"{\"Pod\":{},\"x\":\"\x80\",\"NodeNames\":[]}", 15)]
#[case(b"{\"Pod\":{},\"Nodes\":{\"items\":[{\"metadata\":{\"name\":\"a\"},\"x\":\"\xc3\x28\"}]}}", 58)]
#[case(b"{}\xe2\x82", 2)]
fn the_body_is_utf8(#[case] body: &[u8], #[case] at: usize) {
    assert_eq!(ExtenderRequest::parse(body, MAX_NODES).unwrap_err(), WireError::NotUtf8(at));
}

#[rstest]
#[case(r#","NodeNames":["a","b"]"#)]
#[case(r#","Nodes":{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#)]
fn the_number_of_candidates_is_bounded(#[case] rest: &str) {
    let body = with_pod(rest);
    assert!(ExtenderRequest::parse(body.as_bytes(), 2).is_ok());
    for max in [0, 1] {
        let error = ExtenderRequest::parse(body.as_bytes(), max).unwrap_err();
        assert_eq!(error, WireError::TooManyNodes { count: 2, max });
    }
    assert_eq!(
        ExtenderRequest::parse(body.as_bytes(), 1).unwrap_err().to_string(),
        "the request has 2 nodes, more than 1"
    );
}

#[test]
fn what_exceeds_the_bound_is_only_counted() {
    let body = with_pod(r#","NodeNames":["a",5,null]"#);
    let error = ExtenderRequest::parse(body.as_bytes(), 1).unwrap_err();
    assert_eq!(error, WireError::TooManyNodes { count: 3, max: 1 });
}

#[rstest]
#[case("")]
#[case("x")]
fn the_detail_of_an_error_is_cut(#[case] start: &str) {
    let text = format!("invalid type: a, expected {start}{}", "\u{fc}".repeat(1000));
    let WireError::WrongForm(detail) = WireError::of_parser(&serde::de::Error::custom(text)) else { panic!("form") };
    assert_eq!(detail.chars().count(), 200);
    assert!(detail.ends_with("\u{fc} at line 0, column 0"), "{detail}");
}

#[test]
fn an_error_repeats_little_of_the_body() {
    let long = "hunter2".repeat(100_000);
    for body in [
        format!(r#""{long}""#),
        with_pod(&format!(r#","NodeNames":"{long}""#)),
        with_pod(&format!(r#","Nodes":"{long}, expected {long}""#)),
        format!(r#"{{"Pod":"{long}"}}"#),
        format!(r#"{{"Pod":{{"metadata":{{"labels":"{long}, expected {long}"}}}}}}"#),
        format!(r#"{{"Pod":{{"spec":{{"containers":[{{"name":"c","resources":"{long}"}}]}}}}}}"#),
        long.clone(),
    ] {
        let error = parse(&body).unwrap_err().to_string();
        assert!(
            error.chars().count() < 300 && !error.contains("hunter2") && error.contains("at line 1, column"),
            "{error}"
        );
    }
}

/// Parses on a small stack and returns the error message.
fn on_small_stack(body: String) -> Option<String> {
    let parse = move || parse(&body).err().map(|error| error.to_string());
    std::thread::Builder::new().stack_size(512 * 1024).spawn(parse).unwrap().join().unwrap()
}

/// More levels than fit on the stack.
const DEEP: usize = 1_000_000;

#[rstest]
#[case::body("", "", "")]
#[case::unknown(r#"{"x":"#, "", "")]
#[case::list_key(r#"{"Nodes":{"x":"#, "", "")]
#[case::node(r#"{"Nodes":{"items":["#, "", "")]
#[case::name(r#"{"Nodes":{"items":[{"metadata":{"name":"#, "", "")]
#[case::names(r#"{"NodeNames":["#, "", "")]
#[case::pod(r#"{"Pod":{"x":"#, "", "")]
#[case::pod_value(r#"{"Pod":{"metadata":{"managedFields":[{"fieldsV1":{"f":"#, "}}]}}", r#","NodeNames":[]"#)]
fn depth_without_an_end_is_an_error(#[case] start: &str, #[case] middle: &str, #[case] rest: &str) {
    let error = on_small_stack(format!("{start}{}{middle}{rest}", "[".repeat(DEEP)));
    assert!(error.is_some_and(|error| error.starts_with("the request ")), "{start}");
}

#[test]
fn depth_is_harmless_where_values_are_skipped() {
    let deep = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
    for body in [
        with_pod(&format!(r#","x":{deep},"NodeNames":[]"#)),
        with_pod(&format!(r#","Nodes":{{"x":{deep},"items":[]}}"#)),
        with_pod(&format!(r#","Nodes":{{"items":[{{"x":{deep},"metadata":{{"x":{deep},"name":"a"}}}}]}}"#)),
        format!(r#"{{"Pod":{{"x":{deep}}},"NodeNames":[]}}"#),
        format!(r#"{{"Pod":{{"metadata":{{"managedFields":{deep}}}}},"NodeNames":[]}}"#),
    ] {
        assert_eq!(on_small_stack(body), None);
    }
}

#[test]
fn labels_are_bounded() {
    let labelled = |count: usize| {
        let labels: BTreeMap<String, &str> = (0..count).map(|at| (at.to_string(), "")).collect();
        json!({"Pod": {"metadata": {"labels": labels}}, "NodeNames": []}).to_string()
    };
    assert_eq!(parse(&labelled(MAX_LABELS)).unwrap().pod.labels.len(), MAX_LABELS);
    let error = parse(&labelled(MAX_LABELS + 1)).unwrap_err().to_string();
    assert!(error.starts_with("the request does not have the form of ExtenderArgs"), "{error}");
}

#[test]
fn the_candidates_are_read_without_the_pod() {
    for pod in ["7", "null", r#"{"spec":{"containers":"x"}}"#] {
        let body = format!(r#"{{"Pod":{pod},"NodeNames":["a"]}}"#);
        assert_eq!(CandidateNodes::parse(body.as_bytes(), MAX_NODES).unwrap().names().collect::<Vec<_>>(), ["a"]);
    }
    assert_eq!(CandidateNodes::parse(b"{}", MAX_NODES).unwrap_err(), WireError::NeitherNodesNorNames);
}

fn any_amounts() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage", "example.com/x"]);
    let amount = prop::sample::select(vec!["1", "250m", "1Gi", "1.5", "0", "", "x"]);
    prop::option::of(prop::collection::btree_map(name, amount, 0..4)).prop_map(|amounts| json!(amounts))
}

fn any_containers() -> impl Strategy<Value = Value> {
    let policy = prop::sample::select(vec![json!(null), json!("Always"), json!("Never")]);
    let container = (any_amounts(), any_amounts(), policy, any::<bool>()).prop_map(|(requests, limits, policy, bare)| {
        let resources = if bare { Value::Null } else { json!({"requests": requests, "limits": limits, "claims": []}) };
        json!({"name": "c", "image": "i", "resources": resources, "restartPolicy": policy, "ports": [{"containerPort": 1}]})
    });
    prop::option::of(vec(container, 0..4)).prop_map(|all| json!(all))
}

prop_compose! {
    fn any_pod()(
        containers in any_containers(), inits in any_containers(),
        pod_level in any_amounts(), overhead in any_amounts(),
        scheduler in prop::sample::select(vec![json!(null), json!(""), json!("default-scheduler"), json!("x")]),
        labels in prop::option::of(prop::collection::btree_map("[a-c]", "[a-c]?", 0..3)),
        rate in prop::option::of("[0-9]"), controller in prop::option::of(any::<bool>()),
        (key, effect) in (
            "node-role.kubernetes.io/control-plane|x",
            prop::sample::select(vec![json!("NoSchedule"), json!(null)]),
        ),
        (without_metadata, without_spec) in (any::<bool>(), any::<bool>()),
    ) -> Value {
        let owner = |name: &str, controller: Option<bool>| {
            json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": controller})
        };
        let metadata = json!({"namespace": "n", "name": "p", "uid": "u", "labels": labels, "creationTimestamp": null,
            "annotations": {"x": "y", ganglion_core::facts::SPREAD_RATE: rate.unwrap_or_default()},
            "ownerReferences": [owner("a", Some(false)), owner("b", controller), owner("c", Some(true))]});
        let spec = json!({"containers": containers, "initContainers": inits, "resources": {"requests": pod_level},
            "overhead": overhead, "schedulerName": scheduler, "nodeName": "n", "volumes": [{"name": "v"}],
            "tolerations": [{"key": key, "operator": "Exists", "effect": effect}]});
        let mut pod = json!({"status": {"phase": "Pending"}});
        if !without_metadata { pod["metadata"] = metadata; }
        if !without_spec { pod["spec"] = spec; }
        pod
    }
}

proptest! {
    #[test]
    fn the_pod_is_the_one_that_the_api_types_read(pod in any_pod()) {
        let expected: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod.clone()).unwrap();
        let body = json!({"Pod": pod, "NodeNames": []}).to_string();
        prop_assert_eq!(parse(&body).unwrap().pod, PlacedPod::from(&expected));
    }
}

#[test]
fn names_without_escapes_are_borrowed() {
    let body = with_pod(r#","NodeNames":["a","\u0062"]"#);
    let CandidateNodes::Names(names) = parse(&body).unwrap().candidates else { panic!("names") };
    assert!(matches!(names[..], [std::borrow::Cow::Borrowed("a"), std::borrow::Cow::Owned(_)]));
}

fn no(reason: &str) -> NodeRejection {
    NodeRejection(reason.to_owned())
}

fn text(reply: Vec<u8>) -> String {
    String::from_utf8(reply).unwrap()
}

#[rstest]
#[case(&[None, Some(no("full")), Some(no("gone"))], r#"["a"]"#, r#"{"b":"full","c":"gone"}"#)]
#[case(&[None, None, None], r#"["a","b","c"]"#, "{}")]
#[case(&[Some(no("")), Some(no("\"\n")), Some(no("ü"))], "[]", r#"{"a":"","b":"\"\n","c":"ü"}"#)]
#[case::missing(&[Some(no("x"))], r#"["b","c"]"#, r#"{"a":"x"}"#)]
#[case::excess(&[None, None, Some(no("x")), Some(no("y"))], r#"["a","b"]"#, r#"{"c":"x"}"#)]
fn a_filter_answers_in_the_form_of_the_request(
    #[case] rejections: &[Option<NodeRejection>],
    #[case] names: &str,
    #[case] rejected: &str,
) {
    let maps = format!(r#""FailedNodes":{{}},"FailedAndUnresolvableNodes":{rejected},"Error":"""#);
    let body = with_pod(r#","NodeNames":["a","b","c"]"#);
    let reply = text(filter_reply(&parse(&body).unwrap().candidates, rejections));
    assert_eq!(reply, format!(r#"{{"Nodes":null,"NodeNames":{names},{maps}}}"#));

    let raw = |name: &str| format!(r#"{{ "metadata":{{"name":"{name}"}}, "x":1.50 }}"#);
    let body = with_pod(&format!(r#","Nodes":{{"items":[{}]}}"#, ["a", "b", "c"].map(raw).join(",")));
    let reply = text(filter_reply(&parse(&body).unwrap().candidates, rejections));
    let names: Vec<String> = serde_json::from_str(names).unwrap();
    let items = names.iter().map(|name| raw(name)).collect::<Vec<_>>().join(",");
    assert_eq!(reply, format!(r#"{{"Nodes":{{"metadata":{{}},"items":[{items}]}},"NodeNames":null,{maps}}}"#));
}

#[rstest]
#[case(&[None, None, None], r#"["a","b"]"#, "{}")]
#[case(&[None, None, Some(no("x"))], r#"["b"]"#, r#"{"a":"x"}"#)]
#[case(&[Some(no("x")), None, None], r#"["b"]"#, r#"{"a":"x"}"#)]
#[case(&[Some(no("x")), None, Some(no("y"))], r#"["b"]"#, r#"{"a":"x"}"#)]
fn a_repeated_name_is_answered_once(
    #[case] rejections: &[Option<NodeRejection>],
    #[case] names: &str,
    #[case] rejected: &str,
) {
    let body = with_pod(r#","NodeNames":["a","b","\u0061"]"#);
    let request = parse(&body).unwrap();
    let maps = format!(r#""FailedNodes":{{}},"FailedAndUnresolvableNodes":{rejected},"Error":"""#);
    assert_eq!(
        text(filter_reply(&request.candidates, rejections)),
        format!(r#"{{"Nodes":null,"NodeNames":{names},{maps}}}"#)
    );
    assert_eq!(
        text(prioritize_reply(&request.candidates, &[1, 2, 3])),
        r#"[{"Host":"a","Score":1},{"Host":"b","Score":2}]"#
    );
}

#[test]
fn nodes_and_pods_to_preempt_are_bounded() {
    fn parse(body: &str, nodes: usize, victims: usize) -> Result<Vec<PreemptionNode<'_>>, WireError> {
        PreemptionRequest::parse(body.as_bytes(), nodes, victims, true).map(|read| read.nodes)
    }
    let body = with_pod(
        r#","NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"x"},{"uid":"y"}]},"b":{"Pods":[{"UID":"\u007a"}]},"c":null}"#,
    );
    let read = parse(&body, 3, 3).unwrap();
    let uids: Vec<(&str, Vec<&str>)> =
        read.iter().map(|node| (&*node.name, node.uids.iter().map(|uid| &**uid).collect())).collect();
    assert_eq!(uids, [("a", vec!["x", "y"]), ("b", vec!["z"]), ("c", vec![])]);
    assert_eq!(parse(&body, 2, 3), Err(WireError::TooManyNodes { count: 3, max: 2 }));
    assert_eq!(parse(&body, 3, 2), Err(WireError::TooManyVictims(2)));
    assert_eq!(parse(&with_pod(""), 3, 3), Err(WireError::NoVictims));
    assert_eq!(parse(r#"{"NodeNameToVictims":{}}"#, 3, 3), Err(WireError::NoPod));
}

#[rstest]
#[case(&[0, 10], [0, 10])]
#[case(&[11, 255], [10, 10])]
#[case(&[7], [7, 0])]
#[case(&[1, 2, 3], [1, 2])]
fn scores_are_those_of_an_extender(#[case] scores: &[u8], #[case] expected: [u8; 2]) {
    let [a, b] = expected;
    let body = with_pod(r#","Nodes":{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#);
    let reply = text(prioritize_reply(&parse(&body).unwrap().candidates, scores));
    assert_eq!(reply, format!(r#"[{{"Host":"a","Score":{a}}},{{"Host":"b","Score":{b}}}]"#));
}

/// A filter reply, parsed strictly.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct StrictFilterReply<'a> {
    #[serde(borrow)]
    nodes: Option<AnswerNodes<'a>>,
    node_names: Option<Vec<String>>,
    failed_nodes: Pairs,
    failed_and_unresolvable_nodes: Pairs,
    error: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerNodes<'a> {
    metadata: Value,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// Members of an object, including repeated keys.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Pairs;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Pairs, A::Error> {
                let mut pairs = vec![];
                while let Some(pair) = members.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Arbitrary text, often short, so that names repeat, and often with characters that JSON escapes.
fn any_text() -> impl Strategy<Value = String> {
    let special =
        prop::sample::select(vec!['"', '\\', '\n', '\0', '\u{1f}', '\u{7f}', '\u{2028}', '\u{fffd}', 'a', 'b']);
    vec(prop_oneof![special, any::<char>()], 1..6).prop_map(String::from_iter)
}

fn any_rejection() -> impl Strategy<Value = Option<NodeRejection>> {
    prop::option::of(any_text().prop_map(NodeRejection))
}

/// A key in any letter case.
fn any_case(key: &'static str) -> impl Strategy<Value = String> {
    vec(any::<bool>(), key.len()).prop_map(move |upper| {
        let letters = key.chars().zip(upper);
        letters
            .map(|(letter, upper)| if upper { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() })
            .collect()
    })
}

fn any_space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", " ", "\n", "\t \r\n"])
}

/// Position of the name in a generated node, and the text around it.
fn any_node(name: String) -> impl Strategy<Value = String> {
    let other = prop::sample::select(vec!["", r#""spec":{"metadata":{"name":"z"}},"#, r#""x":[1.50,-0e9,"]}"],"#]);
    let inner = prop::sample::select(vec!["", r#""labels":{"name":"z"},"#, r#""uid":"\u0061\\","#]);
    (other, inner, any_space(), any_case("metadata"), any_case("name"), any::<bool>()).prop_map(
        move |(other, inner, space, metadata, key, last)| {
            let name = json!(name);
            let own = format!(r#""{metadata}":{space}{{{inner}"{key}"{space}:{name}{space}}}"#);
            let rest = other.trim_end_matches(',');
            if last || rest.is_empty() {
                format!("{{{space}{other}{own}{space}}}")
            } else {
                format!("{{{space}{own},{rest}{space}}}")
            }
        },
    )
}

/// Full nodes with their names.
fn any_nodes() -> impl Strategy<Value = Vec<(String, String)>> {
    let node = any_text().prop_flat_map(|name| (Just(name.clone()), any_node(name)));
    vec(node, 0..8)
}

/// A body with full nodes; with names only if the texts are None.
fn body_of(names: &[String], nodes: Option<&[String]>) -> String {
    let mut body = with_pod(",\"Nodes\":");
    body.pop();
    let _ = match nodes {
        Some(nodes) => write!(body, r#"{{"metadata":{{}},"items":[{}]}},"NodeNames":null}}"#, nodes.join(" , ")),
        None => write!(body, r#"null,"NodeNames":{}}}"#, json!(names)),
    };
    body
}

/// Expected filter reply: the names of passing nodes, and the reasons of the others.
type Expected = (Vec<String>, BTreeMap<String, String>);

fn expected(names: &[String], rejections: &[Option<NodeRejection>]) -> Expected {
    let mut sets = Expected::default();
    for name in names {
        let own =
            || names.iter().zip(rejections).filter(|(other, _)| *other == name).filter_map(|(_, own)| own.as_ref());
        let (fits, rejected) = &mut sets;
        if let Some(NodeRejection(reason)) = own().next() {
            rejected.insert(name.clone(), reason.clone());
        } else if !fits.contains(name) {
            fits.push(name.clone());
        }
    }
    sets
}

/// Checks a reply against the expected one and returns the texts of the nodes.
fn check_answer<'a>(reply: &'a [u8], expected: Expected, full: bool) -> Result<Vec<&'a str>, TestCaseError> {
    let answer: StrictFilterReply<'a> =
        serde_json::from_slice(reply).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let (fits, rejected) = expected;
    prop_assert_eq!(answer.error, "");
    prop_assert_eq!(answer.failed_nodes.0.len(), 0);
    prop_assert_eq!(answer.failed_and_unresolvable_nodes.0.len(), rejected.len());
    prop_assert_eq!(BTreeMap::from_iter(answer.failed_and_unresolvable_nodes.0), rejected);
    if full {
        prop_assert_eq!(answer.node_names, None);
        let nodes = answer.nodes.ok_or_else(|| TestCaseError::fail("no nodes"))?;
        prop_assert_eq!(nodes.metadata, json!({}));
        prop_assert_eq!(nodes.items.len(), fits.len());
        return Ok(nodes.items.into_iter().map(RawValue::get).collect());
    }
    prop_assert!(answer.nodes.is_none());
    prop_assert_eq!(answer.node_names, Some(fits));
    Ok(vec![])
}

#[derive(Clone, Debug)]
enum Mutation {
    Truncate(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Repeat(prop::sample::Index, prop::sample::Index),
    Remove(prop::sample::Index),
}

fn any_mutation() -> impl Strategy<Value = Mutation> {
    use prop::sample::{Index, select};
    let byte = || prop_oneof![select(b"{}[]\",:\\0u ".to_vec()), any::<u8>()];
    prop_oneof![
        1 => any::<Index>().prop_map(Mutation::Truncate),
        4 => (any::<Index>(), 0_u8..8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        4 => (any::<Index>(), byte()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        2 => any::<(Index, Index)>().prop_map(|(from, to)| Mutation::Repeat(from, to)),
        4 => any::<Index>().prop_map(Mutation::Remove),
    ]
}

fn mutate(body: &mut Vec<u8>, mutation: &Mutation) {
    if body.is_empty() {
        return;
    }
    match mutation {
        Mutation::Truncate(at) => body.truncate(at.index(body.len())),
        Mutation::Flip(at, bit) => {
            let at = at.index(body.len());
            body[at] ^= 1 << bit;
        }
        Mutation::Insert(at, byte) => body.insert(at.index(body.len()), *byte),
        Mutation::Repeat(from, to) => {
            let (from, to) = (from.index(body.len()), to.index(body.len()));
            let part = body[from.min(to)..from.max(to)].to_vec();
            body.splice(to..to, part);
        }
        Mutation::Remove(at) => {
            body.remove(at.index(body.len()));
        }
    }
}

/// For any body, parsing returns either a short error or a request that can be answered.
fn check_any_body(body: &[u8]) -> Result<bool, TestCaseError> {
    match ExtenderRequest::parse(body, 20) {
        Err(error) => {
            let words = error.to_string();
            prop_assert!(words.starts_with("the request ") || words.starts_with("node "), "{}", words);
            prop_assert!(words.chars().count() <= 260, "{}", words);
            Ok(false)
        }
        Ok(request) => {
            let names: Vec<_> = request.candidates.names().map(str::to_owned).collect();
            prop_assert_eq!(names.len(), request.candidates.len());
            let full = matches!(request.candidates, CandidateNodes::Nodes(_));
            let rejections = vec![None; names.len()];
            check_answer(&filter_reply(&request.candidates, &rejections), expected(&names, &rejections), full)?;
            Ok(true)
        }
    }
}

#[test]
fn the_check_of_any_body_sees_good_ones() {
    // Otherwise, the test would pass even if every body were refused.
    let body = body_of(&["a".to_owned()], None);
    assert!(check_any_body(body.as_bytes()).unwrap());
    let mut changed = body.into_bytes();
    changed.insert(1, b' ');
    assert!(check_any_body(&changed).unwrap());
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(body in vec(any::<u8>(), 0..200)) {
        check_any_body(&body)?;
    }

    #[test]
    fn any_change_of_a_preemption_request_is_read_without_a_panic(
        nodes in vec((any_text(), vec(any_text(), 0..4)), 0..5),
        mutations in vec(any_mutation(), 0..4),
    ) {
        let victims = |uids: &Vec<String>| json!({"Pods": uids.iter().map(|uid| json!({"UID": uid})).collect::<Vec<_>>()});
        let nodes: serde_json::Map<_, _> = nodes.iter().map(|(name, uids)| (name.clone(), victims(uids))).collect();
        let mut body = with_pod(&format!(r#","NodeNameToMetaVictims":{}"#, Value::from(nodes))).into_bytes();
        mutations.iter().for_each(|mutation| mutate(&mut body, mutation));
        match PreemptionRequest::parse(&body, 20, 20, true) {
            Ok(read) => {
                let reply: Value = serde_json::from_slice(&preemption_reply(&read.nodes, |_| true)).unwrap();
                prop_assert!(reply["NodeNameToMetaVictims"].as_object().unwrap().len() <= read.nodes.len());
            }
            Err(error) => prop_assert!(!mutations.is_empty() && error.to_string().chars().count() <= 260, "{}", error),
        }
    }

    #[test]
    fn any_change_of_a_request_is_read_without_a_panic(
        nodes in any_nodes(),
        full in any::<bool>(),
        mutations in vec(any_mutation(), 1..4),
    ) {
        let (names, texts): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        let mut body = body_of(&names, full.then_some(&texts[..])).into_bytes();
        for mutation in &mutations {
            mutate(&mut body, mutation);
        }
        check_any_body(&body)?;
    }

    #[test]
    fn any_letter_case_and_space_is_read(
        [pod, nodes, names] in [any_case("Pod"), any_case("Nodes"), any_case("NodeNames")],
        items in any_case("items"),
        space in any_space(),
        list in any_nodes(),
        full in any::<bool>(),
    ) {
        let (known, texts): (Vec<_>, Vec<_>) = list.into_iter().unzip();
        let (list, known_names) = if full {
            (format!(r#"{{{space}"{items}"{space}:{space}[{}]}}"#, texts.join(",")), "null".to_owned())
        } else {
            ("null".to_owned(), json!(known).to_string())
        };
        let body = format!(r#"{space}{{"{names}":{known_names},{space}"{pod}":{POD}{space},"{nodes}":{space}{list}}}{space}"#);
        prop_assert_eq!(read(&body), (known, full.then_some(texts)));
    }

    #[test]
    fn a_filter_divides_any_names(list in vec((any_text(), any_rejection()), 0..12)) {
        let (names, rejections): (Vec<_>, Vec<_>) = list.into_iter().unzip();
        let body = body_of(&names, None);
        let request = parse(&body).unwrap();
        prop_assert!(request.candidates.names().eq(&names));
        check_answer(&filter_reply(&request.candidates, &rejections), expected(&names, &rejections), false)?;
    }

    #[test]
    fn a_filter_divides_any_nodes_and_repeats_their_text(
        nodes in any_nodes(),
        rejections in vec(any_rejection(), 8),
    ) {
        let (names, texts): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        let rejections = &rejections[..names.len()];
        let body = body_of(&names, Some(&texts));
        let request = parse(&body).unwrap();
        prop_assert!(request.candidates.names().eq(&names));
        let expected = expected(&names, rejections);
        let first = |name| names.iter().zip(&texts).find(|(other, _)| *other == name).map(|(_, text)| text.as_str());
        let fits: Vec<_> = expected.0.iter().filter_map(first).collect();
        let reply = filter_reply(&request.candidates, rejections);
        prop_assert_eq!(check_answer(&reply, expected, true)?, fits);
    }

    #[test]
    fn each_name_has_a_whole_score(names in vec(any_text(), 0..12), scores in vec(any::<u8>(), 0..14)) {
        let body = body_of(&names, None);
        let reply = prioritize_reply(&parse(&body).unwrap().candidates, &scores);
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        let mut hosts = vec![];
        for entry in reply.as_array().unwrap() {
            let host = entry["Host"].as_str().unwrap().to_owned();
            let at = names.iter().position(|name| *name == host).unwrap();
            prop_assert_eq!(entry.as_object().unwrap().len(), 2);
            prop_assert_eq!(entry["Score"].as_u64(), Some(scores.get(at).copied().unwrap_or(0).min(10).into()));
            hosts.push(host);
        }
        let (distinct, _) = expected(&names, &[]);
        prop_assert_eq!(hosts, distinct);
    }
}
