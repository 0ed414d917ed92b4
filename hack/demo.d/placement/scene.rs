//! The scene: a kube-scheduler that queries the operator, a model server with one model per kind of node, and two
//! Deployments.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::plane::install::NAMESPACE;
use testkit::plane::scheduler::{self, Asked};
use testkit::servers::inference::{Linear, MODEL, ModelServer};

use crate::TIMEOUT;
use crate::scene::account;
use crate::screen::Screen;
use crate::stage::Stage;

/// Policy that the scheduler queries.
pub const POLICY: &str = "default";

/// The Deployment that runs from the beginning, and the one that is scaled up once power is predicted.
pub const WEB: &str = "web";
pub const BATCH: &str = "batch";

/// Final number of replicas of each Deployment.
pub const REPLICAS: usize = 6;

/// Node label with the name of the node's model.
pub const KIND: &str = "example.com/model";

/// Kind of the node whose power rises least, and kind of all other nodes.
pub const GREEN: &str = "green";
pub const THIRSTY: &str = "thirsty";

/// Power model of a node. Idle power is the same for both kinds.
pub const fn model(kind_is_green: bool) -> Linear {
    Linear { base: 100.0, cpu: if kind_is_green { 1.5 } else { 4.0 }, inlet: 3.0, pressure: 5.0, ..Linear::ZERO }
}

/// Secret with the operator's certificate.
const TLS_SECRET: &str = "ganglion-extender-tls";

/// Dropping it stops the model server, unless [`ModelServer::stay`] was called.
pub struct Scene {
    pub client: Client,
    pub namespace: String,
    /// Names of all nodes, sorted.
    pub nodes: Vec<String>,
    /// Manifest of the NodeConfigTemplate.
    pub template: String,
    pub models: ModelServer,
}

/// Configures the scheduler to query the operator at this port, starts the model server and creates the Deployments.
pub async fn make(stage: &Stage, port: u16, screen: &Screen) -> Result<Scene> {
    let (client, namespace) = stage.place()?;
    screen.doing("restarting kube-scheduler with config/kube-scheduler.yaml");
    let authority = authority(&client).await?;
    scheduler::restart(
        stage.cluster()?,
        &Asked { port, policy: POLICY, authority: &authority, more: &[], identity: None },
    )
    .await?;
    let detail =
        format!("restarted with config/kube-scheduler.yaml: it queries https://127.0.0.1:{port}/policies/{POLICY}");
    screen.done("kube-scheduler", &detail);
    screen.doing("training two models and starting MLServer");
    let versions = [(GREEN, model(true)), (THIRSTY, model(false))];
    let models = match stage.kept() {
        Some(home) => ModelServer::start_recorded(&versions, home).await?,
        None => ModelServer::start(&versions).await?,
    };
    let detail =
        format!("two scikit-learn models: {} W and {} W per percent of CPU usage", model(true).cpu, model(false).cpu);
    screen.done("MLServer", &detail);
    account(&client, &namespace).await?;
    for (name, replicas) in [(WEB, REPLICAS), (BATCH, 0)] {
        deploy(&client, &namespace, name, replicas).await?;
    }
    screen.done(
        "workloads",
        &format!("Deployments {WEB} with {REPLICAS} replicas and {BATCH} with none; each replica requests 1 CPU"),
    );
    let all = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    let mut nodes: Vec<String> = all.items.iter().map(ResourceExt::name_any).collect();
    nodes.sort();
    let template = template(&models.url(""));
    Ok(Scene { client, namespace, nodes, template, models })
}

/// CA certificate of the operator's certificate, which the operator creates when it starts.
async fn authority(client: &Client) -> Result<ByteString> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let began = Instant::now();
    loop {
        let found = secrets.get_opt(TLS_SECRET).await?.and_then(|secret| secret.data?.remove("ca.crt"));
        if let Some(authority) = found {
            return Ok(authority);
        }
        if began.elapsed() > TIMEOUT {
            bail!("the operator has created no certificate after {} s", TIMEOUT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn deploy(client: &Client, namespace: &str, name: &str, replicas: usize) -> Result<()> {
    let container = json!({
        "name": name, "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    });
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}},
    }))?;
    let made = Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &deployment).await;
    made.with_context(|| format!("creating Deployment {name}"))?;
    Ok(())
}

fn template(models: &str) -> String {
    let fake = "{type: Fake, fetchInterval: 1s}";
    format!(
        "\
apiVersion: ganglion.dev/v1alpha1
kind: NodeConfigTemplate
metadata: {{name: rack}}
spec:
  nodeSelector: {{matchExpressions: [{{key: {KIND}, operator: Exists}}]}}
  template:
    metricsCollector:
      inletTemp: {fake}
      deltaP: {fake}
      usage: {fake}   # always 50 %; agent safe prefers the annotations
    predictor:
      powerConsumption:
        type: V2InferenceProtocol
        endpoint: '{models}/v2/models/{MODEL}/versions/{{{{ node.labels[\"{KIND}\"] }}}}/infer'
        fetchInterval: 1s
"
    )
}
