//! Job control of the shell: Ctrl-Z stops the view, and `fg` continues it.

use std::io;

use rustix::process::{Signal, getpgrp, getpid, getsid, kill_current_process_group, kill_process};
use tokio::signal::unix::{self, SignalKind, signal};

use super::terminal::TerminalGuard;
use crate::cli::signals::SignalsError;

/// Signals of a shell with job control.
pub struct JobControl {
    stop: unix::Signal,
    resume: unix::Signal,
}

/// A signal that arrived.
pub enum JobSignal {
    Stop,
    Resume,
}

impl JobControl {
    /// Receives the signals from now on.
    pub fn new() -> Result<Self, SignalsError> {
        let receive = |kind: Signal| signal(SignalKind::from_raw(kind.as_raw()));
        Ok(Self { stop: receive(Signal::TSTP)?, resume: receive(Signal::CONT)? })
    }

    /// Returns when a signal arrives.
    pub async fn arrived(&mut self) -> JobSignal {
        tokio::select! {
            _ = self.stop.recv() => JobSignal::Stop,
            _ = self.resume.recv() => JobSignal::Resume,
        }
    }

    /// Stops this process if a shell can continue it, and then takes the terminal again.
    pub async fn follow(&mut self, signal: JobSignal, terminal: &TerminalGuard) -> io::Result<()> {
        if matches!(signal, JobSignal::Stop) {
            // The group of the session's first process has no shell above it that would continue it.
            if getsid(None)? == getpgrp() {
                return Ok(());
            }
            terminal.leave();
            kill_process(getpid(), Signal::STOP)?;
            self.resume.recv().await;
        }
        terminal.enter_again()
    }
}

/// Does what Ctrl-Z does in a terminal that is not in raw mode: asks all processes of the job to stop.
pub fn stop_job() {
    // A process may always send a signal to its own group.
    let _ = kill_current_process_group(Signal::TSTP);
}
