//! The second ground of the lab: kube-scheduler, alone and with a policy, decides as the lab's models of it.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use lab::compare::{Agreement, ComparedDecision};
use lab::contender::Contender;
use lab::fleet::ServerFleet;
use lab::generate::WorkloadShape;
use lab::plane::PlaneGround;
use testkit::block_on;
use testkit::plane::Plane;

const CONTENDERS: [&str; 2] = ["least allocated", "safe and power + HPA"];

/// Small enough for a minute: three servers, one of each generation.
const SHAPE: WorkloadShape = WorkloadShape { load: 0.2, hours: 0.1 };
const SERVERS: [usize; 3] = [0, 12, 21];

/// Minimum number of decisions: with fewer, little was compared.
const DECISIONS: usize = 50;

#[test]
fn the_stock_scheduler_decides_as_the_lab() {
    let plane = block_on(Plane::own("lab", 0)).expect("a plane of its own");
    block_on(compared(&plane.0)).unwrap_or_else(|error| panic!("{error:#}"));
}

async fn compared(plane: &Plane) -> Result<()> {
    let home = tempfile::tempdir()?;
    let ground = PlaneGround::open(&plane.cluster, home.path().to_owned(), Timestamp::now).await?;
    let mut fleet = ServerFleet::all()?.into_iter().find(|fleet| fleet.name == "mixed").context("a mixed fleet")?;
    fleet.servers = SERVERS.map(|server| fleet.servers[server].clone()).to_vec();
    let trace = SHAPE.generate(&fleet, 1);
    for name in CONTENDERS {
        let contender = Contender::all().into_iter().find(|contender| contender.name == name);
        let decisions = ground.run(&trace, &fleet, &contender.context("a contender")?, 1).await?;
        let agreement = Agreement::count(&decisions);
        let unexplained = decisions.iter().filter(|decision| decision.is_unexplained());
        let unexplained: Vec<String> = unexplained.take(5).map(ComparedDecision::describe).collect();
        ensure!(unexplained.is_empty(), "{name}: {agreement}\n{}", unexplained.join("\n"));
        ensure!(agreement.decisions >= DECISIONS, "{name}: {agreement}");
    }
    Ok(())
}
