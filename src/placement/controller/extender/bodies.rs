//! The bodies of requests: their maximum size, their timeout, and the bytes in flight.
//!
//! A request occupies its share of the bytes in flight until its reply is sent, since the reply has about the same
//! size, and memory for each candidate. Large requests, with full nodes, must not delay small ones, with names, so both
//! have separate limits.
//!
//! Anybody who reaches the port can open requests and let them wait. So if a limit is reached, the oldest request of
//! the peer that occupies most is given up in favor of a peer that occupies less. A peer that occupies most itself is
//! refused immediately, since a scheduler that waits does not schedule.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use ganglion_runtime::server::Peer;

/// Timeout for reading a body.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a small body in bytes. Larger bodies contain full nodes.
const SMALL: usize = 1 << 20;

/// Maximum bytes in flight of small bodies.
const SMALL_IN_FLIGHT: usize = 64 << 20;

/// Maximum number of bodies of the maximum size in flight.
const LARGE_IN_FLIGHT: usize = 2;

/// Chunk size in bytes in which a reply is streamed as the client reads it. Otherwise hyper would buffer the whole
/// reply.
const PART: usize = 64 << 10;

/// Minimum bytes of a request: buffers of its connection.
const LEAST: usize = 16 << 10;

/// Memory per candidate in bytes: its name, its result and its part of the reply.
const CANDIDATE: usize = 512;

/// Limits of request bodies.
pub struct Bodies {
    max: usize,
    small: Arc<Room>,
    large: Arc<Room>,
}

/// Bytes in flight, which peers share.
struct Room {
    most: usize,
    /// Occupied places, the oldest first.
    places: Mutex<Vec<Occupied>>,
    /// Id of the next place.
    next: AtomicU64,
}

struct Occupied {
    /// Distinguishes the places of one peer.
    id: u64,
    peer: IpAddr,
    bytes: usize,
    given_up: CancellationToken,
}

/// Occupied bytes, free again once it is dropped.
struct BodyPlace {
    room: Arc<Room>,
    id: u64,
    /// Cancelled when the place goes to another peer.
    given_up: CancellationToken,
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        self.room.places().retain(|place| place.id != self.id);
    }
}

impl Room {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, places: Mutex::default(), next: AtomicU64::default() })
    }

    /// Occupies these bytes for a peer. None if there is no room, and no other peer occupies more.
    fn occupy(self: &Arc<Self>, peer: IpAddr, bytes: usize) -> Option<BodyPlace> {
        let mut places = self.places();
        while places.iter().map(|place| place.bytes).sum::<usize>().saturating_add(bytes) > self.most {
            let wanted = bytes_of(&places, peer).saturating_add(bytes);
            let largest = places.iter().map(|place| place.peer).max_by_key(|other| bytes_of(&places, *other))?;
            if largest == peer || bytes_of(&places, largest) <= wanted {
                return None;
            }
            let oldest = places.iter().position(|place| place.peer == largest)?;
            places.remove(oldest).given_up.cancel();
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let given_up = CancellationToken::new();
        places.push(Occupied { id, peer, bytes, given_up: given_up.clone() });
        Some(BodyPlace { room: Arc::clone(self), id, given_up })
    }

    fn places(&self) -> MutexGuard<'_, Vec<Occupied>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that a peer occupies.
fn bytes_of(places: &[Occupied], peer: IpAddr) -> usize {
    places.iter().filter(|place| place.peer == peer).map(|place| place.bytes).sum()
}

/// A body with its place in the bytes in flight.
pub struct ReadBody {
    bytes: Bytes,
    peer: IpAddr,
    small: Arc<Room>,
    places: Vec<BodyPlace>,
}

impl ReadBody {
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Occupies memory for this number of candidates. Returns whether there is room; otherwise, the reply is
    /// [`no_room`].
    pub fn occupy(&mut self, candidates: usize) -> bool {
        let place = self.small.occupy(self.peer, candidates.saturating_mul(CANDIDATE));
        let has_room = place.is_some();
        self.places.extend(place);
        has_room
    }

    /// Frees the memory for candidates.
    pub fn vacate(&mut self) {
        self.places.truncate(1);
    }

    /// Moves the places of the request to its reply.
    pub fn answered(self, reply: Response) -> Response {
        let given_up = self.places.iter().map(|place| Box::pin(place.given_up.clone().cancelled_owned())).collect();
        reply.map(|reply| Body::new(PlacedReply { reply, part: Bytes::new(), given_up, _places: self.places }))
    }
}

/// The body of a reply with the places of its request.
struct PlacedReply {
    reply: Body,
    /// Data of the reply that was not passed to the connection yet.
    part: Bytes,
    given_up: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
    _places: Vec<BodyPlace>,
}

impl http_body::Body for PlacedReply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.given_up.iter_mut().any(|given_up| given_up.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Some(Err(axum::Error::new("the place of the request went to another client"))));
        }
        if self.part.is_empty() {
            match ready!(Pin::new(&mut self.reply).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.part = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let size = self.part.len().min(PART);
        Poll::Ready(Some(Ok(Frame::data(self.part.split_to(size)))))
    }

    fn is_end_stream(&self) -> bool {
        self.part.is_empty() && self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let part = self.part.len() as u64;
        let rest = self.reply.size_hint();
        rest.exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + part))
    }
}

impl Bodies {
    /// Limits with bodies of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        let large = max.saturating_mul(LARGE_IN_FLIGHT);
        Self { max, small: Room::new(SMALL_IN_FLIGHT), large: Room::new(large) }
    }

    /// Reads the body of a request. The error is the reply if the body is too large, too slow, incomplete or of unknown
    /// size.
    pub async fn read(&self, request: Request<Body>) -> Result<ReadBody, Response> {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let Some(length) = length else {
            return Err(refusal(StatusCode::LENGTH_REQUIRED, "the request needs a Content-Length".to_owned()));
        };
        if length > self.max {
            let words = format!(
                "the request has {length} bytes, more than {}: set nodeCacheCapable: true in the scheduler's \
                 configuration, so that it sends names, or raise placement.maxBodyBytes in the operator's settings",
                self.max
            );
            return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, words));
        }
        let room = if length <= SMALL { &self.small } else { &self.large };
        let peer = request.extensions().get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        let place = room.occupy(peer, length.max(LEAST)).ok_or_else(no_room)?;
        let gathered = tokio::select! {
            biased;
            () = place.given_up.cancelled() => return Err(no_room()),
            gathered = tokio::time::timeout(TIMEOUT, gather(request.into_body(), length)) => gathered,
        };
        match gathered {
            Ok(Ok(bytes)) => Ok(ReadBody { bytes, peer, small: Arc::clone(&self.small), places: vec![place] }),
            Ok(Err(words)) => Err(refusal(StatusCode::BAD_REQUEST, words)),
            Err(_) => {
                let words = format!("the request body did not arrive within {} s", TIMEOUT.as_secs());
                Err(refusal(StatusCode::REQUEST_TIMEOUT, words))
            }
        }
    }
}

/// Reads the bytes of a body. Memory for a large body is allocated as it arrives.
async fn gather(mut body: Body, length: usize) -> Result<Bytes, String> {
    let mut gathered = Vec::with_capacity(length.min(SMALL));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "the request body is incomplete".to_owned())?;
        if let Ok(data) = frame.into_data() {
            if gathered.is_empty() && data.len() == length {
                return Ok(data);
            }
            gathered.extend_from_slice(&data);
        }
    }
    Ok(gathered.into())
}

/// Reply to a request for which there is no room.
pub fn no_room() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "too many large requests at the same time".to_owned())
}

fn refusal(status: StatusCode, words: String) -> Response {
    (status, words + "\n").into_response()
}
