//! The demo of placement: the stock kube-scheduler queries a policy. The policy rejects a node that is nearly full and
//! prefers the node whose power rises least; a command explains the choice. Then, the policy is delivered as labels of
//! nodes instead. The API server's answers decide where pods run.

mod labels;
mod scene;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::Value;
use testkit::operator::program;
use testkit::process::run;
use testkit::testbed::loops::condition;
use testkit::verdict::serves;
use tokio::process::Command;

use super::TIMEOUT;
use super::screen::Screen;
use super::stage::Stage;
use scene::{BATCH, GREEN, KIND, POLICY, REPLICAS, Scene, THIRSTY, WEB, model};

/// The scheduler connects to the operator by address; the model server runs on this host.
pub const SETTINGS: &str = "placement: {serverNames: [127.0.0.1]}\noutbound: {allowedNetworks: [127.0.0.0/8]}\n";

/// Interval between two refreshes of the table.
const GLANCE: Duration = Duration::from_millis(300);

/// Values of the source type Fake, the same for every node: usage in percent, inlet temperature in °C, pressure in Pa.
const FAKE: [f64; 3] = [50.0, 15.5, 7.5];

const MANIFEST: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: default}
spec:
  agents:
  - {name: safe, weight: 5, safe: {utilization: \"0.9\"}}   # rejects nodes whose usage may exceed 90 %
  - {name: power, weight: 20, power: {}}                  # prefers nodes whose power rises least
";

/// Runs the whole demo. Returns false if a check failed.
pub async fn play(screen: &Screen, stage: &mut Stage) -> Result<bool> {
    ensure!(
        stage.is_local(),
        "this demo restarts kube-scheduler with another configuration: leave --kubeconfig out. For your own scheduler, \
         see config/kube-scheduler.yaml"
    );
    screen.title("Ganglion: the stock kube-scheduler avoids risky nodes and prefers green ones");
    let port = stage.serve_schedulers()?;
    stage.build(screen).await?;
    let mut scene = scene::make(stage, port, screen).await?;
    let place = Place { scene: &scene, stage, screen };

    screen.heading("1 of 5: a risky node is avoided");
    let (risky, avoided) = place.avoids().await?;
    let green = scene.nodes.iter().find(|node| **node != risky).context("there is no other node")?;
    screen.heading("2 of 5: a green node is preferred");
    let preferred = place.prefers(green).await?;
    screen.heading("3 of 5: the choice is explained");
    let explained = place.explains(&risky).await?;
    screen.heading("4 of 5: without an extender: labels of nodes, and terms that the API server adds to new pods");
    let labeled = place.labels(&risky, green).await?;
    screen.heading("5 of 5: a second stock scheduler reads the labels, and pods stay as they are");
    let second = place.second_scheduler(&risky, green).await?;
    if stage.kept().is_some() {
        scene.models.stay();
    }
    screen.gap();
    let acts = [avoided, preferred, explained, labeled, second];
    match acts.iter().filter(|good| !**good).count() {
        0 => screen.good("All 5 acts went as promised."),
        some => {
            stage.show_log(screen);
            screen.bad(&format!("{some} of 5 acts did not go as promised."));
        }
    }
    Ok(acts.iter().all(|good| *good))
}

/// Scene, cluster and screen of the acts.
struct Place<'a> {
    scene: &'a Scene,
    stage: &'a Stage,
    screen: &'a Screen,
}

impl Place<'_> {
    /// Prints a kubectl command and runs it.
    async fn kubectl(&self, command: &str) -> Result<()> {
        self.screen.say(&format!("    $ kubectl {command}"));
        self.stage.kubectl(&command.split(' ').collect::<Vec<_>>()).await.map(drop)
    }

    /// Shows the output of a kubectl command until `look` returns a value, or until the timeout.
    async fn until<T>(&self, command: &str, look: impl AsyncFn() -> Result<Option<T>>) -> Result<Option<T>> {
        let began = Instant::now();
        loop {
            let seen = look().await?;
            let table = self.stage.kubectl(&command.split(' ').collect::<Vec<_>>()).await?;
            self.screen.live(std::slice::from_ref(&table));
            if seen.is_some() || began.elapsed() > TIMEOUT {
                self.screen.rest();
                self.screen.say(&format!("$ kubectl {command}\n{table}"));
                return Ok(seen);
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Waits until all replicas of a Deployment are Ready and none of them is in `but`. Returns the replicas per node.
    async fn replicas(&self, app: &str, but: &BTreeSet<String>) -> Result<Replicas> {
        let pods: Api<Pod> = Api::namespaced(self.scene.client.clone(), &self.scene.namespace);
        let selector = ListParams::default().labels(&format!("app={app}"));
        let look = async || {
            let pods = pods.list(&selector).await?.items;
            let good = |pod: &Pod| serves(pod) && !but.contains(&pod.name_any());
            Ok((pods.len() == REPLICAS && pods.iter().all(good)).then_some(pods))
        };
        let command = format!("get pods -l app={app} -o wide --sort-by=.spec.nodeName");
        let pods = self.until(&command, look).await?.unwrap_or_default();
        let mut replicas = Replicas { names: pods.iter().map(ResourceExt::name_any).collect(), on: BTreeMap::new() };
        for node in pods.into_iter().filter_map(|pod| pod.spec?.node_name) {
            *replicas.on.entry(node).or_default() += 1;
        }
        Ok(replicas)
    }

    /// Annotates one node as nearly full and the others as half used. Returns that node, and whether new replicas avoid
    /// it.
    async fn avoids(&self) -> Result<(String, bool)> {
        self.screen.say("  Without a policy, the scheduler spreads the replicas:\n");
        let before = self.replicas(WEB, &BTreeSet::new()).await?;
        // Chooses a node that runs a replica, so that it would be used without the policy.
        let risky = before.on.keys().next().context("no replica runs")?.clone();
        self.screen.say(&format!("  Each node has 32 CPUs. {risky} becomes 95 % used, the other nodes 50 %:\n"));
        // The risky node is annotated first, so that the policy has its usage as soon as it has the usage of any node.
        self.kubectl(&format!("annotate node {risky} mean-used-cpu=30400 std-used-cpu=1600")).await?;
        let others: Vec<&str> = self.scene.nodes.iter().filter(|node| **node != risky).map(String::as_str).collect();
        self.kubectl(&format!("annotate node {} mean-used-cpu=16000 std-used-cpu=1600", others.join(" "))).await?;
        self.screen.say("\n  The policy:\n");
        self.screen.manifest(MANIFEST);
        let policy: PlacementPolicy = serde_saphyr::from_str(MANIFEST)?;
        Api::all(self.scene.client.clone()).create(&PostParams::default(), &policy).await?;
        let knows_usage = |policy: &PlacementPolicy| {
            let agents = policy.status.iter().flat_map(|status| &status.agents);
            agents.into_iter().any(|agent| agent.name == "safe" && agent.nodes > 0).then_some(())
        };
        self.policy("get plpol", knows_usage).await?;
        self.screen.say("  Power is not predicted yet: agent power abstains, and agent safe decides alone.\n");
        self.kubectl(&format!("rollout restart deployment {WEB}")).await?;
        self.screen.gap();
        let after = self.replicas(WEB, &before.names).await?;
        let (was, is) = (before.on(&risky), after.on(&risky));
        let (all, avoided) = (after.all() == REPLICAS, is == 0);
        self.screen.verdict("new replicas", &after.text(), all);
        self.screen.verdict(&format!("replicas on {risky}"), &format!("{is} (without the policy: {was})"), avoided);
        Ok((risky, all && avoided))
    }

    /// Waits until `test` returns a value for the policy.
    async fn policy<T>(&self, command: &str, test: impl Fn(&PlacementPolicy) -> Option<T>) -> Result<Option<T>> {
        let policies: Api<PlacementPolicy> = Api::all(self.scene.client.clone());
        self.until(command, async || Ok(test(&policies.get(POLICY).await?))).await
    }

    /// Checks that power is predicted for each node, and that pods go to the node whose power rises least.
    async fn prefers(&self, green: &str) -> Result<bool> {
        self.kubectl(&format!("label node --all {KIND}={THIRSTY}")).await?;
        self.kubectl(&format!("label node {green} {KIND}={GREEN} --overwrite")).await?;
        self.screen.gap();
        self.screen.manifest(&self.scene.template);
        let (client, namespace) = (self.scene.client.clone(), &self.scene.namespace);
        let template: NodeConfigTemplate = serde_saphyr::from_str(&self.scene.template)?;
        Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &template).await?;
        let configs: Api<NodeConfig> = Api::namespaced(client, namespace);
        let policies: Api<PlacementPolicy> = Api::all(self.scene.client.clone());
        let look = async || {
            let all = configs.list(&ListParams::default()).await?.items;
            let known = all.len() == self.scene.nodes.len() && all.iter().all(has_curve);
            Ok((known && is_ready(&policies.get(POLICY).await?)).then_some(all))
        };
        let configs = self.until("get plpol,ncfg", look).await?.unwrap_or_default();
        let predicted = !configs.is_empty() && configs.iter().all(|config| is_as_the_model_says(config, green));
        let watts = configs.iter().map(|config| watts(config).map_or("-".to_owned(), |watts| watts.to_string()));
        let shown = watts.collect::<Vec<_>>().join(", ");
        self.screen.verdict("predicted power, in W", &shown, predicted);
        self.screen.gap();
        self.kubectl(&format!("scale deployment {BATCH} --replicas={REPLICAS}")).await?;
        self.screen.gap();
        let batch = self.replicas(BATCH, &BTreeSet::new()).await?;
        let preferred = batch.on(green) == REPLICAS;
        self.screen.verdict(&format!("replicas of {BATCH} on {green}"), &batch.text(), preferred);
        Ok(predicted && preferred)
    }

    /// Checks that `ganglion explain placement` matches the decisions of the scheduler.
    async fn explains(&self, risky: &str) -> Result<bool> {
        let pods: Api<Pod> = Api::namespaced(self.scene.client.clone(), &self.scene.namespace);
        let pod = pods.list(&ListParams::default().labels(&format!("app={BATCH}"))).await?.items.into_iter().next();
        let pod = pod.context("there is no pod to ask about")?;
        let name = pod.name_any();
        let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let text = self.explain(&name, &[]).await?;
        self.screen.say(&format!("$ ganglion explain placement --policy {POLICY} --pod {name}\n{text}"));
        let told: Value = serde_json::from_str(&self.explain(&name, &["-o", "json"]).await?)?;
        let best = told["nodes"][0]["name"].as_str().unwrap_or_default();
        let nodes = told["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rejected: Vec<&str> =
            nodes.iter().filter(|node| node["rejected"].is_string()).filter_map(|node| node["name"].as_str()).collect();
        let (found, agreed) = (best == node, rejected == [risky]);
        let runs = if found { "where the pod runs".to_owned() } else { format!("but the pod runs on {node}") };
        self.screen.verdict("best node of the explanation", &format!("{best}, {runs}"), found);
        self.screen.verdict("rejected nodes", &rejected.join(", "), agreed);
        Ok(found && agreed)
    }

    /// Runs `ganglion explain placement`, as a user would.
    async fn explain(&self, pod: &str, more: &[&str]) -> Result<String> {
        let mut command = Command::new(program()?);
        command.args(["explain", "placement", "--policy", POLICY, "--pod", pod, "-n", &self.scene.namespace]);
        command.args(more).arg("--kubeconfig").arg(self.stage.kubeconfig()?);
        run(command, None).await
    }
}

struct Replicas {
    names: BTreeSet<String>,
    /// Number of replicas per node.
    on: BTreeMap<String, usize>,
}

impl Replicas {
    fn on(&self, node: &str) -> usize {
        self.on.get(node).copied().unwrap_or(0)
    }

    fn all(&self) -> usize {
        self.on.values().sum()
    }

    fn text(&self) -> String {
        let words: Vec<String> = self.on.iter().map(|(node, count)| format!("{count} on {node}")).collect();
        words.join(", ")
    }
}

fn is_ready(policy: &PlacementPolicy) -> bool {
    let conditions = policy.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition(conditions, "Ready").is_some_and(|ready| ready.status == "True")
}

fn has_curve(config: &NodeConfig) -> bool {
    let curve = config.status.as_ref().and_then(|status| status.power_curve.as_ref());
    curve.is_some_and(|curve| !curve.watts.is_empty()) && watts(config).is_some()
}

fn watts(config: &NodeConfig) -> Option<f64> {
    config.status.as_ref()?.reading(NodeValue::Power)?.value.as_ref()?.parse().ok()
}

fn is_as_the_model_says(config: &NodeConfig, green: &str) -> bool {
    let expected = model(config.spec.node_name == green).watts(FAKE);
    watts(config).is_some_and(|watts| (watts - expected).abs() < 0.5)
}
