//! CRDs that are older or newer than the program, field by field: without a status field that the program writes, and
//! with fields that it does not know. No effect happens twice, and nothing is written over and over.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::monitoring::Monitoring;
use ganglion_core::definitions::DEFINITION_OUTDATED;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testkit::block_on;
use testkit::former::OperatorVersion;
use testkit::kstatus::is_over;
use testkit::testbed::loops::{SCALES, account, demo, make, push, put, ready, replicas, travelled, until, with_loops};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};

use super::flight::{Flight, rests};
use super::plane;
use crate::acts::{Act, Verb};

/// Time in which work that cannot be recorded is watched, and the maximum number of writes in it.
const LOOK: Duration = Duration::from_secs(8);
const WRITES: usize = 80;

fn definitions(testbed: &Testbed) -> Api<CustomResourceDefinition> {
    Api::all(testbed.client.clone())
}

fn schema(definition: &mut Value) -> Option<&mut Value> {
    definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema")
}

/// The status fields of a kind that the program may leave out; `conditions` and `observedGeneration` are in every
/// version.
async fn optional_status_fields(testbed: &Testbed, plural: &str) -> Result<Vec<String>> {
    let definition = definitions(testbed).get(&format!("{plural}.ganglion.dev")).await?;
    let mut definition = serde_json::to_value(definition)?;
    let schema = schema(&mut definition).context("no schema")?;
    let status = &schema["properties"]["status"];
    let required: Vec<String> = serde_json::from_value(status["required"].clone()).unwrap_or_default();
    let fields = status["properties"].as_object().context("no status")?.keys();
    let kept = ["conditions", "observedGeneration"];
    Ok(fields.filter(|name| !kept.contains(&name.as_str()) && !required.contains(name)).cloned().collect())
}

/// Changes the schema of a kind, and waits until it is in force: it has an additional field of the status then, which
/// an existing object can have.
async fn change(testbed: &Testbed, plural: &str, object: &str, edit: impl Fn(&mut Value)) -> Result<()> {
    let (api, name) = (definitions(testbed), format!("{plural}.ganglion.dev"));
    let mut definition = serde_json::to_value(api.get(&name).await?)?;
    let marker = format!("version{}", definition["metadata"]["generation"]);
    let schema = schema(&mut definition).context("no schema")?;
    edit(schema);
    schema["properties"]["status"]["properties"][&marker] = json!({"type": "string"});
    api.replace(&name, &PostParams::default(), &serde_json::from_value(definition)?).await?;
    let patch = json!({"status": {&marker: "x"}}).to_string();
    let kind = format!("{plural}.ganglion.dev");
    let arguments = ["patch", &kind, object, "--subresource=status", "--type=merge", "-p", &patch, "--dry-run=server"];
    let arguments = [arguments.as_slice(), &["-o", "json"]].concat();
    let in_force = async {
        loop {
            let answer: Value = serde_json::from_str(&testbed.kubectl(&arguments, None).await?)?;
            if answer["status"][&marker] == "x" {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(testkit::TIMEOUT, in_force).await.context("the new definition is not in force")?
}

/// Runs `work` while the kind has no field of this name in its spec or status.
async fn without<T>(
    testbed: &Testbed,
    plural: &str,
    object: &str,
    [part, field]: [&str; 2],
    work: impl AsyncFnOnce() -> Result<T>,
) -> Result<T> {
    let whole = serde_json::to_value(definitions(testbed).get(&format!("{plural}.ganglion.dev")).await?)?;
    let original = whole.pointer("/spec/versions/0/schema/openAPIV3Schema").context("no schema")?.clone();
    change(testbed, plural, object, |schema| {
        if let Some(fields) = schema["properties"][part]["properties"].as_object_mut() {
            fields.remove(field);
        }
    })
    .await?;
    let done = work().await;
    change(testbed, plural, object, |schema| *schema = original.clone()).await?;
    done.with_context(|| format!("without {part}.{field} of {plural}"))
}

#[test]
fn an_action_whose_status_loses_a_field_has_its_effect_once() {
    let current = OperatorVersion::current().expect("the program");
    let own = plane("pruned-actions", &current);
    story_on(&own.0, Road::Proxy, "pruned-actions", async |testbed| {
        let first = Act::prepare(testbed, Verb::Move, "first").await?;
        first.begin(testbed).await?;
        testbed.ends("first", ("True", "Succeeded")).await?;
        for field in optional_status_fields(testbed, "workloadactions").await? {
            let name = format!("x-{}", field.to_lowercase());
            let act = Act::prepare(testbed, Verb::Move, &name).await?;
            let before = testbed.proxy.writes().len();
            without(testbed, "workloadactions", "first", ["status", &field], async || {
                act.begin(testbed).await?;
                let over = |seen: &testkit::eye::Seen| seen.actions.get(&name).filter(|one| is_over(one)).map(drop);
                // It may end, or say that it cannot go on.
                let ended = testbed.eye.within(LOOK, "the end", over).await.is_ok();
                let writes = testbed.proxy.writes().split_off(before);
                let counted = |resource: &str| {
                    let good = writes.iter().filter(|one| one.answer.is_some_and(|answer| answer.is_success()));
                    good.filter(|one| one.method == http::Method::POST && one.is_on(resource)).count()
                };
                println!("without {field}: ended {ended}, {} writes", writes.len());
                ensure!(counted("pods") <= 1 && counted("pods/eviction") <= 1, "two effects: {writes:?}");
                let last: Vec<String> = writes.iter().rev().take(12).map(ToString::to_string).collect();
                ensure!(writes.len() <= WRITES, "{} writes; the last ones: {last:#?}", writes.len());
                Ok(())
            })
            .await?;
            testbed.over(&name).await?;
            act.scene.at_rest(testbed, act.scene.replicas).await?;
        }
        Ok(())
    });
}

#[test]
fn a_loop_whose_statuses_lose_a_field_acts_once() {
    let current = OperatorVersion::current().expect("the program");
    let own = plane("pruned-loops", &current);
    story_on(&own.0, Road::Proxy, "pruned-loops", async |testbed| match loses_fields(testbed).await {
        Ok(()) => Ok(()),
        Err(error) => Err(with_loops(testbed, error).await),
    });
}

async fn loses_fields(testbed: &Testbed) -> Result<()> {
    account(testbed, SCALES).await?;
    Workload::deployment("web", 1).make(testbed).await?;
    make(testbed, "web", demo()).await?;
    let acts = async || {
        let before = replicas(testbed, "web").await?.1;
        let time = push(testbed, "web", json!({"cpu": "1", "memory": "60"})).await?;
        travelled(testbed, "web", time).await?;
        let after = replicas(testbed, "web").await?.1;
        ensure!(after == before + 1, "one decision scaled {before} to {after}");
        Ok(())
    };
    acts().await?;
    for plural in ["closedloops", "monitorings", "decisions", "executions"] {
        for field in optional_status_fields(testbed, plural).await? {
            let (_, scaled) = replicas(testbed, "web").await?;
            let before = testbed.proxy.writes().len();
            without(testbed, plural, "web", ["status", &field], async || {
                push(testbed, "web", json!({"cpu": "1", "memory": "60"})).await?;
                tokio::time::sleep(LOOK).await;
                let writes = testbed.proxy.writes().split_off(before);
                let (_, now) = replicas(testbed, "web").await?;
                println!("without {field} of {plural}: {scaled} to {now} replicas, {} writes", writes.len());
                ensure!(now <= scaled + 1, "one sample scaled {scaled} to {now}");
                let last: Vec<String> = writes.iter().rev().take(12).map(ToString::to_string).collect();
                ensure!(writes.len() <= WRITES, "{} writes; the last ones: {last:#?}", writes.len());
                Ok(())
            })
            .await?;
        }
    }
    // The last kind is acted on again within a minute. A decision that it could not carry out ends first.
    ready(testbed, "web", "True", "Running").await?;
    let is_calm = async {
        loop {
            let calm = push(testbed, "web", json!({"cpu": "90", "memory": "90"})).await?;
            if let Ok(seen) = tokio::time::timeout(LOOK, travelled(testbed, "web", calm)).await {
                return seen.map(drop);
            }
        }
    };
    tokio::time::timeout(testkit::TIMEOUT, is_calm).await.context("the last decision does not end")??;
    acts().await?;
    child_is_refused(testbed).await
}

/// A Monitoring without one of its fields would be another one than the loop asks for, so it is not created.
async fn child_is_refused(testbed: &Testbed) -> Result<()> {
    let mut spec = demo();
    spec["interval"] = json!("5s");
    spec["target"]["name"] = json!("api");
    Workload::deployment("api", 1).make(testbed).await?;
    without(testbed, "monitorings", "web", ["spec", "interval"], async || {
        put(testbed, "later", spec).await?;
        let words = ready(testbed, "later", "False", DEFINITION_OUTDATED).await?;
        ensure!(words.contains("does not have spec.interval of Monitoring"), "{words}");
        let monitoring = Api::<Monitoring>::namespaced(testbed.client.clone(), &testbed.ns).get_opt("later").await?;
        ensure!(monitoring.is_none(), "{monitoring:?}");
        Ok(())
    })
    .await?;
    until::<Monitoring, _>(testbed, "later", "the Monitoring to have the interval", |one| one.spec.interval)
        .await
        .map(drop)
}

/// A newer version has added a field with a default to the spec and the status of each kind.
#[test]
fn fields_that_the_program_does_not_know_change_nothing() {
    let current = OperatorVersion::current().expect("the program");
    let own = plane("newer", &current);
    block_on(extend_all(&own.0)).unwrap_or_else(|error| panic!("{error:#}"));
    story_on(&own.0, Road::Proxy, "newer", async |testbed| {
        let mut flight = Flight::prepare(testbed).await?;
        flight.begin_all(5).await?;
        flight.lands(&testbed.proxy).await?;
        rests(&testbed.proxy).await?;
        flight.stop().await
    });
}

async fn extend_all(plane: &testkit::plane::Plane) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(plane.cluster.client.clone());
    for known in ganglion_api::all() {
        let name = known.metadata.name.unwrap_or_default();
        let mut definition = serde_json::to_value(api.get(&name).await?)?;
        let schema = schema(&mut definition).context("no schema")?;
        for part in ["spec", "status"] {
            if schema["properties"][part]["properties"].is_object() {
                let field = json!({"type": "string", "default": "new"});
                schema["properties"][part]["properties"]["fieldOfLater"] = field;
            }
        }
        api.replace(&name, &PostParams::default(), &serde_json::from_value(definition)?).await?;
    }
    plane.cluster.established("--all").await
}
