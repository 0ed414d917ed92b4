//! Builds the controller as it is shipped: the only place that knows what it is made of.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ganglion::caches::{Caches, Listener, Options, Shared, Synced};
use ganglion::controllers::events;
use ganglion::controllers::queue::Queue;
use ganglion::controllers::workload_action::{State, WorkloadActions};
use ganglion::logic::workload_action::Limits;
use ganglion::logic::world::Wakes;
use ganglion::metrics::Metrics;
use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tower_test::mock::pair;

use crate::cluster::build::NAMESPACE;

thread_local! {
    /// What time it is, in milliseconds since the epoch.
    pub static NOW: Cell<i64> = const { Cell::new(0) };
}

pub fn now() -> Timestamp {
    Timestamp::from_millisecond(NOW.get()).unwrap_or_default()
}

/// No action is ever looked at by this alone: what nothing wakes has to show.
pub const NEVER: Duration = Duration::from_secs(1 << 40);

/// Nobody reads them.
static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// Nothing is ever unreadable here.
static SYNCED: LazyLock<Synced> = LazyLock::new(|| {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (service, _handle) = pair::<Request<Body>, Response<Body>>();
    let options = Options { namespaces: vec![], timeout: NEVER };
    let client = Client::new(service, NAMESPACE);
    Caches::start(&client, &options, Arc::new(Nobody), &METRICS, &CancellationToken::new()).sync()
});

struct Nobody;

impl Listener for Nobody {
    fn wake_actions(&self, _: Wakes) {}
    fn wake_loops(&self, _: Wakes) {}
}

/// A runtime whose clock stands still: no timer of the controller ever runs out.
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

pub fn controller(client: Client, limits: Limits) -> Arc<WorkloadActions> {
    let queue = Arc::new(Queue::default());
    queue.open();
    Arc::new(WorkloadActions {
        client,
        world: Shared::default(),
        sync: SYNCED.clone(),
        queue,
        limits,
        timeout: Duration::from_secs(10),
        resync: NEVER,
        clock: now,
        metrics: METRICS.clone(),
        events: events::line(&METRICS).0,
        leader: CancellationToken::new(),
        stop: CancellationToken::new(),
        state: State::default(),
    })
}
