//! The bodies of requests: how large one may be, how long it may take, and how many bytes are in flight at the same time.
//!
//! A request keeps its place until its reply is sent, which has about its size. Requests with full nodes are large, and must not
//! hold up those with names: each kind has room of its own. Who finds no room is refused at once, since a scheduler that waits
//! does not schedule.

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

/// How long a body may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Larger bodies are those with full nodes.
const SMALL: usize = 1 << 20;

/// Bytes of small bodies that are read or answered at the same time.
const SMALL_IN_FLIGHT: usize = 64 << 20;

/// How many of the largest bodies are read or answered at the same time.
const LARGE_IN_FLIGHT: usize = 2;

/// A reply is handed to the connection in parts of so many bytes, as the client reads them: the connection would take all of it.
const PART: usize = 64 << 10;

/// The unit of the semaphores, in bytes: they count no more than 32 bits.
const UNIT: usize = 1 << 10;

/// See the module.
pub struct Bodies {
    max: usize,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// A body, and its place among those in flight.
pub struct ReadBody {
    bytes: Bytes,
    place: OwnedSemaphorePermit,
}

impl ReadBody {
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Has the reply keep the place of its request.
    pub fn answered(self, reply: Response) -> Response {
        reply.map(|reply| Body::new(PlacedReply { reply, part: Bytes::new(), _place: self.place }))
    }
}

/// The body of a reply, with the place of its request.
struct PlacedReply {
    reply: Body,
    /// What the connection has not taken yet of what the reply gave.
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
    /// With bodies of at most so many bytes.
    pub fn new(max: usize) -> Self {
        let room = |bytes: usize| Arc::new(Semaphore::new(units(bytes)));
        Self { max, small: room(SMALL_IN_FLIGHT), large: room(max.saturating_mul(LARGE_IN_FLIGHT)) }
    }

    /// Reads the body of a request.
    ///
    /// # Errors
    /// The answer to a request whose body is too large, too slow, broken off, or of unknown size.
    pub async fn read(&self, request: Request<Body>) -> Result<ReadBody, Response> {
        let length =
            request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let Some(length) = length else {
            return Err(refusal(StatusCode::LENGTH_REQUIRED, "the request needs a Content-Length".to_owned()));
        };
        if length > self.max {
            let words = format!(
                "the request has {length} bytes, more than {}: set nodeCacheCapable: true in the scheduler's configuration, so that \
                 it sends names, or raise placement.maxBodyBytes in the operator's settings",
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
                let words = format!("the request did not come within {} s", TIMEOUT.as_secs());
                Err(refusal(StatusCode::REQUEST_TIMEOUT, words))
            }
        }
    }
}

/// The bytes of a body. The memory for them is taken as they come.
async fn gather(mut body: Body, length: usize) -> Result<Bytes, String> {
    let mut gathered = Vec::with_capacity(length.min(SMALL));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "the request broke off".to_owned())?;
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
