//! The composition root: makes every part, wires them, and takes them down in order.
//!
//! The only place that sees every room. Decides nothing about workloads.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::Reporter;
use kube::{Client, Config};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::caches::{self, Caches, Listener};
use crate::clients::address::{self, Names};
use crate::clients::web::Web;
use crate::controllers::closed_loop::{self, ClosedLoops};
use crate::controllers::events::{self, Events};
use crate::controllers::queue::Queue;
use crate::controllers::workload_action::{self, State, WorkloadActions};
use crate::controllers::{Controller, Run, run as run_controller};
use crate::http::{self, Served};
use crate::lease::{Elector, KubeLeases, Lost, Timings};
use crate::logic::facts::{Identity, Key};
use crate::logic::world::Wakes;
use crate::logic::world::loops::Loops;
use crate::metrics::Metrics;
use crate::settings::Settings;

/// Which cluster to talk to, and as whom.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Default: what is usual.
    pub kubeconfig: Option<PathBuf>,
    /// Default: the kubeconfig's current one.
    pub context: Option<String>,
}

/// How the operator is run here.
#[derive(Clone, Debug)]
pub struct Options {
    pub access: Access,
    pub bind: SocketAddr,
    pub lease_namespace: Option<String>,
    pub watch_namespaces: Vec<String>,
    pub identity: String,
}

/// Why the operator ended.
#[derive(Debug, Error)]
pub enum Error {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("no cluster to talk to is configured")]
    Config(#[from] kube::config::InferConfigError),
    #[error("the client cannot be made")]
    Client(#[source] Box<kube::Error>),
    #[error("cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    #[error("the lease is lost: {0}")]
    Lease(Lost),
}

/// How long the last events may take to be sent.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What waits to be looked at, for each controller.
#[derive(Default)]
struct Queues {
    actions: Arc<Queue<Key>>,
    loops: Arc<Queue<Key>>,
}

impl Listener for Queues {
    fn wake_actions(&self, actions: Wakes) {
        self.actions.wake(actions);
    }
    fn wake_loops(&self, loops: Wakes) {
        self.loops.wake(loops);
    }
}

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot start, or the lease was lost: then the process must end at once.
pub async fn run(options: Options, settings: Settings) -> Result<(), Error> {
    let stop = stop_on_signals()?;
    let config = config(&options.access).await?;
    let namespace = options.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let web = Arc::new(Web::new(Names::new(rules(&config, &settings), address::system)));
    let client = client(config)?;
    let metrics = Metrics::new();
    let queues = Arc::new(Queues::default());
    // Watches and health outlive the work: they end after the drain.
    let ended = CancellationToken::new();
    let listener =
        TcpListener::bind(options.bind).await.map_err(|source| Error::Bind { address: options.bind, source })?;
    let caches = Caches::start(&client, &cache_options(&options, &settings), queues.clone(), &metrics, &ended);
    let served = Served { sync: caches.sync(), metrics: metrics.clone() };
    let server = tokio::spawn(http::serve(listener, served, ended.clone()));
    info!(identity = options.identity, address = %options.bind, version = env!("CARGO_PKG_VERSION"), "started");

    let mut elector = elector(&client, &settings, &options.identity, &namespace);
    let parts = Parts { client, web, settings, metrics, queues, caches, stop, identity: options.identity };
    let result = parts.lead(&mut elector).await;
    if result.is_ok() {
        elector.release().await;
    }
    ended.cancel();
    if result.is_ok() {
        // Nothing depends on the server's last answers, nor on the reason why it ended.
        let _ = server.await;
    }
    match &result {
        Ok(()) => info!("ended"),
        Err(error) => error!(%error, "ended"),
    }
    result
}

/// What the time between two leases is made of.
struct Parts {
    client: Client,
    web: Arc<Web>,
    settings: Settings,
    metrics: Metrics,
    queues: Arc<Queues>,
    caches: Caches,
    stop: CancellationToken,
    identity: String,
}

impl Parts {
    /// Waits for caches and lease, then acts until it is stopped, and has drained; or until the lease is lost.
    async fn lead(&self, elector: &mut Elector<KubeLeases>) -> Result<(), Error> {
        let sync = self.caches.sync();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(()),
            () = async {
                sync.ready().await;
                info!("caches filled");
                elector.acquire().await;
            } => {}
        }
        self.metrics.leader.set(1);
        let leader = CancellationToken::new();
        let _fence = leader.clone().drop_guard();
        let (of_actions, actions_sender) = self.start_events(WorkloadActions::NAME, &leader);
        let (of_loops, loops_sender) = self.start_events(ClosedLoops::NAME, &leader);
        let work =
            async { tokio::join!(self.work(of_actions, leader.clone()), self.work_on_loops(of_loops, leader.clone())) };
        let result = tokio::select! {
            biased;
            // No draining: another replica may act already.
            lost = elector.hold() => {
                leader.cancel();
                Err(Error::Lease(lost))
            }
            ((), ()) = work => Ok(()),
        };
        self.metrics.leader.set(0);
        if result.is_ok() {
            leader.cancel();
            // Late events are lost, and that is all there is to it.
            let _ = tokio::time::timeout(LAST_WORDS, async { tokio::join!(actions_sender, loops_sender) }).await;
        }
        result
    }

    /// The controller of actions and its janitor, until they are stopped and have drained.
    async fn work(&self, events: Events, leader: CancellationToken) {
        let controller = Arc::new(WorkloadActions {
            client: self.client.clone(),
            world: self.caches.world.clone(),
            sync: self.caches.sync(),
            queue: Arc::clone(&self.queues.actions),
            limits: self.settings.limits(),
            timeout: self.settings.request_timeout(),
            resync: Duration::from_secs(self.settings.workload_actions.resync_seconds),
            clock: jiff::Timestamp::now,
            metrics: self.metrics.clone(),
            events,
            leader,
            stop: self.stop.clone(),
            state: State::default(),
        });
        // First open, then wake all there are: what comes in between is woken by both.
        let queue = &self.queues.actions;
        queue.open();
        let known: Wakes = self
            .caches
            .world
            .read(|world| world.actions().map(|action| Identity::from(&action.metadata).key).collect());
        queue.wake(known);
        let run = self.run(self.settings.workload_actions.concurrency);
        let janitor = workload_action::run_janitor(Arc::clone(&controller));
        tokio::join!(run_controller(controller, Arc::clone(queue), run), janitor);
    }

    /// The controller of loops, until it is stopped and has drained.
    async fn work_on_loops(&self, events: Events, leader: CancellationToken) {
        let queue = &self.queues.loops;
        let controller = Arc::new(ClosedLoops {
            client: self.client.clone(),
            loops: self.caches.loops.clone(),
            rivals: self.caches.rivals.clone(),
            world: self.caches.world.clone(),
            queue: Arc::clone(queue),
            actions: Arc::clone(&self.queues.actions),
            timeout: self.settings.request_timeout(),
            clock: jiff::Timestamp::now,
            patchable: self.settings.patchable_kinds(),
            metrics: self.metrics.clone(),
            events,
            leader,
            stop: self.stop.clone(),
            web: Arc::clone(&self.web),
            patience: Duration::from_secs(self.settings.outbound.timeout_seconds),
            state: closed_loop::State::new(self.settings.outbound.concurrency),
        });
        queue.open();
        queue.wake(self.caches.loops.read(Loops::keys));
        run_controller(controller, Arc::clone(queue), self.run(self.settings.closed_loops.concurrency)).await;
    }

    fn run(&self, concurrency: usize) -> Run {
        Run { concurrency, metrics: self.metrics.clone(), stop: self.stop.clone() }
    }

    fn start_events(&self, controller: &str, stop: &CancellationToken) -> (Events, JoinHandle<()>) {
        let (events, sender) = events::line(&self.metrics);
        let from = Reporter { controller: format!("ganglion/{controller}"), instance: Some(self.identity.clone()) };
        let timeout = self.settings.request_timeout();
        let sender = sender.run(self.client.clone(), from, timeout, stop.clone());
        (events, tokio::spawn(sender))
    }
}

/// The cluster to talk to: of the given file, or what is usual.
///
/// # Errors
/// The kubeconfig cannot be used, or there is none, and this is no pod either.
pub async fn config(access: &Access) -> Result<Config, Error> {
    let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match (&access.kubeconfig, &access.context) {
        (Some(path), _) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
        (None, Some(_)) => Config::from_kubeconfig(&options).await?,
        (None, None) => Config::infer().await?,
    };
    // Each of our calls has its time limit and its own way to be tried again; kube's would wait for minutes.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

/// What servers that users name may be connected to.
fn rules(config: &Config, settings: &Settings) -> address::Rules {
    let outbound = &settings.outbound;
    let url = &config.cluster_url;
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let api_server = url.host().filter(|_| !outbound.allow_api_server).map(|host| (host.to_owned(), port));
    address::Rules { loopback: outbound.allow_loopback, link_local: outbound.allow_link_local, api_server }
}

/// A client with this configuration.
///
/// # Errors
/// A certificate or an address in it cannot be used.
pub fn client(config: Config) -> Result<Client, Error> {
    Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))
}

fn cache_options(options: &Options, settings: &Settings) -> caches::Options {
    // A page of a list is the largest thing that is asked for.
    let timeout = settings.request_timeout().max(Duration::from_secs(30));
    caches::Options { namespaces: options.watch_namespaces.clone(), timeout }
}

fn elector(client: &Client, settings: &Settings, identity: &str, namespace: &str) -> Elector<KubeLeases> {
    let lease = &settings.lease;
    let timings = Timings {
        duration: Duration::from_secs(lease.duration_seconds),
        renew_deadline: Duration::from_secs(lease.renew_deadline_seconds),
        retry: Duration::from_secs(lease.retry_seconds),
    };
    // A third of the deadline, so that an answer that does not come leaves time for other attempts.
    let leases = KubeLeases::new(client.clone(), namespace, &lease.name, timings.renew_deadline / 3);
    Elector::new(leases, timings, identity.to_owned(), namespace, &lease.name)
}

/// A token that SIGTERM and SIGINT cancel.
fn stop_on_signals() -> Result<CancellationToken, Error> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("asked to stop");
        token.cancel();
    });
    Ok(stop)
}
