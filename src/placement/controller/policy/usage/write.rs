//! The annotations of nodes, by server-side apply.

use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use serde_json::json;
use tracing::info;

use super::UsagePublisher;
use ganglion_api::marks;
use ganglion_core::facts::{Key, NodeFact, USAGE_SAMPLED_AT};
use ganglion_core::world::{Origin, World};
use ganglion_outbound::client::objects::api_words;
use ganglion_placement_plan::publish::plan::NodeAnnotations;
use ganglion_placement_plan::publish::publication::Publication;
use ganglion_runtime::error::Error;

/// Writes at the same time.
const WRITERS: usize = 8;

/// Longest time over which writes are spread, and longest pause between two of them.
const SPREAD: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// How the writes ended.
#[derive(Debug, Default)]
pub struct Written {
    pub done: Vec<Key>,
    /// Why one of the others was not done.
    pub problem: Option<String>,
    /// The other nodes have that problem, too: they were not tried.
    pub stopped: bool,
}

impl UsagePublisher {
    /// Annotates nodes, a few at a time, over at most about this time: each write wakes all who watch nodes. Stops at an error that
    /// the other nodes would have, too.
    pub async fn write_all(&self, writes: Vec<NodeAnnotations>, over: Duration) -> Written {
        let pause = over.checked_div(u32::try_from(writes.len()).unwrap_or(u32::MAX)).unwrap_or_default().min(PAUSE);
        let paced = stream::iter(writes.into_iter().enumerate()).then(move |(at, write)| async move {
            if at > 0 {
                tokio::time::sleep(pause).await;
            }
            write
        });
        let ends = paced.map(|write| async move { (self.write(&write).await, write.node.key) });
        let mut ends = pin!(ends.buffer_unordered(WRITERS));
        let mut written = Written::default();
        while let Some((end, node)) = ends.next().await {
            match end {
                Ok(()) => written.done.push(node),
                // The node is gone, or another one of this name is there.
                Err(Error::Conflict(_) | Error::Gone(_)) => {}
                Err(error) => {
                    if written.problem.is_none() {
                        info!(node = node.name, %error, "node not annotated");
                        written.problem = Some(words(&node, &error));
                    }
                    if !matches!(error, Error::Denied(_) | Error::Malformed(_)) {
                        written.stopped = true;
                        break;
                    }
                }
            }
        }
        written
    }

    async fn write(&self, NodeAnnotations { node, set }: &NodeAnnotations) -> Result<(), Error> {
        // By the uid: an apply would make a node that is gone.
        let body = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node.key.name, "uid": node.uid, "annotations": set},
        });
        let apply = Patch::Apply(&body);
        let write = self.ctx.writer.patch::<Node>(marks::USAGE_MANAGER, &node.key, &apply);
        let answer = self.ctx.writer.counted("AnnotateNode", write).await?;
        self.ctx.store.apply(NodeFact::from(answer), Origin::Own);
        Ok(())
    }
}

/// Over which time the writes of a poll are spread.
pub fn spread(publication: &Publication) -> Duration {
    (publication.interval / 2).min(SPREAD)
}

/// A node and the time of what is published on it.
pub fn mark(world: &World, node: &Key) -> Option<(Key, String)> {
    let at = world.node(&node.name)?.published.get(USAGE_SAMPLED_AT)?;
    Some((node.clone(), at.clone()))
}

fn words(node: &Key, error: &Error) -> String {
    let why = match error {
        Error::Forbidden(_) => {
            "the operator may not patch nodes: install kustomize/components/publish-usage, which grants it".to_owned()
        }
        error => api_words(error),
    };
    format!("node {} cannot be annotated: {why}", node.name)
}
