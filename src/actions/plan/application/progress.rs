//! The progress of a moveApplication, from its moves and the replicas that are still on the nodes that it leaves.

use std::collections::HashSet;

use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::MOST_REPLICAS;
use ganglion_api::workload_action::status::{ApplicationMove, ApplicationProgress};
use ganglion_core::words::counted;

use super::survey::{Member, Survey};
use super::{Application, ApplicationPart};

/// Maximum number of moves of one workload. Moves of the maximum number of replicas do not count. If these moves do not
/// suffice, the workload's replicas come back as fast as they leave: no node is cordoned, or another action moves them
/// in the opposite direction.
const MOST_WAVES: usize = 10;

/// Maximum number of running and of failed moves that the status lists.
const LISTED: usize = 50;

/// Maximum length of a move's message in the status, in characters.
const MESSAGE: usize = 256;

pub struct Progress<'a, 's> {
    parts: Vec<ApplicationPart<'a>>,
    members: &'s [Member<'a>],
    turns_back: bool,
    /// Replicas that have not started, of workloads whose moves have not failed.
    left: usize,
    /// Replicas that could not move.
    failed: usize,
}

impl<'a, 's> Progress<'a, 's> {
    pub fn of(application: Application<'a>, survey: &'s Survey<'a>) -> Self {
        let parts: Vec<ApplicationPart> = application.parts().collect();
        let begun = parts.iter().flat_map(|part| part.slots()).filter(|slot| !slot.step.is_end());
        let begun: HashSet<&str> = begun.filter_map(|slot| Some(slot.victim.as_ref()?.name.as_str())).collect();
        let mut progress =
            Self { parts, members: &survey.members, turns_back: application.turns_back(), left: 0, failed: 0 };
        for member in progress.members {
            let waiting = member.leaving.iter().filter(|pod| !begun.contains(pod.id.key.name.as_str())).count();
            if progress.has_failed(&member.workload) { progress.failed += waiting } else { progress.left += waiting }
        }
        progress
    }

    fn of_workload(&self, workload: &WorkloadRef) -> impl Iterator<Item = &ApplicationPart<'a>> {
        self.parts.iter().filter(move |part| part.is_of(workload))
    }

    fn has_failed(&self, workload: &WorkloadRef) -> bool {
        self.of_workload(workload).any(ApplicationPart::failed)
    }

    fn is_refilled(&self, workload: &WorkloadRef) -> bool {
        let full = usize::try_from(MOST_REPLICAS).ok();
        self.of_workload(workload).filter(|part| part.replicas() != full).count() >= MOST_WAVES
    }

    /// The workloads whose replicas may start: no move of theirs is running or has failed.
    pub fn open(&self) -> impl Iterator<Item = &'s Member<'a>> {
        self.members.iter().filter(|member| {
            let workload = &member.workload;
            self.of_workload(workload).all(|part| part.has_ended() && !part.failed()) && !self.is_refilled(workload)
        })
    }

    /// The workload whose replicas come back faster than they leave, if there is one.
    pub fn refilled(&self) -> Option<String> {
        let member = self.members.iter().find(|member| self.is_refilled(&member.workload))?;
        Some(format!("{} {}", member.workload.kind, member.workload.name))
    }

    /// Number of replicas that running moves have in motion or will have, at most `of_one` per workload.
    pub fn taken(&self, of_one: usize) -> usize {
        let of_part = |part: &ApplicationPart| {
            let leaving = self.members.iter().find(|member| part.is_of(&member.workload));
            let all = part.replicas().or(leaving.map(|member| member.leaving.len())).unwrap_or(1);
            let ended = part.slots().iter().filter(|slot| slot.step.is_end()).count();
            all.saturating_sub(ended).max(part.at_work()).min(of_one)
        };
        self.parts.iter().filter(|part| !part.has_ended()).map(of_part).sum()
    }

    /// Number of replicas in motion, forward or back.
    pub fn in_motion(&self) -> usize {
        self.parts.iter().map(ApplicationPart::at_work).sum()
    }

    fn done(&self, back: bool) -> usize {
        self.parts.iter().filter(|part| part.is_back() == back).map(ApplicationPart::done).sum()
    }

    /// Number of workloads with replicas that move or have moved, and the number of them that have none left.
    fn workloads(&self) -> (usize, usize) {
        let mut all: Vec<String> =
            self.parts.iter().filter(|part| !part.is_back()).map(ApplicationPart::subject).collect();
        let leaving = self.members.iter().map(|member| format!("{}/{}", member.workload.kind, member.workload.name));
        let leaving: HashSet<String> = leaving.collect();
        all.sort_unstable();
        all.dedup();
        let at_work = |subject: &String| self.parts.iter().any(|part| !part.has_ended() && part.subject() == *subject);
        let done = all.iter().filter(|subject| !leaving.contains(*subject) && !at_work(subject)).count();
        let unbegun = leaving.iter().filter(|subject| !all.contains(subject)).count();
        (all.len() + unbegun, done)
    }

    fn total(&self) -> usize {
        let forward = self.parts.iter().filter(|part| !part.is_back()).map(ApplicationPart::at_work).sum::<usize>();
        self.done(false) + forward + self.left + self.failed
    }

    /// The progress as text.
    pub fn words(&self) -> String {
        let total = counted(self.total() as u64, "replica");
        let moved =
            format!("{} of {total} of {} moved", self.done(false), counted(self.workloads().0 as u64, "workload"));
        let part = |count: usize, words: &str| (count > 0).then(|| format!(", {count} {words}"));
        let back = if self.turns_back { Some(format!(", {} of these moved back", self.done(true))) } else { None };
        let parts = [back, part(self.in_motion(), "on their way"), part(self.failed, "could not move")];
        moved + &parts.into_iter().flatten().collect::<String>()
    }

    /// The progress for the status.
    pub fn shown(&self) -> ApplicationProgress {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (workloads, workloads_done) = self.workloads();
        let running: Vec<&ApplicationPart> = self.parts.iter().filter(|part| !part.has_ended()).collect();
        let failed: Vec<&ApplicationPart> = self.parts.iter().filter(|part| part.failed()).collect();
        let listed = running.iter().take(LISTED).chain(failed.iter().take(LISTED));
        ApplicationProgress {
            workloads: number(workloads),
            workloads_done: number(workloads_done),
            moved: number(self.done(false)),
            in_motion: number(self.in_motion()),
            left: number(self.left),
            failed: number(self.failed),
            moved_back: self.turns_back.then(|| number(self.done(true))),
            truncated: running.len() > LISTED || failed.len() > LISTED,
            moves: listed.map(|part| shown(part)).collect(),
        }
    }
}

/// Replicas that have moved of all that move, such as `3/10`.
pub fn share(progress: &ApplicationProgress) -> String {
    let ApplicationProgress { moved, in_motion, left, failed, .. } = progress;
    format!("{moved}/{}", moved + in_motion + left + failed)
}

fn shown(part: &ApplicationPart) -> ApplicationMove {
    let has_reason = part.cause().is_some();
    // The action of a replica in motion shows its own progress. If it were repeated here, this status would change at
    // each step.
    let why = part.cause().filter(|_| part.failed() || part.at_work() == 0);
    ApplicationMove {
        action: part.name().to_owned(),
        workload: part.subject(),
        done: part.replicas().map(|all| format!("{}/{all}", part.done())),
        reason: why.map(|(reason, _)| reason).filter(|_| has_reason),
        message: why.map(|(_, message)| message.chars().take(MESSAGE).collect()),
    }
}
