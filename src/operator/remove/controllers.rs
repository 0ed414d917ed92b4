//! The operator's own controllers in this process, with the permissions of the user: only those that complete or undo
//! work in flight.
//!
//! The operator does not act without its admission policies, because anybody may then have written the objects that it
//! reads, and it has more permissions than most authors. These controllers act without them, which is safe for three
//! reasons. All actions are deleted before, and the limits admit no replica, so nothing begins: a controller only ends
//! what a status records. Whatever a status claims, an effect is bounded to the namespace of its action, names each pod
//! by its uid, and evicts within the budgets. And every request has the permissions of the user who runs the command,
//! who decided to end these actions; no permission of the operator's account can be borrowed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::operator;
use crate::operator::settings::Settings;
use crate::operator::{OperatorParts, kinds, list_timeout, outbound, world};
use ganglion_actions_plan::Limits;
use ganglion_outbound::address::{self, Names};
use ganglion_placement::cache::PlacementCache;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;
use ganglion_runtime::watch::{Feeds, WatchOptions};

/// Maximum time in which running effects end after a stop.
const DRAIN: Duration = Duration::from_secs(10);

/// The controllers, with the watches that they need.
pub struct CompletingControllers {
    parts: OperatorParts,
    feeds: Feeds,
    /// Cancelled when the watches are no longer needed.
    ended: CancellationToken,
}

impl CompletingControllers {
    /// Starts the watches. `namespaces`: those to watch; all if empty. `identity`: of this process, in events.
    pub fn new(
        config: Config,
        settings: Settings,
        namespaces: Vec<String>,
        namespace: String,
        identity: String,
    ) -> Result<Self, operator::Error> {
        let metrics = Metrics::new();
        let names = Names::new(outbound::rules(&config, &settings)?, address::system);
        let client: Client = operator::client(config)?;
        let web = Arc::new(outbound::web(names, &settings, &metrics));
        let outbound = Arc::new(outbound::client(web, &settings, &metrics));
        // Without guards: see the description of this file.
        let store = Store::new(world::world().with_limits(settings.occupancy_limits()).with_clock(Timestamp::now));
        let ended = CancellationToken::new();
        let watched = WatchOptions { namespaces, timeout: list_timeout(&settings) };
        let mut feeds = Feeds::new(&client, watched, store.clone(), metrics.clone(), ended.clone());
        kinds::feed_completing(&mut feeds);
        let ready = feeds.ready();
        let (placement, stop) = (PlacementCache::new(store.clone()), CancellationToken::new());
        let certificate = None;
        let parts = OperatorParts {
            client,
            outbound,
            placement,
            namespace,
            certificate,
            settings,
            metrics,
            store,
            ready,
            stop,
            identity,
            spans: None,
        };
        Ok(Self { parts, feeds, ended })
    }

    /// Runs the controllers until `work` has ended, then lets them finish what they are doing.
    pub async fn run_during<T>(mut self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let parts = &self.parts;
        let nothing_new = Limits { in_all: Some(0), ..parts.settings.limits() };
        let mut serving = std::pin::pin!(async {
            tokio::select! {
                () = parts.stop.cancelled() => return Ok(()),
                () = parts.ready.ready() => {}
            }
            parts.serve(std::future::pending(), |term| term.start_completing(nothing_new)).await
        });
        let result = tokio::select! {
            biased;
            Err(panicked) = self.feeds.ended() => return Err(operator::Error::from(panicked).into()),
            served = &mut serving => return Err(served.err().map_or(Error::ControllersEnded, Error::from)),
            result = work => result,
        };
        parts.stop.cancel();
        // Effects that do not end in time have their preconditions; the next run finds their outcome.
        let _ = tokio::time::timeout(DRAIN, serving).await;
        self.ended.cancel();
        result
    }
}
