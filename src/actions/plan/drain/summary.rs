//! A drain in a few words: its progress in one line, and what goes on in the cluster after an interruption.

use super::super::report::step_words;
use super::action::is_open;
use super::progress::{DrainProgress, MoveState, done, slots};
use super::text::nodes_words;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::Slot;
use ganglion_core::facts::Identity;
use ganglion_core::words::counted;

/// Maximum number of actions that a text names.
const NAMED: usize = 10;

/// The progress in one line: `Node n1: 1 replica moved, 2 in motion, 3 pods to go; waiting until …`.
pub fn summary(progress: &DrainProgress) -> String {
    let moved: usize = progress.actions.iter().map(done).sum();
    let in_motion = open_slots(progress).count();
    let mut text =
        format!("{}: {} moved, {in_motion} in motion", nodes_words(progress.nodes), counted(moved as u64, "replica"));
    let waiting =
        progress.plan.moves.iter().filter(|of| matches!(progress.state(of), MoveState::Open(_) | MoveState::ToDo));
    let moves: usize = waiting.map(|of| of.pods.len()).sum();
    let others = progress.plan.evictions.iter().filter(|one| one.is_waited_for(progress.wishes)).count()
        + progress.evictable().filter(|pod| progress.refusal(pod).is_none()).count()
        + progress.plan.leaving.iter().filter(|one| !progress.is_stuck(one)).count();
    if moves + others > 0 {
        text += &format!(", {} to go", counted((moves + others) as u64, "pod"));
    }
    match cause_of_wait(progress) {
        Some(cause) => format!("{text}; {cause}"),
        None => text,
    }
}

/// Slots that have not ended, of open actions.
fn open_slots<'a>(progress: &DrainProgress<'a>) -> impl Iterator<Item = &'a Slot> {
    let open = progress.actions.iter().filter(|action| is_open(action));
    open.flat_map(slots).filter(|slot| !slot.step.is_end())
}

/// The first thing that the drain waits for.
fn cause_of_wait(progress: &DrainProgress) -> Option<String> {
    let open = progress.actions.iter().find(|action| is_open(action) && slots(action).is_empty());
    let of_action = |action| {
        let (reason, message) = progress.words_of(action);
        reason.map_or(message.clone(), |reason| format!("{reason}: {message}"))
    };
    let of_slot = |slot: &Slot| slot.message.clone().unwrap_or_else(|| step_words(slot.step).to_owned());
    let blocked = || progress.next_evictions().into_iter().find_map(|pod| progress.block(pod)).map(ToOwned::to_owned);
    progress
        .operator
        .map(ToOwned::to_owned)
        .or_else(|| open.map(of_action))
        .or_else(|| open_slots(progress).next().map(of_slot))
        .or_else(blocked)
}

/// Text after an interruption: which actions continue without the drain, and what does not.
pub fn interruption_text(progress: &DrainProgress) -> String {
    let name = |action: &WorkloadAction| Identity::from(&action.metadata).key.to_string();
    let open: Vec<String> = progress.actions.iter().filter(|action| is_open(action)).map(name).collect();
    let is = if progress.nodes.len() == 1 { "is" } else { "are" };
    let mut text = match open.len() {
        0 => format!("Interrupted. No action is in progress. {} {is} cordoned.", nodes_words(progress.nodes)),
        count => {
            let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
            let verb = if count == 1 { "continues" } else { "continue" };
            let named = open[..count.min(NAMED)].join(", ");
            format!("Interrupted. {} {verb} in the cluster: {named}{more}.", counted(count as u64, "action"))
        }
    };
    let pods = progress.next_evictions().len() + progress.due().map(|of| of.pods.len()).sum::<usize>();
    if pods > 0 {
        text += &format!(" {} to move when this command runs again.", counted(pods as u64, "pod"));
    }
    text + "\n" + &advice(progress)
}

/// How to follow the actions of a drain, and how to end them.
pub fn advice(progress: &DrainProgress) -> String {
    format!(
        "To continue, and to follow the actions: {} -w\nTo abort the actions, and uncordon: kubectl ganglion drain {} --uncordon",
        progress.command(&[]),
        progress.nodes.join(" ")
    )
}
