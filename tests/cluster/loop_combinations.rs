//! Actions for several alarms together: when they are taken, what an unknown value does, and that a restart of the
//! operator changes none of it.

use anyhow::{Result, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{ACCOUNT, SCALES, account, loop_story, make, push, ready, replicas, travelled, until};
use testkit::testbed::workload::Workload;

/// Makes a loop on the Deployment `web` that adds a replica for a queue over 100 and errors under 5, or for one of
/// them.
async fn scene(testbed: &Testbed, list: &str) -> Result<()> {
    Workload::deployment("web", 1).create(testbed).await?;
    account(testbed, SCALES).await?;
    let alarms = json!([{"metric": "queue", "side": "High"}, {"metric": "errors", "side": "Low"}]);
    let spec = json!({
        "serviceAccountName": ACCOUNT, "trace": "EverySample",
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "queue", "source": {"push": {}}, "high": {"raise": "100"}},
            {"name": "errors", "source": {"push": {}}, "low": {"raise": "5"}},
        ],
        "actions": [{"when": {list: alarms}, "ladder": [{"scale": {"by": 1, "max": 9}}]}],
    });
    make(testbed, "web", spec).await?;
    ready(testbed, "web", "True", "Running").await.map(drop)
}

/// Pushes the values. Returns the messages of Monitoring and Decision, and the replicas after that.
async fn pushed(testbed: &Testbed, values: Value) -> Result<(String, String, i32)> {
    let time = push(testbed, "web", values).await?;
    let (seen, said, _) = travelled(testbed, "web", time).await?;
    Ok((seen, said, replicas(testbed, "web").await?.1))
}

async fn is(testbed: &Testbed, values: Value, (seen, said, count): (&str, &str, i32)) -> Result<()> {
    let found = pushed(testbed, values.clone()).await?;
    ensure!((found.0.as_str(), found.1.as_str(), found.2) == (seen, said, count), "{values}: {found:?}");
    Ok(())
}

#[test]
fn all_alarms_together_trigger_an_action_also_after_a_restart() {
    loop_story("combined-all", async |testbed| {
        scene(testbed, "all").await?;
        let waits = "Hold High queue and Low errors: Low errors is not active";
        is(testbed, json!({"queue": "200", "errors": "9"}), ("High queue", waits, 1)).await?;
        let unknown = "Hold High queue and Low errors: the value of errors is unknown";
        let reacts = "React to High queue and Low errors";
        is(testbed, json!({"queue": "200", "errors": "1"}), ("High queue,Low errors", reacts, 2)).await?;
        is(testbed, json!({"queue": "200"}), ("High queue,Low errors", unknown, 2)).await?;
        testbed.kill_and_restart().await?;
        is(testbed, json!({"queue": "200"}), ("High queue,Low errors", unknown, 2)).await?;
        let (_, text) = testbed.ganglion(&["explain", "loop", "web"]).await?;
        for words in ["High queue and Low errors", "the value of errors is unknown", "unknown now", "met since"] {
            ensure!(text.contains(words), "{words} is not in\n{text}");
        }
        is(testbed, json!({"queue": "200", "errors": "1"}), ("High queue,Low errors", reacts, 3)).await?;
        let shown = |one: ClosedLoop| (one.status?.summary?.decision? == reacts).then_some(());
        until::<ClosedLoop, _>(testbed, "web", "the columns to name the combination", shown).await?;
        let table = testbed.kubectl(&["get", "loop,dec", "-o", "wide"], None).await?;
        for words in ["High queue,Low errors", reacts] {
            ensure!(table.contains(words), "{words} is not in\n{table}");
        }
        let cause = "queue is above 100 and errors is below 5";
        let events = testbed.kubectl(&["events", "--for", "loop/web"], None).await?;
        ensure!(events.contains(cause), "{cause} is not in\n{events}");
        is(testbed, json!({"queue": "0", "errors": "9"}), ("No Event", "No Event", 3)).await?;
        let history = testbed.api::<Decision>().get("web").await?.status.unwrap_or_default().history;
        ensure!(history.len() == 2, "{history:?}");
        Ok(())
    });
}

#[test]
fn one_known_alarm_triggers_any_while_another_value_is_unknown_also_after_a_restart() {
    loop_story("combined-any", async |testbed| {
        scene(testbed, "any").await?;
        let reacts = "React to High queue or Low errors";
        is(testbed, json!({"queue": "200"}), ("High queue", reacts, 2)).await?;
        testbed.kill_and_restart().await?;
        is(testbed, json!({"queue": "200"}), ("High queue", reacts, 3)).await?;
        is(testbed, json!({"errors": "1"}), ("High queue,Low errors", reacts, 4)).await?;
        let unknown = "Hold High queue or Low errors: the value of queue, errors is unknown";
        is(testbed, json!({"other": "1"}), ("High queue,Low errors", unknown, 4)).await?;
        let decision = testbed.api::<Decision>().get("web").await?;
        let chosen = decision.status.clone().and_then(|status| status.chosen);
        ensure!(chosen.is_some_and(|chosen| chosen.metric == "errors"), "{}: another alarm led", decision.name_any());
        is(testbed, json!({"queue": "0", "errors": "9"}), ("No Event", "No Event", 4)).await
    });
}
