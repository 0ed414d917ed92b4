//! Traces of the process: the exporter, and what reports to it in each leader term.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use ganglion_loops::traces::LoopTraces;
use ganglion_outbound::otlp::{OtlpProblem, OtlpSettings, SpanExporter, SpanQueue};
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;

/// Creates the exporter, with the authorities in the file that the settings name.
pub fn exporter(settings: OtlpSettings, metrics: &Metrics) -> Result<SpanExporter, OtlpProblem> {
    let authorities = settings.certificate.clone().map(|(variable, path)| {
        std::fs::read(&path)
            .map_err(|error| OtlpProblem { variable, problem: format!("the file {path} cannot be read: {error}") })
    });
    SpanExporter::new(settings, authorities.transpose()?.as_deref(), metrics)
}

/// Sends spans until the end of the process. Without an exporter, waits for the end.
pub async fn export(exporter: Option<SpanExporter>, ended: CancellationToken) {
    match exporter {
        Some(exporter) => exporter.run(ended).await,
        None => ended.cancelled().await,
    }
}

/// Reports the traces of one leader term.
pub fn of_term(store: &Store, spans: SpanQueue) -> Arc<LoopTraces> {
    Arc::new(LoopTraces::new(store.clone(), spans, Timestamp::now))
}
