//! The operator's process: the very controller that is shipped, with a client whose requests the driver carries out and
//! answers when and as it likes, a cache that hears of changes when the driver lets it, and the driver's clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::FutureExt;
use ganglion::api::workload_action::WorkloadAction;
use ganglion::controllers::workload_action::{Janitor, WorkloadActionController};
use ganglion::logic::facts::{Identity, Key};
use ganglion::logic::workload_action::Limits;
use ganglion::logic::world::World;
use ganglion::runtime::backoff::Backoff;
use ganglion::runtime::error::Class;
use ganglion::runtime::run::{Action, Controller, PassResult};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::runtime::Runtime;
use tower_test::mock::{Handle, SendResponse, pair};

use super::build::{NEVER, NOW, controller};
use super::feed::{Ear, Lie, Watch, Watched};
use crate::cluster::api::Api;
use crate::cluster::build::NAMESPACE;
use crate::face::Answer;
use crate::face::asked::Asked;
use crate::random::Rng;

/// Pause after an error that asking again will not change, as `runtime::run` has it.
const TERMINAL: Duration = Duration::from_secs(60);

/// The janitor's pause while nothing is left over.
const ROUND: Duration = Duration::from_secs(60);

/// A request that waits to be carried out, or for its answer to arrive.
pub struct Pending {
    /// The action that it is sent for; none where the janitor sends it.
    pub action: Key,
    pub asked: Asked,
    pub answer: Option<Answer>,
    pass: u64,
    send: SendResponse<Response<Body>>,
}

/// What runs until it has an answer to each of its requests.
struct Pass {
    action: Key,
    future: Pin<Box<dyn Future<Output = End>>>,
    woken: Arc<Woken>,
}

enum End {
    Pass(Key, PassResult),
    Round(Janitor, Duration),
}

/// Whether somebody woke it since it was last looked at.
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
    passes: BTreeMap<u64, Pass>,
    begun: u64,
    pub pending: Vec<Pending>,
    watches: [Watch; Watched::ALL.len()],
    /// When actions are to be looked at again, in milliseconds.
    timers: BTreeMap<Key, i64>,
    backoff: Backoff<Key>,
    /// None while it makes a round.
    janitor: Option<Janitor>,
    /// When it has something to look at again, in milliseconds.
    next_round: Option<i64>,
    lie: Lie,
}

impl Process {
    pub fn start(runtime: &Rc<Runtime>, limits: Limits, lie: Lie) -> Self {
        let (service, handle) = pair::<Request<Body>, Response<Body>>();
        let client = runtime.block_on(async {
            let client = Client::new(service, NAMESPACE);
            // The client's own task waits for requests from now on.
            tokio::task::yield_now().await;
            client
        });
        Self {
            runtime: Rc::clone(runtime),
            controller: controller(client, limits),
            handle,
            passes: BTreeMap::new(),
            begun: 0,
            pending: Vec::new(),
            watches: Default::default(),
            timers: BTreeMap::new(),
            backoff: Backoff::default(),
            janitor: Some(Janitor::default()),
            next_round: None,
            lie,
        }
    }

    /// Looks at what the controller knows.
    pub fn look<R>(&self, look: impl FnOnce(&World) -> R) -> R {
        self.controller.ctx.store.read(look)
    }

    /// The watch of this kind tells the next thing; false if it has nothing to tell.
    pub fn hear(&mut self, kind: Watched, api: &Api) -> bool {
        let oldest = self.pending.iter().map(|one| one.pass).min().unwrap_or(u64::MAX);
        let (store, passes) = (&self.controller.ctx.store, (oldest, self.begun));
        self.watches[kind.place()].hear(kind, &Ear { api, store, lie: self.lie, passes })
    }

    /// Breaks the watch of this kind; false if it is broken already.
    pub fn cut(&mut self, kind: Watched) -> bool {
        let watch = &mut self.watches[kind.place()];
        let followed = watch.is_following();
        watch.cut();
        followed
    }

    /// All watches have listed: only then work begins.
    fn is_synced(&self) -> bool {
        self.watches.iter().all(Watch::is_following)
    }

    /// Begins a pass over one of the actions that are due; false if there is none.
    pub fn begin(&mut self, rng: &mut Rng) -> bool {
        if !self.is_synced() {
            return false;
        }
        let queue = self.controller.ctx.store.queue::<WorkloadAction>();
        let now = NOW.get();
        queue.add(self.timers.extract_if(.., |_, at| *at <= now).map(|(key, _)| key).collect::<Vec<_>>());
        // Any of them may be the next: those before it go to the end of the queue.
        for _ in 0..rng.below(queue.len()) {
            let Some(key) = queue.get().now_or_never() else { break };
            queue.done(key.clone());
            queue.add([key]);
        }
        let Some(key) = queue.get().now_or_never() else { return false };
        self.timers.remove(&key);
        let (controller, action) = (Arc::clone(&self.controller), key.clone());
        self.spawn(action, Box::pin(async move { End::Pass(key.clone(), controller.reconcile(key).await) }));
        true
    }

    /// The janitor begins a round; false if it is at one, or finds nothing to do.
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
        self.passes.insert(self.begun, Pass { action, future, woken: Arc::default() });
        self.go_on(self.begun);
    }

    /// Lets a pass go on until it waits for answers, or has ended.
    fn go_on(&mut self, id: u64) {
        let runtime = Rc::clone(&self.runtime);
        let Some(mut pass) = self.passes.remove(&id) else { return };
        let waker = Waker::from(Arc::clone(&pass.woken));
        let end = runtime.block_on(async {
            loop {
                pass.woken.0.store(false, Ordering::Relaxed);
                if let Poll::Ready(end) = pass.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Some(end);
                }
                // The client hands requests on in a task of its own.
                tokio::task::yield_now().await;
                self.collect(id, &pass.action).await;
                if !pass.woken.0.load(Ordering::Relaxed) {
                    return None;
                }
            }
        });
        match end {
            Some(end) => self.ended(end),
            None => {
                let waits = self.pending.iter().any(|one| one.pass == id);
                assert!(waits, "the pass for {} waits for something that is no request", pass.action);
                self.passes.insert(id, pass);
            }
        }
    }

    /// Takes in the requests that were sent.
    async fn collect(&mut self, pass: u64, action: &Key) {
        while let Some((request, send)) = self.handle.next_request().now_or_never().flatten() {
            let (head, body) = request.into_parts();
            let content = head.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let body = body.collect_bytes().await.expect("a body");
            let asked = Asked::read(head.method.as_str(), head.uri.path(), content.unwrap_or_default(), &body);
            self.pending.push(Pending { action: action.clone(), asked, answer: None, pass, send });
        }
    }

    fn ended(&mut self, end: End) {
        let (key, outcome) = match end {
            End::Pass(key, outcome) => (key, outcome),
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
                Some(match error.class() {
                    Class::Retry => backoff,
                    Class::After(pause) => backoff.max(pause),
                    Class::Terminal => backoff.max(TERMINAL),
                })
            }
        };
        if let Some(pause) = again.filter(|pause| *pause < NEVER / 2) {
            self.timers.insert(key.clone(), after(pause));
        }
        self.controller.ctx.store.queue::<WorkloadAction>().done(key);
    }

    /// The answer of a request arrives.
    pub fn answer(&mut self, index: usize) {
        let Pending { answer, send, pass, .. } = self.pending.swap_remove(index);
        let (code, body) = answer.expect("an answer that is there");
        let answer = Response::builder().status(code).body(Body::from(body.into_bytes()));
        send.send_response(answer.expect("an answer"));
        self.go_on(pass);
    }

    /// Nobody ever hears what became of a request.
    pub fn lose(&mut self, index: usize) {
        let Pending { send, pass, .. } = self.pending.swap_remove(index);
        send.send_error(std::io::Error::other("the connection broke"));
        self.go_on(pass);
    }

    /// When time alone brings something to do, in milliseconds.
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

/// The time when this pause is over: no earlier.
fn after(pause: Duration) -> i64 {
    NOW.get() + i64::try_from(pause.as_micros().div_ceil(1000)).unwrap_or(i64::MAX / 2)
}
