//! Servers that the operator connects to, besides the API server: a minimal one that misbehaves on request; a real
//! Prometheus, metrics-server, prometheus-adapter, KEDA, external scaler, Jaeger, MLServer, KServe, Triton and
//! Redfish service; a receiver of events that uses the SDKs of receivers; a webhook for new pods; and a browser and
//! the load of an application, which are no servers.

pub mod adapter;
pub mod admission;
pub mod aggregation;
pub mod bmc;
pub mod browser;
pub mod http;
pub mod inference;
pub mod jaeger;
pub mod keda;
pub mod load;
pub mod models;
pub mod prometheus;
pub mod receiver;
pub mod scaler;
pub mod usage;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Whether the server on this local port answers a GET of this path with 200.
pub(crate) async fn serves(port: u16, path: &str) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    asked.await.is_ok_and(|answer| answer.starts_with(b"HTTP/1.") && answer.get(8..13) == Some(b" 200 "))
}
