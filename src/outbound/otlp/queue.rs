//! Spans that wait to be sent: bounded in number and bytes, in all and by namespace. Adding one never waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

use super::settings::TraceSampler;
use ganglion_core::trace::Span;
use ganglion_runtime::fairness::TenantCounts;
use ganglion_runtime::metrics::{Metrics, OutcomeLabel};

/// Maximum number of spans that wait, and the part of it that one namespace can use.
const SPANS: usize = 2048;
const SPANS_EACH: usize = SPANS / 4;

/// Maximum memory of the spans that wait, in bytes.
const BYTES: usize = 1 << 20;

/// Maximum number of spans of one request, and their memory.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 256 << 10;

/// The queue. Cheap to clone.
#[derive(Clone)]
pub struct SpanQueue {
    waiting: Arc<Mutex<WaitingSpans>>,
    added: Arc<Notify>,
    sampler: TraceSampler,
    counts: SpanCounts,
}

#[derive(Default)]
struct WaitingSpans {
    spans: VecDeque<(String, Span)>,
    bytes: usize,
    tenants: TenantCounts<String>,
}

/// Counters of spans by what became of them.
#[derive(Clone)]
pub(super) struct SpanCounts {
    pub sent: Counter,
    /// Dropped because the queue was full, or because the endpoint did not answer.
    pub dropped: Counter,
    /// The endpoint answered that it does not accept them.
    pub refused: Counter,
}

impl SpanCounts {
    fn of(metrics: &Metrics) -> Self {
        let count = |outcome| metrics.trace_spans.get_or_create(&OutcomeLabel { outcome }).clone();
        Self { sent: count("sent"), dropped: count("dropped"), refused: count("refused") }
    }
}

impl SpanQueue {
    pub fn new(sampler: TraceSampler, metrics: &Metrics) -> Self {
        let counts = SpanCounts::of(metrics);
        Self { waiting: Arc::default(), added: Arc::default(), sampler, counts }
    }

    /// Adds a span about an object in this namespace, unless its trace is not sampled. If there is no room, the span is
    /// dropped and counted.
    pub fn add(&self, namespace: &str, span: Span) {
        if !self.sampler.is_sampled(span.trace) {
            return;
        }
        let mut waiting = self.lock();
        let bytes = waiting.bytes + span.bytes();
        let is_full = waiting.spans.len() >= SPANS || bytes > BYTES;
        if is_full || waiting.tenants.count(namespace) >= SPANS_EACH {
            self.counts.dropped.inc();
            return;
        }
        waiting.bytes = bytes;
        waiting.tenants.add(namespace.to_owned());
        waiting.spans.push_back((namespace.to_owned(), span));
        drop(waiting);
        self.added.notify_one();
    }

    /// Returns once a span waits. Only one task may wait.
    pub(super) async fn filled(&self) {
        while self.lock().spans.is_empty() {
            self.added.notified().await;
        }
    }

    /// Takes the spans of the next request; none if none waits.
    pub fn take(&self) -> Vec<Span> {
        let mut waiting = self.lock();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some((namespace, span)) = waiting.spans.pop_front() else { break };
            waiting.tenants.remove(&namespace);
            waiting.bytes -= span.bytes();
            bytes += span.bytes();
            batch.push(span);
        }
        batch
    }

    pub(super) fn counts(&self) -> &SpanCounts {
        &self.counts
    }

    fn lock(&self) -> MutexGuard<'_, WaitingSpans> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ganglion_core::trace::{SPAN_TEXT, TraceId};
    use jiff::Timestamp;

    use super::*;

    fn span(sequence: i64) -> Span {
        let trace = TraceId::new("u", Timestamp::UNIX_EPOCH, sequence);
        Span::new(trace, ("sample", ""), (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH))
    }

    fn queue() -> SpanQueue {
        SpanQueue::new(TraceSampler::All, &Metrics::new())
    }

    fn taken(queue: &SpanQueue) -> Vec<usize> {
        std::iter::from_fn(|| Some(queue.take().len()).filter(|count| *count > 0)).collect()
    }

    #[test]
    fn one_namespace_cannot_fill_the_queue() {
        let queue = queue();
        (0..600).for_each(|nth| queue.add("a", span(nth)));
        assert_eq!(queue.counts.dropped.get(), 600 - 512);
        queue.add("b", span(0));
        assert_eq!(queue.counts.dropped.get(), 600 - 512);
        assert_eq!(taken(&queue), [512, 1]);
        queue.add("a", span(0));
        assert_eq!(taken(&queue), [1], "the place is free again");
    }

    #[test]
    fn the_queue_is_bounded_in_number_and_bytes() {
        let queue = queue();
        (0..3_000).for_each(|nth| queue.add(&(nth % 8).to_string(), span(nth)));
        assert_eq!((queue.lock().spans.len(), queue.counts.dropped.get()), (SPANS, 3_000 - 2_048));
        assert_eq!(taken(&queue), [512; 4]);
        let large = |nth| (0..12).fold(span(nth), |span, _| span.text("text", &"x".repeat(SPAN_TEXT)));
        (0..2_000).for_each(|nth| queue.add(&(nth % 8).to_string(), large(nth)));
        let waiting = queue.lock().spans.len();
        assert!(waiting < 400 && queue.lock().bytes <= BYTES, "{waiting} spans");
        let batches = taken(&queue);
        assert!(batches.len() >= 4 && batches.iter().sum::<usize>() == waiting, "{batches:?}");
        assert_eq!(queue.lock().bytes, 0);
    }

    #[test]
    fn traces_that_are_not_sampled_take_no_room() {
        let queue = SpanQueue::new(TraceSampler::None, &Metrics::new());
        queue.add("a", span(0));
        assert!(queue.take().is_empty() && queue.counts.dropped.get() == 0);
    }
}
