//! The bodies of requests: how large one may be, how long it may take, and how many bytes are read at the same time.
//!
//! Requests with full nodes are large, and must not hold up those with names: each kind has room of its own. Who finds no room
//! is refused at once, since a scheduler that waits does not schedule.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
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
    _place: OwnedSemaphorePermit,
}

impl ReadBody {
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
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
            Ok(Ok(bytes)) => Ok(ReadBody { bytes, _place: place }),
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
