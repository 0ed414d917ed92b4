//! Watches that pass through the proxy. They can be cut, and events of selected resources can be delayed.

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::stream::{self, Stream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::link::NetworkLink;
use super::lock;

/// State of the watches.
pub struct Streams {
    cut: Mutex<CancellationToken>,
    delays: Arc<Mutex<Vec<(String, Duration)>>>,
    link: Arc<NetworkLink>,
}

impl Streams {
    /// Watches over this network.
    pub(super) fn new(link: Arc<NetworkLink>) -> Self {
        Self { cut: Mutex::default(), delays: Arc::default(), link }
    }

    /// Cuts every open watch, in the middle of its stream.
    pub fn cut(&self) {
        std::mem::take(&mut *lock(&self.cut)).cancel();
    }

    /// From now on, delays events of this resource (`pods`, `nodes`, …), in their order. Zero ends that.
    pub fn delay(&self, resource: &str, by: Duration) {
        let mut delays = lock(&self.delays);
        delays.retain(|(name, _)| name != resource);
        delays.push((resource.to_owned(), by));
    }

    fn delay_of(delays: &Mutex<Vec<(String, Duration)>>, path: &str) -> Duration {
        let resource = path.rsplit('/').next().unwrap_or_default();
        lock(delays).iter().find(|(name, _)| name == resource).map_or(Duration::ZERO, |(_, by)| *by)
    }

    /// Wraps the body of a watch on its way to the operator.
    pub(super) fn pass(&self, path: &str, body: Body) -> Body {
        let token = lock(&self.cut).clone();
        let mut input = body.into_data_stream();
        let (sender, receiver) = mpsc::unbounded_channel();
        let (delays, path) = (self.delays.clone(), path.to_owned());
        tokio::spawn(async move {
            loop {
                let chunk = tokio::select! {
                    () = token.cancelled() => Some(Err(reset())),
                    () = sender.closed() => None,
                    chunk = input.next() => chunk.map(|chunk| chunk.map_err(|_| reset())),
                };
                let Some(chunk) = chunk else { return };
                let last = chunk.is_err();
                let by = Self::delay_of(&delays, &path);
                if sender.send((Instant::now() + by, chunk)).is_err() || last {
                    return;
                }
            }
        });
        let link = Arc::clone(&self.link);
        Body::from_stream(stream::unfold((receiver, link), async |(mut receiver, link)| {
            let (due, chunk): (Instant, Result<Bytes, Error>) = receiver.recv().await?;
            sleep_until(due).await;
            link.mended().await;
            Some((chunk, (receiver, link)))
        }))
    }
}

fn reset() -> Error {
    Error::new(ErrorKind::ConnectionReset, "the proxy cut this connection")
}

/// A body that breaks before its first byte.
pub fn broken() -> impl Stream<Item = Result<Bytes, Error>> + Send + 'static {
    stream::once(async { Err(reset()) }).into_stream()
}
