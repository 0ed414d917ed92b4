//! Memory that input of users, servers and strangers costs, measured by a counting allocator.
//!
//! | file | input |
//! |---|---|
//! | `bodies` | answers of servers |
//! | here | requests to the extender, texts of jobs, objects |
//!
//! The allocator counts for the whole process, so the tests of this file run one after the other.

mod bodies;
#[path = "../schema/mod.rs"]
mod schema;

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::{Request, header};
use ganglion::operator::world::world;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::world::{Fact, Origin};
use ganglion_placement::cache::PlacementCache;
use ganglion_placement::extender::Extender;
use ganglion_pools_plan::jobs;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;
use ganglion_runtime::watch::Readiness;
use http_body_util::BodyExt;
use peak_alloc::PeakAlloc;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::schema::{accepted_objects, sparse_objects};
use tower::ServiceExt;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static TURN: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum bytes allocated during this call beyond those before it, and its result.
fn peak<T>(call: impl FnOnce() -> T) -> (usize, T) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let done = call();
    (ALLOCATOR.peak_usage().saturating_sub(before), done)
}

/// An extender with one policy, `green`.
fn extender() -> Extender {
    let store = Store::new(world());
    let policy = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "green", "uid": "u", "generation": 1, "resourceVersion": "1"},
        "spec": {"agents": [{"name": "mine", "expression": {"filter": "node.pods > 100000"}}]}});
    store.apply(serde_json::from_value::<PlacementPolicy>(policy).unwrap(), Origin::Watch);
    Extender::new(Readiness::default(), PlacementCache::new(store), Metrics::new(), 64 * MIB)
}

/// A body of a mebibyte: `open`, then this piece repeated, then `close`.
fn body(open: &str, piece: &str, close: &str) -> String {
    let times = (MIB - open.len() - close.len()) / piece.len();
    format!("{open}{}{close}", piece.repeat(times).trim_end_matches(','))
}

#[test]
fn a_mebibyte_of_any_form_costs_the_extender_little() {
    let _turn = turn();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let distinct: String = (0..60_000).map(|at| format!(r#""l{at}":"","#)).collect();
    let bodies = [
        ("containers", body(r#"{"Pod":{"spec":{"containers":["#, "{},", r#"]}},"NodeNames":["a"]}"#)),
        ("inits", body(r#"{"Pod":{"spec":{"initContainers":["#, "{},", r#"]}},"NodeNames":["a"]}"#)),
        ("ports", body(r#"{"Pod":{"spec":{"containers":[{"ports":["#, "{},", r#"]}]}},"NodeNames":["a"]}"#)),
        ("volumes", body(r#"{"Pod":{"spec":{"volumes":["#, "{},", r#"]}},"NodeNames":["a"]}"#)),
        ("owners", body(r#"{"Pod":{"metadata":{"ownerReferences":["#, "{},", r#"]}},"NodeNames":["a"]}"#)),
        ("tolerations", body(r#"{"Pod":{"spec":{"tolerations":["#, "{},", r#"]}},"NodeNames":["a"]}"#)),
        ("fields", body(r#"{"Pod":{"metadata":{"managedFields":["#, "{},", r#"]}},"NodeNames":["a"]}"#)),
        ("names", body(r#"{"Pod":{},"NodeNames":["#, r#""a","#, "]}")),
        ("nodes", body(r#"{"Pod":{},"Nodes":{"items":["#, r#"{"metadata":{"name":"a"}},"#, "]}}")),
        ("unknown", body(r#"{"Pod":{},"x":["#, "{},", r#"],"NodeNames":["a"]}"#)),
        ("deep", body(r#"{"Pod":{},"NodeNames":["a"],"x":"#, "[", "")),
        (
            "labels",
            format!(
                r#"{{"Pod":{{"metadata":{{"labels":{{{}}}}}}},"NodeNames":["a"]}}"#,
                distinct.trim_end_matches(',')
            ),
        ),
    ];
    let extender = extender();
    for policy in ["green", "x"] {
        for (name, body) in &bodies {
            let request =
                Request::post(format!("/policies/{policy}/filter")).header(header::CONTENT_LENGTH, body.len());
            let request = request.body(Body::from(body.clone())).unwrap();
            let router = extender.clone().router();
            let (bytes, status) = peak(|| {
                runtime.block_on(async {
                    let reply = router.oneshot(request).await.unwrap();
                    let status = reply.status();
                    drop(reply.into_body().collect().await);
                    status
                })
            });
            println!("{policy} {name}: {status}, {} KiB", bytes >> 10);
            assert!(bytes < 24 * MIB, "{policy} {name}: {} MiB, {status}", bytes / MIB);
        }
    }
}

#[test]
fn a_text_of_jobs_costs_little_whatever_its_form() {
    let _turn = turn();
    let forms = [
        ("", "a\n", ""),
        ("", "- a\n", ""),
        ("", "? a\n", ""),
        ("[", "a,", "]"),
        ("[", "[],", "]"),
        ("[", "&a a,", "]"),
        ("jobs: [", "{},", "]"),
    ];
    for (open, piece, close) in forms {
        let text = body(open, piece, close);
        let (bytes, found) = peak(|| jobs::parse(&text));
        let found = found.map(|jobs| jobs.len()).map_err(|error| error.to_string());
        println!("{open:?} {piece:?}: {} KiB, {found:?}", bytes >> 10);
        assert!(bytes < 24 * MIB, "{open:?} {piece:?}: {} MiB, {found:?}", bytes / MIB);
    }
}

/// Objects of each kind: the schema of its spec and status, and a function that reads one and returns its estimate.
type Kind = (&'static str, fn(&str) -> Result<Box<dyn Measured>, String>);

trait Measured {
    fn estimate(&self) -> usize;
}

impl<F: Fact> Measured for F {
    fn estimate(&self) -> usize {
        self.bytes()
    }
}

fn read<K: Fact + DeserializeOwned>(text: &str) -> Result<Box<dyn Measured>, String> {
    let mut object: K = serde_json::from_str(text).map_err(|error| error.to_string())?;
    object.slim();
    Ok(Box::new(object))
}

const KINDS: [Kind; 9] = [
    ("WorkloadAction", read::<WorkloadAction>),
    ("ClosedLoop", read::<ClosedLoop>),
    ("Monitoring", read::<Monitoring>),
    ("Decision", read::<Decision>),
    ("Execution", read::<Execution>),
    ("NodeConfig", read::<NodeConfig>),
    ("NodeConfigTemplate", read::<NodeConfigTemplate>),
    ("SwarmPool", read::<SwarmPool>),
    ("PlacementPolicy", read::<PlacementPolicy>),
];

fn metadata() -> Value {
    json!({"namespace": "a", "name": "one", "uid": "u", "resourceVersion": "1"})
}

/// Objects with many short items in their metadata.
fn many_labels(schema: &Value) -> impl Iterator<Item = Value> {
    let object = sparse_objects(schema).next().unwrap();
    [1, 5, 12, 33, 500].into_iter().flat_map(move |count| {
        let labels: Value = (0..count).map(|number| (number.to_string(), json!(""))).collect();
        let lists = [
            ("labels", labels.clone()),
            ("annotations", labels),
            ("finalizers", vec!["a/b"; count].into()),
            ("ownerReferences", vec![json!({"apiVersion": "v1", "kind": "x", "name": "x", "uid": "x"}); count].into()),
        ];
        let object = object.clone();
        lists.map(move |(field, list)| {
            let mut object = object.clone();
            object["metadata"] = metadata();
            object["metadata"][field] = list;
            object
        })
    })
}

/// The limits of namespaces use the estimate, so it must not be less than the truth.
#[test]
fn the_estimate_of_an_object_is_at_least_the_memory_that_it_occupies() {
    let _turn = turn();
    let mut runner = TestRunner::deterministic();
    for (kind, read) in KINDS {
        let crd = ganglion_api::all().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let schema = json!(crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema);
        let [specs, statuses] = ["spec", "status"].map(|part| schema::accepted(&schema["properties"][part]));
        let random = (0..200).map(|_| {
            let [spec, status] = [&specs, &statuses].map(|part| part.new_tree(&mut runner).unwrap().current());
            json!({"spec": spec, "status": status})
        });
        let (mut worst, mut largest) = (0.0_f64, 0);
        let of_schema = random.chain(accepted_objects(&schema)).chain(sparse_objects(&schema)).map(|mut object| {
            object["metadata"] = metadata();
            object
        });
        for object in of_schema.chain(many_labels(&schema)) {
            let text = object.to_string();
            drop(object);
            let before = ALLOCATOR.current_usage();
            // A time of the status that the API server accepts may not parse.
            let Ok(object) = read(&text) else { continue };
            let occupied = ALLOCATOR.current_usage() - before;
            worst = worst.max(occupied as f64 / object.estimate() as f64);
            largest = largest.max(occupied);
        }
        println!("{kind}: {worst:.2} of the estimate, at most {} KiB", largest >> 10);
        assert!(largest > 0 && worst < 1.0, "{kind}: {worst}");
    }
}
