//! Tests of the test tools themselves, on the plane with our own clients: they must work before any statement about the
//! operator counts.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::workload_action::WorkloadAction;
use kube::api::{PostParams, WatchEvent};
use kube::{Api, Client, Config};
use serde_json::json;
use testkit::TIMEOUT;
use testkit::proxy::gate::HoldPoint;
use testkit::proxy::storm::{Fault, Storm};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, story};
use testkit::verdict::{Story, Verdict};

/// A client that connects through the testbed's proxy, as the administrator.
async fn through(testbed: &Testbed) -> Result<Client> {
    let path = testbed.plane.cluster.kubectl(&["config", "view", "--raw", "--flatten"], None).await?;
    let admin = kube::config::Kubeconfig::from_yaml(&path)?;
    let mut config = Config::from_custom_kubeconfig(admin, &kube::config::KubeConfigOptions::default()).await?;
    config.cluster_url = format!("http://{}", testbed.proxy.address).parse()?;
    config.auth_info = Default::default();
    config.auth_info.token = Some(testbed.plane.token.clone().into());
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

#[test]
fn the_proxy_writes_down_what_changes_something() {
    story("proxy-notes", async |testbed| {
        let client = through(testbed).await?;
        let receipts: Api<ganglion_api::receipt::WorkloadActionReceipt> = Api::namespaced(client, &testbed.ns);
        receipts.list(&Default::default()).await?;
        let (mut before, mut after) =
            (testbed.proxy.hold(1, HoldPoint::Before, |_| true), testbed.proxy.hold(2, HoldPoint::After, |_| true));
        let receipt = |name: &str| -> Result<ganglion_api::receipt::WorkloadActionReceipt> {
            Ok(serde_json::from_value(json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadActionReceipt", "metadata": {"name": name},
                "spec": {"actionName": "a", "actionUid": "u", "specHash": "h", "executedAt": "2026-01-01T00:00:00Z"},
            }))?)
        };
        let create = PostParams::default();
        let (first, second) = (receipt("first")?, receipt("second")?);
        let asked = tokio::spawn({
            let receipts = receipts.clone();
            async move { receipts.create(&create, &first).await }
        });
        let write = before.reached().await.context("the proxy went away")?;
        ensure!(write.number == 1 && write.is_on("workloadactionreceipts"), "held {write}");
        testbed
            .eye
            .never(Duration::from_millis(300), "a held request reached the server", |seen| {
                seen.receipts.get("first").cloned()
            })
            .await?;
        before.release();
        asked.await??;
        let asked = tokio::spawn({
            let receipts = receipts.clone();
            async move { receipts.create(&PostParams::default(), &second).await }
        });
        after.reached().await.context("the proxy went away")?;
        testbed
            .eye
            .until("the effect of a request whose answer is held", |seen| seen.receipts.get("second").cloned())
            .await?;
        ensure!(!asked.is_finished(), "a held answer arrived");
        after.lose();
        ensure!(asked.await?.is_err(), "a lost answer arrived");
        let answers: Vec<Option<u16>> =
            testbed.proxy.writes().iter().map(|write| write.answer.map(|code| code.as_u16())).collect();
        ensure!(answers == [Some(201), None], "noted {answers:?}");
        Ok(())
    });
}

#[test]
fn a_process_killed_before_a_request_leaves_no_trace_of_it() {
    story("proxy-kill", async |testbed| {
        for (name, when, there) in [("unborn", HoldPoint::Before, false), ("born", HoldPoint::After, true)] {
            let mut held = testbed.proxy.hold(1, when, |write| write.is_on("workloadactionreceipts"));
            let manifest = json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadActionReceipt", "metadata": {"name": name},
                "spec": {"actionName": "a", "actionUid": "u", "specHash": "h", "executedAt": "2026-01-01T00:00:00Z"},
            });
            let url = format!(
                "http://{}/apis/ganglion.dev/v1alpha1/namespaces/{}/workloadactionreceipts",
                testbed.proxy.address, testbed.ns
            );
            let mut process = tokio::process::Command::new("curl")
                .args(["--silent", "--noproxy", "*", "-H", "Content-Type: application/json", "-H"])
                .arg(format!("Authorization: Bearer {}", testbed.plane.token))
                .args(["--data", &manifest.to_string(), &url])
                .stdout(Stdio::null())
                .spawn()?;
            held.reached().await.context("the proxy went away")?;
            process.kill().await?;
            drop(held);
            tokio::time::sleep(Duration::from_millis(300)).await;
            ensure!(testbed.eye.now().receipts.contains_key(name) == there, "{name}: killed {when:?}");
        }
        Ok(())
    });
}

#[test]
fn a_storm_hits_its_share_and_a_cut_ends_watches() {
    story("proxy-storm", async |testbed| {
        let client = through(testbed).await?;
        let actions: Api<WorkloadAction> = Api::namespaced(client.clone(), &testbed.ns);
        testbed.proxy.storm(Some(Storm::new(100, 1, &[Fault::TooMany])));
        let error = actions.list(&Default::default()).await.err().context("a storm of 100 % let a request through")?;
        ensure!(matches!(&error, kube::Error::Api(status) if status.code == 429), "{error}");
        testbed.proxy.storm(None);
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, &testbed.ns);
        let mut events = Box::pin(pods.watch(&Default::default(), "0").await?);
        let workload = Workload::deployment("web", 1);
        let begun = tokio::time::Instant::now();
        testbed.proxy.streams().delay("pods", Duration::from_millis(700));
        workload.make(testbed).await?;
        // A bookmark may have been sent before.
        while !matches!(futures::TryStreamExt::try_next(&mut events).await?.context("no event")?, WatchEvent::Added(_))
        {
        }
        ensure!(begun.elapsed() > Duration::from_millis(700), "a delayed event came at once");
        testbed.proxy.streams().cut();
        let cut = async { while let Ok(Some(_)) = futures::TryStreamExt::try_next(&mut events).await {} };
        tokio::time::timeout(TIMEOUT, cut).await.context("a cut watch goes on")?;
        Ok(())
    });
}

#[test]
fn the_eye_sees_who_dies_and_who_comes() {
    story("eye", async |testbed| {
        let nodes = testbed.nodes(2, Default::default()).await?;
        Workload::deployment("web", 3).spec(nodes.terms()).make(testbed).await?;
        let tale = Story::begin(&testbed.eye, "web");
        let (victim, _) = tale.pods().first().cloned().context("no pod")?;
        testbed.kubectl(&["delete", "pod", &victim], None).await?;
        Workload::deployment("web", 3).settle(testbed).await?;
        let verdict = tale.verdict(&testbed.eye);
        let came = verdict.came.clone();
        ensure!(came.len() == 1 && nodes.names.contains(&came[0].1), "{verdict:?}");
        let expected =
            Verdict { lowest_ready: 2, died: vec![victim], came, passing: vec![], replicas: vec![3], generations: 1 };
        ensure!(verdict == expected, "{verdict:?} is not {expected:?}");
        Ok(())
    });
}

#[test]
fn replacements_misbehave_and_first_pods_do_not() {
    story("behaviors", async |testbed| {
        for behavior in ["never-ready", "crash-loop", "image-missing"] {
            Workload::deployment(behavior, 2).replacements(behavior).make(testbed).await?;
        }
        Workload::replica_set("bare", 2).guarded().make(testbed).await
    });
}
