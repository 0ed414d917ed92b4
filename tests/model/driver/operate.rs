//! The driver's control of the operator's process, and of requests and answers between it and the API server.

use ganglion_api::marks;
use ganglion_core::facts::Key;

use super::Run;
use crate::check::{Cause, Violation, knowledge};
use crate::cluster::api::Api;
use crate::face::asked::{Asked, What};
use crate::face::deed::Deed;
use crate::face::{HttpAnswer, failure, serve};
use crate::operator::Move;
use crate::operator::build::NOW;
use crate::operator::flaw::Flaw;
use crate::operator::process::Process;

/// Errors of requests that are not carried out.
const FAILURES: [(u16, &str); 4] =
    [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")];

impl Run<'_> {
    /// Takes one step of the operator; false if there was nothing to do.
    pub fn operate(&mut self, step: Move) -> Result<bool, Violation> {
        NOW.set(self.cluster.api.clock);
        match step {
            Move::Hear(kind) => Ok(self.operator.hear(kind, &self.cluster.api)),
            Move::Plan if self.flaw == Flaw::Idle => Ok(false),
            Move::Plan => self.moved(|process, api| process.begin(&mut api.rng)),
            Move::Sweep => self.moved(|process, _| process.sweep()),
            Move::Send => match self.waiting(false) {
                Some(index) => self.send(index).map(|()| true),
                None => Ok(false),
            },
            Move::Answer => self.end_carried_out(Process::answer, "an answer arrives"),
            Move::LoseAnswer => self.end_carried_out(Process::lose, "an answer is lost"),
            Move::Refuse => self.refuse(),
            Move::Crash => {
                self.cluster.api.say(|| "operator: crashes and starts again".to_owned());
                self.interrupt_evictions();
                let limits = self.flaw.limits(&self.setup.limits);
                self.operator = Process::start(&self.runtime, limits, self.flaw.misreading());
                Ok(true)
            }
            Move::Cut(kind) => {
                let did = self.operator.cut(kind);
                if did {
                    self.cluster.api.say(|| format!("operator: watch of {kind:?} breaks"));
                }
                Ok(did)
            }
        }
    }

    /// Takes a step inside the process; its requests must follow from its cache.
    fn moved(&mut self, step: impl FnOnce(&mut Process, &mut Api) -> bool) -> Result<bool, Violation> {
        let before = self.operator.pending.len();
        let did = step(&mut self.operator, &mut self.cluster.api);
        self.sent(before)?;
        Ok(did)
    }

    /// Checks the requests that were sent after the first `before`.
    fn sent(&mut self, before: usize) -> Result<(), Violation> {
        for one in &self.operator.pending[before..] {
            if one.asked.writes() {
                self.cluster.api.say(|| format!("operator: sends {}", one.asked));
            }
            let deed = deed(&self.cluster.api, &one.asked);
            self.operator.look(|world| knowledge::check(world, &one.action, &deed))?;
        }
        Ok(())
    }

    /// Picks a request that waits to be carried out, or for its answer.
    fn waiting(&mut self, served: bool) -> Option<usize> {
        let pending = self.operator.pending.iter().enumerate();
        let fit: Vec<usize> = pending.filter(|(_, one)| one.answer.is_some() == served).map(|(at, _)| at).collect();
        self.cluster.api.rng.pick(&fit).copied()
    }

    /// Carries out a request.
    fn send(&mut self, index: usize) -> Result<(), Violation> {
        let (asked, action) = (self.operator.pending[index].asked.clone(), self.operator.pending[index].action.clone());
        if let Some(more) = self.flaw.adds(&asked, &action, &self.cluster.api) {
            self.operator.look(|world| knowledge::check(world, &action, &Deed::of(&more)))?;
            self.carry_out(&more, &action)?;
        }
        let bent = self.flaw.bend(&asked, &action, &self.cluster.api);
        let answer = self.carry_out(&bent, &action)?;
        self.operator.pending[index].answer = Some(self.flaw.color(&asked, answer));
        Ok(())
    }

    fn carry_out(&mut self, asked: &Asked, action: &Key) -> Result<HttpAnswer, Violation> {
        let deed = deed(&self.cluster.api, asked);
        let answer = serve(&mut self.cluster.api, asked);
        self.cluster.api.say(|| format!("operator: {asked} -> {}", answer.0));
        self.writes += usize::from(asked.writes() && answer.0 < 300);
        self.invariants.take(&mut self.cluster, &Cause::Operator { action: action.clone(), deed })?;
        Ok(answer)
    }

    /// Evictions that were not carried out may be half done: the budget is charged, but the API server then notices
    /// that its client is gone.
    fn interrupt_evictions(&mut self) {
        for one in self.operator.pending.iter().filter(|one| one.answer.is_none()) {
            if matches!(one.asked.what, What::Evict(_)) && self.cluster.api.rng.below(2) == 0 {
                self.cluster.api.evict_half(&one.asked.key);
            }
        }
    }

    /// Ends one of the requests that were carried out, with an answer or a lost answer.
    fn end_carried_out(&mut self, how: fn(&mut Process, usize), words: &str) -> Result<bool, Violation> {
        let Some(index) = self.waiting(true) else { return Ok(false) };
        let asked = &self.operator.pending[index].asked;
        self.cluster.api.say(|| format!("operator: {words}: {asked}"));
        self.end(index, how)?;
        Ok(true)
    }

    fn refuse(&mut self) -> Result<bool, Violation> {
        let Some(index) = self.waiting(false) else { return Ok(false) };
        let (code, reason) = *self.cluster.api.rng.pick(&FAILURES).unwrap_or(&FAILURES[0]);
        let one = &mut self.operator.pending[index];
        one.answer = Some(failure(code, reason, reason));
        self.cluster.api.say(|| format!("operator: {} is rejected: {code}", one.asked));
        self.end(index, Process::answer)?;
        Ok(true)
    }

    fn end(&mut self, index: usize, how: fn(&mut Process, usize)) -> Result<(), Violation> {
        // One request is removed; subsequent requests are appended.
        let before = self.operator.pending.len() - 1;
        how(&mut self.operator, index);
        self.sent(before)
    }
}

/// Deed of a request. If a budget has granted the eviction of a victim, its deletion is the rest of that eviction. The
/// eviction of a pod that replaces a victim undoes its creation.
fn deed(api: &Api, asked: &Asked) -> Deed {
    match Deed::of(asked) {
        Deed::DeletePod { pod, uid } if is_victim(api, &uid) && is_granted(api, &pod) => Deed::Evict { pod, uid },
        Deed::Evict { pod, uid } if !is_victim(api, &uid) && is_replacement(api, &pod) => Deed::DeletePod { pod, uid },
        deed => deed,
    }
}

fn is_victim(api: &Api, uid: &str) -> bool {
    let mut slots = api.actions.values().flat_map(|action| action.open_slots());
    slots.any(|slot| slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref().is_some_and(|known| *known == *uid)))
}

fn is_granted(api: &Api, pod: &Key) -> bool {
    api.budgets.values().any(|budget| budget.status.disrupted.contains_key(&pod.name))
}

/// Whether the pod has the mark of a replacement, or its name is recorded as one.
fn is_replacement(api: &Api, pod: &Key) -> bool {
    let marked = api.pods.get(pod).and_then(|known| known.meta.annotations.get(marks::ROLE));
    let mut slots = api.actions.values().flat_map(|action| action.open_slots());
    let mut is_recorded = |name: &str| slots.any(|slot| slot.replacement.as_ref().is_some_and(|new| new.name == name));
    marked.is_some_and(|role| role == marks::ROLE_REPLACEMENT) || is_recorded(&pod.name)
}
