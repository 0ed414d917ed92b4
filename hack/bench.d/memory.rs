//! `hack/bench memory`: the memory that an object of each kind costs in each replica at its largest, and the estimate
//! of it, on which the limit of a namespace is based. Needs no control plane.

use anyhow::{Context, Result, ensure};
use ganglion::operator::world::world;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::world::{Fact, OccupancyLimits, Origin, World};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::frame::{Bench, Bound, Progress, number};

/// Number of objects per kind.
const OBJECTS: usize = 200;

/// Size of an object that is still read, in bytes of JSON.
const LARGEST: usize = 64 << 10;

/// Runs the bench.
pub fn run(bench: &mut Bench) -> Result<()> {
    one::<WorkloadAction>(bench)?;
    one::<ClosedLoop>(bench)?;
    one::<Monitoring>(bench)?;
    one::<Decision>(bench)?;
    one::<Execution>(bench)?;
    one::<NodeConfig>(bench)?;
    one::<NodeConfigTemplate>(bench)?;
    one::<SwarmPool>(bench)?;
    one::<PlacementPolicy>(bench)
}

/// Measures one kind.
fn one<K: Fact + DeserializeOwned>(bench: &mut Bench) -> Result<()> {
    if !bench.wants(K::KIND) {
        return Ok(());
    }
    let progress = Progress::spin(K::KIND);
    let crd = ganglion_api::all().into_iter().find(|crd| crd.spec.names.kind == K::KIND).context("no such kind")?;
    let version = crd.spec.versions.first().and_then(|version| version.schema.as_ref()).context("no schema")?;
    let (object, size) = largest(&json!(version.open_api_v3_schema))?;
    let limits = OccupancyLimits { per_namespace: usize::MAX, in_all: usize::MAX };
    let mut world: World = world().with_limits(limits);
    let before = resident()?;
    for at in 0..OBJECTS {
        let mut object = object.clone();
        object["metadata"] = json!({"namespace": "a", "name": format!("o{at}"), "uid": format!("u{at}"),
            "resourceVersion": (at + 1).to_string()});
        world.apply(serde_json::from_str::<K>(&object.to_string())?, Origin::Watch);
    }
    let occupied = (resident()? - before) / number(OBJECTS);
    let estimated: usize = world.occupancy().map(|(_, bytes)| bytes).sum();
    let estimated = number(estimated) / number(OBJECTS);
    ensure!(world.table::<K>().len() == OBJECTS, "not all objects were stored");
    progress.end();
    bench.note(&format!("{} of {} KiB as JSON: resident", K::KIND, size >> 10), occupied / 1024.0, "KiB");
    bench.claim("  relative to the estimate", occupied / estimated, "", Bound::Below(1.0));
    Ok(())
}

/// The largest object that is still read, and its size as JSON: all fields, with as many and as long items as fit.
fn largest(schema: &Value) -> Result<(Value, usize)> {
    let mut found = None;
    for items in 1..64 {
        for length in [1, 8, 63, 253, 1024, 4096] {
            let [spec, status] = ["spec", "status"].map(|part| filled(&schema["properties"][part], items, length));
            let object = json!({"spec": spec, "status": status});
            let size = object.to_string().len();
            if size <= LARGEST && found.as_ref().is_none_or(|(_, largest)| size > *largest) {
                found = Some((object, size));
            }
        }
    }
    found.context("each object is too large")
}

/// A value with this many items per list and map, and texts of this length, within the bounds of the schema.
fn filled(schema: &Value, items: u64, length: u64) -> Value {
    let most = |bound: &str, wanted: u64| schema[bound].as_u64().unwrap_or(wanted).min(wanted);
    let whole = |count: u64| usize::try_from(count).unwrap_or(0);
    if let Some(words) = schema["enum"].as_array() {
        return words.first().cloned().unwrap_or_default();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(1);
    }
    match schema["type"].as_str() {
        Some("object") => match schema["properties"].as_object() {
            Some(fields) => fields.iter().map(|(name, field)| (name.clone(), filled(field, items, length))).collect(),
            None => {
                let value = filled(&schema["additionalProperties"], items, length);
                let keys = 0..most("maxProperties", items);
                Value::Object(keys.map(|key| (format!("k{key}"), value.clone())).collect::<Map<_, _>>())
            }
        },
        Some("array") => vec![filled(&schema["items"], items, length); whole(most("maxItems", items))].into(),
        Some("string") if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        Some("string") => "x".repeat(whole(most("maxLength", length))).into(),
        Some("boolean") => json!(true),
        _ => schema["minimum"].as_f64().map_or(json!(1), |least| json!(least.max(1.0) as i64)),
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes * 1024.0)
}
