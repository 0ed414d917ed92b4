//! Answers of servers: whatever their form, parsing one costs at most [`TIMES`] its size, and a fixed amount for the
//! values that are stored.
//!
//! Together with the limit on bytes in flight, of which one namespace gets a quarter, this bounds the memory for
//! answers. Each parser gets valid answers in which one part is replaced by something large, or two random ones.

use std::fmt::Write;

use futures::FutureExt;
use ganglion_core::document;
use ganglion_loops_plan::sources::{CustomMetricList, ExternalMetricList, PodList, PodMetricsList};
use ganglion_outbound::redfish::{self, BmcDocument, Fetch, inlet};
use ganglion_outbound::{inference, node_usage, pressure, prometheus, trust};
use ganglion_pools::probes;
use ganglion_runtime::discovery::{self, ServedResources};
use ganglion_runtime::writer::AnswerBounds;
use http::StatusCode;
use kube::api::DynamicObject;
use kube::core::Status;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::{MIB, peak, turn};

/// Maximum memory of a parser in sizes of the body: an error may quote a text that is as long as the body, and grows by
/// doubling.
const TIMES: usize = 4;

/// Size of an answer in bytes. The limits are higher, but the memory is proportional.
const BODY: usize = 128 << 10;

/// Number of random answers for each parser.
const RANDOM: usize = 60;

/// Stands for the part that is replaced.
const HOLE: &str = "HOLE";

/// Stands for a number that differs in each repetition.
const NUMBER: &str = "NUMBER";

struct Parser {
    name: &'static str,
    /// Size of the answers, at most the limit.
    body: usize,
    /// Memory of the values that are stored, which does not depend on the size of the body.
    stored: usize,
    /// Valid answers.
    valid: &'static [&'static str],
    parse: fn(&[u8]),
}

const PARSERS: [Parser; 17] = [
    Parser {
        name: "a sample of Prometheus",
        body: 64 << 10,
        stored: 8 << 10,
        valid: &[VECTOR, SCALAR, r#"{"status":"error","errorType":"bad_data","error":"x","warnings":["w"]}"#],
        parse: |body| drop(prometheus::point(StatusCode::OK, body)),
    },
    Parser {
        name: "a number in a document",
        body: 64 << 10,
        stored: 8 << 10,
        valid: &[r#"{"a":{"b":1,"c":[0]},"d":"x"}"#],
        parse: |body| drop(document::number(body, "a.b")),
    },
    Parser {
        name: "a field of an object",
        body: BODY,
        stored: 8 << 10,
        valid: &[OBJECT],
        parse: |body| drop(document::number(body, "status.replicas")),
    },
    Parser {
        name: "a condition of an object",
        body: BODY,
        stored: 8 << 10,
        valid: &[OBJECT],
        parse: |body| drop(document::condition(body, "Ready")),
    },
    Parser {
        name: "usage of nodes from Prometheus",
        body: 8 * BODY,
        stored: 4 * MIB,
        valid: &[VECTOR],
        parse: |body| drop(node_usage::NodeStatistic::parse(StatusCode::OK, body, "instance")),
    },
    Parser {
        name: "usage of nodes from metrics.k8s.io",
        body: BODY,
        stored: 2 * MIB,
        valid: &[r#"{"metadata":{},"items":[{"metadata":{"name":"n-NUMBER","labels":{"a":"b"}},
            "timestamp":"2026-01-01T00:00:00Z","window":"10s","usage":{"cpu":"1","memory":"1Ki"}}]}"#],
        parse: |body| drop(node_usage::measured_nodes(body)),
    },
    Parser {
        name: "predictions",
        body: BODY,
        stored: 64 << 10,
        valid: &[r#"{"model_name":"m","outputs":[{"name":"o","shape":[1,1],"datatype":"FP32","data":[[1.5],[2]]}]}"#],
        parse: |body| drop(inference::watts(StatusCode::OK, body, inference::ExpectedOutput { name: None, rows: 2 })),
    },
    Parser {
        name: "a pressure",
        body: BODY,
        stored: 16 << 10,
        valid: &[r#"{"code":200,"sensor":[{"sensorid":"a","pressure":"1.5"}]}"#],
        parse: |body| drop(pressure::reading(StatusCode::OK, body, pressure::PressureSensor::OfNode("n"))),
    },
    Parser {
        name: "pods",
        // Only the API server and metrics-server answer: there, a container has at least forty bytes.
        body: BODY,
        stored: 4 * MIB,
        valid: &[r#"{"metadata":{},"items":[{"metadata":{"name":"p-NUMBER","deletionTimestamp":null},
            "spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],"initContainers":[]},
            "status":{"phase":"Running"}}]}"#],
        parse: |body| drop(document::parsed::<PodList>(body)),
    },
    Parser {
        name: "usage of pods",
        body: BODY,
        stored: 4 * MIB,
        valid: &[r#"{"metadata":{},"items":[{"metadata":{"name":"p-NUMBER"},"timestamp":"2026-01-01T00:00:00Z",
            "containers":[{"name":"c","usage":{"cpu":"1","memory":"1Ki"}}]}]}"#],
        parse: |body| drop(document::parsed::<PodMetricsList>(body)),
    },
    Parser {
        name: "an external metric",
        body: BODY,
        stored: MIB,
        valid: &[r#"{"metadata":{},"items":[{"metricName":"m","metricLabels":{"q":"a-NUMBER"},
            "timestamp":"2026-01-01T00:00:00Z","window":60,"value":"1500m"}]}"#],
        parse: |body| drop(document::parsed::<ExternalMetricList>(body)),
    },
    Parser {
        name: "a custom metric",
        body: BODY,
        stored: 4 * MIB,
        valid: &[r#"{"metadata":{},"items":[{"describedObject":{"kind":"Pod","namespace":"a","name":"p-NUMBER"},
            "metric":{"name":"m","selector":null},"timestamp":"2026-01-01T00:00:00Z","windowSeconds":60,"value":"1"}]}"#],
        parse: |body| drop(document::parsed::<CustomMetricList>(body)),
    },
    Parser {
        name: "the version of a worker",
        body: BODY,
        stored: 8 << 10,
        valid: &[r#"{"version":3,"jobs":["a","b-NUMBER"]}"#],
        parse: |body| {
            let _ = probes::parse_answer(body, &(3, ["a".into()].into()));
        },
    },
    Parser {
        name: "an object of any kind",
        body: 4 * BODY,
        stored: 8 * MIB,
        valid: &[OBJECT],
        parse: |body| drop(AnswerBounds::OBJECT.parse::<DynamicObject>(body)),
    },
    Parser {
        name: "resources of an API version",
        body: BODY,
        stored: MIB,
        valid: &[
            r#"{"groupVersion":"a/v1","resources":[{"name":"r-NUMBER","kind":"R","namespaced":true,"verbs":["a"]}]}"#,
        ],
        parse: |body| drop(discovery::LIST.parse::<ServedResources>(body)),
    },
    Parser {
        name: "an error of the API server",
        body: 64 << 10,
        stored: 4 * MIB,
        valid: &[r#"{"status":"Failure","reason":"Invalid","code":422,"message":"m",
            "details":{"name":"n","causes":[{"reason":"r","message":"m","field":"f"}]}}"#],
        parse: |body| drop(serde_json::from_slice::<Status>(body)),
    },
    Parser {
        name: "a sensor of a BMC",
        body: BODY,
        stored: MIB,
        valid: &[r#"{"Temperatures":[{"Name":"CPUNUMBER","MemberId":"NUMBER","ReadingCelsius":20}]}"#],
        parse: |body| drop(inlet(&OneDocument(body), None, Some("/redfish/v1/t#Inlet")).now_or_never()),
    },
];

const VECTOR: &str = r#"{"status":"success","data":{"resultType":"vector","result":[
    {"metric":{"instance":"n-NUMBER","job":"a"},"value":[1,"2"]}]}}"#;

const SCALAR: &str = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"2"]},"warnings":null}"#;

const OBJECT: &str = r#"{"apiVersion":"a/v1","kind":"A","metadata":{"generation":1,"managedFields":[{"fieldsV1":{"f:spec":{}}}]},
    "spec":{"a":[{"b":"c"}]},"status":{"replicas":"3","conditions":[{"type":"Ready","status":"True"}]}}"#;

const BMC: &str = r#"{"@odata.id":"/redfish/v1/NUMBER","Systems":{"@odata.id":"/redfish/v1/s"},
    "Chassis":{"@odata.id":"/redfish/v1/c"},"ProtocolFeaturesSupported":{"ExpandQuery":{"NoLinks":true}},
    "Links":{"Chassis":[{"@odata.id":"/redfish/v1/l"}],"ContainedBy":{"@odata.id":"/redfish/v1/b"}},
    "Members":[{"@odata.id":"/redfish/v1/NUMBER","Name":"Fan","Id":"NUMBER","Reading":20}],
    "Members@odata.nextLink":"/redfish/v1/n?x","Sensors":{"@odata.id":"/redfish/v1/e"},
    "Thermal":{"@odata.id":"/redfish/v1/t"},"ThermalSubsystem":{"@odata.id":"/redfish/v1/u"},
    "ThermalMetrics":{"@odata.id":"/redfish/v1/m"},"TemperatureSummaryCelsius":{"Internal":{"Reading":1}},
    "Temperatures":[{"Name":"CPUNUMBER","MemberId":"NUMBER","ReadingCelsius":20}],
    "PowerConsumptionModel":{"Type":"x","Name":"m","Version":"1","Url":"http://x"}}"#;

/// BMC that answers every request with the same document.
struct OneDocument<'a>(&'a [u8]);

impl Fetch for OneDocument<'_> {
    async fn get(&self, _: &str) -> Result<BmcDocument, ganglion_outbound::Error> {
        BmcDocument::parse(self.0)
    }
}

/// BMC of a machine with 16 chassis, each with a thousand temperatures.
struct LargeBmc;

impl Fetch for LargeBmc {
    async fn get(&self, path: &str) -> Result<BmcDocument, ganglion_outbound::Error> {
        let chassis = "/redfish/v1/Chassis";
        let document = if path.ends_with("/Thermal") {
            let sensor = |nth: usize| json!({"Name": format!("{nth:0>200}"), "ReadingCelsius": 50});
            json!({"Temperatures": (0..1000).map(sensor).collect::<Vec<_>>()})
        } else if path == chassis {
            let member = |nth: usize| json!({"@odata.id": format!("{chassis}/{nth}")});
            json!({"Members": (0..16).map(member).collect::<Vec<_>>()})
        } else if path.starts_with(chassis) {
            json!({"Thermal": {"@odata.id": format!("{path}/Thermal")}})
        } else {
            json!({"Chassis": {"@odata.id": chassis}})
        };
        BmcDocument::parse(document.to_string().as_bytes())
    }
}

/// JSON text that begins with the first part, repeats the second one, and ends with the third one.
type BodyForm = (&'static str, &'static str, &'static str);

const FORMS: [BodyForm; 20] = [
    ("[", "{},", "{}]"),
    ("[", "[],", "[]]"),
    ("[", "0,", "0]"),
    ("[", "1.5e300,", "0]"),
    ("[", "null,", "0]"),
    ("[", r#""","#, "0]"),
    ("[", r#""\u0061","#, "0]"),
    ("[", r#"{"a":0},"#, "0]"),
    ("[", "[0],", "0]"),
    ("[", r#"{"name":"a","type":"a"},"#, r#"{"name":"a"}]"#),
    ("{", r#""NUMBER":0,"#, r#""a":0}"#),
    ("{", r#""NUMBER":"","#, r#""a":""}"#),
    ("{", r#""NUMBER":{},"#, r#""a":{}}"#),
    ("{", r#""a":{"b":0},"#, r#""a":0}"#),
    ("{", r#""\u00e9NUMBER":"\n","#, r#""a":""}"#),
    ("", "[", ""),
    ("", r#"{"a":"#, ""),
    ("\"", "a", "\""),
    ("\"", r"\u00e9", "\""),
    ("", "1", ""),
];

/// Fills the hole of an answer so that it has this number of bytes.
fn filled(answer: &str, (open, piece, close): (&str, &str, &str), bytes: usize) -> String {
    let (before, after) = answer.split_once(HOLE).unwrap();
    let mut body = before.replace(NUMBER, "0") + open;
    let end = bytes.saturating_sub(close.len() + after.len());
    let mut number = 0;
    while body.len() + piece.len() < end {
        match piece.split_once(NUMBER) {
            Some((_, rest)) if rest.contains(NUMBER) => body += &piece.replace(NUMBER, &number.to_string()),
            Some((start, rest)) => write!(body, "{start}{number}{rest}").unwrap(),
            None => body += piece,
        }
        number += 1;
    }
    body + close + &after.replace(NUMBER, "0")
}

/// Answers with a hole in place of each value; and with a hole before the first item of each list, or member of each
/// object, with that item or member.
fn holed(valid: &Value) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut paths = vec![String::new()];
    while let Some(path) = paths.pop() {
        let with = |value: Value| {
            let mut whole = valid.clone();
            *whole.pointer_mut(&path).unwrap() = value;
            whole.to_string()
        };
        let quoted = format!("\"{HOLE}\"");
        found.push((with(Value::from(HOLE)).replace(&quoted, HOLE), None));
        match valid.pointer(&path).unwrap() {
            Value::Array(items) => {
                paths.extend((0..items.len()).map(|index| format!("{path}/{index}")));
                let mut more = items.clone();
                more.insert(0, Value::from(HOLE));
                let text = with(Value::from(more)).replace(&format!("{quoted},"), HOLE);
                found.extend(items.first().map(|item| (text, Some(format!("{item},")))));
            }
            Value::Object(members) => {
                paths.extend(members.keys().map(|name| format!("{path}/{}", name.replace('/', "~1"))));
                let mut more = members.clone();
                more.insert(String::new(), Value::from(HOLE));
                let text = with(Value::from(more)).replace(&format!("\"\":{quoted},"), HOLE);
                let item =
                    members.iter().next().map(|(name, value)| format!("{}:{value},", Value::from(name.as_str())));
                found.extend(item.map(|item| (text, Some(item))));
            }
            _ => {}
        }
    }
    found
}

/// Largest cost of a parser, and its share of the bound.
#[derive(Default)]
struct Worst {
    share: f64,
    bytes: usize,
    body: String,
}

impl Worst {
    /// Measures a parser with answers of all forms.
    fn of(parser: &Parser) -> Self {
        let mut worst = Self::default();
        let answers = parser.valid.iter().flat_map(|valid| holed(&serde_json::from_str(valid).unwrap()));
        let answers: Vec<_> = answers.collect();
        for (answer, item) in &answers {
            match item {
                Some(item) => worst.add(parser, &filled(answer, ("", item, ""), parser.body)),
                None => FORMS.iter().for_each(|form| worst.add(parser, &filled(answer, *form, parser.body))),
            }
        }
        let mut runner = TestRunner::deterministic();
        let places = prop::sample::select(answers);
        let forms = prop::sample::select(FORMS.to_vec());
        let random = (places.clone(), forms.clone(), places, forms, 0..=parser.body);
        for _ in 0..RANDOM {
            let (one, first, (answer, item), second, size) = random.new_tree(&mut runner).unwrap().current();
            let inner = filled(&answer, item.as_deref().map_or(second, |item| ("", item, "")), size);
            if one.1.is_none() {
                worst.add(parser, &filled(&one.0, ("[", first.1, &format!("{inner}]")), parser.body));
            }
            worst.add(parser, inner.get(..size / 2).unwrap_or_default());
        }
        println!("{}: {:.2} of the bound, {} KiB: {}", parser.name, worst.share, worst.bytes >> 10, worst.body);
        worst
    }

    fn add(&mut self, parser: &Parser, body: &str) {
        let (bytes, ()) = peak(|| (parser.parse)(body.as_bytes()));
        let share = bytes as f64 / (TIMES * body.len() + parser.stored) as f64;
        if share > self.share {
            let at = body.len().min(160);
            *self = Self { share, bytes, body: body.get(..at).unwrap_or_default().to_owned() };
        }
    }
}

#[test]
fn an_answer_of_any_form_costs_little_more_than_its_size() {
    let _turn = turn();
    let measured = PARSERS.iter().map(|parser| (parser.name, Worst::of(parser).share));
    let failed: Vec<_> = measured.filter(|(_, share)| *share > 1.0).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// A tree of an answer is what a parser must not build; the forms show it.
#[test]
fn a_tree_of_an_answer_costs_many_times_its_size() {
    let _turn = turn();
    let parse: fn(&[u8]) = |body| drop(serde_json::from_slice::<Value>(body));
    let tree = Parser { name: "a tree", body: 64 << 10, stored: 0, valid: &[BMC], parse };
    assert!(Worst::of(&tree).share > 10.0);
}

#[test]
fn the_search_of_a_bmc_stores_few_sensors() {
    let _turn = turn();
    let (bytes, found) = peak(|| inlet(&LargeBmc, None, None).now_or_never());
    println!("{} KiB", bytes >> 10);
    assert!(matches!(found, Some(Err(redfish::Error::TooManyRequests(_)))), "{found:?}");
    assert!(bytes < 6 * MIB, "{bytes}");
}

#[test]
fn certificates_of_any_form_cost_little_more_than_their_size() {
    let _turn = turn();
    for piece in ["-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "a", "\n", "-----BEGIN X-----\n"] {
        let text = piece.repeat((256 << 10) / piece.len());
        let (bytes, _) = peak(|| trust::only(text.as_bytes()));
        println!("{piece:?}: {} KiB", bytes >> 10);
        assert!(bytes < TIMES * text.len() + MIB, "{piece:?}: {bytes}");
    }
}
