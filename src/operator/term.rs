//! Creates and starts the controllers of one leader term. They end with the lease.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{OperatorParts, list_timeout};
use crate::operator::ranker::PolicyRanker;
use ganglion_actions::{GateController, WorkloadActionController};
use ganglion_actions_plan::Limits;
use ganglion_core::facts::Key;
use ganglion_core::world::{Fact, World};
use ganglion_loops::closed_loop::{ClosedLoopController, Preflights};
use ganglion_loops::decision::DecisionController;
use ganglion_loops::execution::{ExecutionController, Webhooks};
use ganglion_loops::monitoring::{MonitoringController, SourceAccess, SourcePolls, Sources};
use ganglion_loops::target::Targets;
use ganglion_loops::traces::LoopTraces;
use ganglion_nodes::config::{self as node_config, NodeConfigController, PolledNodes};
use ganglion_nodes::template::NodeConfigTemplateController;
use ganglion_placement::policy::{Labeler, PlacementPolicyController, UsagePublisher, run_labels, run_usage};
use ganglion_pools::{SwarmPoolController, WorkerProbes};
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::events::Events;
use ganglion_runtime::fairness::{FairLimit, FairMemory};
use ganglion_runtime::frame::{self, Memories, Reconciler};
use ganglion_runtime::metrics::LimitLabel;
use ganglion_runtime::polls;
use ganglion_runtime::run::Run;
use ganglion_runtime::watch::namespaces::NamespaceFeeds;
use ganglion_runtime::writer::{WriteObserver, Writer};

/// Maximum time between two rounds of the janitor while somebody waits for it.
const HASTY_ROUND: Duration = Duration::from_secs(1);

/// Tasks of a leader term.
pub struct TermTasks {
    /// Tasks of the controllers.
    pub work: JoinSet<()>,
    /// The task that sends their events.
    pub sender: JoinSet<()>,
}

/// The controllers of one leader term.
pub struct Term<'a> {
    pub parts: &'a OperatorParts,
    pub leader: CancellationToken,
    pub tasks: JoinSet<()>,
    /// Reports traces of loops, if there is an endpoint for them.
    pub traces: Option<Arc<LoopTraces>>,
    /// Events of all controllers: one queue, so that those of one object are in order.
    pub events: Events,
    /// The task that sends them.
    pub sender: JoinSet<()>,
    /// Name of the term, as written to statuses.
    pub name: Arc<str>,
}

impl Term<'_> {
    /// Starts all controllers.
    pub fn start_all(mut self) -> TermTasks {
        let OperatorParts { settings, outbound, .. } = self.parts;
        let actions = self.start_actions(settings.limits());
        self.tasks.spawn(ganglion_actions::usage::run(actions.ctx.clone(), Arc::clone(outbound)));
        self.tasks.spawn(ganglion_actions::run_janitor(actions, ganglion_actions::JANITOR_ROUND));
        let loops = settings.closed_loops.concurrency;
        let discovery = Arc::new(Discovery::default());
        let namespaces = settings.namespaces();
        let targets = |ctx: &Context| Targets {
            ctx: ctx.clone(),
            discovery: Arc::clone(&discovery),
            patchable: settings.patchable_kinds().into(),
        };
        self.start(loops, |ctx| ClosedLoopController {
            namespaces,
            targets: targets(&ctx),
            impersonations: Default::default(),
            outbound: Arc::clone(outbound),
            memories: Memories::default(),
            preflights: Preflights::new(&ctx.metrics),
            ctx,
        });
        self.start(loops, |ctx| MonitoringController {
            sources: Sources { ctx: ctx.clone(), outbound: Arc::clone(outbound), discovery: Arc::clone(&discovery) },
            memories: Memories::default(),
            polls: SourcePolls::default(),
            source_access: SourceAccess::default(),
            ctx,
        });
        self.start(loops, |ctx| DecisionController { ctx, memories: Memories::default() });
        self.start(loops, |ctx| ExecutionController {
            outbound: Arc::clone(outbound),
            targets: targets(&ctx),
            memories: Memories::default(),
            webhooks: Webhooks::default(),
            ctx,
        });
        if let Some(traces) = &self.traces {
            self.tasks.spawn(Arc::clone(traces).run(self.parts.stop.clone()));
        }
        self.start_node_configs();
        let writes = settings.node_configs.concurrency;
        self.start(writes, |ctx| NodeConfigTemplateController {
            namespaces,
            concurrency: writes,
            memories: Memories::default(),
            ctx,
        });
        self.start_swarm_pools();
        self.start_placement();
        self.ended()
    }

    /// Starts only the controllers that complete or undo work in flight: actions, gates and the janitor. `limits` admit
    /// no replica, so that no action begins.
    pub fn start_completing(mut self, limits: Limits) -> TermTasks {
        let actions = self.start_actions(limits);
        self.tasks.spawn(ganglion_actions::run_janitor(actions, HASTY_ROUND));
        self.ended()
    }

    fn ended(self) -> TermTasks {
        TermTasks { work: self.tasks, sender: self.sender }
    }

    /// Starts the controllers of actions and gates.
    fn start_actions(&mut self, limits: Limits) -> Arc<WorkloadActionController> {
        let OperatorParts { settings, outbound, .. } = self.parts;
        let resync = Duration::from_secs(settings.workload_actions.resync_seconds);
        let concurrency = settings.workload_actions.concurrency;
        let actions = self.start(concurrency, |ctx| WorkloadActionController {
            limits,
            ranker: Arc::new(PolicyRanker(self.parts.placement.clone())),
            resync,
            notifier: ganglion_actions::Notifier::new(ctx.clone(), Arc::clone(outbound)),
            ctx,
            memories: Memories::default(),
            shared: ganglion_actions::SharedState::default(),
        });
        self.start_with(
            concurrency,
            |ctx| GateController { ctx, memories: Memories::default() },
            GateController::gated,
        );
        actions
    }

    fn start_placement(&mut self) {
        let placement = self.parts.placement.clone();
        let OperatorParts { settings, outbound, namespace, .. } = self.parts;
        let controller = self.start(settings.placement.concurrency, |ctx| PlacementPolicyController {
            usage: Arc::new(UsagePublisher::new(ctx.clone(), Arc::clone(outbound), settings.namespaces())),
            labeler: Arc::new(Labeler::new(ctx.clone(), placement.clone())),
            ctx,
            placement,
            namespace: namespace.clone(),
            memories: Memories::default(),
        });
        self.tasks.spawn(run_usage(Arc::clone(&controller.usage)));
        self.tasks.spawn(run_labels(Arc::clone(&controller.labeler)));
        if let Some(keeper) = self.parts.certificate.clone() {
            let writer = self.context("extender").writer;
            let stop = self.parts.stop.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = keeper.renew(writer) => {}
                }
            });
        }
    }

    fn start_swarm_pools(&mut self) {
        let OperatorParts { client, settings, outbound, store, metrics, .. } = self.parts;
        let feeds = NamespaceFeeds::new(client, list_timeout(settings), store.clone(), metrics.clone());
        let pools = &settings.swarm_pools;
        let full = metrics.outbound_full.get_or_create(&LimitLabel { limit: "pools" }).clone();
        let controller = self.start(pools.concurrency, |ctx| SwarmPoolController {
            ctx,
            namespaces: settings.namespaces(),
            config_maps: feeds,
            outbound: Arc::clone(outbound),
            probes: WorkerProbes::default(),
            memories: Memories::default(),
            job_memory: FairMemory::new(settings.job_limits()),
            reads: FairLimit::new(ganglion_pools::READS, full),
        });
        self.tasks.spawn(ganglion_pools::run_probes(controller, polls::PollLimits { polls: pools.probes }));
    }

    fn start_node_configs(&mut self) {
        let OperatorParts { settings, outbound, .. } = self.parts;
        let nodes = &settings.node_configs;
        // Fewer writers for statuses than for specs, because users wait for the specs after a change of a template.
        let reports = nodes.concurrency.div_ceil(4);
        let controller = self.start(reports, |ctx| NodeConfigController {
            ctx,
            namespaces: settings.namespaces(),
            outbound: Arc::clone(outbound),
            rule: settings.node_write_rule(),
            polls: Arc::default(),
            polled: PolledNodes::default(),
            memories: Memories::default(),
        });
        self.tasks.spawn(node_config::run_polls(controller, polls::PollLimits { polls: nodes.polls }));
    }

    /// Starts one controller and enqueues all objects of its kind.
    fn start<R: Reconciler>(&mut self, concurrency: usize, make: impl FnOnce(Context) -> R) -> Arc<R> {
        self.start_with(concurrency, make, |world| {
            let table = R::Kind::table(world);
            table.keys().chain(table.unreadable().keys()).cloned().collect()
        })
    }

    /// Starts one controller and enqueues these objects.
    fn start_with<R: Reconciler>(
        &mut self,
        concurrency: usize,
        make: impl FnOnce(Context) -> R,
        first: impl FnOnce(&World) -> Vec<Key>,
    ) -> Arc<R> {
        let parts = self.parts;
        let controller = Arc::new(make(self.context(R::NAME)));
        // Opens the queue before enqueueing all objects, so that no change in between is missed.
        let queue = parts.store.queue::<R::Kind>();
        queue.open();
        queue.add(parts.store.read(first));
        let run = Run { concurrency, metrics: parts.metrics.clone(), stop: parts.stop.clone() };
        self.tasks.spawn(frame::run(Arc::clone(&controller), queue, run));
        controller
    }

    fn context(&self, controller: &str) -> Context {
        let OperatorParts { client, outbound, settings, metrics, store, stop, .. } = self.parts;
        let timeout = settings.request_timeout();
        let observer = self.traces.clone().map(|traces| traces as Arc<dyn WriteObserver>);
        Context {
            store: store.clone(),
            writer: Writer::new(client.clone(), timeout, self.leader.clone(), metrics.clone())
                .within(outbound.web().bytes().clone())
                .observed_by(observer),
            events: self.events.reported_by(controller),
            metrics: metrics.clone(),
            clock: Timestamp::now,
            term: Arc::clone(&self.name),
            stop: stop.clone(),
        }
    }
}
