//! Senders of samples: the effects of `ganglion push` and of the documented curl line, their error messages, and the
//! permissions of an account for a sender.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tempfile::TempDir;
use testkit::plane::kubeconfig;
use testkit::testbed::Testbed;
use testkit::testbed::loops::{demo, loop_story, make, put, until};
use tokio::process::Command;

/// Account of samples/sender.yaml, and the loop to which it may push.
const SENDER: &str = "my-sensor";
const LOOP: &str = "push-minimal";

fn sample(name: &str) -> Result<String> {
    Ok(std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(name))?)
}

/// A sender with its credentials.
struct Scene {
    kubeconfig: String,
    token: String,
}

/// Creates the loop of the demo under the sample's name, another loop, and the sender.
async fn scene(testbed: &Testbed) -> Result<Scene> {
    let mut spec = demo();
    spec["trace"] = json!("EverySample");
    make(testbed, LOOP, spec).await?;
    put(testbed, "other", demo()).await?;
    until::<Monitoring, _>(testbed, "other", "the other loop's Monitoring", Some).await?;
    sender(testbed).await
}

/// Applies a sample unchanged except for the namespace.
async fn apply(testbed: &Testbed, name: &str) -> Result<()> {
    let manifest = sample(name)?.replace("namespace: default", &format!("namespace: {}", testbed.ns));
    testbed.kubectl(&["apply", "-f", "-"], Some(&manifest)).await.map(drop)
}

/// The sender of the sample, with its kubeconfig.
async fn sender(testbed: &Testbed) -> Result<Scene> {
    apply(testbed, "sender.yaml").await?;
    let token = testbed.token(SENDER).await?;
    Ok(Scene { kubeconfig: kubeconfig::direct(&testbed.plane.cluster.config, &token), token })
}

/// Runs `ganglion push` in the testbed's namespace. Returns whether it succeeded, and its output.
async fn push(testbed: &Testbed, kubeconfig: &str, args: &[&str], stdin: &str) -> Result<(bool, String)> {
    testbed.ganglion_as(kubeconfig, &[&["push"], args].concat(), stdin).await
}

/// Waits until the loop has decided about a sample with these values. Returns its message.
async fn decided(testbed: &Testbed, wanted: &[(&str, &str)]) -> Result<String> {
    let tag = until::<Monitoring, _>(testbed, LOOP, &format!("a sample with {wanted:?}"), |one| {
        let status = one.status?;
        let has = |(metric, value): &(&str, &str)| {
            status.values.iter().any(|reading| reading.metric == *metric && reading.value.as_str() == *value)
        };
        wanted.iter().all(has).then_some(status.tag?)
    })
    .await?;
    until::<Decision, _>(testbed, LOOP, "the sample to be decided about", |one| {
        let status = one.status?;
        (status.tag? == tag).then_some(status.message?)
    })
    .await
}

/// Pushes a sample from the future, then a valid one, after which the status reports the rejection. Repeats if the
/// second arrived before the first was processed.
async fn a_sample_from_the_future(testbed: &Testbed, scene: &Scene) -> Result<()> {
    const TRIES: u64 = 10;
    let mut refused = None;
    for pause in (1..=TRIES).map(Duration::from_secs) {
        let args = [LOOP, "cpu=2", "--time", "2099-01-01T00:00:00Z", "--field-manager", "from-afar"];
        let (good, said) = push(testbed, &scene.kubeconfig, &args, "").await?;
        ensure!(good, "{said}");
        tokio::time::sleep(pause).await;
        let (good, said) = push(testbed, &scene.kubeconfig, &[LOOP, "cpu=7", "memory=70"], "").await?;
        ensure!(good, "{said}");
        decided(testbed, &[("cpu", "7"), ("memory", "70")]).await?;
        refused = testbed.api::<Monitoring>().get(LOOP).await?.status.unwrap_or_default().refused;
        if refused.is_some() {
            break;
        }
    }
    ensure!(refused.as_ref().is_some_and(|refused| refused.from_future >= 1), "{refused:?}");
    Ok(())
}

#[test]
fn a_script_pushes_samples() {
    loop_story("senders-push", async |testbed| {
        let scene = scene(testbed).await?;
        let (good, said) = push(testbed, &scene.kubeconfig, &[LOOP, "cpu=2", "memory=40"], "").await?;
        ensure!(good && said.starts_with(&format!("pushed to {}/{LOOP} at 20", testbed.ns)), "{said}");
        // There is no target: this checks only whether the sample was accepted.
        decided(testbed, &[("cpu", "2"), ("memory", "40")]).await?;
        let monitoring = testbed.api::<Monitoring>().get(LOOP).await?;
        let manager = |name: &str| monitoring.managed_fields().iter().any(|one| one.manager.as_deref() == Some(name));
        ensure!(manager("ganglion-push"), "{:?}", monitoring.managed_fields());

        let lines = "cpu=20 memory=60\n\ncpu=21 memory=4\ncpu=22 memory=much\ncpu=23 memory=1\n";
        let (good, said) = push(testbed, &scene.kubeconfig, &[LOOP, "-"], lines).await?;
        ensure!(!good && said.contains("line 4 of standard input, after 2 samples pushed"), "{said}");
        ensure!(said.contains("memory is not a number: \"much\"") && said.matches("pushed to").count() == 2, "{said}");
        decided(testbed, &[("cpu", "21"), ("memory", "4")]).await?;

        a_sample_from_the_future(testbed, &scene).await?;
        let explain = ["explain", "loop", LOOP];
        let (good, said) = testbed.ganglion(&explain).await?;
        for words in ["acts on Deployment/web as service account web-loop", "cpu 7, memory 70", "1 from the future"] {
            ensure!(good && said.contains(words), "{words} is not in\n{said}");
        }
        let (good, said) = testbed.ganglion_as(&scene.kubeconfig, &explain, "").await?;
        ensure!(!good && said.contains("you need the verb and the resource"), "{said}");
        let (good, said) = testbed.ganglion(&["explain", "loop", "nobody"]).await?;
        ensure!(!good && said.contains("there is no ClosedLoop nobody"), "{said}");
        Ok(())
    });
}

#[test]
fn what_stands_in_a_senders_way_is_said() {
    loop_story("senders-errors", async |testbed| {
        let scene = scene(testbed).await?;
        let (sender, admin) = (scene.kubeconfig, testbed.administrator().await?);
        let cases: [(&str, &[&str], &[&str]); 5] = [
            (&sender, &["nobody", "cpu=2"], &["you are not allowed to push to loop nobody", "resourceNames [nobody]"]),
            (&sender, &["other", "cpu=2"], &["you are not allowed to push to loop other", "you need the verb patch"]),
            (&admin, &["nobody", "cpu=2"], &["there is no Monitoring nobody", "kubectl get loop -A"]),
            (&admin, &[LOOP, "cpu=busy"], &["cpu is not a number: \"busy\""]),
            (&admin, &[LOOP, "-", "cpu=2"], &["- cannot be combined"]),
        ];
        for (kubeconfig, args, words) in cases {
            let (good, said) = push(testbed, kubeconfig, args, "").await?;
            ensure!(!good && words.iter().all(|words| said.contains(words)), "{args:?}: {said}");
        }
        testbed.operator.lock().await.kill();
        testbed.api::<Monitoring>().delete(LOOP, &DeleteParams::default()).await?;
        let (good, said) = push(testbed, &sender, &[LOOP, "cpu=2"], "").await?;
        ensure!(!good && said.contains("there is no Monitoring push-minimal"), "{said}");
        let there = testbed.kubectl(&["get", "mon", "-o", "name"], None).await?;
        ensure!(there.trim() == "monitoring.ganglion.dev/other", "one was made: {there}");
        testbed.operator.lock().await.start()
    });
}

/// The curl line in the comment of the sample.
fn curl_line() -> Result<String> {
    let text = sample("monitoring/push.yaml")?;
    let lines = text.lines().map(|line| line.trim_start_matches("# ")).skip_while(|line| !line.contains("curl "));
    Ok(lines.take_while(|line| line.trim() != "#").collect::<Vec<_>>().join("\n"))
}

/// As a reader of the samples would proceed.
#[test]
fn the_samples_are_applied_and_the_curl_line_scales() {
    loop_story("senders-curl", async |testbed| {
        for name in ["workload.yaml", "closedloop/accounts.yaml", "closedloop/push/push-minimal.yaml"] {
            apply(testbed, name).await?;
        }
        let replicas = testbed.api::<Deployment>().get("web").await?.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        let scene = sender(testbed).await?;
        until::<Execution, _>(testbed, LOOP, "the loop to take samples", |one| one.status?.seq).await?;
        let line = curl_line()?;
        let home = TempDir::new()?;
        let authority = home.path().join("ca.crt");
        let pem = kubeconfig::authority(&testbed.plane.cluster.config).context("no authority in the kubeconfig")?;
        std::fs::write(&authority, pem)?;
        let mut command = Command::new("bash");
        command.args(["-c", &line]).env("CA", &authority).env("TOKEN", &scene.token).env("NS", &testbed.ns);
        command.env("SERVER", testbed.plane.cluster.config.cluster_url.to_string().trim_end_matches('/'));
        let Output { status, stdout, stderr } = command.output().await?;
        let said = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        ensure!(status.success() && said.contains("\"sample\""), "{line}\n{said}");
        until::<Deployment, _>(testbed, "web", "one replica more", |one| {
            (one.spec?.replicas? == replicas + 1).then_some(())
        })
        .await
    });
}

#[test]
fn a_senders_account_can_do_nothing_else() {
    loop_story("senders-rights", async |testbed| {
        let scene = scene(testbed).await?;
        let mut config = testbed.plane.anonymous();
        config.auth_info.token = Some(scene.token.clone().into());
        let client = Client::try_from(config)?;
        let ours = format!("/apis/ganglion.dev/v1alpha1/namespaces/{}", testbed.ns);
        let core = format!("/api/v1/namespaces/{}", testbed.ns);
        let cases = [
            ("GET", format!("{ours}/monitorings")),
            ("GET", format!("{ours}/monitorings/{LOOP}")),
            ("POST", format!("{ours}/monitorings")),
            ("PUT", format!("{ours}/monitorings/{LOOP}")),
            ("DELETE", format!("{ours}/monitorings/{LOOP}")),
            ("PATCH", format!("{ours}/monitorings/{LOOP}/status")),
            ("PATCH", format!("{ours}/monitorings/other")),
            ("PATCH", format!("{ours}/decisions/{LOOP}")),
            ("PATCH", format!("{ours}/executions/{LOOP}")),
            ("PATCH", format!("{ours}/closedloops/{LOOP}")),
            ("PATCH", format!("{ours}/closedloops/{LOOP}/status")),
            ("PATCH", format!("/apis/apps/v1/namespaces/{}/deployments/web/scale", testbed.ns)),
            ("GET", format!("{core}/secrets")),
            ("GET", format!("{core}/pods")),
        ];
        for (method, path) in cases {
            let request = http::Request::builder().method(method).uri(&path);
            let request = request.header("Content-Type", "application/merge-patch+json").body(b"{}".to_vec())?;
            let refused = client.request_text(request).await;
            let code = match &refused {
                Err(kube::Error::Api(status)) => status.code,
                _ => 0,
            };
            ensure!(code == 403, "{method} {path}: {refused:?}");
        }
        // It writes only the sample; other fields that it sends do not persist.
        let patch = json!({"spec": {"paused": true, "metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "1"}},
        ]}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let monitorings: Api<Monitoring> = Api::namespaced(client, &testbed.ns);
        let refused = monitorings.patch(LOOP, &params, &patch).await.err().map(|error| error.to_string());
        let why = "of a Monitoring, spec.sample may be written without it";
        ensure!(refused.as_ref().is_some_and(|words| words.contains(why)), "{refused:?}");
        for metadata in [
            json!({"ownerReferences": null}),
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}]}),
            json!({"finalizers": ["example.com/mine"]}),
            json!({"labels": {"ganglion.dev/loop": "other"}}),
            json!({"annotations": {"a": "b"}}),
        ] {
            // Together with a sample, too.
            let sample = json!({"time": "2026-01-01T00:00:00Z", "values": {"cpu": "2"}});
            let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"sample": sample}}));
            let refused = monitorings.patch(LOOP, &params, &patch).await.err().map(|error| error.to_string());
            ensure!(refused.as_ref().is_some_and(|words| words.contains(why)), "{metadata}: {refused:?}");
        }
        testbed.api::<Monitoring>().patch(LOOP, &params, &patch).await?;
        until::<Monitoring, _>(testbed, LOOP, "the Monitoring to be put right again", |one| {
            (!one.spec.paused && one.spec.metrics.len() == 2).then_some(())
        })
        .await?;
        let (good, said) = push(testbed, &scene.kubeconfig, &[LOOP, "cpu=2", "memory=60"], "").await?;
        ensure!(good, "{said}");
        decided(testbed, &[("cpu", "2")]).await?;
        let alarms = testbed.api::<Monitoring>().get(LOOP).await?.status.unwrap_or_default().message;
        ensure!(alarms.as_deref() == Some("Low cpu"), "{alarms:?}");
        Ok(())
    });
}
