//! Notifications of an action's end: which attempt is due, and how a finished attempt is recorded. The controller
//! sends the events.
//!
//! The write that ends an action records one pending notification for each receiver, so that a crash loses none. An
//! attempt is recorded after it was made. If the process ends in between, the attempt is made again, with the same
//! event.
//!
//! | file | content |
//! |---|---|
//! | `event` | the event: its attributes and data |

pub mod event;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Notification, NotificationOutcome};
use ganglion_api::workload_action::{Notify, WorkloadAction, WorkloadActionStatus};
use ganglion_core::conditions::{self, Stamp};

/// The condition about all notifications of an action.
pub const NOTIFIED: &str = "Notified";

/// Maximum number of attempts for one receiver. With their pauses they take at most 21 minutes.
pub const MAX_ATTEMPTS: i32 = 10;

/// Pause after the first attempt. It doubles with each further attempt.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(2);

/// Random part of a pause, so that actions that ended at the same time do not retry together.
const JITTER: f64 = 0.2;

/// Maximum length of a URL in the status, in characters.
const SHOWN_URL: usize = 256;

/// Maximum length of an attempt's message, in characters.
const MAX_MESSAGE: usize = 512;

/// One attempt to notify a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    /// Index of the receiver in `spec.notify`.
    pub receiver: usize,
    /// Number of the attempt, from 1.
    pub number: i32,
}

/// A finished attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptMade {
    pub id: AttemptId,
    /// Time at which the attempt ended.
    pub at: Timestamp,
    pub result: AttemptResult,
}

/// Result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver accepted the event.
    Accepted { code: u16 },
    /// The event was not accepted. Another attempt may succeed.
    Missed { code: Option<u16>, message: String },
    /// The event was not accepted, and another attempt would not succeed.
    Refused { code: Option<u16>, message: String },
}

/// The notifications of an action that ends now.
pub fn begun(receivers: Option<&[Notify]>) -> Vec<Notification> {
    let begun = |receiver: &Notify| Notification { url: shown_url(&receiver.url), ..Notification::default() };
    receivers.unwrap_or_default().iter().map(begun).collect()
}

/// The attempts that are due.
pub fn due(action: &WorkloadAction, now: Timestamp) -> Vec<AttemptId> {
    let Some(status) = action.status.as_ref().filter(|status| status.finished_at.is_some()) else { return Vec::new() };
    let receivers = action.spec.notify.as_ref().map_or(0, Vec::len);
    let all = status.notifications.iter().take(receivers).enumerate();
    // An action that is being deleted may be gone at any time: no further attempt could be recorded.
    let deleting = action.metadata.deletion_timestamp.is_some();
    let due = all.filter(|(_, one)| is_open(one) && is_due(one, now) && !(deleting && one.attempts > 0));
    due.map(|(receiver, one)| AttemptId { receiver, number: one.attempts.saturating_add(1) }).collect()
}

/// Time of the next attempt that is not due yet.
pub fn next_due(status: &WorkloadActionStatus, now: Timestamp) -> Option<Timestamp> {
    let waiting = status.notifications.iter().filter(|one| is_open(one) && !is_due(one, now));
    waiting.filter_map(|one| Some(one.next_attempt_at.as_ref()?.0)).min()
}

/// Whether a receiver must still be notified.
pub fn is_pending(action: &WorkloadAction) -> bool {
    // A notification without a receiver in the spec cannot be sent.
    let receivers = action.spec.notify.as_ref().map_or(0, Vec::len);
    action.status.as_ref().is_some_and(|status| status.notifications.iter().take(receivers).any(is_open))
}

fn is_open(one: &Notification) -> bool {
    match one.outcome {
        NotificationOutcome::Pending => true,
        NotificationOutcome::Delivered | NotificationOutcome::Failed => false,
    }
}

fn is_due(one: &Notification, now: Timestamp) -> bool {
    let (Some(last), Some(next)) = (&one.last_attempt_at, &one.next_attempt_at) else { return true };
    // If the clock was set back, the attempt is made now.
    now >= next.0 || now < last.0
}

/// Whether the status does not contain this attempt yet.
pub fn is_news(action: &WorkloadAction, id: AttemptId) -> bool {
    let status = action.status.as_ref().filter(|status| status.finished_at.is_some());
    let one = status.and_then(|status| status.notifications.get(id.receiver));
    one.is_some_and(|one| is_open(one) && one.attempts.saturating_add(1) == id.number)
}

/// The status with these attempts; None if it contains them already. `random` is from 0 to 1.
pub fn recorded(
    action: &WorkloadAction,
    made: &[AttemptMade],
    now: Timestamp,
    random: f64,
) -> Option<WorkloadActionStatus> {
    let mut status = action.status.clone()?;
    let mut changed = false;
    for attempt in made.iter().filter(|attempt| is_news(action, attempt.id)) {
        if let Some(one) = status.notifications.get_mut(attempt.id.receiver) {
            *one = after(one, attempt, random);
            changed = true;
        }
    }
    // The condition gets the generation of the other conditions.
    let stamp = Stamp { generation: status.observed_generation.unwrap_or(0), now };
    let notified = condition(&status.conditions, &status.notifications, stamp);
    status.conditions.retain(|one| one.type_ != NOTIFIED);
    status.conditions.extend(notified);
    changed.then_some(status)
}

/// A notification after an attempt.
fn after(one: &Notification, attempt: &AttemptMade, random: f64) -> Notification {
    let AttemptMade { id: AttemptId { number, .. }, at, result } = attempt;
    let (outcome, code, message) = match result {
        AttemptResult::Accepted { code } => (NotificationOutcome::Delivered, Some(*code), None),
        AttemptResult::Refused { code, message } => (NotificationOutcome::Failed, *code, Some(message)),
        AttemptResult::Missed { code, message } if *number < MAX_ATTEMPTS => {
            (NotificationOutcome::Pending, *code, Some(message))
        }
        AttemptResult::Missed { code, message } => (NotificationOutcome::Failed, *code, Some(message)),
    };
    let next = (outcome == NotificationOutcome::Pending)
        .then(|| Time(at.saturating_add(pause(*number, random)).unwrap_or(*at)));
    Notification {
        url: one.url.clone(),
        outcome,
        attempts: *number,
        last_attempt_at: Some(Time(*at)),
        next_attempt_at: next,
        code: code.map(i32::from),
        message: message.map(|message| message.chars().take(MAX_MESSAGE).collect()),
    }
}

/// The pause after the attempt of this number.
fn pause(number: i32, random: f64) -> SignedDuration {
    let doublings = u32::try_from(number.saturating_sub(1).clamp(0, MAX_ATTEMPTS)).unwrap_or(0);
    let pause = FIRST_PAUSE.as_secs_f64() * 2_f64.powi(i32::try_from(doublings).unwrap_or(0));
    SignedDuration::from_secs_f64(pause * (1.0 + JITTER * random.clamp(0.0, 1.0)))
}

/// The condition about these notifications; None if there are none.
pub fn condition(old: &[Condition], all: &[Notification], stamp: Stamp) -> Option<Condition> {
    let of = |outcome| all.iter().filter(move |one| one.outcome == outcome);
    let accepted = of(NotificationOutcome::Delivered).count();
    let share = match all.len() {
        0 => return None,
        1 => String::new(),
        many => format!("{accepted} of {many} receivers have accepted the event; "),
    };
    let failed = of(NotificationOutcome::Failed).next();
    let waiting = of(NotificationOutcome::Pending).filter(|one| one.attempts > 0);
    let waiting = waiting.min_by_key(|one| one.next_attempt_at.as_ref().map(|time| time.0));
    let is_open = all.iter().any(is_open);
    let (status, reason, message) = match (is_open, failed, waiting) {
        (true, _, Some(one)) => ("Unknown", Reason::DeliveryRetrying, format!("{share}{}", retry_words(one))),
        (true, _, None) => ("Unknown", Reason::Delivering, format!("{share}the event is being sent")),
        (false, Some(one), _) => ("False", Reason::DeliveryFailed, format!("{share}{}", failure_words(one))),
        (false, None, _) if all.len() == 1 => {
            ("True", Reason::Delivered, "the receiver has accepted the event".to_owned())
        }
        (false, None, _) => ("True", Reason::Delivered, format!("all {accepted} receivers have accepted the event")),
    };
    Some(conditions::condition(old, NOTIFIED, status, reason.as_str(), &message, stamp))
}

fn retry_words(one: &Notification) -> String {
    let why = one.message.as_deref().unwrap_or("no reason known");
    let next = one.next_attempt_at.as_ref().map(|time| time.0.strftime("%H:%M:%S UTC").to_string());
    let next = next.unwrap_or_else(|| "once".to_owned());
    let (url, attempts) = (&one.url, one.attempts);
    format!("{url}: attempt {attempts} of {MAX_ATTEMPTS} failed: {why}; the next one is made at {next}")
}

fn failure_words(one: &Notification) -> String {
    let (url, attempts) = (&one.url, one.attempts);
    let times = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
    let why = one.message.as_deref().unwrap_or("no reason known");
    format!(
        "{url} was given up after {times}: {why}; the action's result stands: \
         repair the receiver, or name another one in the next action"
    )
}

/// A URL without the parts that may be secret: user, password, query and fragment.
fn shown_url(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = bare.split_once("://").unwrap_or(("", bare));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}").chars().take(SHOWN_URL).collect()
}
