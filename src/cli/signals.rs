//! The signals that interrupt a command.

use std::process::ExitCode;

use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code: interrupted. The value that a shell reports for a process that SIGINT ends.
pub const INTERRUPTED: u8 = 130;

/// Error: signals cannot be received.
#[derive(Debug, Error)]
#[error("signals cannot be received")]
pub struct SignalsError(#[from] std::io::Error);

/// SIGINT and SIGTERM.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

/// Receives the signals from now on.
pub fn interrupts() -> Result<Interrupts, SignalsError> {
    Ok(Interrupts { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
}

impl Interrupts {
    /// Returns when a signal arrives.
    pub async fn arrived(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Reports the end of a command that has changed nothing when a signal arrived.
pub fn nothing_changed() -> ExitCode {
    eprintln!("Interrupted. Nothing was changed, and nothing goes on in the cluster.");
    ExitCode::from(INTERRUPTED)
}
