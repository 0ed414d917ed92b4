//! The live view: connects the terminal, the watches and the state machine.

use std::io::{BufWriter, Stdout, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use crossterm::execute;
use crossterm::terminal::{Clear, ClearType};
use futures::StreamExt;
use jiff::Timestamp;
use kube::Client;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::effect::TopEffect;
use super::facts::TopId;
use super::jobs::{JobControl, stop_job};
use super::kinds::TopKind;
use super::model::TopModel;
use super::screen::draw;
use super::terminal::TerminalGuard;
use super::update::{TopEvent, update};
use super::watch::TopWatches;
use super::{Error, work};
use crate::cli::signals::{INTERRUPTED, SignalsError, interrupts};

/// Minimum time between two frames.
const FRAME_TIME: Duration = Duration::from_millis(200);

/// Minimum time between a key and the next frame.
const KEY_TIME: Duration = Duration::from_millis(20);

/// Maximum number of events that wait.
const EVENTS: usize = 1024;

/// Number of requests of the user in progress above which further ones are refused.
const TASKS: usize = 16;

/// Shows the view until the user or a signal ends it. `watcher` is the client of the watches, `client` that of short
/// requests.
pub async fn show(mut model: TopModel, watcher: Client, client: Client) -> Result<ExitCode, Error> {
    let mut interrupted = interrupts()?;
    let mut hangup = signal(SignalKind::hangup()).map_err(SignalsError::from)?;
    let mut jobs = JobControl::new()?;
    let panicked = Arc::new(Notify::new());
    let (sender, mut events) = mpsc::channel(EVENTS);
    let mut work =
        TopWork { client, sender: sender.clone(), tasks: JoinSet::new(), watches: TopWatches::new(watcher, sender) };
    work.watches.start(&model.scope, model.epoch, &model.kinds);
    let guard = TerminalGuard::enter(Arc::clone(&panicked)).map_err(Error::Terminal)?;
    let mut terminal = new_terminal()?;
    let mut keys = EventStream::new();
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // Time of the next frame; None if nothing has changed.
    let mut due = Some(Instant::now());
    let mut drawn = Instant::now();
    loop {
        let event = tokio::select! {
            biased;
            () = panicked.notified() => return Err(Error::Panicked),
            () = interrupted.arrived() => return Ok(ExitCode::from(INTERRUPTED)),
            _ = hangup.recv() => return Ok(ExitCode::from(INTERRUPTED)),
            signal = jobs.arrived() => {
                jobs.follow(signal, &guard).await.map_err(Error::Terminal)?;
                // The whole view is drawn again, in the present size.
                let (width, height) = crossterm::terminal::size().map_err(Error::Terminal)?;
                Some(TopEvent::Resized(width, height))
            }
            () = sleep_until(due.unwrap_or(drawn)), if due.is_some() => {
                model.refresh();
                paint(&mut terminal, &model)?;
                (due, drawn) = (None, Instant::now());
                continue;
            }
            key = keys.next() => match key {
                Some(Ok(key)) => from_terminal(key),
                Some(Err(error)) => return Err(Error::Terminal(error)),
                None => return Ok(ExitCode::from(INTERRUPTED)),
            },
            Some(event) = events.recv() => Some(event),
            _ = seconds.tick() => Some(TopEvent::Second),
        };
        let Some(event) = event else { continue };
        if matches!(event, TopEvent::Resized(..)) {
            // A terminal that became narrow and wide again before the next frame has lost its content.
            execute!(stdout(), Clear(ClearType::All)).map_err(Error::Terminal)?;
            terminal = new_terminal()?;
        }
        let pause = if matches!(event, TopEvent::Key(_) | TopEvent::Resized(..)) { KEY_TIME } else { FRAME_TIME };
        let next = drawn + pause;
        due = Some(due.map_or(next, |due| due.min(next)));
        for effect in update(&mut model, event, Timestamp::now()) {
            if let Some(code) = work.perform(effect, &model) {
                return Ok(code);
            }
        }
    }
}

/// The terminal, whose next frame is drawn in full.
type TopTerminal = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

fn new_terminal() -> Result<TopTerminal, Error> {
    Terminal::new(CrosstermBackend::new(BufWriter::new(stdout()))).map_err(Error::Terminal)
}

fn paint(terminal: &mut TopTerminal, model: &TopModel) -> Result<(), Error> {
    terminal.draw(|frame| draw(frame, model, Timestamp::now())).map(drop).map_err(Error::Terminal)
}

fn from_terminal(event: Event) -> Option<TopEvent> {
    match event {
        Event::Key(key) => Some(TopEvent::Key(key)),
        Event::Resize(width, height) => Some(TopEvent::Resized(width, height)),
        Event::Paste(text) => Some(TopEvent::Pasted(text)),
        Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
    }
}

/// Requests in progress.
struct TopWork {
    client: Client,
    sender: mpsc::Sender<TopEvent>,
    tasks: JoinSet<()>,
    watches: TopWatches,
}

impl TopWork {
    /// Starts a task. Returns the exit code if the view ends.
    fn perform(&mut self, effect: TopEffect, model: &TopModel) -> Option<ExitCode> {
        let client = self.client.clone();
        match effect {
            TopEffect::Quit { interrupted: true } => return Some(ExitCode::from(INTERRUPTED)),
            TopEffect::Quit { interrupted: false } => return Some(ExitCode::SUCCESS),
            TopEffect::StopJob => stop_job(),
            TopEffect::Watch(scope, epoch) => self.watches.start(&scope, epoch, &model.kinds),
            TopEffect::Check(planned) => {
                self.spawn(TopEvent::Checked(busy()), async { TopEvent::Checked(work::check(client, planned).await) });
            }
            TopEffect::Perform(planned) => self.spawn(TopEvent::Performed(busy()), async {
                TopEvent::Performed(work::perform(client, planned).await)
            }),
            TopEffect::Explain(id) => self.explain(id, model),
        }
        None
    }

    fn explain(&mut self, id: TopId, model: &TopModel) {
        // A policy is described by its conditions alone.
        let Some(object) = model.objects.get(&id).filter(|_| id.kind != TopKind::Policy).cloned() else { return };
        let client = self.client.clone();
        self.spawn(TopEvent::Explained(id.clone(), busy()), async {
            TopEvent::Explained(id, work::explain(client, object).await)
        });
    }

    /// Runs a task, and sends its event; or the other event if too many run.
    fn spawn(&mut self, refusal: TopEvent, task: impl Future<Output = TopEvent> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        let sender = self.sender.clone();
        let is_busy = self.tasks.len() >= TASKS;
        self.tasks.spawn(async move {
            let event = if is_busy { refusal } else { task.await };
            // The view may have ended.
            let _ = sender.send(event).await;
        });
    }
}

fn busy<T>() -> Result<T, String> {
    Err("too many requests are in progress; try again in a moment".to_owned())
}
