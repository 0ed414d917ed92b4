//! The operator's process: the very controller that is shipped, with a client whose requests the driver answers when and as
//! it likes, a cache that hears of changes when the driver lets it, and the driver's clock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ganglion::caches::{Shared, SharedLoops, SharedRivals};
use ganglion::clients::address::{self, Names, Rules};
use ganglion::clients::web::Web;
use ganglion::controllers::closed_loop::{ClosedLoopController, ControllerMemory};
use ganglion::controllers::error::Class;
use ganglion::controllers::events;
use ganglion::controllers::queue::Queue;
use ganglion::controllers::{Again, Controller, Outcome};
use ganglion::logic::facts::{Identity, Key};
use ganglion::logic::world::Source;
use ganglion::logic::world::loops::LoopKind;
use ganglion::metrics::Metrics;
use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_test::mock::{Handle, SendResponse, pair};

use super::api::{Api, Asked, NAMESPACE, Sort};

thread_local! {
    /// What time it is, in milliseconds since the epoch.
    pub static NOW: Cell<i64> = const { Cell::new(0) };
}

pub fn now() -> Timestamp {
    Timestamp::from_millisecond(NOW.get()).unwrap_or_default()
}

/// A request that waits to be carried out, or for its answer to arrive.
pub struct Pending {
    pub asked: Asked,
    pub answer: Option<(u16, Value)>,
    send: SendResponse<Response<Body>>,
}

/// How far the watch of a kind is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watch {
    #[default]
    Down,
    /// Follows the log from here.
    At(usize),
}

pub struct Process {
    controller: Arc<ClosedLoopController>,
    handle: Handle<Request<Body>, Response<Body>>,
    passes: JoinSet<(Key, Outcome)>,
    pub pending: Vec<Pending>,
    watches: [Watch; 4],
    /// When loops are to be looked at again, in milliseconds.
    timers: BTreeMap<Key, i64>,
}

impl Process {
    pub fn start(metrics: &Metrics) -> Self {
        let (service, handle) = pair::<Request<Body>, Response<Body>>();
        let queue = Arc::new(Queue::default());
        queue.open();
        let controller = Arc::new(ClosedLoopController {
            client: Client::new(service, NAMESPACE),
            loops: SharedLoops::default(),
            world: Shared::default(),
            rivals: SharedRivals::default(),
            queue,
            actions: Arc::default(),
            timeout: Duration::from_secs(10),
            // Nothing here asks a server.
            web: Arc::new(Web::new(Names::new(Rules::default(), address::system))),
            request_timeout: Duration::from_secs(10),
            clock: now,
            patchable: Vec::new(),
            // Nobody reads them.
            events: events::line(metrics).0,
            metrics: metrics.clone(),
            leader: CancellationToken::new(),
            stop: CancellationToken::new(),
            state: ControllerMemory::new(1),
        });
        Self {
            controller,
            handle,
            passes: JoinSet::new(),
            pending: Vec::new(),
            watches: Default::default(),
            timers: BTreeMap::new(),
        }
    }

    /// The watch of this kind (by its place) tells the next thing; false if it has nothing to tell.
    pub fn hear(&mut self, place: usize, api: &Api) -> bool {
        let (sort, kind) = Sort::WATCHED[place];
        let loops = &self.controller.loops;
        let wakes = match self.watches[place] {
            Watch::Down => {
                let there = api.objects.iter().filter(|((one, _), _)| *one == sort);
                let list = there.filter_map(|(_, object)| sort.fact(object)).collect();
                self.watches[place] = Watch::At(api.log.len());
                loops.write(|loops| loops.replace(kind, None, list, &api.version.to_string()))
            }
            Watch::At(from) => {
                let next = api.log.iter().enumerate().skip(from).find(|(_, write)| write.sort == sort);
                let Some((at, write)) = next else {
                    self.watches[place] = Watch::At(api.log.len());
                    return false;
                };
                self.watches[place] = Watch::At(at + 1);
                match &write.new {
                    Some(object) => match sort.fact(object) {
                        Some(fact) => loops.write(|loops| loops.apply(fact, Source::Watch)),
                        None => return false,
                    },
                    None => {
                        let uid =
                            write.old.as_ref().and_then(|old| old["metadata"]["uid"].as_str()).unwrap_or_default();
                        let key = Key::new(NAMESPACE, &write.name);
                        let id = Identity { key, uid: uid.to_owned(), version: write.version.to_string() };
                        loops.write(|loops| loops.remove(kind, &id))
                    }
                }
            }
        };
        self.controller.queue.wake(wakes);
        true
    }

    pub fn cut(&mut self, place: usize) {
        self.watches[place] = Watch::Down;
    }

    /// All watches have listed: only then work begins.
    pub fn is_synced(&self) -> bool {
        self.watches.iter().all(|watch| *watch != Watch::Down)
    }

    /// Begins a pass over a loop whose time has come; false if there is none.
    pub async fn begin(&mut self) -> bool {
        if !self.is_synced() {
            return false;
        }
        let due = self.timers.iter().find(|(_, at)| **at <= NOW.get()).map(|(key, _)| key.clone());
        self.controller.queue.wake(due);
        let Some(key) = self.controller.queue.next().now_or_never() else { return false };
        self.timers.remove(&key);
        let controller = Arc::clone(&self.controller);
        self.passes.spawn(async move { (key.clone(), controller.reconcile(key).await) });
        self.settle().await;
        true
    }

    /// Lets everything inside go on until each pass waits for an answer.
    async fn settle(&mut self) {
        for _ in 0..10_000 {
            while let Some((request, send)) = self.handle.next_request().now_or_never().flatten() {
                let asked = read(request).await.expect("a request that can be read");
                self.pending.push(Pending { asked, answer: None, send });
            }
            while let Some(done) = self.passes.try_join_next() {
                let (key, outcome) = done.expect("a pass that does not panic");
                self.ended(key, outcome);
            }
            if self.pending.len() == self.passes.len() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("a pass waits for something that is no request");
    }

    fn ended(&mut self, key: Key, outcome: Outcome) {
        let pause = match outcome {
            Ok(Again::OnChange) => None,
            Ok(Again::After(pause)) => Some(pause),
            Err(error) => Some(match error.class() {
                Class::Retry => Duration::from_secs(1),
                Class::After(pause) => pause,
                Class::Terminal => Duration::from_secs(60),
            }),
        };
        if let Some(pause) = pause {
            self.timers.insert(key.clone(), NOW.get() + i64::try_from(pause.as_millis()).unwrap_or(i64::MAX / 2));
        }
        self.controller.queue.finish(key, None);
    }

    /// The answer of a request arrives.
    pub async fn answer(&mut self, index: usize) {
        let Pending { answer, send, .. } = self.pending.swap_remove(index);
        let (code, body) = answer.expect("an answer that is there");
        let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        send.send_response(answer.expect("an answer"));
        self.settle().await;
    }

    /// Nobody ever hears what became of a request.
    pub async fn lose(&mut self, index: usize) {
        let Pending { send, .. } = self.pending.swap_remove(index);
        send.send_error(std::io::Error::other("the connection broke"));
        self.settle().await;
    }

    /// When time alone brings something to do, in milliseconds.
    pub fn next_time(&self) -> Option<i64> {
        self.timers.values().copied().min()
    }

    /// Forgets every timer: a flaw.
    pub fn oversleep(&mut self) {
        self.timers.clear();
    }

    pub fn kinds() -> usize {
        LoopKind::ALL.len()
    }
}

async fn read(request: Request<Body>) -> Option<Asked> {
    let (head, body) = request.into_parts();
    let kind = head.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let body = body.collect_bytes().await.ok()?;
    Asked::read(head.method.as_str(), head.uri.path(), &query, kind, &body)
}
