//! A version is replaced at each write of an action, before and after the API server has it; the other version finishes
//! the action.

use anyhow::{Result, ensure};
use testkit::former::CURRENT;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::{Road, Testbed, stories_on};

use super::{VersionChange, changes, plane};
use crate::acts::{Act, Verb};
use crate::crash::{LAST_WORDS, LEAST_WRITES, reached};

/// More writes than an undisturbed move, and more than an undisturbed create.
const WRITES: usize = 16;

async fn replaced(testbed: &Testbed, change: &VersionChange, verb: Verb, nth: usize, when: HoldPoint) -> Result<()> {
    testbed.run_program(&change.from.program).await?;
    let act = Act::prepare(testbed, verb, "web").await?;
    testbed.operator.lock().await.ready().await?;
    let mut held = testbed.proxy.hold(nth, when, |_| true);
    act.begin(testbed).await?;
    if reached(testbed, &mut held, "web", LAST_WORDS).await?.is_some() {
        let mut operator = testbed.operator.lock().await;
        operator.kill();
        held.lose();
        operator.run_program(&change.to.program);
        operator.start()?;
    } else {
        ensure!(nth > LEAST_WRITES, "the action ended before write {nth}");
    }
    testbed.ends("web", ("True", "Succeeded")).await?;
    act.done(testbed).await
}

#[test]
fn an_action_is_finished_by_the_other_version_at_each_write() {
    for change in changes() {
        // The newer CRDs: they come first in an upgrade, and stay in a downgrade.
        let newer = if change.to.name == CURRENT { &change.to } else { &change.from };
        let own = plane(&format!("steps-{}", change.name), newer);
        let cases = [Verb::Move, Verb::Create].into_iter().flat_map(|verb| {
            let points = move |nth| [HoldPoint::Before, HoldPoint::After].map(|when| (verb, nth, when));
            (1..=WRITES).flat_map(points)
        });
        let cases = cases.map(|case @ (verb, nth, when)| {
            (format!("{}-{}-{nth}-{when:?}", change.name, verb.name()).to_lowercase(), case)
        });
        stories_on(&own.0, Road::Proxy, cases.collect(), async |testbed, (verb, nth, when)| {
            replaced(testbed, &change, *verb, *nth, *when).await
        });
    }
}
