//! Publishes the usage of nodes for the elected policy: queries Prometheus outside of reconciles, and annotates nodes.
//!
//! | step | what |
//! |---|---|
//! | plan | elects the policy ([`ganglion_placement_plan::publish::publication`]) and selects the nodes to write (`plan`) |
//! | act | polls Prometheus (`ask`) and writes the annotations (`write`) |
//! | report | the condition of the policy, which its next reconcile writes |
//!
//! Expired annotations are removed, no matter who wrote them. All state in memory may be lost, since the published
//! usage is stored on the nodes.

use ganglion_placement_plan::world::PlacementWorld;
mod ask;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_core::facts::Key;
use ganglion_core::namespaces::Namespaces;
use ganglion_core::world::{Fact, World};
use ganglion_outbound::client::OutboundClient;
use ganglion_outbound::client::attempt::host;
use ganglion_placement_plan::publish::plan::{NodeAnnotations, expired};
use ganglion_placement_plan::publish::publication::{UsagePublication, publisher};
use ganglion_placement_plan::publish::report::UsageReport;
use ganglion_placement_plan::record::SampleRules;
use ganglion_runtime::context::Context;
use ganglion_runtime::polls::{self, BrokenOff, PollLimits, PollOutcome, PollSet, PollTarget, Poller};

/// Interval between searches for expired annotations.
const SWEEP: Duration = Duration::from_secs(5);

/// Interval after a failed write.
const REFUSED: Duration = Duration::from_secs(60);

/// Number of consecutive requests of a poll: Secret, CA, the Secrets of eight headers, the first query and the
/// remaining queries, all of them twice.
const REQUESTS: u32 = 24;

/// Maximum time for the writes of a poll, in addition to the time over which they are spread.
const WRITES: Duration = Duration::from_secs(60);

/// Publishes the usage of nodes.
pub struct UsagePublisher {
    ctx: Context,
    outbound: Arc<OutboundClient>,
    namespaces: Namespaces,
    polls: Arc<PollSet<Arc<UsagePublication>>>,
    state: Mutex<UsageState>,
}

#[derive(Default)]
struct UsageState {
    /// Options of the elected policy.
    elected: Option<Arc<UsagePublication>>,
    /// Result of its last poll.
    report: Option<UsageReport>,
    /// Expired annotations that remained after a removal, by node and time. Another field manager owns them.
    foreign: BTreeSet<(Key, String)>,
}

impl UsagePublisher {
    pub fn new(ctx: Context, outbound: Arc<OutboundClient>, namespaces: Namespaces) -> Self {
        let (polls, state) = (Arc::default(), Mutex::default());
        Self { ctx, outbound, namespaces, polls, state }
    }

    fn state(&self) -> MutexGuard<'_, UsageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Elects the publishing policy and restarts its poll if the winner or its spec changed.
    pub fn elect(&self) {
        let mut state = self.state();
        let elected = self.ctx.store.read(|world| {
            // Without the admission policies of the kind, none publishes.
            let is_guarded = world.policy_problem(PlacementPolicy::KIND).is_none();
            is_guarded.then(|| publisher(world.policies(), self.namespaces)).flatten()
        });
        let elected = elected.map(Arc::new);
        if state.elected == elected {
            return;
        }
        if let Some(before) = &state.elected {
            self.polls.remove(Arc::clone(before));
        }
        if let Some(publication) = &elected {
            self.polls.put(Arc::clone(publication), self.target(publication));
        }
        *state = UsageState { elected, report: None, foreign: std::mem::take(&mut state.foreign) };
        drop(state);
        let all = self.ctx.store.read(|world| {
            let named = world.policies().filter(|policy| policy.spec.publish_usage.is_some());
            named.map(|policy| Key::new("", policy.metadata.name.as_deref().unwrap_or_default())).collect::<Vec<_>>()
        });
        self.ctx.store.queue::<PlacementPolicy>().add(all);
    }

    /// State of publishing; None if the policy has no `publishUsage`.
    pub fn report(&self, policy: &PlacementPolicy) -> Option<UsageReport> {
        let options = policy.spec.publish_usage.as_ref()?;
        if let Err(problem) = UsagePublication::parse(policy, options, self.namespaces) {
            return Some(UsageReport::Problem(problem));
        }
        let state = self.state();
        let report = match &state.elected {
            Some(elected) if policy.metadata.name.as_ref() != Some(&elected.policy) => {
                UsageReport::Another(elected.policy.clone())
            }
            Some(_) => state.report.clone().unwrap_or(UsageReport::NotAsked),
            None => UsageReport::NotAsked,
        };
        Some(report)
    }

    fn target(&self, publication: &UsagePublication) -> PollTarget {
        PollTarget {
            host: host(&publication.server.url).into(),
            at_once: 1,
            tenant: publication.policy.as_str().into(),
            interval: publication.interval,
            timeout: self.outbound.request_timeout * REQUESTS + write::spread(publication) + WRITES,
        }
    }

    /// Schedules the next poll before the published annotations expire. The back-off of the poll engine may be longer.
    fn retry_in_time(&self, publication: &Arc<UsagePublication>) {
        self.polls.wake(Arc::clone(publication), publication.longest_pause());
    }

    /// Stores the result of a poll and enqueues the policy if the result changed.
    fn store_report(&self, publication: &Arc<UsagePublication>, report: UsageReport) {
        let mut state = self.state();
        let is_current = state.elected.as_ref() == Some(publication);
        if !is_current || state.report.as_ref() == Some(&report) {
            return;
        }
        state.report = Some(report);
        drop(state);
        self.ctx.store.queue::<PlacementPolicy>().add([Key::new("", publication.policy.as_str())]);
    }

    /// Removes expired annotations. Their maximum age is that of the publishing policy, or the default if no policy
    /// publishes. Returns the time until the next search.
    async fn sweep(&self, now: Timestamp) -> Duration {
        let published = self.state().elected.as_ref().map(|publication| publication.max_age);
        let max_age = published.unwrap_or(SampleRules::default().max_age);
        let old = self.ctx.store.read(|world| {
            let marked = |one: NodeAnnotations| Some((write::mark(world, &one.node.key)?, one));
            expired(world.nodes(), now, max_age).into_iter().filter_map(marked).collect::<BTreeMap<_, _>>()
        });
        let foreign = {
            let mut state = self.state();
            state.foreign.retain(|mark| old.contains_key(mark));
            state.foreign.clone()
        };
        let ours = old.iter().filter(|(mark, _)| !foreign.contains(*mark)).map(|(_, one)| one.clone()).collect();
        let written = self.write_all(ours, Duration::ZERO).await;
        let marks = |world: &World| written.done.iter().filter_map(|node| write::mark(world, node)).collect::<Vec<_>>();
        let left = self.ctx.store.read(marks);
        self.state().foreign.extend(left.into_iter().filter(|mark| old.contains_key(mark)));
        if written.problem.is_some() { REFUSED } else { SWEEP }
    }
}

impl Poller for UsagePublisher {
    type Key = Arc<UsagePublication>;

    async fn poll(self: Arc<Self>, publication: Arc<UsagePublication>) -> PollOutcome {
        let (report, outcome) = match self.publish(&publication).await {
            Ok(report) => (report, PollOutcome::Ok),
            Err(trouble) => {
                let outcome = trouble.again.map_or(PollOutcome::Failed, PollOutcome::WaitUntil);
                (UsageReport::Problem(trouble.problem), outcome)
            }
        };
        if outcome == PollOutcome::Failed {
            self.retry_in_time(&publication);
        }
        self.store_report(&publication, report);
        outcome
    }

    fn broken_off(&self, publication: &Arc<UsagePublication>, how: BrokenOff) {
        let problem = match how {
            BrokenOff::Timeout => (PolicyReason::Unreachable, "the usage was not published in time".to_owned()),
            BrokenOff::Panic => (PolicyReason::AnswerInvalid, "a bug in the operator; see its log".to_owned()),
        };
        self.retry_in_time(publication);
        self.store_report(publication, UsageReport::Problem(problem));
    }
}

/// Publishes until the process loses leadership or stops.
pub async fn run_usage(usage: Arc<UsagePublisher>) {
    let (polls, ctx) = (Arc::clone(&usage.polls), usage.ctx.clone());
    let until = async {
        tokio::select! {
            () = ctx.writer.fenced() => {}
            () = ctx.stop.cancelled() => {}
        }
    };
    let sweep = async {
        let mut pause = SWEEP;
        loop {
            tokio::time::sleep(pause).await;
            usage.elect();
            pause = usage.sweep(ctx.now()).await;
        }
    };
    // Only one poll is scheduled at a time, but the poll of the previous policy may still be ending.
    let run = polls::run(Arc::clone(&usage), polls, PollLimits { polls: 2 }, until);
    tokio::select! {
        () = run => {}
        () = sweep => {}
    }
}
