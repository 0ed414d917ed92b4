//! The passes of both sides, and the delay of each.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ganglion_core::facts::Key;
use ganglion_runtime::run::{Action, ReconcileResult};
use tokio::sync::mpsc::UnboundedSender;

/// Stages of the longest chain: Monitoring, Decision, Execution.
pub const STAGES: usize = 3;

/// Work of a pass.
#[derive(Clone)]
pub struct Work {
    /// Number of stages of a chain.
    pub stages: usize,
    /// Duration of a pass in microseconds, chosen at random from this range.
    pub takes: Range<u64>,
    /// Delay after which the pass requests another one, as often as [`Passes::repeat`] allows.
    pub requeue: Option<Duration>,
}

/// Adds keys to the queue of a stage.
pub type Add = Box<dyn Fn(&[Key]) + Send + Sync>;

/// Begin of a pass.
pub struct Mark {
    pub stage: usize,
    /// Time that the key spent in queues, including those of earlier stages.
    pub waited: Duration,
}

/// A key in a queue.
#[derive(Clone, Copy)]
struct Due {
    /// Moment at which its pass should begin.
    at: Instant,
    /// Time that it waited in earlier stages.
    waited: Duration,
}

/// The passes of one side.
pub struct Passes {
    work: Work,
    queues: [Add; STAGES],
    due: Mutex<HashMap<(usize, Key), Due>>,
    repeats: Mutex<usize>,
    marks: UnboundedSender<Mark>,
}

impl Passes {
    pub fn new(work: Work, queues: [Add; STAGES], marks: UnboundedSender<Mark>) -> Arc<Self> {
        Arc::new(Self { work, queues, due: Mutex::default(), repeats: Mutex::default(), marks })
    }

    pub fn stages(&self) -> usize {
        self.work.stages
    }

    /// Sets the number of passes that request another one.
    pub fn repeat(&self, times: usize) {
        *self.repeats.lock().unwrap_or_else(PoisonError::into_inner) = times;
    }

    /// Adds these keys to the first stage.
    pub fn start(&self, keys: &[Key]) {
        let due = Due { at: Instant::now(), waited: Duration::ZERO };
        self.due().extend(keys.iter().map(|key| ((0, key.clone()), due)));
        (self.queues[0])(keys);
    }

    /// One pass for one key.
    pub async fn pass(&self, stage: usize, key: Key) -> ReconcileResult {
        let begun = Instant::now();
        let Some(due) = self.due().remove(&(stage, key.clone())) else { return Ok(Action::AwaitChange) };
        let waited = due.waited + begun.saturating_duration_since(due.at);
        // Decides before it sends the mark: it may be the last mark of a round, and the next round resets the counter.
        let again = self.work.requeue.filter(|_| self.repeats_again());
        // The receiver is closed when the side ends.
        let _ = self.marks.send(Mark { stage, waited });
        if !self.work.takes.is_empty() {
            // Does not use tokio's timer, whose wake-ups always fall on the same point of the millisecond.
            let time = Duration::from_micros(fastrand::u64(self.work.takes.clone()));
            let _ = tokio::task::spawn_blocking(move || std::thread::sleep(time)).await;
        }
        if stage + 1 < self.work.stages {
            self.due().insert((stage + 1, key.clone()), Due { at: Instant::now(), waited });
            (self.queues[stage + 1])(&[key]);
        } else if let Some(pause) = again {
            self.due().insert((stage, key), Due { at: Instant::now() + pause, waited: Duration::ZERO });
            return Ok(Action::RequeueAfter(pause));
        }
        Ok(Action::AwaitChange)
    }

    fn repeats_again(&self) -> bool {
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let more = *repeats > 0;
        *repeats = repeats.saturating_sub(1);
        more
    }

    fn due(&self) -> MutexGuard<'_, HashMap<(usize, Key), Due>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
