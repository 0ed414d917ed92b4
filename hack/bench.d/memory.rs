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
use serde_json::{Value, json};
use testkit::schema::accepted_objects;

use super::frame::{Bench, Bound, Progress, number};

/// Number of objects per kind.
const OBJECTS: usize = 200;

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
    let schema = json!(version.open_api_v3_schema);
    let size = |object: &Value| object.to_string().len();
    let object = accepted_objects(&schema).max_by_key(size).context("each object is too large")?;
    let size = size(&object);
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

/// Resident memory of this process, in bytes.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes * 1024.0)
}
