//! Usage of nodes, read from metrics.k8s.io while an expression of an action needs it: one list request for all nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tracing::debug;

use ganglion_actions_plan::world::{ActionsWorld, NodeUse};
use ganglion_core::facts::NodeName;
use ganglion_core::world::World;
use ganglion_outbound::client::OutboundClient;
use ganglion_outbound::client::objects::{ReadError, api_words};
use ganglion_outbound::node_usage::measured_nodes;
use ganglion_runtime::backoff::Backoff;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// URL path of the list of node usage.
pub const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";

/// Interval at which the reader checks whether an action needs the usage.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two list requests. metrics-server measures every 15 s.
const LIST_INTERVAL: Duration = Duration::from_secs(10);

/// Reads the usage while an action needs it, until the controllers stop.
pub async fn run(ctx: Context, outbound: Arc<OutboundClient>) {
    let mut failures = Backoff::default();
    let mut pause = Duration::ZERO;
    loop {
        let wait = async {
            tokio::time::sleep(pause).await;
            while !ctx.store.read(World::wants_usage) {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            () = ctx.stop.cancelled() => return,
            () = wait => {}
        }
        pause = match list(&ctx, &outbound).await {
            Ok(()) => {
                failures.forget(&());
                LIST_INTERVAL
            }
            Err(problem) => {
                debug!(problem, "usage of nodes not read");
                ctx.store.write(|world| world.usage_failed(problem));
                failures.failed((), fastrand::f64()).max(CHECK_INTERVAL)
            }
        };
    }
}

async fn list(ctx: &Context, outbound: &OutboundClient) -> Result<(), String> {
    let request = http::Request::get(NODES).body(Vec::new()).map_err(|error| Error::Malformed(error.to_string()));
    let opened = match request {
        Ok(request) => ctx.writer.send(request).await,
        Err(error) => Err(error),
    };
    let body = outbound.body("", opened, outbound.limits.nodes).await.map_err(|error| describe_read_error(&error))?;
    let now = ctx.now();
    ctx.store.write(|world| store_usage(world, &body.bytes, now))
}

/// Stores the usage from a response. Fails if the response is no list of node usage, or contains no known node.
pub fn store_usage(world: &mut World, body: &[u8], now: Timestamp) -> Result<(), String> {
    let measured = measured_nodes(body).map_err(|error| format!("metrics.k8s.io: {error}"))?;
    let mut nodes = HashMap::new();
    for usage in measured {
        let name = NodeName::from(usage.name.as_str());
        let Some(node) = world.node(&name) else { continue };
        let cpu = usage.cpu_percent(node.allocatable.cpu).ok().map(|percent| percent / 100.0);
        let memory = usage.memory_percent(node.allocatable.memory).ok().map(|percent| percent / 100.0);
        let at = usage.at.unwrap_or(now);
        let since = at.checked_sub(usage.window).unwrap_or(Timestamp::MIN);
        let fraction = NodeUse { cpu, memory, at, since };
        nodes.insert(name, fraction);
    }
    // A metrics-server that has just started serves an empty list.
    if nodes.is_empty() {
        return Err("metrics.k8s.io has measured no node yet".to_owned());
    }
    world.put_usage(nodes, now);
    Ok(())
}

fn describe_read_error(error: &ReadError) -> String {
    match error {
        ReadError::Api(error) => refused(error),
        ReadError::TooLong(limit) => {
            format!("the answer of metrics.k8s.io has more than {limit} bytes (setting outbound.maxBytes.nodes)")
        }
        ReadError::Full => ganglion_outbound::Error::Full.to_string(),
    }
}

/// Describes why the usage could not be read.
pub fn refused(error: &Error) -> String {
    match error {
        Error::NotFound(_) => "the cluster does not serve the API metrics.k8s.io".to_owned(),
        Error::Forbidden(words) => format!("metrics.k8s.io may not be read: {words}"),
        error => format!("metrics.k8s.io cannot be read: {}", api_words(error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ganglion_core::facts::{Identity, Key, NodeFact, Requests};
    use ganglion_core::world::Origin;

    /// The server is an extension of the API server, and may send anything.
    #[test]
    fn times_at_the_limits_are_read() {
        let mut world = World::default();
        ganglion_actions_plan::world::register(&mut world);
        let id = Identity { key: Key::new("", "a"), uid: "a".into(), version: "1".into() };
        let allocatable = Requests { cpu: 1000, memory: 1 << 30, ..Requests::default() };
        world.apply(NodeFact { id, allocatable, ..NodeFact::default() }, Origin::Watch);
        for (timestamp, window) in
            [("-009999-01-02T01:59:59Z", "876000h"), ("9999-12-30T22:00:00Z", "0s"), ("x", "-1s")]
        {
            let body = json!({"items": [{
                "metadata": {"name": "a"}, "timestamp": timestamp, "window": window,
                "usage": {"cpu": "100m", "memory": "1Mi"},
            }]});
            assert_eq!(store_usage(&mut world, body.to_string().as_bytes(), Timestamp::UNIX_EPOCH), Ok(()));
        }
    }
}
