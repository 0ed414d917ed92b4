//! Reads bodies of answers. Each body is bounded, and so is the total size of all bodies in memory.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;

use crate::fairness::{FairLimit, FairPermit};

/// Number of bytes that a body reserves from the shared limit at a time; a large body reserves a quarter of its size,
/// so that it is not copied too often.
const STEP: usize = 64 << 10;

/// Body of an answer. Its bytes count as in flight until it is dropped.
pub struct BoundedBody {
    pub bytes: Vec<u8>,
    _permit: FairPermit,
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread<E> {
    /// The body is longer than the limit.
    TooLong,
    /// Too many bytes are in flight.
    Full,
    /// The connection broke.
    Broken(E),
}

/// Reads a body of at most `limit` bytes. Waits until the first bytes can be reserved.
pub async fn read<B>(
    body: B,
    limit: usize,
    in_flight: &FairLimit,
    tenant: &str,
) -> Result<BoundedBody, Unread<B::Error>>
where
    B: Body<Data = Bytes>,
{
    let mut taken = STEP.min(limit);
    let mut permit = in_flight.acquire(tenant, taken).await;
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(Unread::Broken)?.into_data() else { continue };
        let length = bytes.len().saturating_add(chunk.len());
        if length > limit {
            return Err(Unread::TooLong);
        }
        if length > taken {
            let more = (length - taken).max(taken / 4).next_multiple_of(STEP).min(limit - taken);
            permit.grow(more).map_err(|_| Unread::Full)?;
            taken += more;
        }
        if length > bytes.capacity() {
            // A vector that grows by itself would reserve up to twice its size.
            let capacity = length.max(bytes.capacity().saturating_mul(2)).min(taken);
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(BoundedBody { bytes, _permit: permit })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    async fn read_all(bytes: usize, limit: usize, in_flight: &FairLimit) -> Result<BoundedBody, Unread<Infallible>> {
        let chunks = (0..bytes).step_by(1000).map(|from| Bytes::from(vec![b' '; 1000.min(bytes - from)]));
        let body = StreamBody::new(stream::iter(chunks.map(|chunk| Ok(Frame::data(chunk)))));
        read(body, limit, in_flight, "a").await
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let in_flight = FairLimit::new(4 << 20, Counter::default());
        let length = async |bytes, limit| read_all(bytes, limit, &in_flight).await.map(|body| body.bytes.len());
        assert_eq!(length(0, 0).await, Ok(0));
        assert_eq!(length(5000, 5000).await, Ok(5000));
        assert_eq!(length(5001, 5000).await, Err(Unread::TooLong));
        assert_eq!(length(900_000, 1 << 20).await, Ok(900_000));
    }

    #[tokio::test]
    async fn a_body_occupies_what_it_has_permits_for() {
        let in_flight = FairLimit::new(4 << 20, Counter::default());
        for bytes in [70_000, 300_000, 600_000] {
            let body = read_all(bytes, 1 << 20, &in_flight).await.unwrap();
            let reserved = bytes + bytes / 4 + STEP;
            assert!(body.bytes.capacity() <= reserved, "{bytes}: {}", body.bytes.capacity());
        }
    }

    #[tokio::test]
    async fn bytes_in_flight_are_bounded_over_all() {
        let full = Counter::default();
        let in_flight = FairLimit::new(1 << 20, full.clone());
        let first = read_all(150_000, 1 << 20, &in_flight).await.ok();
        assert!(first.is_some());
        assert_eq!(read_all(100_000, 1 << 20, &in_flight).await.err(), Some(Unread::Full));
        assert_eq!(full.get(), 1);
        drop(first);
        assert!(read_all(200_000, 1 << 20, &in_flight).await.is_ok());
    }
}
