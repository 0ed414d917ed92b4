//! Export of spans by OTLP over HTTP, to the endpoint in the variables of the OpenTelemetry specification.
//!
//! Work never waits for the endpoint: spans wait in a bounded queue, and are dropped and counted if it is full.
//!
//! | file | content |
//! |---|---|
//! | `settings` | the variables, and what is wrong with them |
//! | `queue` | spans that wait, bounded in number and bytes, and by namespace |
//! | `body` | the JSON form of a request |
//! | `exporter` | the task that sends: batches, timeout, retries, outages |
//!
//! Spans are sent as JSON, which every receiver of OTLP over HTTP accepts. The crates of OpenTelemetry are not used:
//! their SDK numbers spans by itself, and `opentelemetry-proto` brings a second encoder and gRPC.

mod body;
mod exporter;
mod queue;
mod settings;

pub use exporter::SpanExporter;
pub use queue::SpanQueue;
pub use settings::{OtlpProblem, OtlpSettings, TraceSampler};
