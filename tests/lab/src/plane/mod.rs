//! The second ground: a control plane with kube-scheduler and simulated kubelets, which checks the first one.
//!
//! The lab simulates the workload, its usage and the time; the control plane places the pods. Each decision is compared
//! with the lab's own scheduler for the same situation, and the run goes on from what the control plane chose.

mod objects;
mod placer;
mod scores;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use testkit::operator::Operator;
use testkit::plane::install::{self, NAMESPACE};
use testkit::plane::scheduler::{SecondScheduler, plain_extender};
use testkit::plane::{self, cluster::Cluster};
use testkit::process::free_port;
use testkit::testbed::nodes::is_open;
use testkit::{NODE_OWNER, TIMEOUT, root};

use crate::cluster::published::{POLICY, node_config, policy};
use crate::cluster::{LabNode, MoveRules, run};
use crate::compare::{ComparedDecision, ComparedPlacer};
use crate::contender::{Contender, FitStrategy, LabScheduler};
use crate::fleet::ServerFleet;
use crate::trace::WorkTrace;
use objects::node_name;
use placer::{PlanePlacer, WRITERS};

/// Service account of the schedulers.
const ACCOUNT: &str = "ganglion-scheduler";

/// Seconds by which the time of a run is behind the clock at its end.
const MARGIN: f64 = 60.0;

/// A control plane with the operator's objects installed. It runs one contender after the other.
pub struct PlaneGround<'a> {
    cluster: &'a Cluster,
    /// Directory of the operators' files.
    home: PathBuf,
    /// Token of the schedulers.
    token: String,
    clock: fn() -> Timestamp,
}

impl<'a> PlaneGround<'a> {
    /// Prepares a control plane: schedulers get their rights, and the lab holds the lease of the operator.
    pub async fn open(cluster: &'a Cluster, home: PathBuf, clock: fn() -> Timestamp) -> Result<Self> {
        let rights = root().join("kustomize/components/scheduler/rights.yaml").display().to_string();
        cluster.kubectl(&["apply", "--server-side", "-f", &rights], None).await?;
        let token = install::token_of(&cluster.client, NAMESPACE, ACCOUNT).await?;
        let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        leases.create(&PostParams::default(), &objects::lease(clock())?).await?;
        Ok(Self { cluster, home, token, clock })
    }

    /// Runs a workload with this contender, which must not move pods. Returns all decisions.
    pub async fn run(
        &self,
        trace: &WorkTrace,
        fleet: &ServerFleet,
        contender: &Contender,
        seed: u64,
    ) -> Result<Vec<ComparedDecision>> {
        ensure!(contender.moves == MoveRules::None, "the control plane does not move pods");
        let namespace = format!("{}-{}", fleet.name, contender.name).replace(" + ", "-").replace(' ', "-");
        let namespace = namespace.to_ascii_lowercase();
        let begin = (self.clock)() - SignedDuration::try_from_secs_f64(trace.duration() + MARGIN)?;
        let services = trace.pools().len();
        let mut plane = self.placer(&namespace, fleet, services, &contender.placement, begin).await?;
        let mut lab = contender.placer(fleet)?;
        let mut compared = ComparedPlacer::new(&mut plane, lab.as_mut());
        let settings = contender.settings(seed, 0);
        tokio::task::block_in_place(|| run(trace, fleet, &mut compared, settings))
            .with_context(|| format!("{} on the control plane", contender.name))?;
        let decisions = compared.decisions;
        drop(plane);
        self.clear(&namespace).await?;
        Ok(decisions)
    }

    /// Creates the nodes and services in a new namespace, and starts the scheduler.
    async fn placer(
        &self,
        namespace: &str,
        fleet: &ServerFleet,
        services: usize,
        scheduler: &LabScheduler,
        begin: Timestamp,
    ) -> Result<PlanePlacer> {
        let client = &self.cluster.client;
        plane::namespace(client, namespace).await?;
        let nodes = fleet.servers.iter().cloned().map(LabNode::new).enumerate();
        let create = async |(index, node): (usize, LabNode)| self.create_node(namespace, index, &node).await;
        stream::iter(nodes).map(create).buffer_unordered(WRITERS).try_collect::<Vec<()>>().await?;
        let api: Api<Service> = Api::namespaced(client.clone(), namespace);
        for service in 0..services {
            api.create(&PostParams::default(), &objects::service(service)?).await?;
        }
        let (config, operator) = match scheduler {
            LabScheduler::Stock(strategy) => (stock(*strategy)?, None),
            LabScheduler::Policy(agents) => {
                let (config, operator) = self.asking(namespace, agents).await?;
                (config, Some(operator))
            }
            LabScheduler::Trimaran(_) => bail!("the control plane has no plugins of others"),
        };
        let scheduler = SecondScheduler::with_options(self.cluster, config, &self.token, &scores::OPTIONS)?;
        PlanePlacer::begin(client, namespace, begin, scheduler, operator).await
    }

    /// Creates a node with its NodeConfig, and waits until it is ready.
    async fn create_node(&self, namespace: &str, index: usize, node: &LabNode) -> Result<()> {
        let client = self.cluster.client.clone();
        let (name, nodes) = (node_name(namespace, index), Api::<Node>::all(client.clone()));
        nodes.create(&PostParams::default(), &objects::node(&name, namespace, node)?).await?;
        let configs: Api<NodeConfig> = Api::namespaced(client, namespace);
        configs.create(&PostParams::default(), &node_config(&name)).await?;
        let open = await_condition(nodes, &name, |node: Option<&Node>| node.is_some_and(is_open));
        tokio::time::timeout(TIMEOUT, open).await.with_context(|| format!("node {name} is not ready"))??;
        Ok(())
    }

    /// Creates the policy, starts the operator, and returns the configuration of a scheduler that asks it.
    async fn asking(&self, namespace: &str, agents: &Value) -> Result<(Value, Operator)> {
        let policies: Api<PlacementPolicy> = Api::all(self.cluster.client.clone());
        policies.create(&PostParams::default(), &policy(agents)?).await?;
        let home = self.home.join(namespace);
        std::fs::create_dir_all(&home)?;
        let settings = home.join("settings.yaml");
        std::fs::write(&settings, "placement: {tls: false}")?;
        let (settings, bind) = (settings.display().to_string(), format!("127.0.0.1:{}", free_port()?));
        let options = ["--settings", &settings, "--extender-bind", &bind];
        let mut operator = Operator::installed(self.cluster, &home, &options).await?;
        operator.start()?;
        operator.ready().await?;
        let mut config = plain_extender(&format!("http://{bind}/policies/{POLICY}"))?;
        // On a busy machine, a decision without the policy would be a difference.
        config["extenders"][0]["httpTimeout"] = json!("60s");
        config["profiles"] = objects::profile(FitStrategy::LeastAllocated);
        config["leaderElection"] = json!({"leaderElect": false});
        Ok((config, operator))
    }

    /// Deletes what a run has left.
    async fn clear(&self, namespace: &str) -> Result<()> {
        let client = self.cluster.client.clone();
        let at_once = DeleteParams::default().grace_period(0);
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        pods.delete_collection(&at_once, &ListParams::default()).await?;
        let own = ListParams::default().labels(&format!("{NODE_OWNER}={namespace}"));
        Api::<Node>::all(client.clone()).delete_collection(&at_once, &own).await?;
        Api::<PlacementPolicy>::all(client.clone()).delete_collection(&at_once, &ListParams::default()).await?;
        Api::<Namespace>::all(client).delete(namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Configuration of a scheduler without an extender.
fn stock(strategy: FitStrategy) -> Result<Value> {
    Ok(json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false}, "profiles": objects::profile(strategy),
    }))
}
