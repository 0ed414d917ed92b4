//! The signals that end the operator.

use std::io::Error;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Returns a token that SIGTERM and SIGINT cancel.
pub fn stop() -> Result<CancellationToken, Error> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("stop requested");
        token.cancel();
    });
    Ok(stop)
}
