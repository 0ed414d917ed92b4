//! The operator's process: the shipped controllers, with a client whose requests the driver answers at arbitrary times,
//! a store that receives changes when the driver delivers them, and the driver's clock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use ganglion::operator::world::world;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use ganglion_core::facts::Key;
use ganglion_core::namespaces::Namespaces;
use ganglion_loops::closed_loop::{ClosedLoopController, Preflights};
use ganglion_loops::decision::DecisionController;
use ganglion_loops::execution::{ExecutionController, Webhooks};
use ganglion_loops::monitoring::{MonitoringController, SourceAccess, SourcePolls, Sources};
use ganglion_loops::target::Targets;
use ganglion_outbound::address::{self, Names, Rules};
use ganglion_outbound::client::{AnswerLimits, OutboundClient};
use ganglion_outbound::web::Web;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::error::Class;
use ganglion_runtime::events;
use ganglion_runtime::fairness::FairLimit;
use ganglion_runtime::frame::Memories;
use ganglion_runtime::frame::{Reconciler, reconcile};
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::queue::Queue;
use ganglion_runtime::run::{Action, ReconcileResult};
use ganglion_runtime::store::Store;
use ganglion_runtime::writer::Writer;
use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_test::mock::{Handle, SendResponse, pair};

use super::api::{Api, Asked, NAMESPACE};
use super::watch::{Hears, Watch};

thread_local! {
    /// Current time, in milliseconds since the epoch.
    pub static NOW: Cell<i64> = const { Cell::new(0) };
}

pub fn now() -> Timestamp {
    Timestamp::from_millisecond(NOW.get()).unwrap_or_default()
}

/// A request that waits to be carried out, or for its answer to arrive.
pub struct Pending {
    /// Sequence number of the request in the process.
    pub number: u64,
    pub asked: Asked,
    pub answer: Option<(u16, Value)>,
    send: SendResponse<Response<Body>>,
}

/// One of the controllers, with its queue.
struct Part {
    queue: Arc<Queue>,
    reconcile: Box<dyn Fn(Key) -> BoxFuture<'static, ReconcileResult>>,
}

impl Part {
    fn of<R: Reconciler>(store: &Store, controller: R) -> Self {
        let (queue, controller) = (store.queue::<R::Kind>(), Arc::new(controller));
        queue.open();
        Self { queue, reconcile: Box::new(move |key| reconcile(Arc::clone(&controller), key).boxed()) }
    }
}

pub struct Process {
    store: Store,
    parts: [Part; 4],
    handle: Handle<Request<Body>, Response<Body>>,
    passes: JoinSet<(usize, Key, ReconcileResult)>,
    pub pending: Vec<Pending>,
    requests: u64,
    watches: [Box<dyn Hears>; 4],
    /// Times at which objects are due again, by controller, in milliseconds.
    timers: BTreeMap<(usize, Key), i64>,
}

impl Process {
    /// Starts a process in this leader term.
    pub fn start(metrics: &Metrics, term: &str) -> Self {
        let (service, handle) = pair::<Request<Body>, Response<Body>>();
        let store = Store::new(world());
        let ctx = Context {
            store: store.clone(),
            writer: Writer::new(
                Client::new(service, NAMESPACE),
                Duration::from_secs(10),
                CancellationToken::new(),
                metrics.clone(),
            ),
            // Events are dropped.
            events: events::line(metrics).0,
            metrics: metrics.clone(),
            clock: now,
            term: term.into(),
            stop: CancellationToken::new(),
        };
        let parts = parts(&ctx);
        Self {
            store,
            parts,
            handle,
            passes: JoinSet::new(),
            pending: Vec::new(),
            requests: 0,
            watches: [
                Box::new(Watch::<ClosedLoop>::default()),
                Box::new(Watch::<Monitoring>::default()),
                Box::new(Watch::<Decision>::default()),
                Box::new(Watch::<Execution>::default()),
            ],
            timers: BTreeMap::new(),
        }
    }

    /// Delivers the next event of this watch (by its index); false if there is none.
    pub fn hear(&mut self, place: usize, api: &Api) -> bool {
        let oldest = self.pending.iter().map(|one| one.number).min().unwrap_or(self.requests);
        self.watches[place].hear(place, api, &self.store, (oldest, self.requests))
    }

    pub fn cut(&mut self, place: usize) {
        self.watches[place].cut();
    }

    /// Whether all watches have listed; only then reconciles start.
    pub fn is_synced(&self) -> bool {
        self.watches.iter().all(|watch| watch.is_synced())
    }

    /// Starts a pass for an object that is due, of controller `first` or the next one that has such an object; false if
    /// there is none.
    pub async fn begin(&mut self, first: usize) -> bool {
        if !self.is_synced() {
            return false;
        }
        let due: Vec<(usize, Key)> =
            self.timers.iter().filter(|(_, at)| **at <= NOW.get()).map(|(whose, _)| whose.clone()).collect();
        for (part, key) in due {
            self.parts[part].queue.add([key]);
        }
        let mut order = (0..self.parts.len()).map(|step| (first + step) % self.parts.len());
        let ready = |part: usize| Some((part, self.parts[part].queue.get().now_or_never()?));
        let Some((part, key)) = order.find_map(ready) else { return false };
        self.timers.remove(&(part, key.clone()));
        let pass = (self.parts[part].reconcile)(key.clone());
        self.passes.spawn(async move { (part, key, pass.await) });
        self.settle().await;
        true
    }

    /// Runs all tasks until each pass waits for an answer. Checks of loops run beside the passes, and wait for answers,
    /// too.
    async fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..10_000 {
            while let Some((request, send)) = self.handle.next_request().now_or_never().flatten() {
                // Permissions are not part of this model: every access review is answered with yes.
                if let Some(review) = review(request.uri().path()) {
                    let answer = Response::builder().status(201).body(Body::from(review.as_bytes().to_vec()));
                    send.send_response(answer.expect("an answer"));
                    quiet = 0;
                    continue;
                }
                let asked = read(request).await.expect("a request that can be read");
                self.requests += 1;
                quiet = 0;
                self.pending.push(Pending { number: self.requests, asked, answer: None, send });
            }
            while let Some(done) = self.passes.try_join_next() {
                let (part, key, outcome) = done.expect("a pass that does not panic");
                self.ended(part, key, outcome);
                quiet = 0;
            }
            quiet += 1;
            if quiet > QUIET && self.pending.len() >= self.passes.len() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("a pass waits for something that is no request");
    }

    fn ended(&mut self, part: usize, key: Key, outcome: ReconcileResult) {
        let pause = match outcome {
            Ok(Action::AwaitChange) => None,
            Ok(Action::RequeueAfter(pause)) => Some(pause),
            Err(error) => Some(match error.class() {
                Class::Retry => Duration::from_secs(1),
                Class::After(pause) => pause,
                Class::Terminal => Duration::from_secs(60),
            }),
        };
        if let Some(pause) = pause {
            let at = NOW.get() + i64::try_from(pause.as_millis()).unwrap_or(i64::MAX / 2);
            self.timers.insert((part, key.clone()), at);
        }
        self.parts[part].queue.done(key);
    }

    /// Delivers the answer to a request.
    pub async fn answer(&mut self, index: usize) {
        let Pending { answer, send, .. } = self.pending.swap_remove(index);
        let (code, body) = answer.expect("an answer that is there");
        let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        send.send_response(answer.expect("an answer"));
        self.settle().await;
    }

    /// Drops the answer to a request.
    pub async fn lose(&mut self, index: usize) {
        let Pending { send, .. } = self.pending.swap_remove(index);
        send.send_error(std::io::Error::other("the connection broke"));
        self.settle().await;
    }

    /// Next time at which something is due without an event, in milliseconds.
    pub fn next_time(&self) -> Option<i64> {
        self.timers.values().copied().min()
    }

    /// A flaw: removes all timers.
    pub fn oversleep(&mut self) {
        self.timers.clear();
    }

    pub fn kinds() -> usize {
        4
    }
}

/// Number of turns of the runtime after which each task has either sent its next request or waits for an answer.
const QUIET: usize = 16;

/// Answer to an access review.
fn review(path: &str) -> Option<&'static str> {
    match path.rsplit('/').next() {
        Some("selfsubjectreviews") => {
            Some(r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}"#)
        }
        Some("selfsubjectaccessreviews") => Some(
            r#"{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": {},
                "status": {"allowed": true}}"#,
        ),
        _ => None,
    }
}

fn parts(ctx: &Context) -> [Part; 4] {
    // The model makes no outbound requests.
    let one = || FairLimit::new(1, Counter::default());
    let web = Arc::new(Web::new(Names::new(Rules::default(), address::system), one()));
    let limits = AnswerLimits { sample: 1, object: 1, pods: 1, node: 1, nodes: 1 };
    let outbound = Arc::new(OutboundClient::new(web, Duration::from_secs(10), one(), limits));
    let discovery = Arc::new(Discovery::default());
    let targets = Targets { ctx: ctx.clone(), discovery: Arc::clone(&discovery), patchable: Arc::new([]) };
    let loops = ClosedLoopController {
        ctx: ctx.clone(),
        targets: targets.clone(),
        namespaces: Namespaces::default(),
        impersonations: Default::default(),
        outbound: Arc::clone(&outbound),
        memories: Memories::default(),
        preflights: Preflights::new(&ctx.metrics),
    };
    let monitoring = MonitoringController {
        ctx: ctx.clone(),
        sources: Sources { ctx: ctx.clone(), outbound: Arc::clone(&outbound), discovery },
        memories: Memories::default(),
        polls: SourcePolls::default(),
        source_access: SourceAccess::default(),
    };
    let decision = DecisionController { ctx: ctx.clone(), memories: Memories::default() };
    let execution = ExecutionController {
        ctx: ctx.clone(),
        outbound,
        targets,
        memories: Memories::default(),
        webhooks: Webhooks::default(),
    };
    let store = &ctx.store;
    [Part::of(store, loops), Part::of(store, monitoring), Part::of(store, decision), Part::of(store, execution)]
}

async fn read(request: Request<Body>) -> Option<Asked> {
    let (head, body) = request.into_parts();
    let kind = head.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let body = body.collect_bytes().await.ok()?;
    Asked::read(head.method.as_str(), head.uri.path(), &query, kind, &body)
}
