//! The task that sends spans. One request at a time; an endpoint that does not answer costs spans, and nothing else.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, redirect};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::body;
use super::queue::SpanQueue;
use super::settings::{OtlpProblem, OtlpSettings};
use crate::trust;
use crate::web;
use ganglion_core::trace::Span;
use ganglion_runtime::metrics::Metrics;

/// Time that the first span of a request waits for others.
const DELAY: Duration = Duration::from_millis(500);

/// Pause before a request is repeated; it doubles up to the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Time after which spans that could not be sent are dropped.
const LIFETIME: Duration = Duration::from_secs(60);

/// Maximum time at exit for the spans that wait.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// Maximum size of an answer that is read, in bytes.
const ANSWER: usize = 8 << 10;

/// Sends the spans of a queue.
pub struct SpanExporter {
    settings: OtlpSettings,
    client: Client,
    queue: SpanQueue,
    /// The spans of the current request. They stay here until the endpoint has answered.
    batch: Vec<Span>,
    /// Scheme, host and port, for the log: the rest of the URL may contain a token.
    endpoint: String,
    /// Number of spans that were lost before the endpoint stopped accepting them; None if it accepts them.
    outage: Option<u64>,
}

/// Outcome of a request.
#[derive(Debug)]
enum ExportOutcome {
    /// All spans were accepted but this number.
    Accepted(u64),
    /// The same request would be refused again.
    Refused(String),
    /// The request may succeed later, not before this time has passed.
    Failed(String, Duration),
}

impl SpanExporter {
    /// Creates an exporter. `authorities`: content of the file that the settings name.
    pub fn new(settings: OtlpSettings, authorities: Option<&[u8]>, metrics: &Metrics) -> Result<Self, OtlpProblem> {
        // An error means that another part of the process has installed a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .pool_max_idle_per_host(1)
            .user_agent(concat!("ganglion/", env!("CARGO_PKG_VERSION")));
        let (variable, _) = settings.certificate.clone().unwrap_or(("OTEL_EXPORTER_OTLP_ENDPOINT", String::new()));
        let unfit = |problem: &str| OtlpProblem { variable, problem: problem.to_owned() };
        let builder = match authorities {
            Some(pem) => {
                let config = trust::only(pem).ok_or_else(|| unfit("there is no usable certificate in PEM"))?;
                builder.tls_backend_preconfigured(config)
            }
            None if settings.url.scheme() == "http" => builder.tls_certs_only([]),
            None => builder,
        };
        let client = builder.build().map_err(|_| unfit("TLS cannot be set up for it"))?;
        let queue = SpanQueue::new(settings.sampler, metrics);
        let endpoint = settings.url.origin().ascii_serialization();
        Ok(Self { settings, client, queue, batch: Vec::new(), endpoint, outage: None })
    }

    /// The queue whose spans are sent.
    pub fn queue(&self) -> SpanQueue {
        self.queue.clone()
    }

    /// Sends spans until `stop` is cancelled, then those that wait, for a second at most.
    pub async fn run(mut self, stop: CancellationToken) {
        for warning in &self.settings.warnings {
            warn!(variable = warning.variable, problem = warning.problem, "a variable of traces is ignored");
        }
        info!(endpoint = self.endpoint, "traces are sent");
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.serve() => {}
        }
        let _ = tokio::time::timeout(LAST_SPANS, self.send_rest()).await;
        let mut left = self.batch.len();
        while !self.batch.is_empty() {
            self.batch = self.queue.take();
            left += self.batch.len();
        }
        self.queue.counts().dropped.inc_by(left as u64);
    }

    /// Sends spans without end.
    async fn serve(&mut self) {
        loop {
            self.queue.filled().await;
            sleep(DELAY).await;
            self.batch = self.queue.take();
            self.deliver().await;
        }
    }

    /// Sends the current spans until the endpoint has accepted or refused them, or until they are too old.
    async fn deliver(&mut self) {
        let until = Instant::now() + LIFETIME;
        let mut pause = PAUSE;
        loop {
            let ExportOutcome::Failed(why, least) = self.send().await else { return };
            // Random, so that not all replicas ask at the same time.
            let next = pause.mul_f64(0.75 + 0.25 * fastrand::f64()).max(least);
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.begin_outage(&why);
            if Instant::now() + next > until {
                let lost = std::mem::take(&mut self.batch).len() as u64;
                self.queue.counts().dropped.inc_by(lost);
                // The next spans wait as long as these would have.
                sleep(next).await;
                return;
            }
            sleep(next).await;
        }
    }

    /// Sends all spans that wait, each once.
    async fn send_rest(&mut self) {
        loop {
            if self.batch.is_empty() {
                self.batch = self.queue.take();
            }
            if self.batch.is_empty() || matches!(self.send().await, ExportOutcome::Failed(..)) {
                return;
            }
        }
    }

    /// Sends the current spans once, and counts them unless the request may succeed later.
    async fn send(&mut self) -> ExportOutcome {
        let body = body::request(&self.settings.resource, self.batch.iter());
        let sent = match tokio::time::timeout(self.settings.timeout, self.request(body)).await {
            Ok(sent) => sent,
            Err(_) => ExportOutcome::Failed(
                format!("no answer within {} s", self.settings.timeout.as_secs_f64()),
                Duration::ZERO,
            ),
        };
        let counts = self.queue.counts().clone();
        let all = self.batch.len() as u64;
        match &sent {
            ExportOutcome::Accepted(rejected) => {
                let rejected = (*rejected).min(all);
                counts.sent.inc_by(all - rejected);
                counts.refused.inc_by(rejected);
                self.batch.clear();
                if let Some(before) = self.outage.take() {
                    let lost = self.lost() - before;
                    info!(endpoint = self.endpoint, lost, "traces are sent again");
                }
            }
            ExportOutcome::Refused(why) => {
                self.begin_outage(why);
                counts.refused.inc_by(all);
                self.batch.clear();
            }
            ExportOutcome::Failed(..) => {}
        }
        sent
    }

    async fn request(&self, body: Vec<u8>) -> ExportOutcome {
        let request = self.client.post(self.settings.url.clone()).headers(self.settings.headers.clone());
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return ExportOutcome::Failed(web::root(&error.without_url()), Duration::ZERO),
        };
        match response.status() {
            status if status.is_success() => ExportOutcome::Accepted(body::rejected(&head(response).await)),
            status if is_passing(status) => {
                ExportOutcome::Failed(format!("the endpoint answers {status}"), wanted_pause(&response))
            }
            status => ExportOutcome::Refused(format!("the endpoint answers {status}")),
        }
    }

    /// Warns once, until the endpoint accepts spans again.
    fn begin_outage(&mut self, why: &str) {
        if self.outage.is_none() {
            let endpoint = &self.endpoint;
            warn!(endpoint, error = why, "traces cannot be sent; spans are dropped until the endpoint accepts them");
            self.outage = Some(self.lost());
        }
    }

    /// Number of spans that were dropped or refused so far.
    fn lost(&self) -> u64 {
        let counts = self.queue.counts();
        counts.dropped.get() + counts.refused.get()
    }
}

/// The statuses after which OTLP repeats a request.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// The pause that the endpoint asks for, in seconds.
fn wanted_pause(response: &Response) -> Duration {
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(Duration::ZERO, Duration::from_secs).min(LONGEST_PAUSE)
}

/// First bytes of the answer. The rest is not read.
async fn head(mut response: Response) -> Vec<u8> {
    let mut head = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        head.extend_from_slice(&chunk[..chunk.len().min(ANSWER - head.len())]);
        if head.len() >= ANSWER {
            break;
        }
    }
    head
}

#[cfg(test)]
mod tests;
