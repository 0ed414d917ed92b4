//! Tags of samples, and which samples are accepted.
//!
//! A pushed sample is accepted if it is newer than the last pushed one. A polled sample is always accepted. The clock
//! of a sender and our own clock are never compared with each other.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::common::{later, micro_time};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::monitoring::Tag;

/// Maximum time that a sample may lie in the future, since clocks differ.
pub const MAX_SKEW: SignedDuration = SignedDuration::from_secs(10);

/// Reason why a sample is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleRefusal {
    /// It is older than the last sample.
    OutOfOrder,
    /// It has the time of the last sample.
    Repeated,
    /// It lies more than [`MAX_SKEW`] in the future.
    FromFuture,
    /// Its time cannot be parsed.
    Unreadable,
}

impl SampleRefusal {
    /// Description for the metrics whose value stays away because of it.
    pub fn message(self) -> &'static str {
        match self {
            Self::OutOfOrder => {
                "samples are refused, since their time is before that of an earlier one: check the sender's clock"
            }
            Self::Repeated => "samples are refused, since they have the time of an earlier one",
            Self::FromFuture => {
                "samples are refused, since their time is more than 10 s in the future: check the sender's clock"
            }
            Self::Unreadable => {
                "samples are refused, since their time cannot be read: write it as 2026-11-21T10:00:00.000001Z"
            }
        }
    }

    /// Returns the reason for the status.
    pub fn reason(self) -> LoopReason {
        match self {
            Self::OutOfOrder => LoopReason::OutOfOrder,
            Self::Repeated => LoopReason::Repeated,
            Self::FromFuture => LoopReason::FromFuture,
            Self::Unreadable => LoopReason::Unreadable,
        }
    }
}

/// Delivery of a loop's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All are pushed, or all are polled.
    Uniform,
    /// Some are pushed, some are polled.
    Mixed,
}

/// Returns the tag of a pushed sample, or why the sample is refused. `last` is the previous tag.
pub fn for_pushed(last: Option<&Tag>, time: &str, delivery: Delivery, now: Timestamp) -> Result<Tag, SampleRefusal> {
    let time: Timestamp = time.parse().map_err(|_| SampleRefusal::Unreadable)?;
    let time = micro_time(time);
    if time.0 > later(now, MAX_SKEW) {
        return Err(SampleRefusal::FromFuture);
    }
    match last.and_then(|last| last_push(last, delivery)) {
        Some(last) if time == *last => Err(SampleRefusal::Repeated),
        Some(last) if time < *last => Err(SampleRefusal::OutOfOrder),
        Some(_) | None => {
            let pushed = (delivery == Delivery::Mixed).then(|| time.clone());
            Ok(Tag { time, sequence: after(last), pushed })
        }
    }
}

/// Returns the tag of a polled sample. It is always accepted, since samples are polled one after another.
pub fn for_polled(last: Option<&Tag>, now: Timestamp) -> Tag {
    Tag { time: micro_time(now), sequence: after(last), pushed: last.and_then(|last| last.pushed.clone()) }
}

/// Returns the tag of a change without a sample, such as a value that is missing. Its time is just after the last tag.
/// Without a last tag, it is `MAX_SKEW` in the past, so that the next sample is accepted even if its sender's clock is
/// slow.
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

/// Returns when the last pushed sample was measured, if the tag contains that time.
fn last_push(last: &Tag, delivery: Delivery) -> Option<&MicroTime> {
    match delivery {
        Delivery::Uniform => Some(last.pushed.as_ref().unwrap_or(&last.time)),
        Delivery::Mixed => last.pushed.as_ref(),
    }
}

/// Returns the latest of several tags. A stage that was lost or recreated continues from there.
pub fn latest<'a>(tags: impl IntoIterator<Item = Option<&'a Tag>>) -> Option<&'a Tag> {
    tags.into_iter().flatten().max_by_key(|tag| tag.sequence)
}

/// Whether `new` is later than `old`.
pub fn is_after(new: Option<&Tag>, old: Option<&Tag>) -> bool {
    match (new, old) {
        (Some(new), Some(old)) => new.sequence > old.sequence,
        (Some(_), None) => true,
        (None, Some(_) | None) => false,
    }
}
