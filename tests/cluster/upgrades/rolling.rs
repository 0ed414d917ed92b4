//! A rolling update of the operator, as its Deployment does it: a new replica starts, and an old one gets SIGTERM when
//! the new one is ready.

use anyhow::{Context, Result, anyhow, ensure};
use testkit::former::{CURRENT, OperatorVersion};
use testkit::plane::install;
use testkit::testbed::replicas::Replica;
use testkit::testbed::rest::rest_clean;
use testkit::testbed::{Road, Testbed, story_on};

use super::flight::Flight;
use super::{VersionChange, changes, plane};

async fn start(testbed: &Testbed, identity: &str, version: &OperatorVersion) -> Result<Replica> {
    let mut replica = testbed.replica(identity, "").await?;
    replica.operator.run_program(&version.program);
    replica.operator.start()?;
    replica.operator.ready().await?;
    Ok(replica)
}

/// Sends SIGTERM, lets held requests continue, and waits for the end.
async fn replace(replica: &mut Replica, held: Vec<testkit::proxy::gate::Held>) -> Result<()> {
    replica.operator.signal("-TERM")?;
    held.into_iter().for_each(testkit::proxy::gate::Held::release);
    let status = replica.operator.end().await?.with_context(|| format!("{} does not end", replica.identity))?;
    ensure!(status.success(), "{} ended by {status}:\n{}", replica.identity, replica.operator.log_tail(10));
    Ok(())
}

async fn rolls(testbed: &Testbed, from: &OperatorVersion, to: &OperatorVersion) -> Result<()> {
    testbed.end_operator().await?;
    let mut old = [start(testbed, "old-1", from).await?, start(testbed, "old-2", from).await?];
    ensure!(testbed.another_leads("").await? == "old-1", "the second replica leads");
    let mut flight = Flight::prepare(testbed).await?;
    // Changed policies of a former version stop the current one, so that its work has to begin before. A former version
    // continues with the policies of the current one.
    let mut held = Vec::new();
    if to.name != CURRENT {
        held = flight.take_off(&old[0].proxy).await?;
    }
    // As `kubectl apply -k`: policies, CRDs and permissions come before the new Deployment.
    install::apply(&testbed.plane.cluster, &to.base).await?;
    let first = start(testbed, "new-1", to).await?;
    if to.name == CURRENT {
        held = flight.take_off(&old[0].proxy).await?;
    }
    replace(&mut old[0], held).await?;
    testbed.another_leads("old-1").await?;
    let second = start(testbed, "new-2", to).await?;
    replace(&mut old[1], Vec::new()).await?;
    let leader = loop {
        let leader = testbed.another_leads("old-2").await?;
        if leader.starts_with("new") {
            break leader;
        }
    };
    let leader = if leader == "new-1" { &first } else { &second };
    let landed = async {
        flight.lands(&leader.proxy).await?;
        rest_clean(testbed).await?;
        flight.stop().await
    };
    landed.await.map_err(|error| anyhow!("{error:#}\n--- {}\n{}", leader.identity, leader.operator.log_tail(40)))
}

fn on_own_plane(change: &VersionChange) {
    let own = plane(&format!("rolls-{}", change.name), &change.from);
    story_on(&own.0, Road::Proxy, &format!("rolls-{}", change.name), async |testbed| {
        rolls(testbed, &change.from, &change.to).await
    });
}

/// All changes of the version, with the upgrade from the latest one apart.
fn latest_and_others() -> (VersionChange, Vec<VersionChange>) {
    let mut changes = changes();
    let latest = changes.iter().rposition(|change| change.to.name == CURRENT).expect("an upgrade");
    (changes.remove(latest), changes)
}

/// The only one of these stories in `hack/test` without a verb.
#[test]
fn work_in_flight_ends_as_without_the_upgrade_from_the_latest_version() {
    on_own_plane(&latest_and_others().0);
}

#[test]
fn work_in_flight_ends_as_without_an_older_upgrade_or_a_downgrade() {
    latest_and_others().1.iter().for_each(on_own_plane);
}
