//! The scene: a Deployment, an account that may scale it, the fast loop, and later the slow one.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use ganglion_api::closed_loop::ClosedLoop;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use testkit::root;

use super::act::Place;
use super::eye::Hop;
use crate::TIMEOUT;

/// Name of the workload and of its loop.
pub const APP: &str = "web";

/// Name of the loop that tunes [`APP`].
pub const SLOW: &str = "web-policy";

const WORKLOAD: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.k8s.io/pause:3.10
        resources: {requests: {cpu: 10m, memory: 16Mi}}
";

/// Thresholds and rank are those of the demo that inspired this one.
pub const FAST_LOOP: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: ClosedLoop
metadata: {name: web}
spec:
  trace: EverySample                                 # traces each sample through the loop
  serviceAccountName: web-loop                       # account that performs the actions
  target: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics:
  - {name: cpu, source: {push: {}}, low: {raise: \"5\"}}
  - {name: memory, source: {push: {}}, low: {raise: \"50\"}}
  policy: {rank: [cpu, memory]}                      # cpu first
  actions:
  - when: {metric: cpu, side: Low}
    ladder: [{scale: {by: 1, max: 20}}]
  - when: {metric: memory, side: Low}
    ladder: [{scale: {by: 1, max: 20}}]
  tunable: {by: [web-policy], rank: true}            # another loop may change the rank
";

/// The interval of 1 s keeps the demo short; in production, several minutes are reasonable.
pub const SLOW_LOOP: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: ClosedLoop
metadata: {name: web-policy}
spec:
  interval: 1s
  target: {apiVersion: ganglion.dev/v1alpha1, kind: ClosedLoop, name: web}
  metrics:                                           # how far web's least served metric lags behind
  - {name: imbalance, source: {loop: {rule: LastServed, window: 3}}, high: {raise: \"0\"}}
  actions:
  - when: {metric: imbalance, side: High}
    ladder: [{tune: {raiseRank: LeastServed}}]
";

/// Creates the workload, the service account and the fast loop.
pub async fn make(place: &Place<'_>) -> Result<()> {
    let screen = place.screen;
    screen.doing("creating Deployment web and the service account of its loop");
    create::<Deployment>(place, serde_saphyr::from_str(WORKLOAD)?).await?;
    let sample = root().join("samples/closedloop/accounts.yaml");
    let text = std::fs::read_to_string(&sample).with_context(|| format!("cannot read {}", sample.display()))?;
    for document in serde_saphyr::from_multiple::<Value>(&text)? {
        match document["kind"].as_str() {
            Some("ServiceAccount") => create::<ServiceAccount>(place, document).await?,
            Some("Role") => create::<Role>(place, document).await?,
            Some("RoleBinding") => create::<RoleBinding>(place, document).await?,
            other => bail!("{}: unexpected kind {other:?}", sample.display()),
        }
    }
    screen.done("workload", "Deployment web, 1 replica; service account web-loop, which may scale Deployments");
    Ok(())
}

/// Prints the manifest of a loop, creates it, and waits until it accepts samples.
pub async fn put(place: &Place<'_>, name: &str, manifest: &str) -> Result<()> {
    place.screen.manifest(manifest);
    create::<ClosedLoop>(place, serde_saphyr::from_str(manifest)?).await?;
    accepts_samples(place, name).await
}

/// Runs `kubectl VERB -f` with a file of `samples`.
pub async fn kubectl(place: &Place<'_>, verb: &str, sample: &str) -> Result<()> {
    place.stage.kubectl(&[verb, "-f", &root().join(sample).display().to_string()]).await.map(drop)
}

/// Prints the document of this kind in a file of `samples`, and the command that applies the file.
pub fn show(place: &Place<'_>, sample: &str, kind: &str) -> Result<()> {
    let text = std::fs::read_to_string(root().join(sample)).with_context(|| format!("cannot read {sample}"))?;
    let mut documents = text.split("---\n");
    let shown = documents.find(|document| document.contains(&format!("\nkind: {kind}\n")));
    place.screen.say(&format!("    $ kubectl apply -f {sample}\n"));
    place.screen.manifest(shown.with_context(|| format!("{sample} has no {kind}"))?);
    Ok(())
}

/// Waits until the loop accepts samples.
pub async fn accepts_samples(place: &Place<'_>, name: &str) -> Result<()> {
    let began = Instant::now();
    while place.eye.now().word(name, Hop::Execution).state.is_none() {
        if began.elapsed() > TIMEOUT {
            bail!("loop {name} has no Execution after {} s", TIMEOUT.as_secs());
        }
        place.eye.news(place.eye.now().history.len()).await;
    }
    Ok(())
}

async fn create<K>(place: &Place<'_>, object: Value) -> Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object)?;
    Api::<K>::namespaced(place.client.clone(), &place.namespace).create(&PostParams::default(), &object).await?;
    Ok(())
}
