//! Endpoints that accept, hang, refuse, flood or are gone.

use std::net::TcpListener;

use ganglion_core::trace::TraceId;
use jiff::Timestamp;
use rstest::rstest;
use serde_json::Value;
use testkit::servers::http::{Authority, Manner, Server};
use tokio::task::JoinHandle;

use super::*;

/// An exporter that runs.
struct Running {
    queue: SpanQueue,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn settings(url: &str, more: &[(&str, &str)]) -> OtlpSettings {
    let settings = OtlpSettings::read(|name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(url.to_owned()),
        name => more.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
    });
    settings.unwrap().unwrap()
}

fn run(settings: OtlpSettings, authorities: Option<&[u8]>) -> Running {
    let exporter = SpanExporter::new(settings, authorities, &Metrics::new()).unwrap();
    let (queue, stop) = (exporter.queue(), CancellationToken::new());
    Running { queue, task: tokio::spawn(exporter.run(stop.clone())), stop }
}

impl Running {
    fn add(&self, count: i64) {
        for sequence in 0..count {
            let trace = TraceId::new("u", Timestamp::UNIX_EPOCH, sequence);
            let times = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
            self.queue.add("shop", Span::new(trace, ("sample", ""), times));
        }
    }

    /// Numbers of spans: sent, dropped, refused.
    fn counts(&self) -> (u64, u64, u64) {
        let counts = self.queue.counts();
        (counts.sent.get(), counts.dropped.get(), counts.refused.get())
    }

    async fn until(&self, counts: (u64, u64, u64)) {
        let reached = async {
            while self.counts() != counts {
                sleep(Duration::from_millis(10)).await;
            }
        };
        // With the paused clock, an outage of a minute passes at once.
        let done = tokio::time::timeout(Duration::from_secs(100), reached).await;
        assert!(done.is_ok(), "{:?} instead of {counts:?}", self.counts());
    }

    /// Stops the exporter, and returns how long it took.
    async fn stopped(self) -> Duration {
        let begun = Instant::now();
        self.stop.cancel();
        self.task.await.unwrap();
        begun.elapsed()
    }
}

fn accepts(answer: &str) -> Manner {
    Manner::Paths(vec![("/v1/traces", Manner::Says("200 OK", answer.to_owned()))])
}

fn spans(request: &str) -> usize {
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len()
}

#[tokio::test]
async fn spans_are_sent_together_with_the_headers_of_the_settings() {
    let server = Server::start(accepts(r#"{"partialSuccess": {"rejectedSpans": "1"}}"#)).await;
    let running = run(settings(&server.url("/"), &[("OTEL_EXPORTER_OTLP_HEADERS", "x-token=word")]), None);
    running.add(3);
    running.until((2, 0, 1)).await;
    let asked = server.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "one request");
    let head = asked[0].to_ascii_lowercase();
    assert!(head.starts_with("post /v1/traces ") && head.contains("x-token: word"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(spans(&asked[0]), 3);
}

#[tokio::test]
async fn tls_needs_the_authority_of_the_endpoint() {
    let authority = Authority::create();
    let server = Server::secure(accepts("{}"), &authority).await;
    let url = format!("https://localhost:{}", server.address.port());
    let trusting = run(settings(&url, &[]), Some(&authority.pem()));
    trusting.add(1);
    trusting.until((1, 0, 0)).await;
    let other = run(settings(&url, &[]), Some(&Authority::create().pem()));
    other.add(1);
    sleep(DELAY * 3).await;
    assert_eq!(other.counts(), (0, 0, 0), "nothing was sent");
    assert!(SpanExporter::new(settings(&url, &[]), Some(b"no certificate"), &Metrics::new()).is_err());
}

#[rstest]
#[case::refused("400 Bad Request", (0, 0, 2))]
#[case::unknown("404 Not Found", (0, 0, 2))]
#[tokio::test]
async fn a_request_that_would_be_refused_again_is_not_repeated(
    #[case] status: &'static str,
    #[case] counts: (u64, u64, u64),
) {
    let server = Server::start(Manner::Says(status, String::new())).await;
    let running = run(settings(&server.url("/"), &[]), None);
    running.add(2);
    running.until(counts).await;
    server.turn(accepts("{}"));
    running.add(1);
    running.until((1, 0, 2)).await;
    assert_eq!(server.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_busy_endpoint_is_asked_again_and_nothing_is_lost() {
    let server = Server::start(Manner::Says("503 Service Unavailable", String::new())).await;
    let running = run(settings(&server.url("/"), &[]), None);
    running.add(2);
    while server.asked.lock().unwrap().len() < 2 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(running.counts(), (0, 0, 0));
    server.turn(accepts("{}"));
    running.until((2, 0, 0)).await;
}

/// Nothing listens on this port once the listener is dropped.
fn gone() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_gone_costs_spans_and_no_memory() {
    let running = run(settings(&gone(), &[]), None);
    running.add(1_000);
    assert_eq!(running.counts(), (0, 1_000 - 512, 0), "the room of one namespace");
    running.until((0, 1_000, 0)).await;
}

#[tokio::test]
async fn an_endpoint_that_hangs_does_not_delay_the_end() {
    for manner in [Manner::Hangs, Manner::Stops] {
        let server = Server::start(manner).await;
        let running = run(settings(&server.url("/"), &[("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")]), None);
        running.add(3);
        while *server.connections.lock().unwrap() == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let queue = running.queue.clone();
        let took = running.stopped().await;
        assert!(took < LAST_SPANS * 2, "{took:?}");
        assert_eq!((queue.counts().dropped.get(), queue.counts().sent.get()), (3, 0));
    }
}

#[tokio::test]
async fn an_endless_answer_is_not_read() {
    let server = Server::start(Manner::Floods).await;
    let running = run(settings(&server.url("/"), &[]), None);
    running.add(1);
    running.until((1, 0, 0)).await;
}

#[tokio::test]
async fn the_last_spans_are_sent_at_the_end() {
    let server = Server::start(accepts("{}")).await;
    let running = run(settings(&server.url("/"), &[]), None);
    running.add(300);
    let queue = running.queue.clone();
    let took = running.stopped().await;
    assert_eq!(queue.counts().sent.get(), 300);
    assert!(took < LAST_SPANS, "{took:?}");
}
