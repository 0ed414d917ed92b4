//! The routes over a real socket, as a kubelet or Prometheus would ask.

use kube::Client;
use kube::client::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_test::mock;

use super::*;
use crate::runtime::watch::{Feeds, WatchOptions};

/// A server whose caches never fill.
async fn started() -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<()>, Feeds) {
    let (idle, _) = mock::pair::<http_::Request<Body>, http_::Response<Body>>();
    let metrics = Metrics::new();
    let stop = CancellationToken::new();
    let options = WatchOptions { namespaces: vec![], timeout: Duration::from_secs(1) };
    let store = Store::default();
    let mut feeds = Feeds::new(&Client::new(idle, "default"), options, store.clone(), metrics.clone(), stop.clone());
    crate::caches::feed(&mut feeds);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Served { ready: feeds.ready(), store, metrics };
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
}

#[tokio::test]
async fn a_client_that_keeps_its_connection_open_does_not_keep_the_server() {
    let (address, stop, server, _caches) = started().await;
    let _open = TcpStream::connect(address).await.unwrap();
    stop.cancel();
    tokio::time::timeout(GOODBYE * 2, server).await.unwrap().unwrap();
}
