//! A proxy between the operator and the API server: plain HTTP towards the operator, TLS towards the server.
//!
//! It records every mutating request. It can hold a request just before it reaches the server or just before its answer
//! reaches the operator ([`gate`]), answer instead of the server ([`storm`]), cut or delay watches ([`streams`]), and
//! cut the network ([`link`]). It passes all other requests and answers on unchanged.

pub mod gate;
pub mod link;
pub mod storm;
pub mod streams;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::TIMEOUT;
use crate::plane::Plane;
use gate::{Gate, Go, Held, HoldPoint};
use link::NetworkLink;
use storm::{Fault, Storm};
use streams::Streams;

/// A mutating request of the operator, except for leases and events.
#[derive(Clone, Debug)]
pub struct Write {
    /// Number of the request, from 1; 0 for events.
    pub number: usize,
    pub method: Method,
    /// Path without the API prefix and namespace, such as `pods/web-1/eviction`.
    pub target: String,
    pub body: Value,
    /// Status that the operator received; None while it waits, or if it never received one.
    pub answer: Option<StatusCode>,
}

impl Write {
    /// Whether it writes this resource or subresource: `pods`, `pods/eviction`, `workloadactions/status`.
    pub fn is_on(&self, resource: &str) -> bool {
        let parts: Vec<&str> = self.target.split('/').collect();
        let kind = match parts.as_slice() {
            [kind, _, sub] => format!("{kind}/{sub}"),
            [kind, ..] => (*kind).to_owned(),
            [] => String::new(),
        };
        kind == resource
    }

    /// Reason in a status write of an action, which identifies the step.
    pub fn reason(&self) -> Option<&str> {
        let conditions = self.body.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|one| one["type"] == "Ready")?["reason"].as_str()
    }
}

impl std::fmt::Display for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} {} {}", self.number, self.method, self.target)?;
        if let Some(reason) = self.reason() {
            write!(f, " ({reason})")?;
        }
        match self.answer {
            Some(status) => write!(f, " -> {}", status.as_u16()),
            None => f.write_str(" -> (no answer)"),
        }
    }
}

pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<ProxyState>,
    server: JoinHandle<()>,
}

struct ProxyState {
    upstream: Client,
    writes: Mutex<Vec<Write>>,
    gates: Mutex<Vec<Gate>>,
    event_gates: Mutex<Vec<Gate>>,
    storm: Mutex<Option<Storm>>,
    streams: Streams,
    link: Arc<NetworkLink>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Proxy {
    /// Starts a proxy for this plane on a free port.
    pub async fn start(plane: &Plane) -> Result<Self> {
        // Clients of the proxy send their own credentials.
        let mut config = plane.anonymous();
        config.default_retry = false;
        let link = Arc::<NetworkLink>::default();
        let shared = Arc::new(ProxyState {
            upstream: Client::try_from(config)?,
            writes: Mutex::default(),
            gates: Mutex::default(),
            event_gates: Mutex::default(),
            storm: Mutex::default(),
            streams: Streams::new(Arc::clone(&link)),
            link,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(handle).with_state(shared.clone());
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, shared, server })
    }

    /// All mutating requests so far.
    pub fn writes(&self) -> Vec<Write> {
        lock(&self.shared.writes).clone()
    }

    /// Holds the `nth` mutating request from now on (1 is the next) that matches `which`.
    pub fn hold(&self, nth: usize, when: HoldPoint, which: impl Fn(&Write) -> bool + Send + 'static) -> Held {
        let (gate, held) = gate::pair(nth, when, which);
        lock(&self.shared.gates).push(gate);
        held
    }

    /// The same for requests that write events.
    pub fn hold_event(&self, nth: usize, when: HoldPoint) -> Held {
        let (gate, held) = gate::pair(nth, when, |_| true);
        lock(&self.shared.event_gates).push(gate);
        held
    }

    /// From now on, answers a share of the requests instead of the server; None ends that.
    pub fn storm(&self, storm: Option<Storm>) {
        *lock(&self.shared.storm) = storm;
    }

    /// Network between the operator and the API server. Requests that are sent while it is cut reach the server once it
    /// is mended, even if their sender no longer waits for them.
    pub fn link(&self) -> &NetworkLink {
        &self.shared.link
    }

    /// Waits until the server has answered the request with this number. Returns the status.
    pub async fn answered(&self, number: usize) -> Result<StatusCode> {
        let answer = async {
            loop {
                if let Some(status) = self.writes().get(number - 1).and_then(|write| write.answer) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, answer).await.with_context(|| format!("no answer to request {number}"))
    }

    /// Watches that pass through the proxy.
    pub fn streams(&self) -> &Streams {
        &self.shared.streams
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Handles one request, until the head of its answer is complete.
async fn handle(State(shared): State<Arc<ProxyState>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    let path = parts.uri.path().to_owned();
    let query = parts.uri.query().unwrap_or_default();
    let watching = query.contains("watch=true") || query.contains("watch=1");
    let write = if query.contains("dryRun=") { None } else { shared.note(&parts.method, &path, &bytes) };
    if let Some(write) = &write
        && shared.stop(write, HoldPoint::Before).await == Go::Drop
    {
        return gone();
    }
    let fault = shared.fault(&parts.method, &path, watching);
    if let Some(fault) = fault.filter(|fault| *fault != Fault::LostAnswer) {
        return shared.answered(write.as_ref(), fault.answer());
    }
    let mut upstream = Request::builder().method(parts.method).uri(parts.uri);
    if let Some(headers) = upstream.headers_mut() {
        *headers = end_to_end(parts.headers);
    }
    let Ok(upstream) = upstream.body(kube::client::Body::from(bytes.to_vec())) else { return gone() };
    if shared.link.is_cut() {
        // A task of its own, because this future ends when the client gives up.
        let late = tokio::spawn(deliver_late(shared, upstream, write));
        return late.await.unwrap_or_else(|_| gone());
    }
    let answer = match shared.upstream.send(upstream).await {
        Ok(answer) => answer,
        Err(error) => {
            return shared.answered(write.as_ref(), (StatusCode::BAD_GATEWAY, error.to_string()).into_response());
        }
    };
    shared.link.mended().await;
    if fault == Some(Fault::LostAnswer) {
        return shared.answered(write.as_ref(), Fault::LostAnswer.answer());
    }
    let (mut head, body) = answer.into_parts();
    head.headers = end_to_end(head.headers);
    if watching && head.status.is_success() {
        return Response::from_parts(head, shared.streams.pass(&path, Body::new(body)));
    }
    // Reads the whole body first, so that a held answer has left the server completely.
    let Ok(bytes) = to_bytes(Body::new(body), usize::MAX).await else { return gone() };
    if let Some(write) = &write
        && shared.stop(write, HoldPoint::After).await == Go::Drop
    {
        return gone();
    }
    shared.answered(write.as_ref(), Response::from_parts(head, Body::from(bytes)))
}

/// Sends a request once the network is mended.
async fn deliver_late(
    shared: Arc<ProxyState>,
    request: axum::http::Request<kube::client::Body>,
    write: Option<Write>,
) -> Response {
    shared.link.mended().await;
    let answer = match shared.upstream.send(request).await {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    };
    let (mut head, body) = answer.into_parts();
    head.headers = end_to_end(head.headers);
    shared.answered(write.as_ref(), Response::from_parts(head, body))
}

impl ProxyState {
    /// Returns the request if it is mutating and not for a lease. Records it if it is not for an event.
    fn note(&self, method: &Method, path: &str, bytes: &Bytes) -> Option<Write> {
        let question = path.ends_with("/selfsubjectreviews") || path.ends_with("/selfsubjectaccessreviews");
        if question || *method == Method::GET || path.contains("/leases") {
            return None;
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let after = |at: usize| parts.get(at..).unwrap_or_default().join("/");
        let target = match parts.iter().position(|part| *part == "namespaces") {
            Some(at) if parts.len() > at + 2 => after(at + 2),
            _ if parts.first() == Some(&"api") => after(2),
            _ => after(3),
        };
        let body = serde_json::from_slice(bytes).unwrap_or_default();
        let mut write = Write { number: 0, method: method.clone(), target, body, answer: None };
        if !write.is_on("events") {
            let mut writes = lock(&self.writes);
            write.number = writes.len() + 1;
            writes.push(write.clone());
        }
        Some(write)
    }

    async fn stop(&self, write: &Write, when: HoldPoint) -> Go {
        let gates = if write.is_on("events") { &self.event_gates } else { &self.gates };
        let gate = gate::take(&mut lock(gates), write, when);
        match gate {
            Some(gate) => gate.stop(write.clone()).await,
            None => Go::On,
        }
    }

    fn fault(&self, method: &Method, path: &str, watching: bool) -> Option<Fault> {
        // A lost lease ends the process by design; a separate test covers that.
        if watching || path.contains("/leases") {
            return None;
        }
        lock(&self.storm).as_mut().and_then(|storm| storm.strike(*method != Method::GET))
    }

    fn answered(&self, write: Option<&Write>, answer: Response) -> Response {
        if let Some(write) = write
            && let Some(at) = write.number.checked_sub(1)
            && let Some(noted) = lock(&self.writes).get_mut(at)
        {
            noted.answer = Some(answer.status());
        }
        answer
    }
}

/// Drops the connection: the client is dead, or must see a network failure.
fn gone() -> Response {
    Response::new(Body::from_stream(streams::broken()))
}

/// Removes the headers that apply to a single connection.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::HOST] {
        headers.remove(name);
    }
    headers
}
