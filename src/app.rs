//! The composition root: creates all parts, connects them, and stops them in order.
//!
//! The only place that sees every room. Decides nothing about workloads.

pub mod check;
mod extender;
mod outbound;
mod signals;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::Reporter;
use kube::{Client, Config};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::caches;
use crate::caches::placement::PlacementCache;
use crate::clients::address::{self, Names};
use crate::controllers::closed_loop::{ClosedLoopController, ClosedLoopMemory};
use crate::controllers::decision::{DecisionController, DecisionMemory};
use crate::controllers::execution::{ExecutionController, ExecutionMemory};
use crate::controllers::monitoring::{MonitoringController, MonitoringMemory, Sources};
use crate::controllers::node_config::{self, NodeConfigController, NodeConfigMemory};
use crate::controllers::node_config_template::{NodeConfigTemplateController, TemplateMemory};
use crate::controllers::outbound::OutboundClient;
use crate::controllers::placement_policy::{PlacementPolicyController, PolicyMemory};
use crate::controllers::swarm_pool::{self, PoolMemory, SwarmPoolController};
use crate::controllers::target::Targets;
use crate::controllers::workload_action::{self, WorkloadActionController};
use crate::http::extender::Extender;
use crate::http::{self, Served};
use crate::logic::world::Stored;
use crate::metrics::Metrics;
use crate::runtime::certificate::CertificateKeeper;
use crate::runtime::context::Context;
use crate::runtime::discovery::Discovery;
use crate::runtime::events;
use crate::runtime::impersonation::Impersonation;
use crate::runtime::lease::{Elector, KubeLeases, Lost, Timings};
use crate::runtime::polls;
use crate::runtime::run::{Controller, Run, run as run_controller};
use crate::runtime::store::Store;
use crate::runtime::tasks;
use crate::runtime::watch::namespaces::NamespaceFeeds;
use crate::runtime::watch::{Feeds, Readiness, WatchOptions};
use crate::runtime::writer::Writer;
use crate::settings::Settings;

/// How to access the cluster.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Kubeconfig file. Default: the usual places, or the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig. Default: its current context.
    pub context: Option<String>,
}

/// Options of [`run`] besides the settings.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub access: Access,
    pub bind: SocketAddr,
    /// Where kube-scheduler asks. Default: it is not served.
    pub extender_bind: Option<SocketAddr>,
    pub lease_namespace: Option<String>,
    pub watch_namespaces: Vec<String>,
    pub identity: String,
}

/// Why the operator ended.
#[derive(Debug, Error)]
pub enum Error {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("no cluster is configured")]
    Config(#[from] kube::config::InferConfigError),
    #[error("the Kubernetes client cannot be created")]
    Client(#[source] Box<kube::Error>),
    #[error("cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    #[error("setting outbound.{setting}: {problem}")]
    Setting { setting: &'static str, problem: String },
    #[error("the lease is lost: {0}")]
    Lease(Lost),
    #[error("a task ended by a fault of this program")]
    Task(#[from] JoinError),
}

/// How long the process waits at its end until queued events are sent.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
/// The operator cannot start, or the lease was lost; the process must then end at once.
pub async fn run(options: RunOptions, settings: Settings) -> Result<(), Error> {
    let stop = signals::stop().map_err(Error::Signals)?;
    let config = config(&options.access).await?;
    let namespace = options.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let names = Names::new(outbound::rules(&config, &settings)?, address::system);
    let client = client(config)?;
    let metrics = Metrics::new();
    let web = Arc::new(outbound::web(names.clone(), &settings, &metrics));
    let outbound = Arc::new(outbound::client(web, &settings, &metrics));
    let store = Store::default();
    // Watches and the HTTP server stop last, after the controllers have drained.
    let ended = CancellationToken::new();
    let listener = listen(options.bind).await?;
    let watched = watch_options(&options, &settings);
    let mut feeds = Feeds::new(&client, watched, store.clone(), metrics.clone(), ended.clone());
    caches::feed(&mut feeds);
    let upkeep =
        outbound::keep_up(client.clone(), names, Arc::clone(&outbound), settings.request_timeout(), ended.clone());
    let mut upkeep = tokio::spawn(upkeep);
    let served = Served {
        ready: feeds.ready(),
        store: store.clone(),
        metrics: metrics.clone(),
        loop_series: settings.closed_loops.series,
        node_series: settings.node_configs.series,
    };
    let mut server = tokio::spawn(http::serve(listener, served, ended.clone()));
    let placement = PlacementCache::new(store.clone());
    let extender = Extender::new(feeds.ready(), placement.clone(), metrics.clone(), settings.placement.max_body_bytes);
    let keeper = extender::keeper(&settings, &namespace);
    let mut extender = extender::serve(options.extender_bind, extender, &keeper, &client, &ended).await?;
    info!(identity = options.identity, address = %options.bind, version = env!("CARGO_PKG_VERSION"), "started");

    let mut elector = elector(&client, &settings, &options.identity, &namespace);
    let ready = feeds.ready();
    let identity = options.identity;
    let certificate = keeper.filter(|_| options.extender_bind.is_some());
    let parts = Parts { client, outbound, placement, certificate, settings, metrics, store, ready, stop, identity };
    let result = tokio::select! {
        biased;
        // A kind that is not watched any more, probes that nobody answers, or an API server within reach of users: the process
        // must start anew.
        Err(panicked) = feeds.ended() => Err(panicked.into()),
        Err(panicked) = &mut server => Err(panicked.into()),
        Err(panicked) = &mut extender => Err(panicked.into()),
        Err(panicked) = &mut upkeep => Err(panicked.into()),
        result = parts.lead(&mut elector) => result,
    };
    if result.is_ok() {
        elector.release().await;
    }
    ended.cancel();
    if result.is_ok() {
        // The results of the servers do not matter any more.
        let _ = tokio::join!(server, extender);
    }
    match &result {
        Ok(()) => info!("ended"),
        Err(error) => error!(%error, "ended"),
    }
    result
}

/// Listens on this address.
async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })
}

/// Everything that a leader term needs.
struct Parts {
    client: Client,
    outbound: Arc<OutboundClient>,
    placement: PlacementCache,
    /// The extender's, if it has one.
    certificate: Option<CertificateKeeper>,
    settings: Settings,
    metrics: Metrics,
    store: Store,
    ready: Readiness,
    stop: CancellationToken,
    identity: String,
}

impl Parts {
    /// Waits for caches and lease, then runs the controllers until they have stopped and drained, or until the lease is lost.
    async fn lead(&self, elector: &mut Elector<KubeLeases>) -> Result<(), Error> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(()),
            () = async {
                self.ready.ready().await;
                info!("caches filled");
                elector.acquire().await;
            } => {}
        }
        self.metrics.leader.set(1);
        let leader = CancellationToken::new();
        let _fence = leader.clone().drop_guard();
        let term = Term {
            parts: self,
            leader: leader.clone(),
            tasks: JoinSet::new(),
            senders: JoinSet::new(),
            name: term_name(),
        };
        let (mut work, mut senders) = term.start_all();
        let result = tokio::select! {
            biased;
            // No draining: another replica may already act.
            lost = elector.hold() => {
                leader.cancel();
                Err(Error::Lease(lost))
            }
            Err(panicked) = tasks::ended(&mut senders) => Err(panicked.into()),
            done = tasks::ended(&mut work) => done.map_err(Error::from),
        };
        self.metrics.leader.set(0);
        if result.is_ok() {
            leader.cancel();
            // Events that are not sent in time are lost.
            let _ = tokio::time::timeout(LAST_WORDS, tasks::ended(&mut senders)).await;
        }
        result
    }
}

/// A random name for a leader term.
fn term_name() -> Arc<str> {
    (0..8).map(|_| fastrand::alphanumeric().to_ascii_lowercase()).collect::<String>().into()
}

/// The controllers of one leader term.
struct Term<'a> {
    parts: &'a Parts,
    leader: CancellationToken,
    tasks: JoinSet<()>,
    /// Tasks that send events.
    senders: JoinSet<()>,
    /// Name of the term, as written in statuses.
    name: Arc<str>,
}

impl Term<'_> {
    /// Starts every controller. Returns the tasks of the controllers and the tasks that send their events.
    fn start_all(mut self) -> (JoinSet<()>, JoinSet<()>) {
        let Parts { settings, outbound, .. } = self.parts;
        let resync = Duration::from_secs(settings.workload_actions.resync_seconds);
        let limits = settings.limits();
        let actions = self.start(settings.workload_actions.concurrency, |ctx| WorkloadActionController {
            ctx,
            limits,
            ranker: Arc::new(self.parts.placement.clone()),
            resync,
            memory: workload_action::ActionMemory::default(),
        });
        self.tasks.spawn(workload_action::run_janitor(actions));
        let loops = settings.closed_loops.concurrency;
        let discovery = Arc::new(Discovery::default());
        let namespaces = settings.namespaces();
        let targets = |ctx: &Context| Targets {
            ctx: ctx.clone(),
            discovery: Arc::clone(&discovery),
            patchable: settings.patchable_kinds().into(),
        };
        self.start(loops, |ctx| ClosedLoopController {
            namespaces,
            targets: targets(&ctx),
            impersonation: Impersonation::default(),
            outbound: Arc::clone(outbound),
            memory: ClosedLoopMemory::default(),
            ctx,
        });
        self.start(loops, |ctx| MonitoringController {
            sources: Sources { ctx: ctx.clone(), outbound: Arc::clone(outbound), discovery: Arc::clone(&discovery) },
            memory: MonitoringMemory::default(),
            ctx,
        });
        self.start(loops, |ctx| DecisionController { ctx, memory: DecisionMemory::default() });
        self.start(loops, |ctx| ExecutionController {
            outbound: Arc::clone(outbound),
            targets: targets(&ctx),
            memory: ExecutionMemory::default(),
            ctx,
        });
        self.start_node_configs();
        let writes = settings.node_configs.concurrency;
        self.start(writes, |ctx| NodeConfigTemplateController {
            namespaces,
            concurrency: writes,
            memory: TemplateMemory::default(),
            ctx,
        });
        self.start_swarm_pools();
        self.start_placement();
        (self.tasks, self.senders)
    }

    fn start_placement(&mut self) {
        let (placement, memory) = (self.parts.placement.clone(), PolicyMemory::default());
        let concurrency = self.parts.settings.placement.concurrency;
        self.start(concurrency, |ctx| PlacementPolicyController { ctx, placement, memory });
        if let Some(keeper) = self.parts.certificate.clone() {
            let writer = self.context("extender").writer;
            let stop = self.parts.stop.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = keeper.renew(writer) => {}
                }
            });
        }
    }

    fn start_swarm_pools(&mut self) {
        let Parts { client, settings, outbound, store, metrics, .. } = self.parts;
        let feeds = NamespaceFeeds::new(client, list_timeout(settings), store.clone(), metrics.clone());
        let pools = &settings.swarm_pools;
        let controller = self.start(pools.concurrency, |ctx| SwarmPoolController {
            ctx,
            namespaces: settings.namespaces(),
            config_maps: feeds,
            outbound: Arc::clone(outbound),
            polls: Arc::default(),
            memory: PoolMemory::default(),
        });
        self.tasks.spawn(swarm_pool::run_probes(controller, polls::PollLimits { polls: pools.probes }));
    }

    fn start_node_configs(&mut self) {
        let Parts { settings, outbound, .. } = self.parts;
        let nodes = &settings.node_configs;
        // Statuses leave room for specs: whoever changes a template waits for those.
        let reports = nodes.concurrency.div_ceil(4);
        let controller = self.start(reports, |ctx| NodeConfigController {
            ctx,
            namespaces: settings.namespaces(),
            outbound: Arc::clone(outbound),
            rule: settings.node_write_rule(),
            polls: Arc::default(),
            memory: NodeConfigMemory::default(),
        });
        self.tasks.spawn(node_config::run_polls(controller, polls::PollLimits { polls: nodes.polls }));
    }

    /// Starts one controller and queues every object of its kind.
    fn start<C: Controller>(&mut self, concurrency: usize, make: impl FnOnce(Context) -> C) -> Arc<C> {
        let parts = self.parts;
        let controller = Arc::new(make(self.context(C::NAME)));
        // Open before queueing all objects, so that none in between is missed.
        let queue = parts.store.queue::<C::Kind>();
        queue.open();
        queue.add(parts.store.read(|world| {
            let table = C::Kind::table(world);
            table.keys().chain(table.unreadable().keys()).cloned().collect::<Vec<_>>()
        }));
        let run = Run { concurrency, metrics: parts.metrics.clone(), stop: parts.stop.clone() };
        self.tasks.spawn(run_controller(Arc::clone(&controller), queue, run));
        controller
    }

    fn context(&mut self, controller: &str) -> Context {
        let Parts { client, settings, metrics, store, stop, identity, .. } = self.parts;
        let (events, sender) = events::line(metrics);
        let from = Reporter { controller: format!("ganglion/{controller}"), instance: Some(identity.clone()) };
        let timeout = settings.request_timeout();
        self.senders.spawn(sender.run(client.clone(), from, timeout, self.leader.clone()));
        Context {
            store: store.clone(),
            writer: Writer::new(client.clone(), timeout, self.leader.clone(), metrics.clone()),
            events,
            metrics: metrics.clone(),
            clock: Timestamp::now,
            term: Arc::clone(&self.name),
            stop: stop.clone(),
        }
    }
}

/// The client configuration, from the given file or the usual places.
///
/// # Errors
/// The kubeconfig cannot be used, or there is neither a kubeconfig nor a pod's service account.
pub async fn config(access: &Access) -> Result<Config, Error> {
    let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match (&access.kubeconfig, &access.context) {
        (Some(path), _) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
        (None, Some(_)) => Config::from_kubeconfig(&options).await?,
        (None, None) => Config::infer().await?,
    };
    // Each call has its own timeout and retry; the retry of kube would wait for minutes.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

/// A client with this configuration.
///
/// # Errors
/// A certificate or an address in the configuration cannot be used.
pub fn client(config: Config) -> Result<Client, Error> {
    Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))
}

fn watch_options(options: &RunOptions, settings: &Settings) -> WatchOptions {
    WatchOptions { namespaces: options.watch_namespaces.clone(), timeout: list_timeout(settings) }
}

/// Timeout of the requests of watches: a page of a list is the largest answer.
fn list_timeout(settings: &Settings) -> Duration {
    settings.request_timeout().max(Duration::from_secs(30))
}

fn elector(client: &Client, settings: &Settings, identity: &str, namespace: &str) -> Elector<KubeLeases> {
    let lease = &settings.lease;
    let timings = Timings {
        duration: Duration::from_secs(lease.duration_seconds),
        renew_deadline: Duration::from_secs(lease.renew_deadline_seconds),
        retry: Duration::from_secs(lease.retry_seconds),
    };
    // A third of the deadline, so that a lost answer leaves time for further attempts.
    let leases = KubeLeases::new(client.clone(), namespace, &lease.name, timings.renew_deadline / 3);
    Elector::new(leases, timings, identity.to_owned(), namespace, &lease.name)
}
