//! Which samples count: a tag is given to each that is younger than the last, and to no other.

use jiff::{SignedDuration, Timestamp};

use super::{later, micros};
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::sample::Tag;

/// How far a sample may lie in the future: clocks differ.
pub const MAX_SKEW: SignedDuration = SignedDuration::from_secs(10);

/// Why a sample does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is older than the last one.
    OutOfOrder,
    /// It is as old as the last one.
    Repeated,
    /// It lies more than [`MAX_SKEW`] in the future.
    FromFuture,
    /// Its time cannot be read.
    Unreadable,
}

impl Refusal {
    /// The word for it.
    #[must_use]
    pub fn reason(self) -> LoopReason {
        match self {
            Self::OutOfOrder => LoopReason::OutOfOrder,
            Self::Repeated => LoopReason::Repeated,
            Self::FromFuture => LoopReason::FromFuture,
            Self::Unreadable => LoopReason::Unreadable,
        }
    }
}

/// The tag of a sample, after the last one.
///
/// # Errors
///
/// The sample does not count.
pub fn next(last: Option<&Tag>, time: &str, now: Timestamp) -> Result<Tag, Refusal> {
    let time: Timestamp = time.parse().map_err(|_| Refusal::Unreadable)?;
    let time = micros(time);
    if time.0 > later(now, MAX_SKEW) {
        return Err(Refusal::FromFuture);
    }
    match last {
        Some(last) if time.0 == last.time.0 => Err(Refusal::Repeated),
        Some(last) if time.0 < last.time.0 => Err(Refusal::OutOfOrder),
        Some(last) => Ok(Tag { time, sequence: last.sequence.saturating_add(1) }),
        None => Ok(Tag { time, sequence: 1 }),
    }
}

/// The tag of something that happened without a sample, such as a value that stays away. It lies just after the last one, or
/// as far back as clocks differ, so that the next sample of a sender whose clock is late still counts.
#[must_use]
pub fn without_sample(last: Option<&Tag>, now: Timestamp) -> Tag {
    match last {
        Some(last) => Tag {
            time: micros(later(last.time.0, SignedDuration::from_micros(1))),
            sequence: last.sequence.saturating_add(1),
        },
        None => Tag { time: micros(now.checked_sub(MAX_SKEW).unwrap_or(now)), sequence: 1 },
    }
}

/// The last of several tags. A hop that was lost or made anew takes up where the others are.
#[must_use]
pub fn latest<'a>(tags: impl IntoIterator<Item = Option<&'a Tag>>) -> Option<&'a Tag> {
    tags.into_iter().flatten().max_by_key(|tag| tag.sequence)
}

/// Whether `new` comes after `old`.
#[must_use]
pub fn is_after(new: Option<&Tag>, old: Option<&Tag>) -> bool {
    match (new, old) {
        (Some(new), Some(old)) => new.sequence > old.sequence,
        (Some(_), None) => true,
        (None, Some(_) | None) => false,
    }
}
