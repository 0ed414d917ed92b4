//! Formulas of loops: a pushed value and the number of replicas drive a scale, and an unknown operand drives nothing.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{
    ACCOUNT, SCALES, account, decision_status, has_data, loop_story, make, push, put, ready, replicas, says, travelled,
    until,
};
use testkit::testbed::workload::Workload;

/// A loop that adds a replica to `web` while each has more than 50 requests, and removes one while each has fewer than
/// 5.
fn shared(expression: &str) -> Value {
    json!({
        "interval": "30s",
        "trace": "EverySample",
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "requests", "source": {"push": {}}, "missing": {"after": "4s"}},
            {"name": "share", "source": {"formula": {"expression": expression}},
             "high": {"raise": "50"}, "low": {"raise": "5"}},
        ],
        "actions": [
            {"when": {"metric": "share", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]},
            {"when": {"metric": "share", "side": "Low"}, "ladder": [{"scale": {"by": -1, "min": 1}}]},
        ],
    })
}

/// Pushes this number of requests. Returns the message of the decision, and the value that it acted on last.
async fn requests(testbed: &Testbed, number: &str) -> Result<(String, String)> {
    let time = push(testbed, "web", json!({"requests": number})).await?;
    let (_, message, _) = travelled(testbed, "web", time).await?;
    let history = decision_status(testbed, "web").await?.history;
    let value = history.last().and_then(|entry| entry.value.clone());
    Ok((message, value.map(|value| value.as_str().to_owned()).unwrap_or_default()))
}

fn reacts(value: &str) -> (String, String) {
    ("React to share".to_owned(), value.to_owned())
}

#[test]
fn requests_for_each_replica_drive_a_scale_and_an_unknown_operand_drives_nothing() {
    loop_story("formulas-drive", async |testbed| {
        Workload::deployment("web", 2).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", shared("requests / replicas")).await?;
        ready(testbed, "web", "True", "Running").await?;
        let found = requests(testbed, "105").await?;
        ensure!(found == reacts("52.5"), "105 requests on 2 replicas: {found:?}");
        ensure!(replicas(testbed, "web").await?.1 == 3, "{:?}", replicas(testbed, "web").await?);
        // The same requests on three replicas are enough.
        let found = requests(testbed, "105").await?;
        ensure!(found.0 == "No Event", "105 requests on 3 replicas: {found:?}");

        // An operand without a value: no action, and the condition names it.
        let before = replicas(testbed, "web").await?;
        push(testbed, "web", json!({"other": "1"})).await?;
        let message = says(testbed, "web", "DataAvailable", ("False", "SomeUnknown")).await?;
        for words in ["requests (the sample has no requests)", "share (its operand requests is unknown)"] {
            ensure!(message.contains(words), "{words} is not in {message}");
        }
        let text = testbed.kubectl(&["get", "monitoring", "web", "-o", "yaml"], None).await?;
        ensure!(text.contains("message: its operand requests is unknown"), "{text}");
        ensure!(replicas(testbed, "web").await? == before, "it acted on an unknown value");

        let found = requests(testbed, "900").await?;
        ensure!(found == reacts("300"), "900 requests on 3 replicas: {found:?}");
        has_data(testbed, "web").await?;
        ensure!(replicas(testbed, "web").await?.1 == 4, "{:?}", replicas(testbed, "web").await?);
        Ok(())
    });
}

/// A floor by time is an operand beside a pushed value.
#[test]
fn a_number_by_time_is_an_operand() {
    loop_story("formulas-cron", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        let by_time = |name: &str, window: Value| json!({"name": name, "source": {"cron": {"during": [window], "value": "3", "otherwise": "1"}}});
        // One window begins each minute and lasts two; the other one is open for a second of the year.
        let always = by_time("always", json!({"cron": "* * * * *", "duration": "2m"}));
        let never = by_time("never", json!({"cron": "0 0 1 1 *", "duration": "1s"}));
        let number = json!({"formula": {"expression": "max(requests / 10, always * never)"}});
        let spec = json!({
            "interval": "1s",
            "serviceAccountName": ACCOUNT,
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [
                {"name": "requests", "source": {"push": {}}, "missing": {"after": "10m"}}, always, never,
                {"name": "number", "source": number},
            ],
            "actions": [{"when": {"metric": "number", "side": "Target"}, "ladder": [{"scale": {
                "track": {"type": "AverageValue", "target": "1"}, "max": 9, "down": {"window": "0s"}}}]}],
        });
        make(testbed, "web", spec).await?;
        push(testbed, "web", json!({"requests": "0"})).await?;
        until_replicas(testbed, 3).await?;
        push(testbed, "web", json!({"requests": "80"})).await?;
        until_replicas(testbed, 8).await
    });
}

async fn until_replicas(testbed: &Testbed, number: i32) -> Result<()> {
    until::<Deployment, _>(testbed, "web", &format!("{number} replicas"), |web| {
        (web.spec?.replicas? == number).then_some(())
    })
    .await
}

/// The operator knows the number from its caches, and tells it only to those who may read it.
#[test]
fn an_account_that_may_not_get_the_target_does_not_see_its_replicas() {
    loop_story("formulas-rights", async |testbed| {
        Workload::deployment("web", 2).create(testbed).await?;
        account(testbed, &[]).await?;
        let mut spec = shared("requests / replicas");
        spec["actions"] = json!([]);
        make(testbed, "web", spec).await?;
        push(testbed, "web", json!({"requests": "100"})).await?;
        let message = says(testbed, "web", "DataAvailable", ("False", "SomeUnknown")).await?;
        let words = format!(
            "service account {ACCOUNT} of namespace {ns} may not get deployments in \
             namespace {ns}: grant it the role view there",
            ns = testbed.ns
        );
        ensure!(message.contains(&words), "{words} is not in {message}");
        let text = testbed.kubectl(&["get", "monitoring", "web", "-o", "jsonpath={.status}"], None).await?;
        ensure!(!text.contains("\"50\""), "the number of replicas is known: {text}");
        Ok(())
    });
}

#[test]
fn a_formula_that_cannot_work_is_refused_with_the_names() {
    loop_story("formulas-refused", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        put(testbed, "name", shared("requests + requets / replicas")).await?;
        let message = ready(testbed, "name", "False", "SpecInvalid").await?;
        ensure!(message.contains("\"requets\" is no metric of this loop: known are requests, share"), "{message}");
        let mut circle = shared("requests + other");
        circle["target"]["name"] = json!("other");
        let other = json!({"name": "other", "source": {"formula": {"expression": "share * 2"}}});
        circle["metrics"].as_array_mut().context("no metrics")?.push(other);
        put(testbed, "circle", circle).await?;
        let message = ready(testbed, "circle", "False", "SpecInvalid").await?;
        ensure!(message.contains("these formulas use each other: share → other → share"), "{message}");
        let unused = put(testbed, "unused", shared("replicas * 2")).await;
        let refused = format!("{:#}", unused.err().context("it is accepted")?);
        let words = "metrics[0]: metric \"requests\" raises no alarm, and no formula or action on side Target uses it";
        ensure!(refused.contains(words), "{refused}");
        Ok(())
    });
}
