//! Requests of a former leader that reach the API server after another replica has taken over and finished the work.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::execution::ExecutionState;
use serde_json::json;
use testkit::operator::SHORT_LEASE;
use testkit::proxy::Write;
use testkit::proxy::gate::{Held, HoldPoint};
use testkit::testbed::loops::{SCALES, account, demo, ended, make, push, replicas, travelled, with_loops};
use testkit::testbed::replicas::Replica;
use testkit::testbed::rest::rest_clean;
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories};

use crate::acts::{Act, Verb};
use crate::crash::{LAST_WORDS, LEAST_WRITES, clean_run, reached};

const DONE: (&str, &str) = ("True", "Succeeded");

/// Maximum number of writes for one sample of a loop that acts.
const WRITES_OF_SAMPLE: usize = 5;

/// Lets the testbed's operator lead with a short lease, and starts a standby.
pub async fn with_standby(testbed: &Testbed) -> Result<Replica> {
    testbed.settings(SHORT_LEASE)?;
    testbed.kill_and_restart().await?;
    testbed.operator.lock().await.ready().await?;
    let first = testbed.another_leads("").await?;
    let mut standby = testbed.replica("two", SHORT_LEASE).await?;
    standby.operator.start()?;
    standby.operator.ready().await?;
    ensure!(testbed.leader().await? == first, "the standby leads");
    Ok(standby)
}

/// Stops the leader, and waits until the standby leads.
async fn stop(testbed: &Testbed) -> Result<()> {
    let leader = testbed.leader().await?;
    testbed.operator.lock().await.signal("-STOP")?;
    testbed.another_leads(&leader).await.map(drop)
}

/// Delivers the request of the former leader, which must be refused, and lets it continue: it ends.
async fn deliver(testbed: &Testbed, held: Held, write: &Write) -> Result<()> {
    held.release();
    let answer = testbed.proxy.answered(write.number).await?;
    ensure!(answer.is_client_error(), "the late request {write} was answered by {answer}: {}", write.body);
    let mut operator = testbed.operator.lock().await;
    operator.signal("-CONT")?;
    let ended = operator.end().await?.context("the former leader still runs")?;
    ensure!(!ended.success(), "the former leader ended by {ended}");
    // The testbed would start it again.
    operator.kill();
    Ok(())
}

#[test]
fn each_late_write_of_an_action_is_refused() {
    let cases = [Verb::Move, Verb::Create, Verb::Delete].into_iter().flat_map(|verb| {
        let writes = clean_run(verb);
        assert!(writes >= LEAST_WRITES, "a {} of {writes} writes", verb.name());
        (1..=writes).map(move |nth| (format!("late-{}-{nth}", verb.name()), (verb, nth)))
    });
    stories(cases.collect(), async |testbed, (verb, nth)| {
        let act = Act::prepare(testbed, *verb, "web").await?;
        let _standby = with_standby(testbed).await?;
        let mut held = testbed.proxy.hold(*nth, HoldPoint::Before, |_| true);
        act.begin(testbed).await?;
        let Some(write) = reached(testbed, &mut held, "web", LAST_WORDS).await? else {
            // On a busy machine, there are a few more writes, which report what the action waits for.
            ensure!(*nth > LEAST_WRITES, "the action ended before write {nth}");
            return act.done(testbed).await;
        };
        stop(testbed).await?;
        testbed.ends("web", DONE).await?;
        act.done(testbed).await?;
        // The finalizer of an action goes after its end.
        rest_clean(testbed).await?;
        deliver(testbed, held, &write).await?;
        act.done(testbed).await
    });
}

#[test]
fn each_late_write_of_a_decision_is_refused() {
    let cases = (1..=WRITES_OF_SAMPLE).map(|nth| (format!("late-decision-{nth}"), nth));
    stories(cases.collect(), async |testbed, nth| match late_decision(testbed, *nth).await {
        Ok(()) => Ok(()),
        Err(error) => Err(with_loops(testbed, error).await),
    });
}

async fn late_decision(testbed: &Testbed, nth: usize) -> Result<()> {
    let _standby = with_standby(testbed).await?;
    account(testbed, SCALES).await?;
    Workload::deployment("web", 1).make(testbed).await?;
    make(testbed, "web", demo()).await?;
    // Lets the loop report that it runs, so that the next writes are those of the sample.
    testkit::testbed::loops::ready(testbed, "web", "True", "Running").await?;
    let (generation, before) = replicas(testbed, "web").await?;
    // The summary in the loop's own status is applied without a precondition, since several write that status. It has
    // no effect, and the next leader writes it again.
    let mut held = testbed.proxy.hold(nth, HoldPoint::Before, |write| !write.is_on("closedloops/status"));
    let time = push(testbed, "web", json!({"cpu": "1", "memory": "60"})).await?;
    let write = tokio::select! {
        biased;
        write = held.reached() => write,
        over = travelled(testbed, "web", time) => {
            over?;
            tokio::time::timeout(Duration::from_secs(1), held.reached()).await.ok().flatten()
        }
    };
    if let Some(write) = &write {
        stop(testbed).await?;
        let (.., execution) = travelled(testbed, "web", time).await?;
        ensure!(execution.is_some_and(|one| ended(&one).0 == Some(ExecutionState::Done)), "the loop did not act");
        deliver(testbed, held, write).await?;
    } else {
        ensure!(nth > 3, "a decision of less than {nth} writes");
    }
    let after = replicas(testbed, "web").await?;
    ensure!(after == (generation + 1, before + 1), "one decision changed {before} replicas to {after:?}");
    Ok(())
}
