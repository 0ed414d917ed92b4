//! Traces of decisions: reports the spans of each loop to a queue, once for each process.
//!
//! Owns what was reported; [`ganglion_loops_plan::trace`] says what the spans are. Reads the store only. A new leader
//! reports the spans of the last minutes again, since the former one may have ended before it sent them: they have the
//! same ids and the same content.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_core::facts::Key;
use ganglion_core::trace::SpanId;
use ganglion_core::world::Fact;
use ganglion_loops_plan::trace::{DecisionTrace, ROLLOUT_DEADLINE, last_decision};
use ganglion_outbound::otlp::SpanQueue;
use ganglion_runtime::store::Store;
use ganglion_runtime::writer::WriteObserver;

/// Interval at which rollouts and actions are looked at: their end is not a write of a loop.
const ROUND: Duration = Duration::from_secs(1);

/// Age of spans that a new leader reports again, besides the time that a rollout may take.
const REPEATED: SignedDuration = ROLLOUT_DEADLINE;

/// Reports the spans of loops in one leader term.
pub struct LoopTraces {
    store: Store,
    queue: SpanQueue,
    clock: fn() -> Timestamp,
    reported: Mutex<HashMap<Key, ReportedTrace>>,
}

/// Reported spans of the last decision of a loop.
#[derive(Default)]
struct ReportedTrace {
    spans: Vec<SpanId>,
    is_open: bool,
}

impl LoopTraces {
    pub fn new(store: Store, queue: SpanQueue, clock: fn() -> Timestamp) -> Self {
        Self { store, queue, clock, reported: Mutex::default() }
    }

    /// Reports what the statuses show when the term begins, then the ends of rollouts and actions, until `stop` is
    /// cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let decisions: Vec<Key> = self.store.read(|world| world.table::<Decision>().keys().cloned().collect());
        for key in &decisions {
            self.report(key);
        }
        while tokio::time::timeout(ROUND, stop.cancelled()).await.is_err() {
            self.forget_deleted();
            let open: Vec<Key> =
                self.reported().iter().filter(|(_, trace)| trace.is_open).map(|(key, _)| key.clone()).collect();
            for key in &open {
                self.report(key);
            }
        }
    }

    /// Reports the spans of the last decision of this loop that have ended since the last report.
    fn report(&self, key: &Key) {
        let now = (self.clock)();
        // Locked before the store is read, so that no older view follows a newer one.
        let mut reported = self.reported();
        let DecisionTrace { spans, is_open } = self.store.read(|world| last_decision(world, key, now));
        let oldest = now.checked_sub(REPEATED).unwrap_or(Timestamp::MIN);
        let ids = spans.iter().map(|span| span.id).collect();
        let before = reported.insert(key.clone(), ReportedTrace { spans: ids, is_open }).unwrap_or_default();
        drop(reported);
        for span in spans {
            if span.end >= oldest && !before.spans.contains(&span.id) {
                self.queue.add(&key.namespace, span);
            }
        }
    }

    fn forget_deleted(&self) {
        let mut reported = self.reported();
        self.store.read(|world| reported.retain(|key, _| world.table::<ClosedLoop>().get(key).is_some()));
    }

    fn reported(&self) -> MutexGuard<'_, HashMap<Key, ReportedTrace>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteObserver for LoopTraces {
    fn written(&self, kind: &'static str, key: &Key) {
        if kind == Decision::KIND || kind == Execution::KIND {
            self.report(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use ganglion_api::execution::ExecutionStatus;
    use ganglion_core::trace::Span;
    use ganglion_core::world::{Origin, World};
    use ganglion_loops_plan::world::register;
    use ganglion_outbound::otlp::TraceSampler;
    use ganglion_runtime::metrics::Metrics;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-11-21T10:00:10Z";

    fn clock() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn key() -> Key {
        Key::new("shop", "web")
    }

    fn object(kind: &str, uid: &str, version: u32, mut object: Value) -> Value {
        let owner = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "name": "web", "uid": "loop"});
        object["apiVersion"] = json!("ganglion.dev/v1alpha1");
        object["kind"] = json!(kind);
        object["metadata"] = json!({"namespace": "shop", "name": "web", "uid": uid, "ownerReferences": [owner],
            "resourceVersion": version.to_string()});
        object
    }

    /// A store with a loop whose last decision was made at this time.
    fn store(decided: &str) -> Store {
        let mut world = World::default();
        register(&mut world);
        let store = Store::new(world);
        let target = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"});
        let parent = object("ClosedLoop", "loop", 1, json!({"spec": {"target": target, "metrics": []}}));
        store.apply(serde_json::from_value::<ClosedLoop>(parent).unwrap(), Origin::Watch);
        let chosen = json!({"seq": 1, "metric": "cpu", "side": "Low", "rung": 0, "do": {"scale": {"by": 1, "max": 9}},
            "at": decided, "executor": "exe", "mode": "Auto", "tag": {"time": decided, "sequence": 1},
            "received": decided});
        let decision = object("Decision", "dec", 2, json!({"spec": {}, "status": {"seq": 1, "chosen": chosen}}));
        store.apply(serde_json::from_value::<Decision>(decision).unwrap(), Origin::Watch);
        store
    }

    fn execute(store: &Store, version: u32, state: &str) {
        let status = json!({"seq": 1, "state": state, "since": NOW, "before": "1", "after": "2"});
        let mut execution = Execution::new("web", Default::default());
        execution.status = Some(serde_json::from_value::<ExecutionStatus>(status).unwrap());
        let parts = object("Execution", "exe", version, json!({}));
        execution.metadata = serde_json::from_value(parts["metadata"].clone()).unwrap();
        store.apply(execution, Origin::Own);
    }

    fn traces(store: &Store) -> (Arc<LoopTraces>, SpanQueue) {
        let queue = SpanQueue::new(TraceSampler::All, &Metrics::new());
        (Arc::new(LoopTraces::new(store.clone(), queue.clone(), clock)), queue)
    }

    fn names(spans: &[Span]) -> Vec<&'static str> {
        spans.iter().map(|span| span.name).collect()
    }

    #[test]
    fn each_span_is_reported_once_when_its_stage_was_written() {
        let store = store("2026-11-21T10:00:00Z");
        let (traces, queue) = traces(&store);
        traces.written("Pod", &key());
        assert!(queue.take().is_empty());
        traces.written(Decision::KIND, &key());
        assert_eq!(names(&queue.take()), ["sample", "decision"]);
        traces.written(Decision::KIND, &key());
        execute(&store, 3, "Claimed");
        traces.written(Execution::KIND, &key());
        assert!(queue.take().is_empty());
        execute(&store, 4, "Done");
        traces.written(Execution::KIND, &key());
        traces.written(Execution::KIND, &key());
        assert_eq!(names(&queue.take()), ["execution"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_repeats_equal_spans_and_no_old_ones() {
        for (decided, count) in [("2026-11-21T10:00:00Z", 3), ("2026-11-21T09:49:00Z", 1)] {
            let store = store(decided);
            execute(&store, 3, "Done");
            let (first, queue) = traces(&store);
            first.written(Execution::KIND, &key());
            let reported = queue.take();
            let (second, queue) = traces(&store);
            let stop = CancellationToken::new();
            let task = tokio::spawn(Arc::clone(&second).run(stop.clone()));
            tokio::time::sleep(ROUND * 3).await;
            let repeated = queue.take();
            assert_eq!((repeated.len(), &repeated), (count, &reported), "decided {decided}");
            stop.cancel();
            task.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_loops_take_no_memory() {
        let store = store("2026-11-21T10:00:00Z");
        let (traces, _queue) = traces(&store);
        let stop = CancellationToken::new();
        let task = tokio::spawn(Arc::clone(&traces).run(stop.clone()));
        tokio::time::sleep(ROUND * 2).await;
        assert_eq!(traces.reported().len(), 1);
        let id = store.read(|world| world.table::<ClosedLoop>().get(&key()).map(|parent| parent.id())).unwrap();
        store.remove::<ClosedLoop>(&id);
        tokio::time::sleep(ROUND * 2).await;
        assert!(traces.reported().is_empty());
        stop.cancel();
        task.await.unwrap();
    }
}
