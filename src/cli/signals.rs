//! The signals that interrupt a command.

use std::io::Error;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code: interrupted. The value that a shell reports for a process that SIGINT ends.
pub const INTERRUPTED: u8 = 130;

/// SIGINT and SIGTERM.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

/// Receives the signals from now on.
pub fn interrupts() -> Result<Interrupts, Error> {
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
