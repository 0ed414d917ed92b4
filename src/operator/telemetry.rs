//! Logs of the process: as text for humans or as JSON for programs. Set up once, by the binary.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for humans.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The default filter: all messages of this program, and only problems of the libraries. kube_client is limited to
/// errors because its warnings contain whole responses that cannot be parsed; these may be megabytes large and contain
/// secrets.
pub const DEFAULT_FILTER: &str = "info,kube_client=error,kube_runtime=warn,hyper=warn,tower=warn";

/// Starts logging to stderr. `filter` has the syntax of `RUST_LOG`.
pub fn start(format: Format, filter: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = EnvFilter::try_new(filter)?;
    let colour = std::io::stderr().is_terminal();
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour);
    match format {
        Format::Text => base.with_target(false).finish().try_init()?,
        Format::Json => base.json().flatten_event(true).with_span_list(false).finish().try_init()?,
    }
    Ok(())
}
