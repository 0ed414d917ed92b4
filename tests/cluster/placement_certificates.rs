//! The certificate of the extender: created by the operator, or provided by another owner. Each change takes effect
//! without a restart.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::hostile::becomes;
use testkit::servers::http::Authority;
use testkit::testbed::Testbed;
use testkit::testbed::loops::until;

use super::placement::{POLICY, Scene};

const SECRET: &str = "ganglion-extender-tls";

/// Secret with the key of the authority.
const AUTHORITY: &str = "ganglion-extender-tls-ca";

/// A deleted certificate is recreated and served without a restart. Until the scheduler trusts the new authority, pods
/// are scheduled without scores.
pub async fn made(scene: &Scene<'_>) -> Result<()> {
    scene.agent(json!({"name": "none", "expression": {"filter": "node.pods < 0"}})).await?;
    let secrets = scene.testbed.api::<Secret>();
    let before = secrets.get(SECRET).await?.data;
    let is_key = |secret: Secret| secret.data.is_some_and(|data| data.contains_key("ca.key"));
    ensure!(!is_key(secrets.get(SECRET).await?), "the served Secret has the key of the authority");
    ensure!(is_key(secrets.get(AUTHORITY).await?), "the key of the authority is not in a Secret of its own");
    // A broken certificate is renewed by the same authority.
    let broken = Patch::Merge(json!({"data": {"tls.crt": "bm8="}}));
    secrets.patch(SECRET, &PatchParams::default(), &broken).await?;
    let mended = until::<Secret, _>(scene.testbed, SECRET, "a mended certificate", |secret| {
        secret.data.filter(|data| data.get("tls.crt").is_some_and(|one| one.0.starts_with(b"-----BEGIN")))
    })
    .await?;
    ensure!(before.as_ref().and_then(|data| data.get("ca.crt")) == mended.get("ca.crt"), "another authority");
    let before = Some(mended);
    secrets.delete(SECRET, &DeleteParams::default()).await?;
    until::<Secret, _>(scene.testbed, SECRET, "another certificate", |secret| (secret.data != before).then_some(()))
        .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.ask(None).await?;
    let name = scene.pod(json!({})).await?;
    let said = scene.unschedulable(&name).await?;
    ensure!(said.contains("none: node.pods < 0 is false"), "{said}");
    scene.policies().delete(POLICY, &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The scheduler retries an unschedulable pod when something in the cluster changes, otherwise after five minutes.
    scene.node(0, json!({"labels": {"something": "new"}})).await?;
    until::<Pod, _>(scene.testbed, &name, "the pod to be bound without the policy", |pod| pod.spec?.node_name).await?;
    scene.clear().await
}

/// Waits until the operator's log contains this text.
async fn said(testbed: &Testbed, text: &str) -> Result<()> {
    becomes(text, async || {
        let log = std::fs::read_to_string(testbed.operator.lock().await.log())?;
        Ok(log.contains(text).then_some(()))
    })
    .await
}

/// With a file of client authorities, only schedulers with a certificate of one of them are answered. A new file takes
/// effect without a restart, and one that cannot be used changes nothing.
pub async fn required(testbed: &Testbed) -> Result<()> {
    let (one, other) = (Authority::create(), Authority::create());
    one.issue_for_client();
    other.issue_for_client();
    let home = tempfile::tempdir()?;
    let file = home.path().join("clients.pem");
    std::fs::write(&file, one.pem())?;
    let scene = Scene::start(testbed, &format!("  clientCaFile: {}", file.display())).await?;
    scene.agent(json!({"name": "none", "expression": {"filter": "node.pods < 0"}})).await?;
    refuses(&scene, None).await.context("without a certificate")?;
    answers(&scene, &one).await.context("with a certificate")?;

    std::fs::write(&file, other.pem())?;
    said(testbed, "serving the clients of other authorities").await?;
    refuses(&scene, Some(&one)).await.context("with a certificate of an authority that was removed")?;

    std::fs::write(&file, "nothing")?;
    said(testbed, "placement.clientCaFile cannot be used; the previous authorities stay").await?;
    answers(&scene, &other).await.context("with a certificate of the last authority")?;
    scene.policies().delete(POLICY, &DeleteParams::default()).await?;
    Ok(())
}

/// Checks that this scheduler is answered: the policy rejects all nodes.
async fn answers(scene: &Scene<'_>, identity: &Authority) -> Result<()> {
    let (certificate, key) = identity.files();
    scene.ask(Some((certificate.as_path(), key.as_path()))).await?;
    let name = scene.pod(json!({})).await?;
    let message = scene.unschedulable(&name).await?;
    ensure!(message.contains("none: node.pods < 0 is false"), "{message}");
    scene.clear().await
}

/// Checks that this scheduler is not answered: it schedules without the policy.
async fn refuses(scene: &Scene<'_>, identity: Option<&Authority>) -> Result<()> {
    let files = identity.map(Authority::files);
    scene.ask(files.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()))).await?;
    let name = scene.pod(json!({})).await?;
    until::<Pod, _>(scene.testbed, &name, "the pod to be bound without the policy", |pod| pod.spec?.node_name).await?;
    scene.clear().await
}

/// Data of the Secret as cert-manager writes it.
fn data(authority: &Authority) -> Result<Value> {
    let (certificate, key) = authority.files();
    let read = |file: PathBuf| anyhow::Ok(ByteString(std::fs::read(file)?));
    Ok(json!({"tls.crt": read(certificate)?, "tls.key": read(key)?, "ca.crt": ByteString(authority.pem())}))
}

/// A certificate with another owner. An expired one blocks no pod, and the operator does not replace it; once it is
/// renewed, the policy applies again.
pub async fn given(scene: &Scene<'_>) -> Result<()> {
    let secrets = scene.testbed.api::<Secret>();
    scene.agent(json!({"name": "none", "expression": {"filter": "node.pods < 0"}})).await?;
    let authority = Authority::create();
    authority.issue("IP:127.0.0.1", 0);
    let secret = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data,
            "metadata": {"name": SECRET, "annotations": {"cert-manager.io/certificate-name": "extender"}},
        })
    };
    let params = PatchParams::apply("cert-manager").force();
    let expired = Patch::Apply(secret(data(&authority)?));
    secrets.patch(SECRET, &params, &expired).await?;
    // A new process has never seen another certificate.
    scene.testbed.kill_and_restart().await?;
    scene.ask(None).await?;
    let name = scene.pod(json!({})).await?;
    until::<Pod, _>(scene.testbed, &name, "the pod to be bound without the policy", |pod| pod.spec?.node_name).await?;
    let log = std::fs::read_to_string(scene.testbed.operator.lock().await.log())?;
    ensure!(log.contains("the certificate has expired"), "no word about the expired certificate");

    authority.issue("IP:127.0.0.1", 2);
    let renewed = data(&authority)?;
    secrets.patch(SECRET, &params, &Patch::Apply(secret(renewed.clone()))).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let name = scene.pod(json!({})).await?;
    let said = scene.unschedulable(&name).await?;
    ensure!(said.contains("none: node.pods < 0 is false"), "{said}");
    let kept = serde_json::to_value(secrets.get(SECRET).await?.data)?;
    ensure!(kept["tls.crt"] == renewed["tls.crt"], "the operator has written a Secret of somebody else");
    scene.clear().await
}
