//! Which samples count: a tag is given to each that is younger than the last one pushed, and to whatever we asked for
//! ourselves. A sender's clock is not ours, so the two are never compared.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::api::closed_loop::reasons::LoopReason;
use crate::api::sample::Tag;
use crate::logic::closed_loop::common::{later, micro_time};

/// How far a sample may lie in the future: clocks differ.
pub const MAX_SKEW: SignedDuration = SignedDuration::from_secs(10);

/// Why a sample does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleRefusal {
    /// It is older than the last one.
    OutOfOrder,
    /// It is as old as the last one.
    Repeated,
    /// It lies more than [`MAX_SKEW`] in the future.
    FromFuture,
    /// Its time cannot be read.
    Unreadable,
}

impl SampleRefusal {
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

/// How a loop comes by its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All one way: they are pushed, or asked for.
    Uniform,
    /// Some are pushed, some asked for.
    Mixed,
}

/// The tag of a pushed sample, after the last one.
///
/// # Errors
///
/// The sample does not count.
pub fn for_pushed(last: Option<&Tag>, time: &str, ways: Delivery, now: Timestamp) -> Result<Tag, SampleRefusal> {
    let time: Timestamp = time.parse().map_err(|_| SampleRefusal::Unreadable)?;
    let time = micro_time(time);
    if time.0 > later(now, MAX_SKEW) {
        return Err(SampleRefusal::FromFuture);
    }
    match last.and_then(|last| last_push(last, ways)) {
        Some(last) if time == *last => Err(SampleRefusal::Repeated),
        Some(last) if time < *last => Err(SampleRefusal::OutOfOrder),
        Some(_) | None => {
            let pushed = (ways == Delivery::Mixed).then(|| time.clone());
            Ok(Tag { time, sequence: after(last), pushed })
        }
    }
}

/// The tag of what was asked for: it always counts, since it is asked for one after another.
#[must_use]
pub fn for_polled(last: Option<&Tag>, now: Timestamp) -> Tag {
    Tag { time: micro_time(now), sequence: after(last), pushed: last.and_then(|last| last.pushed.clone()) }
}

/// The tag of something that happened without a sample, such as a value that stays away. It lies just after the last one, or
/// as far back as clocks differ, so that the next sample of a sender whose clock is late still counts.
#[must_use]
pub fn without_sample(last: Option<&Tag>, now: Timestamp) -> Tag {
    let time = match last {
        Some(last) => later(last.time.0, SignedDuration::from_micros(1)),
        None => now.checked_sub(MAX_SKEW).unwrap_or(now),
    };
    Tag { time: micro_time(time), sequence: after(last), pushed: last.and_then(|last| last.pushed.clone()) }
}

fn after(last: Option<&Tag>) -> i64 {
    last.map_or(1, |last| last.sequence.saturating_add(1))
}

/// When the last pushed sample was measured, as far as the tag knows.
fn last_push(last: &Tag, ways: Delivery) -> Option<&MicroTime> {
    match ways {
        Delivery::Uniform => Some(last.pushed.as_ref().unwrap_or(&last.time)),
        Delivery::Mixed => last.pushed.as_ref(),
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
