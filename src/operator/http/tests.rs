//! Tests of the routes over a real socket, with requests like those of a kubelet or Prometheus.

mod documented;

use std::time::Duration;

use jiff::SignedDuration;
use kube::Client;
use kube::client::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_test::mock;

use super::*;
use ganglion_actions_plan::figures::ActionFigures;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Counter as DecisionCounter;
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::facts::Key;
use ganglion_core::reading::MetricReading;
use ganglion_loops_plan::figures::{ConditionFigure, LoopFigures};
use ganglion_nodes_plan::node_plan::POWER_ERROR;
use ganglion_pools_plan::figures::PoolFigures;
use ganglion_runtime::metrics::{NodeMeasurement, ValuesOfNode};
use ganglion_runtime::watch::{Feeds, WatchOptions};

/// Starts a server whose caches never sync.
async fn started() -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<()>, Feeds) {
    let (idle, _) = mock::pair::<http_::Request<Body>, http_::Response<Body>>();
    let metrics = Metrics::new();
    let stop = CancellationToken::new();
    let options = WatchOptions { namespaces: vec![], timeout: Duration::from_secs(1) };
    let store = Store::new(crate::operator::world::world());
    let mut feeds = Feeds::new(&Client::new(idle, "default"), options, store.clone(), metrics.clone(), stop.clone());
    crate::operator::kinds::feed(&mut feeds);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Served { ready: feeds.ready(), store, metrics, loop_series: 2, node_series: 2 };
    let server = tokio::spawn(serve(listener, served, stop.clone()));
    (address, stop, server, feeds)
}

use ::http as http_;

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn alive_but_not_ready_while_the_caches_fill() {
    let (address, _stop, _server, _caches) = started().await;
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503"));
    assert!(get(address, "/").await.starts_with("HTTP/1.1 404"));
    let metrics = get(address, "/metrics").await;
    assert!(metrics.contains("ganglion_cache_objects{kind=\"Pod\"} 0"), "{metrics}");
    assert!(metrics.contains("openmetrics-text"), "{metrics}");
    assert!(metrics.contains("ganglion_actions_oldest_wait_seconds 0"), "{metrics}");
}

#[tokio::test]
async fn a_client_that_keeps_its_connection_open_does_not_keep_the_server() {
    let (address, stop, server, _caches) = started().await;
    let _open = TcpStream::connect(address).await.unwrap();
    stop.cancel();
    tokio::time::timeout(server::GOODBYE * 2, server).await.unwrap().unwrap();
}

/// Whether the server closes the connection within this time, without an answer.
async fn closes(stream: &mut TcpStream, seconds: u64) -> bool {
    let read = tokio::time::timeout(Duration::from_secs(seconds), stream.read(&mut [0; 1])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test]
async fn a_flood_of_idle_connections_is_bounded_and_keeps_no_probe_out() {
    let (address, _stop, _server, _caches) = started().await;
    let mut idle = Vec::new();
    for _ in 0..MAX_CONNECTIONS * 3 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
        idle.push(stream);
    }
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(closes(&mut idle[0], 5).await, "the oldest gives way");
    let last = idle.last_mut().unwrap();
    last.write_all(b"host: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_head_does_not_end_is_given_up() {
    let (address, _stop, _server, _caches) = started().await;
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    assert!(closes(&mut slow, 60).await);
    let mut kept = TcpStream::connect(address).await.unwrap();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    while kept.read(&mut [0; 256]).await.unwrap() == 256 {}
    assert!(closes(&mut kept, 60).await, "an idle one, too");
}

/// Figures with at least one series of each metric, at [`NOW`].
fn figures_of_all() -> ScrapedFigures {
    let of_loop = LoopFigures {
        key: Key::new("shop", "web"),
        ready: true,
        conditions: vec![ConditionFigure {
            condition: "DataAvailable",
            status: "False",
            reason: LoopReason::SomeUnknown,
        }],
        values: vec![MetricReading { metric: "cpu".to_owned(), value: 2.5, at: seconds(940) }],
        alarms: vec![("cpu".to_owned(), Side::Low)],
        counters: vec![DecisionCounter {
            metric: "cpu".to_owned(),
            wanted: 7,
            served: 3,
            ..DecisionCounter::default()
        }],
    };
    let measured = |at: i64| NodeMeasurement { value: 21.5, at: seconds(at), interval: SignedDuration::from_secs(10) };
    let node = |name: &str, at: i64| ValuesOfNode {
        node: name.to_owned(),
        values: NodeValue::ALL
            .map(NodeValue::as_str)
            .into_iter()
            .chain([POWER_ERROR])
            .map(|v| (v, measured(at)))
            .collect(),
    };
    ScrapedFigures {
        loops: vec![of_loop],
        actions: ActionFigures {
            count: [(("waiting", "LimitReached"), 2)].into(),
            oldest_wait: 12.5,
            longest_step: 3.5,
        },
        pools: PoolFigures { assigned: 4, unassigned: 1, converged: 2, behind: 1 },
        objects: [(("SwarmPool", "Ready", "Unknown"), 3)].into(),
        policies: [("ganglion-swarmpools", PolicyState::Modified)].into(),
        refused_pods: 3,
        nodes: vec![node("n1", 995), node("n2", 900), node("n3", 995)],
        node_series: 2,
    }
}

const NOW: i64 = 1_000;

fn seconds(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap()
}

#[test]
fn figures_are_rendered_with_their_labels() {
    let text = Metrics::new().render(&figures::registry(figures_of_all(), seconds(NOW))).unwrap();
    for line in [
        "ganglion_loop_ready{namespace=\"shop\",name=\"web\"} 1",
        "ganglion_loop_condition{namespace=\"shop\",name=\"web\",condition=\"DataAvailable\",status=\"False\",reason=\"SomeUnknown\"} 1",
        "ganglion_loop_value{namespace=\"shop\",name=\"web\",metric=\"cpu\"} 2.5",
        "ganglion_loop_value_age_seconds{namespace=\"shop\",name=\"web\",metric=\"cpu\"} 60.0",
        "ganglion_loop_alarm{namespace=\"shop\",name=\"web\",metric=\"cpu\",side=\"low\"} 1",
        "ganglion_loop_decisions_total{namespace=\"shop\",name=\"web\",metric=\"cpu\",outcome=\"wanted\"} 7",
        "ganglion_actions{state=\"waiting\",reason=\"LimitReached\"} 2",
        "ganglion_actions_oldest_wait_seconds 12.5",
        "ganglion_actions_longest_step_seconds 3.5",
        "ganglion_objects{kind=\"SwarmPool\",state=\"Ready\",reason=\"Unknown\"} 3",
        "ganglion_pool_jobs{state=\"unassigned\"} 1",
        "ganglion_pool_workers{state=\"behind\"} 1",
        "ganglion_admission_policies{policy=\"ganglion-swarmpools\",state=\"Modified\"} 1",
        "ganglion_admission_policies{policy=\"ganglion-swarmpools\",state=\"Present\"} 0",
        "ganglion_refused_pods_total 3",
        // Three nodes are counted, and the first two have series; the values of the second are stale.
        "ganglion_node_values{value=\"cpu\",state=\"fresh\"} 2",
        "ganglion_node_values{value=\"cpu\",state=\"stale\"} 1",
        "ganglion_node_power_watts{node=\"n1\"} 21.5",
        "ganglion_node_value_age_seconds{node=\"n2\",value=\"cpu\"} 100.0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
    }
    assert_eq!(text.matches("ganglion_node_power_watts{").count(), 1);
    assert!(!text.contains("n3"), "{text}");
    assert_eq!(text.matches("# EOF").count(), 1);
}
