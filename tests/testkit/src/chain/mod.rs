//! One chain through all parts of the operator, on the stock scheduler: the nodes of two racks are measured, one rack
//! gets hot, a loop moves replicas to nodes that a policy prefers, a slow loop raises a metric that starves, new
//! replicas avoid the rack by the same policy, and a worker of a pool moves with its jobs.
//!
//! `hack/demo chain` shows it, and the stories in `tests/cluster/chain.rs` check it. Objects change by what a user
//! would apply; what counts is what the API server, the scheduler and the workers report.

mod racks;
mod scene;
mod stations;

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ganglion_api::marks::LABEL_DOMAIN;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::process::Command;

use crate::eye::{Eye, Seen};
use crate::kubelet::{Kubelet, KubeletOptions};
use crate::operator::program;
use crate::plane::cluster::Cluster;
use crate::process::run;
use crate::servers::http::{Manner, Server};
use crate::servers::inference::{Linear, ModelServer};
use crate::verdict::{Story, node_of, pods_of, serves};
use crate::{TIMEOUT, root};
use racks::Racks;
use scene::{POLICY, REPLICAS, WEB};

/// Number of simulated nodes that the cluster must have; the other four of the ten nodes run real processes.
pub const NODES: usize = 6;

/// Label of a node: its rack.
const RACK: &str = "example.com/rack";

/// Label of a node: the port of its BMC.
const PORT: &str = "example.com/bmc-port";

/// Version of the model of power.
const VERSION: &str = "v1";

/// Hot air costs power: fans run faster, and chips leak more.
const POWER: Linear = Linear { base: 100.0, cpu: 1.0, inlet: 0.5, pressure: 0.1, cpu_inlet: 0.1 };

/// Differential pressure of every node, in pascals.
const PASCALS: f64 = 7.5;

/// Property that is checked at a station, the observed value, and whether it is as expected.
#[derive(Clone, Debug)]
pub struct StationCheck {
    pub what: String,
    pub seen: String,
    pub holds: bool,
}

/// The stations of the chain, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    Measured,
    Hot,
    Leaving,
    Tuned,
    Avoided,
    Empty,
    Cool,
}

impl Station {
    /// All stations, in order.
    pub const ALL: [Self; 7] =
        [Self::Measured, Self::Hot, Self::Leaving, Self::Tuned, Self::Avoided, Self::Empty, Self::Cool];
}

/// The scene. Dropping it stops the servers and the processes.
pub struct HeatChain<'a> {
    cluster: &'a Cluster,
    namespace: String,
    eye: Eye,
    /// Events of [`WEB`] since all its replicas were Ready.
    story: Story,
    racks: Racks,
    /// Kubelets of the pool's workers, which share one journal.
    kubelets: Vec<Kubelet>,
    _pressure: Server,
    models: ModelServer,
    pressure_url: String,
}

impl<'a> HeatChain<'a> {
    /// Puts ten nodes into two racks, and starts their BMCs, the model server, the workloads and the pool. The operator
    /// must be allowed to connect to 127.0.0.0/8, and to act as the service accounts of the namespace.
    pub async fn set(cluster: &'a Cluster, namespace: &str) -> Result<Self> {
        let client = &cluster.client;
        // The simulated nodes have as many CPUs: on a larger node, power rises less.
        let arguments = vec!["--hot-reload".to_owned()];
        let options = KubeletOptions { arguments, cores: 32, ..KubeletOptions::default() };
        let first = Kubelet::start(client, namespace, options).await?;
        let mut kubelets = vec![first];
        for name in ["more", "others", "last"] {
            let next = kubelets[0].join(&format!("{name}-processes")).await?;
            kubelets.push(next);
        }
        let workers: Vec<String> = kubelets.iter().map(|kubelet| kubelet.node.clone()).collect();
        let racks = Racks::set(cluster, &workers).await?;
        let air = json!({"code": 200, "sensor": [{"sensorid": "air", "pressure": PASCALS, "temperature": 26.0}]});
        let pressure = Server::start(Manner::Says("200 OK", air.to_string())).await;
        let pressure_url = pressure.url("");
        let models = ModelServer::start(&[(VERSION, POWER)]).await?;
        let eye = Eye::open(client, namespace).await?;
        let story = Story::begin(&eye, WEB);
        let namespace = namespace.to_owned();
        let mut this =
            Self { cluster, namespace, eye, story, racks, kubelets, _pressure: pressure, models, pressure_url };
        this.apply(scene::ACCOUNT).await?;
        for workload in scene::workloads(&this.namespace) {
            this.apply(&workload.to_string()).await?;
        }
        // The manifest has no replicas: who applies them owns them.
        let replicas = format!("--replicas={REPLICAS}");
        this.kubectl(&["scale", "deployment", WEB, &replicas], None).await?;
        let all_serve = |seen: &Seen| (pods_of(seen, WEB).filter(|pod| serves(pod)).count() == REPLICAS).then_some(());
        this.eye.until("all replicas to be Ready", all_serve).await?;
        this.story = Story::begin(&this.eye, WEB);
        this.install_policies().await?;
        Ok(this)
    }

    /// Installs the admission policies that add the terms of the default policy to new pods of the namespace, and give
    /// a replica of a StatefulSet its node.
    async fn install_policies(&self) -> Result<()> {
        for part in ["placement-labels/rights", "placement-labels/policy", "pin-statefulsets/policy"] {
            let file = root().join(format!("kustomize/components/{part}.yaml"));
            self.cluster.kubectl(&["apply", "--server-side", "-f", &file.display().to_string()], None).await?;
        }
        let opt_in = Patch::Merge(json!({"metadata": {"labels": {"ganglion.dev/placement": "labels"}}}));
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        namespaces.patch(&self.namespace, &PatchParams::default(), &opt_in).await?;
        Ok(())
    }

    /// Does what a user would do at this station, waits for what follows, and checks it.
    pub async fn play(&self, station: Station) -> Result<Vec<StationCheck>> {
        let played = match station {
            Station::Measured => self.measured().await,
            Station::Hot => self.hot().await,
            Station::Leaving => self.leaving().await,
            Station::Tuned => self.tuned().await,
            Station::Avoided => self.avoided().await,
            Station::Empty => self.empty().await,
            Station::Cool => self.cool().await,
        };
        match played {
            Ok(checks) => Ok(checks),
            Err(error) => {
                let state = self.kubectl(&["get", "loop,dec,exe,wa,swp,pods", "-o", "wide"], None).await;
                let state = state.unwrap_or_else(|error| error.to_string());
                Err(error.context(format!("at the station {station:?}:\n{state}")))
            }
        }
    }

    /// Manifests that a user applies at this station.
    pub fn manifests(&self, station: Station) -> Vec<String> {
        match station {
            Station::Measured => vec![scene::machines(&self.pressure_url, &self.models.url(""))],
            Station::Hot => vec![scene::PLACEMENT.to_owned()],
            Station::Leaving => vec![scene::FAST_LOOP.to_owned()],
            Station::Tuned => vec![scene::SLOW_LOOP.to_owned()],
            Station::Empty => vec![scene::POOL_LOOP.to_owned()],
            Station::Avoided | Station::Cool => Vec::new(),
        }
    }

    /// Commands that show the state after a station: of kubectl, or of `ganglion`.
    pub fn commands(&self, station: Station) -> Vec<String> {
        let commands: &[&str] = match station {
            Station::Measured => &["kubectl get ncft,ncfg"],
            Station::Hot => &["kubectl get plpol", "kubectl get nodes -L example.com/rack,LABEL"],
            Station::Leaving => &["kubectl get wa", "ganglion timeline loop web"],
            Station::Tuned => &["kubectl get loop", "ganglion explain loop web"],
            Station::Avoided => &["ganglion explain placement --policy default --pod POD"],
            Station::Empty => &["kubectl get swp", "kubectl get pods -o wide --sort-by=.spec.nodeName"],
            Station::Cool => &["kubectl get loop,mon,wa"],
        };
        let pod = self.eye.look(|seen: &Seen| newest(seen).unwrap_or_default());
        let label = format!("{LABEL_DOMAIN}{POLICY}");
        commands.iter().map(|command| command.replace("LABEL", &label).replace("POD", &pod)).collect()
    }

    /// Runs such a command in the namespace, and returns its output.
    pub async fn show(&self, command: &str) -> Result<String> {
        let mut words = command.split(' ');
        let program = words.next();
        let arguments: Vec<&str> = words.collect();
        match program {
            Some("ganglion") => self.ganglion(&arguments).await,
            Some("kubectl") => self.kubectl(&arguments, None).await,
            other => bail!("no program {other:?}"),
        }
    }

    async fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String> {
        self.cluster.kubectl(&[&["-n", self.namespace.as_str()], arguments].concat(), input).await
    }

    async fn ganglion(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program()?);
        command.args(arguments).args(["-n", &self.namespace, "--kubeconfig"]).arg(&self.cluster.kubeconfig);
        run(command, None).await
    }

    async fn apply(&self, manifest: &str) -> Result<()> {
        self.kubectl(&["apply", "-f", "-"], Some(manifest)).await.map(drop)
    }

    /// Applies the manifests of a station.
    async fn apply_all(&self, station: Station) -> Result<()> {
        for manifest in self.manifests(station) {
            self.apply(&manifest).await?;
        }
        Ok(())
    }

    /// Objects of one kind in the namespace.
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }
}

/// Waits until `look` returns a value, for at most [`TIMEOUT`].
async fn until<T, F>(what: &str, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let began = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if began.elapsed() > TIMEOUT {
            bail!("not {what} after {} s", TIMEOUT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Name of the replica that was created last and has a node.
fn newest(seen: &Seen) -> Option<String> {
    let placed = pods_of(seen, WEB).filter(|pod| !node_of(pod).is_empty());
    let newest = placed.max_by_key(|pod| pod.metadata.creation_timestamp.clone());
    newest.and_then(|pod| pod.metadata.name.clone())
}
