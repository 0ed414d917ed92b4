//! The part `plane`: a control plane, the second ground of the lab, makes the decisions of the first one.

use anyhow::Result;
use jiff::Timestamp;
use lab::compare::Agreement;
use lab::contender::Contender;
use lab::fleet::ServerFleet;
use lab::generate::WorkloadShape;
use lab::plane::PlaneGround;
use testkit::plane::install::Installed;

use crate::frame::{Bench, Bound, Progress, number};

pub const PART: &str = "plane";

const SEED: u64 = 1;

/// Workload on the edge servers, and on a part of the mixed fleet, where the nodes need different power.
const EDGE: WorkloadShape = WorkloadShape { load: 0.35, hours: 0.5 };
const MIXED: WorkloadShape = WorkloadShape { load: 0.2, hours: 0.5 };

/// One of so many servers of the mixed fleet belongs to that part.
const EVERY: usize = 5;

/// Maximum number of decisions described for a contender.
const DESCRIBED: usize = 5;

/// Runs the contenders that need no plugins of others and no moves.
pub async fn run(bench: &mut Bench) -> Result<()> {
    let cluster = bench.plane(PART, 0, &[]).await?;
    Installed::default().install(&cluster).await?;
    let ground = PlaneGround::open(&cluster, bench.home(PART)?, Timestamp::now).await?;
    for (fleet, shape) in works()? {
        let trace = shape.generate(&fleet, SEED);
        for contender in Contender::on_plane() {
            let title = format!("{}, {}", fleet.name, contender.name);
            let progress = Progress::spin(&format!("{} pods on a control plane: {title}", trace.pods.len()));
            let decisions = ground.run(&trace, &fleet, &contender, SEED).await?;
            progress.end();
            let agreement = Agreement::count(&decisions);
            println!("{title}: {agreement}");
            for decision in decisions.iter().filter(|decision| decision.is_unexplained()).take(DESCRIBED) {
                println!("{}", decision.describe());
            }
            let title = format!("{title}: unexplained differences");
            bench.claim(&title, number(agreement.unexplained), "decisions", Bound::AtMost(0.0));
        }
    }
    cluster.down().await
}

/// Fleets with their workloads.
fn works() -> Result<Vec<(ServerFleet, WorkloadShape)>> {
    let mut works = Vec::new();
    for mut fleet in ServerFleet::all()? {
        match fleet.name.as_str() {
            "edge" => works.push((fleet, EDGE)),
            "mixed" => {
                fleet.servers = fleet.servers.into_iter().step_by(EVERY).collect();
                works.push((fleet, MIXED));
            }
            _ => {}
        }
    }
    Ok(works)
}
