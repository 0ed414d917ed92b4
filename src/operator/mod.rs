//! The composition root: creates all parts, connects them, and stops them in order.
//!
//! Only this module depends on all other modules. It makes no decisions about workloads.

pub mod admission;
pub mod check;
pub mod drain;
mod extender;
pub mod http;
pub mod installation;
pub mod kinds;
mod outbound;
pub mod plan;
mod ranker;
pub mod read;
pub mod remove;
pub mod settings;
mod signals;
pub mod telemetry;
mod term;
mod traces;
pub mod world;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::operator::http::Served;
use crate::operator::kinds as caches;
use crate::operator::settings::Settings;
use ganglion_api::marks;
use ganglion_outbound::address::{self, Names};
use ganglion_outbound::client::OutboundClient;
use ganglion_outbound::otlp::{OtlpProblem, OtlpSettings, SpanExporter, SpanQueue};
use ganglion_placement::cache::{self, PlacementCache};
use ganglion_placement::extender::Extender;
use ganglion_runtime::certificate::CertificateKeeper;
use ganglion_runtime::certificate::tls::ServerConfigError;
use ganglion_runtime::events;
use ganglion_runtime::lease::{Elector, KubeLeases, LeaseLost, Timings};
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;
use ganglion_runtime::tasks;
use ganglion_runtime::watch::{Feeds, Readiness, Relist, WatchOptions};
use term::{Term, TermTasks};

/// Access to the cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterAccess {
    /// Kubeconfig file. Default: the usual locations, or the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig. Default: its current context.
    pub context: Option<String>,
}

/// Receives what a command does now, or what it waits for, in a few words.
pub type ProgressLine<'a> = &'a (dyn Fn(&str) + Sync);

/// Options of [`run`] besides the settings.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub access: ClusterAccess,
    pub bind: SocketAddr,
    /// Address for kube-scheduler's requests. Default: the extender is not served.
    pub extender_bind: Option<SocketAddr>,
    pub lease_namespace: Option<String>,
    pub watch_namespaces: Vec<String>,
    pub identity: String,
    /// Endpoint of traces. Default: nothing is sent.
    pub traces: Option<OtlpSettings>,
}

/// Error: the operator cannot start, or has to end.
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
    Tls(#[from] ServerConfigError),
    #[error("cannot read the file {path} of setting placement.clientCaFile")]
    ClientCa {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Traces(#[from] OtlpProblem),
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    #[error("setting outbound.{setting}: {problem}")]
    Setting { setting: &'static str, problem: String },
    #[error("the lease is lost: {0}")]
    Lease(LeaseLost),
    #[error("a task failed because of a bug in this program")]
    Task(#[from] JoinError),
}

/// Maximum time at exit for sending queued events.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs the operator until SIGTERM or SIGINT.
pub async fn run(options: RunOptions, settings: Settings) -> Result<(), Error> {
    let stop = signals::stop().map_err(Error::Signals)?;
    let config = config(&options.access).await?;
    let namespace = options.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let names = Names::new(outbound::rules(&config, &settings)?, address::system);
    let client = client(config)?;
    let metrics = Metrics::new();
    let web = Arc::new(outbound::web(names.clone(), &settings, &metrics));
    let outbound = Arc::new(outbound::client(web, &settings, &metrics));
    let mut world = world::world().with_limits(settings.occupancy_limits()).with_clock(Timestamp::now);
    world.guard(admission::guards());
    let store = Store::new(world);
    // Watches and the HTTP server stop last, after the controllers have drained.
    let ended = CancellationToken::new();
    let exporter = options.traces.map(|traces| traces::exporter(traces, &metrics)).transpose()?;
    let spans = exporter.as_ref().map(SpanExporter::queue);
    let listener = listen(options.bind).await?;
    let watched = watch_options(options.watch_namespaces.clone(), &settings);
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
    let list = list_timeout(&settings);
    let learning =
        cache::learn(client.clone(), namespace.clone(), placement.clone(), list, &feeds.ready(), ended.clone());
    let mut learning = tokio::spawn(learning);
    let keeper = extender::keeper(&settings, &namespace);
    let mut extender = extender::serve(options.extender_bind, extender, &keeper, &settings, &client, &ended).await?;
    let mut exporting = tokio::spawn(traces::export(exporter, ended.clone()));
    info!(identity = options.identity, address = %options.bind, version = env!("CARGO_PKG_VERSION"), "started");

    let mut elector = elector(&client, &settings, &options.identity, &options.watch_namespaces, &namespace);
    let (ready, relist) = (feeds.ready(), feeds.relist());
    let identity = options.identity;
    let certificate = keeper.filter(|_| options.extender_bind.is_some());
    let parts = OperatorParts {
        client,
        outbound,
        placement,
        namespace,
        certificate,
        settings,
        metrics,
        store,
        ready,
        stop,
        identity,
        spans,
    };
    let result = tokio::select! {
        biased;
        // If one of these tasks panics, a kind is no longer watched, probes are not answered, or users' requests can
        // reach the API server: the process must restart.
        Err(panicked) = feeds.ended() => Err(panicked.into()),
        Err(panicked) = &mut server => Err(panicked.into()),
        Err(panicked) = &mut extender => Err(panicked.into()),
        Err(panicked) = &mut upkeep => Err(panicked.into()),
        Err(panicked) = &mut learning => Err(panicked.into()),
        Err(panicked) = &mut exporting => Err(panicked.into()),
        result = parts.lead(&mut elector, &relist) => result,
    };
    if result.is_ok() {
        elector.release().await;
    }
    ended.cancel();
    if result.is_ok() {
        // The results of the servers no longer matter.
        let _ = tokio::join!(server, extender, exporting);
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

/// Everything that the controllers of a leader term need.
struct OperatorParts {
    client: Client,
    outbound: Arc<OutboundClient>,
    placement: PlacementCache,
    /// Namespace of the operator.
    namespace: String,
    /// Certificate of the extender, if it has one.
    certificate: Option<CertificateKeeper>,
    settings: Settings,
    metrics: Metrics,
    store: Store,
    ready: Readiness,
    stop: CancellationToken,
    identity: String,
    /// Spans for the endpoint of traces, if there is one.
    spans: Option<SpanQueue>,
}

impl OperatorParts {
    /// Waits for the caches and the lease, then runs the controllers until they have stopped and drained, or until the
    /// lease is lost.
    ///
    /// After another replica, the caches are filled again first. The watches of a standby may lag behind what the
    /// former leader has done, and an object that it created and deleted would be created a second time.
    async fn lead(&self, elector: &mut Elector<KubeLeases>, relist: &Relist) -> Result<(), Error> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(()),
            () = async {
                self.ready.ready().await;
                info!("caches filled");
                elector.acquire().await;
            } => {}
        }
        if elector.follows_another() {
            let relisted = relist.all();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                lost = elector.hold() => return Err(Error::Lease(lost)),
                () = relisted.ready() => info!("caches filled again after another replica"),
            }
        }
        self.serve(elector.hold(), |term| term.start_all()).await
    }

    /// Runs the controllers that `start` starts until they have stopped and drained, or until the lease is lost.
    async fn serve(
        &self,
        lost: impl Future<Output = LeaseLost>,
        start: impl FnOnce(Term<'_>) -> TermTasks,
    ) -> Result<(), Error> {
        self.metrics.leader.set(1);
        let leader = CancellationToken::new();
        let _fence = leader.clone().drop_guard();
        let (events, sender) = events::line(&self.metrics);
        let timeout = self.settings.request_timeout();
        // The identity of a process in a pod is the name and the uid of the pod.
        let pod = self.identity.rsplit_once('_').map_or(&*self.identity, |(name, _)| name);
        let sending = sender.run(self.client.clone(), pod.to_owned(), timeout, leader.clone());
        let term = Term {
            parts: self,
            leader: leader.clone(),
            tasks: JoinSet::new(),
            traces: self.spans.clone().map(|spans| traces::of_term(&self.store, spans)),
            events,
            sender: JoinSet::from_iter([sending]),
            name: term_name(),
        };
        let TermTasks { mut work, mut sender } = start(term);
        let result = tokio::select! {
            biased;
            // No draining: another replica may already act.
            lost = lost => {
                leader.cancel();
                Err(Error::Lease(lost))
            }
            Err(panicked) = tasks::ended(&mut sender) => Err(panicked.into()),
            done = tasks::ended(&mut work) => done.map_err(Error::from),
        };
        self.metrics.leader.set(0);
        if result.is_ok() {
            leader.cancel();
            // Events that are not sent in time are lost.
            let _ = tokio::time::timeout(LAST_WORDS, tasks::ended(&mut sender)).await;
        }
        result
    }
}

/// A random name for a leader term.
fn term_name() -> Arc<str> {
    (0..8).map(|_| fastrand::alphanumeric().to_ascii_lowercase()).collect::<String>().into()
}

/// The client configuration, from the given file or the usual locations.
pub async fn config(access: &ClusterAccess) -> Result<Config, Error> {
    let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match (&access.kubeconfig, &access.context) {
        (Some(path), _) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
        (None, Some(_)) => Config::from_kubeconfig(&options).await?,
        (None, None) => Config::infer().await?,
    };
    // Each call has its own timeout and retry; kube's retry would wait for minutes.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

/// A client with this configuration.
pub fn client(config: Config) -> Result<Client, Error> {
    Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))
}

fn watch_options(namespaces: Vec<String>, settings: &Settings) -> WatchOptions {
    WatchOptions { namespaces, timeout: list_timeout(settings) }
}

/// Timeout of list and watch requests: a page of a list is the largest response.
fn list_timeout(settings: &Settings) -> Duration {
    settings.request_timeout().max(Duration::from_secs(30))
}

/// Timings of the election, from the settings.
fn timings(settings: &Settings) -> Timings {
    let lease = &settings.lease;
    Timings {
        duration: Duration::from_secs(lease.duration_seconds),
        renew_deadline: Duration::from_secs(lease.renew_deadline_seconds),
        retry: Duration::from_secs(lease.retry_seconds),
    }
}

/// A candidate for the lease in `namespace`, which works in the `watched` namespaces; in all if there are none.
fn elector(
    client: &Client,
    settings: &Settings,
    identity: &str,
    watched: &[String],
    namespace: &str,
) -> Elector<KubeLeases> {
    let (timings, name) = (timings(settings), &settings.lease.name);
    // A third of the deadline, so that there is time for further attempts if a response is lost.
    let leases = KubeLeases::new(client.clone(), namespace, name, timings.renew_deadline / 3);
    Elector::new(leases, timings, identity.to_owned(), namespace, name)
        .annotated(marks::NAMESPACES, (!watched.is_empty()).then(|| watched.join(",")))
}
