//! Writes the annotations of nodes by server-side apply.

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
use ganglion_placement_plan::publish::publication::UsagePublication;
use ganglion_runtime::error::Error;

/// Maximum number of concurrent writes.
const WRITERS: usize = 8;

/// Maximum time over which writes are spread, and maximum pause between two writes.
const SPREAD: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// Result of the writes.
#[derive(Debug, Default)]
pub struct Written {
    pub done: Vec<Key>,
    /// First problem of a node that was not written.
    pub problem: Option<String>,
    /// Whether the problem affects all nodes. The remaining nodes were not written.
    pub stopped: bool,
}

impl UsagePublisher {
    /// Annotates nodes, a few at a time. The writes are spread over about `over`, since each write wakes all watchers
    /// of nodes. An error that would affect the other nodes, too, stops the writes.
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
                // The node was deleted, or another node has its name now.
                Err(Error::Conflict(_) | Error::NotFound(_)) => {}
                Err(error) => {
                    if written.problem.is_none() {
                        info!(node = node.name, %error, "node not annotated");
                        written.problem = Some(message(&node, &error));
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
        // The uid is a precondition: without it, server-side apply would create a deleted node again.
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

/// Time over which the writes of a poll are spread.
pub fn spread(publication: &UsagePublication) -> Duration {
    (publication.interval / 2).min(SPREAD)
}

/// A node and the time of its published annotations.
pub fn mark(world: &World, node: &Key) -> Option<(Key, String)> {
    let at = world.get::<NodeFact>(node)?.published.get(USAGE_SAMPLED_AT)?;
    Some((node.clone(), at.clone()))
}

fn message(node: &Key, error: &Error) -> String {
    let why = match error {
        Error::Forbidden(_) => {
            "the operator may not patch nodes: install kustomize/components/publish-usage, which grants it".to_owned()
        }
        error => api_words(error),
    };
    format!("node {} cannot be annotated: {why}", node.name)
}
