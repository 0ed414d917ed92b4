//! One chain through all parts of the operator, as `hack/demo chain` shows it: also with an operator that is killed
//! between its stations.

use std::sync::Arc;

use anyhow::{Result, ensure};
use testkit::block_on;
use testkit::chain::{HeatChain, NODES, Station};
use testkit::plane::Plane;
use testkit::testbed::{Road, Testbed, story_on};

#[test]
fn heat_in_one_rack_moves_replicas_and_jobs_and_nothing_goes_back() {
    chain("chain", async |_| Ok(()));
}

#[test]
fn the_chain_goes_on_when_the_operator_is_killed_between_stations() {
    chain("chain-killed", async |testbed| testbed.kill_and_restart().await);
}

/// Plays all stations, each after `between`.
fn chain(name: &str, between: impl AsyncFn(&Testbed) -> Result<()>) {
    let plane = block_on(Plane::own(name, NODES)).expect("a plane of its own");
    story_on(&Arc::clone(&plane.0), Road::Direct, name, async |testbed| {
        let chain = HeatChain::set(&testbed.plane.cluster, &testbed.ns).await?;
        for station in Station::ALL {
            between(testbed).await?;
            for check in chain.play(station).await? {
                ensure!(check.holds, "{station:?}: {}: {}", check.what, check.seen);
            }
        }
        Ok(())
    });
}
