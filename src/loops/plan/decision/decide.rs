//! The next status of a Decision: at most one action, and a reason for each alarm that is rejected.
//!
//! Each iteration chooses the first alarm in order that has a rung left and that no limit blocks. A new sample starts
//! an iteration, and so does the end of a limit that blocked a raised alarm. While a decision is being carried out, no
//! other is made. The status contains everything that later decisions need. Must neither read the target nor carry
//! anything out.

use jiff::Timestamp;

use super::candidate::{AlarmCandidate, candidates, is_met, partly_met};
use super::evaluate::{action_history, hold_message};
use super::limits::AlarmRejection;
use super::order::{OrderContext, order};
use super::rules::{DecisionInput, DecisionRules};
use super::settlement::{
    apply_outcome, awaits_execution, counter, restore_from_execution, set_ladder, withdraw, withdraw_if_unwanted,
};
use crate::common::{HEARTBEAT, micro_time, number_text};
use crate::monitoring::tag;
use crate::proposal;
use crate::rung;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::when::When;
use ganglion_api::closed_loop::{LoopMode, Trace};
use ganglion_api::decision::{
    ACTS_LIMIT, Act, COUNTERS_LIMIT, Chosen, Counter, DecisionStatus, Entry, LadderState, Outcome, REJECTED_LIMIT,
    Rejected, ReplicaChange,
};
use ganglion_core::conditions::{self, Health, Stamp};
use ganglion_core::status::{StatusChange, StatusPolicy, StatusTiming};

/// Result of the stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    pub status: DecisionStatus,
    /// The status is worth a write. A choice takes effect only once it is written.
    pub write: bool,
    /// Time at which the next time-based rejection expires.
    pub again: Option<Timestamp>,
}

/// Counts are written with the next decision or heartbeat.
const WRITES: StatusPolicy = StatusPolicy { details_after: HEARTBEAT, heartbeat: None };

/// Whether Monitoring has written in this leader term. A status of another leader causes no decision.
fn is_of_this_term(input: DecisionInput) -> bool {
    input.monitoring.term.as_deref() == Some(input.term)
}

/// Whether the status of Monitoring is still valid.
fn is_valid(input: DecisionInput) -> bool {
    is_of_this_term(input) && input.monitoring.valid_until.as_ref().is_none_or(|until| input.now < until.0)
}

/// Whether the last decision is of another leader. It is carried out only after this leader has confirmed it.
fn is_unconfirmed(status: &DecisionStatus, input: DecisionInput) -> bool {
    is_of_this_term(input)
        && awaits_execution(status, input.executor)
        && input.written.term.as_deref() != Some(input.term)
}

impl DecisionRules {
    /// Computes the next status.
    pub fn decide(&self, before: &DecisionStatus, input: DecisionInput) -> Decided {
        let mut status = before.clone();
        restore_from_execution(&mut status, input.executor);
        self.forget_dry_runs(&mut status);
        let is_new_sample = is_of_this_term(input) && tag::is_after(input.monitoring.tag.as_ref(), status.tag.as_ref());
        apply_outcome(self, &mut status, input);
        self.renew_ladders(&mut status, input.now);
        let new_alarms = is_new_sample.then_some(input.monitoring.alarms.as_slice());
        withdraw_if_unwanted(self, &mut status, input.executor, new_alarms);
        if is_new_sample || is_unconfirmed(&status, input) {
            self.decide_again(&mut status, input);
        }
        self.serve(&mut status, input, is_new_sample);
        self.forget_counters(&mut status.counters);
        status.limits = self.limits.state(&action_history(self, &status), input.now);
        status.observed_generation = Some(input.generation);
        let stamp = Stamp { generation: input.generation, now: input.now };
        status.conditions = conditions::summary(&before.conditions, &self.health(&status), stamp);
        let write = self.is_worth_a_write(before, &status, input, is_new_sample);
        if write {
            if is_of_this_term(input) {
                status.term = Some(input.term.to_owned());
            }
            status.heartbeat = Some(micro_time(input.now));
        }
        let again = self.next_release(&status, input).filter(|_| is_valid(input));
        Decided { status, write, again }
    }

    /// Starts the ladders again that were changed in the spec.
    fn renew_ladders(&self, status: &mut DecisionStatus, now: Timestamp) {
        let states = std::mem::take(&mut status.ladders).into_iter();
        let renewed = states.filter_map(|state| match self.ladder(&state.when) {
            Some(ladder) => ladder.renewed(state, now),
            None => Some(state),
        });
        status.ladders = renewed.collect();
    }

    /// Withdraws a decision that has not begun and would not be made again: it waited for an approval or for the next
    /// leader, and meanwhile its window has closed, a value is unknown, or another metric is behind.
    fn decide_again(&self, status: &mut DecisionStatus, input: DecisionInput) {
        if !awaits_execution(status, input.executor) {
            return;
        }
        let mut without = status.clone();
        withdraw(&mut without);
        let context = self.order_context(&without.counters, input);
        let Some(chosen) = &mut status.chosen else { return };
        let served = chosen.served();
        let mut ranked =
            order(&self.selection, candidates(&self.actions, &input.monitoring.alarms), context).into_iter();
        let Some(ranked) = ranked.find(|one| one.candidate.is(&served)) else { return };
        let rung = self.evaluate(&without, &ranked, false, context, input).ok();
        let has_number = chosen.replicas.is_none_or(|change| is_still_wanted(change, input));
        let raises_rank = chosen.action.tune.as_ref().is_some_and(|tune| tune.raise_rank.is_some());
        let raises_another = raises_rank && chosen.least_served.as_deref() != least_served(&served, input);
        if rung.and_then(|rung| i32::try_from(rung).ok()) != Some(chosen.rung) || raises_another || !has_number {
            *status = without;
            return;
        }
        chosen.unknown = ranked.candidate.is_unknown();
        chosen.no_lowering = self.no_lowering(&without, &ranked.candidate, &chosen.action, input);
    }

    /// Serves an alarm of a new sample, or one that was rejected and may be served now.
    fn serve(&self, status: &mut DecisionStatus, input: DecisionInput, is_new_sample: bool) {
        if self.mode == LoopMode::Paused {
            status.message = Some("Paused".into());
            status.rejected.clear();
        } else if !is_valid(input) {
            // At this time, Monitoring evaluates its levels again.
        } else if is_new_sample || self.released(status, input) {
            self.iterate(status, input);
            status.tag.clone_from(&input.monitoring.tag);
        } else {
            self.update_reasons(status, input);
        }
    }

    /// Whether the status is worth a write.
    fn is_worth_a_write(
        &self,
        before: &DecisionStatus,
        after: &DecisionStatus,
        input: DecisionInput,
        is_new_sample: bool,
    ) -> bool {
        let is_traced = is_new_sample && self.trace == Trace::EverySample;
        // The conditions may still say that policies were missing, or that the object could not be read.
        let is_misreported = conditions::summary_differs(&before.conditions, &after.conditions);
        let is_edge = is_traced || is_misreported || is_unconfirmed(after, input);
        let change = if is_edge || edges(before) != edges(after) {
            StatusChange::Edge
        } else if counts(input.written) != counts(after) {
            StatusChange::Details
        } else {
            StatusChange::None
        };
        let last = before.heartbeat.as_ref().map(|last| last.0);
        WRITES.timing(change, last, input.now) == StatusTiming::Now
    }

    fn health(&self, status: &DecisionStatus) -> Health<LoopReason> {
        match self.mode {
            LoopMode::Paused => Health::Good(LoopReason::Paused, "the loop is paused".into()),
            LoopMode::Auto | LoopMode::DryRun | LoopMode::Approve if status.seq > 0 && status.history.is_empty() => {
                let lost = "decides on each sample; the budgets, ladders and counters of the deleted Decision are lost";
                Health::Good(LoopReason::Running, lost.into())
            }
            LoopMode::Auto | LoopMode::DryRun | LoopMode::Approve => {
                Health::Good(LoopReason::Running, "decides on each sample".into())
            }
        }
    }

    /// Removes the oldest counters of metrics that are not in the spec, if there are too many. They are not removed at
    /// once: if somebody edits the Decision itself, its spec differs only until the loop's controller restores it.
    fn forget_counters(&self, counters: &mut Vec<Counter>) {
        while counters.len() > COUNTERS_LIMIT {
            let Some(oldest) = counters.iter().position(|counter| !self.rank.contains(&counter.metric)) else { return };
            counters.remove(oldest);
        }
    }

    /// Removes the actions and ladders of mode DryRun in the other modes: nothing was done.
    fn forget_dry_runs(&self, status: &mut DecisionStatus) {
        if self.mode != LoopMode::DryRun {
            status.acts.retain(|act| !act.dry_run);
            status.ladders.retain(|state| !state.dry_run);
        }
    }

    /// Chooses at most one action.
    fn iterate(&self, status: &mut DecisionStatus, input: DecisionInput) {
        let alarms = &input.monitoring.alarms;
        status.ladders.retain(|state| is_met(&state.when, alarms));
        status.rejected.clear();
        let counters = status.counters.clone();
        let context = self.order_context(&counters, input);
        let (mut chosen, mut wanted) = (None, Vec::new());
        for ranked in order(&self.selection, candidates(&self.actions, alarms), context) {
            let (candidate, lead) = (&ranked.candidate, ranked.candidate.lead);
            let metric = lead.metric.as_str();
            // An alarm and a combination that it leads are one iteration of its metric.
            if candidate.action.is_some() && !wanted.contains(&metric) {
                wanted.push(metric);
                let counter = counter(&mut status.counters, metric);
                counter.wanted = counter.wanted.saturating_add(1);
            }
            match self.evaluate(status, &ranked, chosen.is_some(), context, input) {
                Ok(rung) => chosen = Some((ranked.candidate, rung)),
                Err(rejection) => reject(status, candidate, rejection),
            }
        }
        for unmet in partly_met(&self.actions, input.monitoring) {
            report(status, unmet);
        }
        status.message = Some(match chosen {
            Some((candidate, rung)) => {
                self.choose(status, &candidate, rung, context, input);
                self.announcement(&candidate.when().subject())
            }
            None => hold_message(&status.rejected),
        });
    }

    fn announcement(&self, subject: &str) -> String {
        match self.mode {
            LoopMode::Auto | LoopMode::Paused => format!("React to {subject}"),
            LoopMode::DryRun => format!("Would react to {subject}"),
            LoopMode::Approve => format!("Propose to react to {subject}"),
        }
    }

    /// Records the choice, and everything that later decisions need to know about it.
    fn choose(
        &self,
        status: &mut DecisionStatus,
        candidate: &AlarmCandidate,
        index: usize,
        context: OrderContext,
        input: DecisionInput,
    ) {
        let Some(declared) = candidate.action else { return };
        let Some(action) = declared.rungs.get(index).cloned() else { return };
        let (ladder, when) = (declared.ladder(), candidate.when());
        let value = when.one().and_then(|alarm| context.value(&alarm.metric));
        let last_executed = input.executor.and_then(|executor| executor.status.seq).unwrap_or(0);
        status.seq = status.seq.max(last_executed).saturating_add(1);
        let at = micro_time(input.now);
        let dry_run = self.mode == LoopMode::DryRun;
        let outcome = dry_run.then_some(Outcome::DryRun);
        if dry_run {
            let state = ladder.acted(index, value.map(number_text), input.now);
            set_ladder(status, LadderState { dry_run, ..state });
        }
        let no_lowering = self.no_lowering(status, candidate, &action, input);
        // Somebody has to approve a proposal first, and it may be withdrawn.
        let replicas = wanted_change(candidate, input);
        if self.mode != LoopMode::Approve {
            let by = replicas.map(|change| f64::from(change.to) - f64::from(change.from));
            let (direction, dimension) =
                (by.map_or_else(|| rung::direction(&action), rung::sign), rung::dimension(&action));
            status.acts.push(Act { seq: status.seq, at: at.clone(), dry_run, direction, dimension });
            self.forget_acts(status, input.now);
        }
        let index = i32::try_from(index).unwrap_or(0);
        let entry = Entry {
            seq: status.seq,
            at: at.clone(),
            when: when.clone(),
            value: value.map(number_text),
            rung: index,
            action: rung::describe(&action),
            outcome,
            ended: None,
            effect: None,
            repeated: None,
        };
        add_to_history(&mut status.history, entry);
        keep_last(&mut status.history, self.history);
        status.reason = Some(match self.mode {
            LoopMode::DryRun => LoopReason::DryRun,
            LoopMode::Approve => LoopReason::Proposed,
            LoopMode::Auto | LoopMode::Paused => LoopReason::InFlight,
        });
        let mut chosen = Chosen {
            seq: status.seq,
            metric: candidate.lead.metric.clone(),
            side: candidate.lead.side,
            when: when.one().is_none().then(|| when.clone()),
            rung: index,
            action,
            at,
            tag: input.monitoring.tag.clone(),
            received: input.monitoring.received.clone(),
            executor: input.executor.map(|executor| executor.uid.into()).unwrap_or_default(),
            mode: self.mode,
            unknown: candidate.is_unknown(),
            no_lowering,
            replicas,
            least_served: least_served(&when, input).map(str::to_owned),
            digest: None,
            outcome,
        };
        if let Some(executor) = input.executor.filter(|_| self.mode == LoopMode::Approve) {
            chosen.digest = Some(proposal::digest_of(&chosen, executor.target));
        }
        status.chosen = Some(chosen);
    }

    /// Removes the actions that the limits do not need.
    pub(super) fn forget_acts(&self, status: &mut DecisionStatus, now: Timestamp) {
        self.limits.forget(&mut status.acts, now);
        keep_last(&mut status.acts, ACTS_LIMIT);
    }
}

/// Returns the metric of the tuned loop that was served least, as found for a metric of these alarms.
fn least_served<'a>(when: &When, input: DecisionInput<'a>) -> Option<&'a str> {
    let last_served = input.monitoring.last_served.iter().find(|last| when.is_about(&last.metric))?;
    last_served.least_served.as_deref()
}

/// Returns the change of the number of replicas that an alarm on side Target asks for.
fn wanted_change(candidate: &AlarmCandidate, input: DecisionInput) -> Option<ReplicaChange> {
    let state = input.monitoring.tracking.as_ref().filter(|_| candidate.is_target())?;
    Some(ReplicaChange { from: state.replicas, to: state.wants })
}

/// Whether a change that waits is still right: from the same number, in the same direction, and not further than the
/// number that is wanted now.
fn is_still_wanted(change: ReplicaChange, input: DecisionInput) -> bool {
    let Some(state) = &input.monitoring.tracking else { return false };
    let ReplicaChange { from, to } = change;
    let is_on_the_way = if to > from { state.wants >= to } else { state.wants <= to };
    state.replicas == from && is_on_the_way
}

fn reject(status: &mut DecisionStatus, candidate: &AlarmCandidate, rejection: AlarmRejection) {
    if rejection.limit {
        let counter = counter(&mut status.counters, &candidate.lead.metric);
        counter.limited = counter.limited.saturating_add(1);
    }
    report(status, rejection.reported(candidate.when()));
}

fn report(status: &mut DecisionStatus, rejected: Rejected) {
    if status.rejected.len() < REJECTED_LIMIT {
        status.rejected.push(rejected);
    }
}

/// Adds an entry. A repetition replaces the entry that it repeats: a dry run changes nothing, so it decides the same on
/// each sample.
fn add_to_history(history: &mut Vec<Entry>, mut entry: Entry) {
    let repeated = history.pop_if(|last| last.is_repeated_by(&entry));
    entry.repeated = repeated.map(|last| last.once_more());
    history.push(entry);
}

fn keep_last<T>(list: &mut Vec<T>, most: usize) {
    let surplus = list.len().saturating_sub(most);
    list.drain(..surplus);
}

/// Returns the part of a status that is written as soon as it changes: the decision, its withdrawal and what bounds it,
/// the rejections.
fn edges(status: &DecisionStatus) -> impl PartialEq + '_ {
    let rejected: Vec<(&When, LoopReason)> = status.rejected.iter().map(|one| (&one.when, one.reason)).collect();
    let withdrawn = status.chosen.as_ref().is_some_and(|chosen| chosen.outcome == Some(Outcome::Withdrawn));
    // An alarm on side Target ends one interval after each change, so its end is no news.
    let is_tracking = status.chosen.as_ref().is_some_and(|chosen| chosen.side == Side::Target);
    let idle = is_tracking || status.message.as_deref().is_none_or(|message| message == "No Event");
    let bounds = status.chosen.as_ref().map(|chosen| (chosen.unknown, chosen.no_lowering.is_some()));
    (status.seq, withdrawn, bounds, rejected, idle, status.observed_generation)
}

/// Returns the part of a status that is written with the next decision or heartbeat: outcomes, counters, ladders.
fn counts(status: &DecisionStatus) -> impl PartialEq + '_ {
    (status.chosen.as_ref().map(|chosen| chosen.outcome), &status.counters, &status.ladders)
}
