//! Tests of running a controller: concurrency, backoff, panics, shutdown.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

type Script = dyn Fn(usize) -> ReconcileResult + Send + Sync;

/// Reconciles that return scripted results. Records the start of each reconcile.
struct Scripted {
    script: Box<Script>,
    takes: Duration,
    passes: Mutex<Vec<(String, Instant)>>,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Scripted {
    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let count = {
            let mut passes = self.passes.lock().unwrap();
            passes.push((key.name, Instant::now()));
            passes.len()
        };
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        tokio::time::sleep(self.takes).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        (self.script)(count)
    }
}

struct Running {
    controller: Arc<Scripted>,
    queue: Arc<Queue>,
    run: Run,
    task: tokio::task::JoinHandle<()>,
}

fn start(concurrency: usize, takes: u64, script: impl Fn(usize) -> ReconcileResult + Send + Sync + 'static) -> Running {
    let controller = Arc::new(Scripted {
        script: Box::new(script),
        takes: Duration::from_millis(takes),
        passes: Mutex::default(),
        running: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    let queue = Arc::new(Queue::default());
    queue.open();
    let run = Run { concurrency, metrics: Metrics::new(), stop: CancellationToken::new() };
    let task = tokio::spawn({
        let (controller, queue, run) = (Arc::clone(&controller), Arc::clone(&queue), run.clone());
        super::run("scripted", move |key| Arc::clone(&controller).reconcile(key), queue, run)
    });
    Running { controller, queue, run, task }
}

impl Running {
    fn wake(&self, keys: &[&str]) {
        self.queue.add(keys.iter().map(|key| Key::new("n", *key)));
    }

    fn passes(&self) -> usize {
        self.controller.passes.lock().unwrap().len()
    }
}

async fn after(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn as_many_objects_as_allowed_at_once_and_each_of_them_once() {
    let running = start(3, 100, |_| Ok(Action::AwaitChange));
    running.wake(&["a", "b", "c", "d", "e", "f", "a"]);
    after(1.0).await;
    assert_eq!(running.passes(), 6);
    assert_eq!(running.controller.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_a_success_starts_anew() {
    let running =
        start(1, 0, |count| if count == 8 { Ok(Action::AwaitChange) } else { Err(Error::Timeout(Duration::ZERO)) });
    running.wake(&["a"]);
    after(30.0).await;
    assert_eq!(running.passes(), 8);
    let times: Vec<Instant> = running.controller.passes.lock().unwrap().iter().map(|(_, at)| *at).collect();
    let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
    running.wake(&["a"]);
    after(0.03).await;
    assert_eq!(running.passes(), 10, "the first pause is short again");
}

#[tokio::test(start_paused = true)]
async fn after_a_terminal_error_the_delay_grows_to_a_minute() {
    let running = start(1, 0, |_| Err(Error::Broken));
    running.wake(&["a"]);
    after(0.7).await;
    assert_eq!(running.passes(), 1);
    running.wake(&["a"]);
    after(0.1).await;
    assert_eq!(running.passes(), 2, "at once if something changes");
    after(120.0).await;
    let before = running.passes();
    assert!((6..=10).contains(&before), "{before} reconciles: a right that returns within seconds is noticed soon");
    after(600.0).await;
    assert!((9..=14).contains(&(running.passes() - before)), "about one a minute");
}

#[tokio::test(start_paused = true)]
async fn failures_that_pass_do_not_lengthen_the_delay_after_a_terminal_error() {
    let retry = |count| if count < 8 { Err(Error::Conflict(String::new())) } else { Err(Error::Broken) };
    let running = start(1, 0, retry);
    running.wake(&["a"]);
    after(4.0).await;
    let before = running.passes();
    assert!(before >= 8, "{before}");
    after(4.0).await;
    assert!(running.passes() > before, "the first delays are about a second");
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_panics_costs_nobody_else_anything() {
    let running = start(2, 0, |count| if count == 1 { panic!("on purpose") } else { Ok(Action::AwaitChange) });
    running.wake(&["a"]);
    after(0.1).await;
    running.wake(&["b"]);
    after(0.1).await;
    assert_eq!(running.passes(), 2);
    running.wake(&["a"]);
    after(0.1).await;
    assert_eq!(running.passes(), 3, "the object is not stuck as being reconciled");
}

#[tokio::test(start_paused = true)]
async fn once_stopped_no_pass_begins_and_those_under_way_end() {
    let running = start(1, 1000, |_| Ok(Action::AwaitChange));
    running.wake(&["a", "b"]);
    after(0.5).await;
    running.run.stop.cancel();
    let begun = Instant::now();
    running.task.await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(500));
    assert_eq!(running.controller.passes.lock().unwrap().len(), 1);
    assert_eq!(running.controller.running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_it_ends_at_once() {
    let running = start(1, 1000, |_| Ok(Action::AwaitChange));
    running.wake(&["a"]);
    after(0.5).await;
    running.task.abort();
    after(5.0).await;
    assert_eq!(running.controller.running.load(Ordering::SeqCst), 1, "the reconcile never finished");
}
