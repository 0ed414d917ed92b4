//! The scene: machines with one BMC each, a differential pressure sensor, Prometheus, a model server, and nodes
//! labelled with the ports of their BMCs.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::plane::install::{ACCOUNT, NAMESPACE};
use testkit::servers::bmc::RedfishServer;
use testkit::servers::http::{Authority, Manner, Server};
use testkit::servers::inference::{Linear, MODEL, ModelServer};
use testkit::servers::prometheus::{PASSWORD, PrometheusProcess, PrometheusVersion, USER};

use crate::screen::Screen;

/// Number of machines.
pub const MACHINES: usize = 3;

/// Node label with the port of the node's BMC.
const PORT: &str = "example.com/bmc-port";

/// Value that the sensor reports for every node, in pascals.
pub const PASCALS: f64 = 7.25;

/// Version of the model.
const VERSION: &str = "v0.1.0";

/// Metric with the measured power, as the IPMI exporter has it.
const METRIC: &str = "ipmi_dcmi_power_consumption_watts";

/// Measured power of the first node in watts, and what each further node draws in addition.
pub const MEASURED: [f64; 2] = [201.0, 3.0];

/// Model of the power consumption.
pub const POWER: Linear = Linear { base: 80.0, cpu: 1.2, inlet: 0.5, pressure: 0.1, ..Linear::ZERO };

/// Dropping it stops the servers.
pub struct Scene {
    /// Nodes, each with its BMC.
    pub machines: Vec<(String, RedfishServer)>,
    _pressure: Server,
    _prometheus: PrometheusProcess,
    _models: ModelServer,
    pub template: String,
}

/// Starts the servers, and labels one node per BMC.
pub async fn make(client: &Client, namespace: &str, screen: &Screen) -> Result<Scene> {
    screen.doing("starting the Redfish emulators of sushy-tools");
    let authority = Authority::create();
    let mut machines = Vec::new();
    for node in nodes(client).await? {
        let bmc = RedfishServer::emulator(&authority).await?;
        let port = bmc.url().rsplit(':').next().unwrap_or_default().to_owned();
        settle(client, &node, &port).await?;
        machines.push((node, bmc));
    }
    screen.done("BMCs", &format!("{MACHINES} emulators of sushy-tools, with TLS and a password"));
    let body = json!({"code": 200, "sensor": [{"sensorid": "101037B", "pressure": PASCALS, "temperature": 26.0}]});
    let pressure = Server::start(Manner::Says("200 OK", body.to_string())).await;
    screen.doing("starting Prometheus and node-exporter");
    let prometheus = PrometheusProcess::of_this_host(PrometheusVersion::V2_42).await?;
    let series: Vec<String> = machines
        .iter()
        .enumerate()
        .map(|(nth, (node, _))| format!("{METRIC}{{node=\"{node}\"}} {}\n", MEASURED[0] + MEASURED[1] * nth as f64))
        .collect();
    prometheus.export(METRIC, &format!("# TYPE {METRIC} gauge\n{}", series.concat()))?;
    screen.done(
        "Prometheus",
        "Debian's, with its node-exporter: usage of this host, and fixed watts as of an IPMI exporter",
    );
    screen.doing("training a model and starting MLServer");
    let models = ModelServer::start(&[(VERSION, POWER)]).await?;
    let Linear { base, cpu, inlet, pressure: by, .. } = POWER;
    screen.done(
        "MLServer",
        &format!("a scikit-learn model, trained just now: {base} W + {cpu} W/% + {inlet} W/°C + {by} W/Pa"),
    );
    create::<Secret>(
        client,
        namespace,
        json!({"metadata": {"name": "bmc"}, "stringData": {"username": USER, "password": PASSWORD}}),
    )
    .await?;
    let pem = String::from_utf8(authority.pem())?;
    create::<ConfigMap>(client, namespace, json!({"metadata": {"name": "bmc-ca"}, "data": {"ca.crt": pem}})).await?;
    let binding = json!({
        "metadata": {"name": "ganglion"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ganglion-namespace"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    });
    create::<RoleBinding>(client, namespace, binding).await?;
    let template = template(&pressure.url(""), &prometheus.url(), &models.url(""));
    Ok(Scene { machines, _pressure: pressure, _prometheus: prometheus, _models: models, template })
}

/// Names of the first nodes in alphabetical order.
async fn nodes(client: &Client) -> Result<Vec<String>> {
    let all = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    let mut names: Vec<String> = all.items.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names.truncate(MACHINES);
    Ok(names)
}

/// Labels a node with the port of its BMC, and sets its address to this host, where Prometheus finds its metrics.
async fn settle(client: &Client, node: &str, port: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {PORT: port}}}));
    nodes.patch(node, &PatchParams::default(), &label).await.context("labelling a node")?;
    let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    let address = Patch::Merge(json!({"status": {"addresses": addresses}}));
    nodes.patch_status(node, &PatchParams::default(), &address).await.context("setting the address of a node")?;
    Ok(())
}

fn template(pressure: &str, prometheus: &str, models: &str) -> String {
    format!(
        "\
apiVersion: ganglion.dev/v1alpha1
kind: NodeConfigTemplate
metadata: {{name: rack}}
spec:
  nodeSelector: {{matchExpressions: [{{key: {PORT}, operator: Exists}}]}}
  template:
    metricsCollector:
      inletTemp:
        type: Redfish
        endpoint: 'https://127.0.0.1:{{{{ node.labels[\"{PORT}\"] }}}}'   # each node's own BMC
        basicAuthSecret: {{name: bmc}}
        ca: {{configMap: {{name: bmc-ca, key: ca.crt}}}}
        fetchInterval: 2s
      deltaP: {{type: DifferentialPressureAPI, endpoint: \"{pressure}\", fetchInterval: 2s}}
      usage: {{type: Prometheus, endpoint: \"{prometheus}\", window: 2m, fetchInterval: 2s}}
      power: {{type: Prometheus, endpoint: \"{prometheus}\", metric: {METRIC}, nodeLabel: node, fetchInterval: 2s}}
    predictor:
      powerConsumption:
        type: V2InferenceProtocol
        endpoint: \"{models}/v2/models/{MODEL}/versions/{VERSION}/infer\"
        fetchInterval: 2s
"
    )
}

async fn create<K>(client: &Client, namespace: &str, object: Value) -> Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object)?;
    Api::<K>::namespaced(client.clone(), namespace).create(&PostParams::default(), &object).await?;
    Ok(())
}
