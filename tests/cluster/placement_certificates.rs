//! The certificate of the extender: created by the operator, or provided by another owner. Each change takes effect
//! without a restart.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::servers::http::Authority;
use testkit::testbed::loops::until;

use super::placement::{POLICY, Scene};

const SECRET: &str = "ganglion-extender-tls";

/// A deleted certificate is recreated and served without a restart. Until the scheduler trusts the new authority, pods
/// are scheduled without scores.
pub async fn made(scene: &Scene<'_>) -> Result<()> {
    scene.agent(json!({"name": "none", "expression": {"filter": "node.pods < 0"}})).await?;
    let secrets = scene.testbed.api::<Secret>();
    let before = secrets.get(SECRET).await?.data;
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
    scene.ask().await?;
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
    scene.ask().await?;
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
