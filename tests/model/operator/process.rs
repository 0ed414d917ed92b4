//! The operator's process: the shipped controller, with a client whose requests the driver carries out and answers at
//! any time, a cache that receives changes when the driver delivers them, and the driver's clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::FutureExt;
use ganglion_actions::{Janitor, WorkloadActionController};
use ganglion_actions_plan::Limits;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{Identity, Key};
use ganglion_runtime::backoff::Backoff;
use ganglion_runtime::frame::reconcile;
use ganglion_runtime::run::{Action, ReconcileResult, delay_after};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::runtime::Runtime;
use tower_test::mock::{Handle, SendResponse, pair};

use super::build::{NEVER, NOW, controller};
use super::feed::{FeedContext, Misread, Watch, WatchedKind};
use crate::cluster::api::Api;
use crate::cluster::build::NAMESPACE;
use crate::face::HttpAnswer;
use crate::face::asked::Asked;
use crate::random::Rng;
use ganglion_actions_plan::world::ActionsWorld;
use ganglion_core::world::World;

/// Interval of the janitor's rounds while no leftovers exist.
const ROUND: Duration = Duration::from_secs(60);

/// A request that waits to be carried out, or for its answer to arrive.
pub struct Pending {
    /// Action for which it is sent; an empty key for requests of the janitor.
    pub action: Key,
    pub asked: Asked,
    pub answer: Option<HttpAnswer>,
    task: u64,
    send: SendResponse<Response<Body>>,
}

/// A running reconcile or round of the janitor.
struct Task {
    action: Key,
    future: Pin<Box<dyn Future<Output = End>>>,
    woken: Arc<Woken>,
}

enum End {
    Reconcile(Key, ReconcileResult),
    Round(Janitor, Duration),
}

/// Whether its waker was called since it was last polled.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub struct Process {
    runtime: Rc<Runtime>,
    controller: Arc<WorkloadActionController>,
    handle: Handle<Request<Body>, Response<Body>>,
    tasks: BTreeMap<u64, Task>,
    begun: u64,
    pub pending: Vec<Pending>,
    watches: [Watch; WatchedKind::ALL.len()],
    /// Times at which actions are due again, in milliseconds.
    timers: BTreeMap<Key, i64>,
    backoff: Backoff<Key>,
    /// None during a round.
    janitor: Option<Janitor>,
    /// Time of its next round, in milliseconds.
    next_round: Option<i64>,
    misreading: Misread,
}

impl Process {
    pub fn start(runtime: &Rc<Runtime>, limits: Limits, misreading: Misread) -> Self {
        let (service, handle) = pair::<Request<Body>, Response<Body>>();
        let client = runtime.block_on(async {
            let client = Client::new(service, NAMESPACE);
            // Lets the client's own task wait for requests.
            tokio::task::yield_now().await;
            client
        });
        Self {
            runtime: Rc::clone(runtime),
            controller: controller(client, limits),
            handle,
            tasks: BTreeMap::new(),
            begun: 0,
            pending: Vec::new(),
            watches: Default::default(),
            timers: BTreeMap::new(),
            backoff: Backoff::default(),
            janitor: Some(Janitor::default()),
            next_round: None,
            misreading,
        }
    }

    /// Reads the controller's cache.
    pub fn look<R>(&self, look: impl FnOnce(&World) -> R) -> R {
        self.controller.ctx.store.read(look)
    }

    /// Takes the next step of the watch of this kind; false if there is none.
    pub fn hear(&mut self, kind: WatchedKind, api: &Api) -> bool {
        let oldest = self.pending.iter().map(|one| one.task).min().unwrap_or(u64::MAX);
        let (store, tasks) = (&self.controller.ctx.store, (oldest, self.begun));
        self.watches[kind.place()].hear(kind, &FeedContext { api, store, misreading: self.misreading, tasks })
    }

    /// Breaks the watch of this kind; false if it is already broken.
    pub fn cut(&mut self, kind: WatchedKind) -> bool {
        let watch = &mut self.watches[kind.place()];
        let followed = watch.is_following();
        watch.cut();
        followed
    }

    /// Whether all watches have listed; only then reconciles start.
    fn is_synced(&self) -> bool {
        self.watches.iter().all(Watch::is_following)
    }

    /// Starts the reconcile of one of the due actions; false if there is none.
    pub fn begin(&mut self, rng: &mut Rng) -> bool {
        if !self.is_synced() {
            return false;
        }
        let queue = self.controller.ctx.store.queue::<WorkloadAction>();
        let now = NOW.get();
        queue.add(self.timers.extract_if(.., |_, at| *at <= now).map(|(key, _)| key).collect::<Vec<_>>());
        // Picks any of them: those before it move to the end of the queue.
        for _ in 0..rng.below(queue.len()) {
            let Some(key) = queue.get().now_or_never() else { break };
            queue.done(key.clone());
            queue.add([key]);
        }
        let Some(key) = queue.get().now_or_never() else { return false };
        self.timers.remove(&key);
        let (controller, action) = (Arc::clone(&self.controller), key.clone());
        self.spawn(action, Box::pin(async move { End::Reconcile(key.clone(), reconcile(controller, key).await) }));
        true
    }

    /// Starts a round of the janitor; false if one is running, or if it finds nothing to do.
    pub fn sweep(&mut self) -> bool {
        if !self.is_synced() {
            return false;
        }
        let Some(mut janitor) = self.janitor.take() else { return false };
        let controller = Arc::clone(&self.controller);
        let round = async move {
            let pause = janitor.round(&controller).await;
            End::Round(janitor, pause)
        };
        self.spawn(Key::default(), Box::pin(round));
        self.janitor.is_none()
    }

    fn spawn(&mut self, action: Key, future: Pin<Box<dyn Future<Output = End>>>) {
        self.begun += 1;
        self.tasks.insert(self.begun, Task { action, future, woken: Arc::default() });
        self.go_on(self.begun);
    }

    /// Polls a task until it waits for answers, or has ended.
    fn go_on(&mut self, id: u64) {
        let runtime = Rc::clone(&self.runtime);
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let waker = Waker::from(Arc::clone(&task.woken));
        let end = runtime.block_on(async {
            loop {
                task.woken.0.store(false, Ordering::Relaxed);
                if let Poll::Ready(end) = task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Some(end);
                }
                // The client passes requests on in its own task.
                tokio::task::yield_now().await;
                self.collect(id, &task.action).await;
                if !task.woken.0.load(Ordering::Relaxed) {
                    return None;
                }
            }
        });
        match end {
            Some(end) => self.ended(end),
            None => {
                let waits = self.pending.iter().any(|one| one.task == id);
                assert!(waits, "the task for {} waits for something that is no request", task.action);
                self.tasks.insert(id, task);
            }
        }
    }

    /// Receives the requests that were sent.
    async fn collect(&mut self, task: u64, action: &Key) {
        while let Some((request, send)) = self.handle.next_request().now_or_never().flatten() {
            let (head, body) = request.into_parts();
            let content = head.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let body = body.collect_bytes().await.expect("a body");
            let asked = Asked::read(head.method.as_str(), head.uri.path(), content.unwrap_or_default(), &body);
            self.pending.push(Pending { action: action.clone(), asked, answer: None, task, send });
        }
    }

    fn ended(&mut self, end: End) {
        let (key, outcome) = match end {
            End::Reconcile(key, outcome) => (key, outcome),
            End::Round(janitor, pause) => {
                self.janitor = Some(janitor);
                self.next_round = (pause < ROUND).then(|| after(pause));
                return;
            }
        };
        let again = match outcome {
            Ok(again) => {
                self.backoff.forget(&key);
                match again {
                    Action::AwaitChange => None,
                    Action::RequeueAfter(pause) => Some(pause),
                }
            }
            Err(error) => {
                let backoff = self.backoff.failed(key.clone(), fastrand::f64());
                Some(delay_after(error.class(), backoff))
            }
        };
        if let Some(pause) = again.filter(|pause| *pause < NEVER / 2) {
            self.timers.insert(key.clone(), after(pause));
        }
        self.controller.ctx.store.queue::<WorkloadAction>().done(key);
    }

    /// Delivers the answer to a request.
    pub fn answer(&mut self, index: usize) {
        let Pending { answer, send, task, .. } = self.pending.swap_remove(index);
        let (code, body) = answer.expect("an answer that is there");
        let answer = Response::builder().status(code).body(Body::from(body.into_bytes()));
        send.send_response(answer.expect("an answer"));
        self.go_on(task);
    }

    /// Drops the answer to a request.
    pub fn lose(&mut self, index: usize) {
        let Pending { send, task, .. } = self.pending.swap_remove(index);
        send.send_error(std::io::Error::other("the connection broke"));
        self.go_on(task);
    }

    /// Next deadline, in milliseconds.
    pub fn next_time(&self) -> Option<i64> {
        self.timers.values().copied().chain(self.next_round).min()
    }

    /// Requeues every action, as the periodic resync does.
    pub fn requeue_all(&mut self) {
        let keys: Vec<Key> =
            self.look(|world| world.running().map(|action| Identity::from(&action.metadata).key).collect());
        self.controller.ctx.store.queue::<WorkloadAction>().add(keys);
    }
}

/// Time at which this pause is over.
fn after(pause: Duration) -> i64 {
    NOW.get() + i64::try_from(pause.as_micros().div_ceil(1000)).unwrap_or(i64::MAX / 2)
}
