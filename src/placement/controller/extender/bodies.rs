//! The bodies of requests: their maximum size, their timeout, and the bytes in flight.
//!
//! A request occupies its share of the bytes in flight until its reply is sent, since the reply has about the same
//! size. Large requests, with full nodes, must not delay small ones, with names, so both have separate limits. If a
//! limit is reached, the request is refused immediately, since a scheduler that waits does not schedule.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

/// Bytes per semaphore permit. A semaphore acquires at most a 32-bit number of permits.
const UNIT: usize = 1 << 10;

/// Limits of request bodies.
pub struct Bodies {
    max: usize,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// A body with its permit for the bytes in flight.
pub struct ReadBody {
    bytes: Bytes,
    place: OwnedSemaphorePermit,
}

impl ReadBody {
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Moves the permit of the request to its reply.
    pub fn answered(self, reply: Response) -> Response {
        reply.map(|reply| Body::new(PlacedReply { reply, part: Bytes::new(), _place: self.place }))
    }
}

/// The body of a reply with the permit of its request.
struct PlacedReply {
    reply: Body,
    /// Data of the reply that was not passed to the connection yet.
    part: Bytes,
    _place: OwnedSemaphorePermit,
}

impl http_body::Body for PlacedReply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
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
        let room = |bytes: usize| Arc::new(Semaphore::new(units(bytes)));
        Self { max, small: room(SMALL_IN_FLIGHT), large: room(max.saturating_mul(LARGE_IN_FLIGHT)) }
    }

    /// Reads the body of a request. The error is the reply if the body is too large, too slow, incomplete or of unknown
    /// size.
    pub async fn read(&self, request: Request<Body>) -> Result<ReadBody, Response> {
        let length =
            request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
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
        let wanted = u32::try_from(units(length)).unwrap_or(u32::MAX);
        let Ok(place) = Arc::clone(room).try_acquire_many_owned(wanted) else {
            return Err(refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many large requests at the same time".to_owned(),
            ));
        };
        match tokio::time::timeout(TIMEOUT, gather(request.into_body(), length)).await {
            Ok(Ok(bytes)) => Ok(ReadBody { bytes, place }),
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

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

fn refusal(status: StatusCode, words: String) -> Response {
    (status, words + "\n").into_response()
}
