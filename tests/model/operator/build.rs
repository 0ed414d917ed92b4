//! Builds the shipped controller: the only file that depends on its parts.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ganglion::operator::world::world;
use ganglion_actions::{Notifier, SharedState, WorkloadActionController};
use ganglion_actions_plan::Limits;
use ganglion_actions_plan::rank::NoRanker;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_outbound::address::{self, Names, Rules};
use ganglion_outbound::client::{AnswerLimits, OutboundClient};
use ganglion_outbound::web::Web;
use ganglion_runtime::context::Context;
use ganglion_runtime::events;
use ganglion_runtime::fairness::FairLimit;
use ganglion_runtime::frame::Memories;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;
use ganglion_runtime::writer::Writer;
use jiff::Timestamp;
use kube::Client;
use prometheus_client::metrics::counter::Counter;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

thread_local! {
    /// Current time, in milliseconds since the epoch.
    pub static NOW: Cell<i64> = const { Cell::new(0) };
}

pub fn now() -> Timestamp {
    Timestamp::from_millisecond(NOW.get()).unwrap_or_default()
}

/// Long enough that a resync never hides a missing requeue.
pub const NEVER: Duration = Duration::from_secs(1 << 40);

/// Metrics that are never read.
static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// A runtime with a paused clock: no timer of the controller ever fires.
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// The model makes no outbound requests.
fn outbound() -> Arc<OutboundClient> {
    let one = || FairLimit::new(1, Counter::default());
    let web = Arc::new(Web::new(Names::new(Rules::default(), address::system), one()));
    let limits = AnswerLimits { sample: 1, object: 1, pods: 1, node: 1, nodes: 1 };
    Arc::new(OutboundClient::new(web, Duration::from_secs(10), one(), limits))
}

pub fn controller(client: Client, limits: Limits) -> Arc<WorkloadActionController> {
    let store = Store::new(world());
    store.queue::<WorkloadAction>().open();
    let ctx = Context {
        store,
        writer: Writer::new(client, Duration::from_secs(10), CancellationToken::new(), METRICS.clone()),
        events: events::line(&METRICS).0,
        metrics: METRICS.clone(),
        clock: now,
        term: "term".into(),
        stop: CancellationToken::new(),
    };
    Arc::new(WorkloadActionController {
        notifier: Notifier::new(ctx.clone(), outbound()),
        ctx,
        limits,
        ranker: Arc::new(NoRanker),
        resync: NEVER,
        memories: Memories::default(),
        shared: SharedState::default(),
    })
}
