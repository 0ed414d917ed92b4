//! Traces: ids that every process computes from the same facts, and spans.
//!
//! No process has to hand an id to the next one, and a span that two processes report has one id. Texts in spans are
//! bounded.

use std::fmt::{self, Display, Formatter};

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::words::cut;

/// Maximum length of a text in a span, in bytes.
pub const SPAN_TEXT: usize = 256;

/// Memory of a span without its texts, as an estimate in bytes.
const SPAN_BYTES: usize = 256;

/// Id of a trace: the way of one sample through its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// First 16 bytes of the SHA-256 of four texts, each followed by a zero byte: `ganglion.dev/trace`, the uid of the
    /// loop, the time of the sample's tag (RFC 3339, UTC, six decimal places), and its sequence number.
    pub fn new(loop_uid: &str, sample: Timestamp, sequence: i64) -> Self {
        Self(hash(&["ganglion.dev/trace", loop_uid, &format!("{sample:.6}"), &sequence.to_string()]))
    }

    /// Last eight bytes as a number, by which a share of all traces is selected.
    pub fn low_bits(self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[8..]);
        u64::from_be_bytes(low)
    }
}

impl Display for TraceId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Id of a span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

impl SpanId {
    /// First eight bytes of the SHA-256 of three texts, each followed by a zero byte: the id of the trace in hex, the
    /// name of the stage, and the number or name that distinguishes its attempts.
    pub fn new(trace: TraceId, stage: &str, attempt: &str) -> Self {
        Self(hash(&[&trace.to_string(), stage, attempt]))
    }
}

impl Display for SpanId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// First bytes of the SHA-256 of these texts, each followed by a zero byte.
fn hash<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let mut first = [0; N];
    first.copy_from_slice(&hash.finalize()[..N]);
    first
}

/// Value of an attribute of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    Text(String),
    Number(i64),
}

/// One stage of a trace, after its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    /// The span that caused this one; None for the first one of the trace.
    pub parent: Option<SpanId>,
    /// Name of the stage.
    pub name: &'static str,
    pub start: Timestamp,
    /// Not before `start`.
    pub end: Timestamp,
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Why the stage failed.
    pub error: Option<String>,
}

impl Span {
    /// Creates a span of this stage and attempt. A clock that was set back does not make it end before its start.
    pub fn new(trace: TraceId, (name, attempt): (&'static str, &str), (start, end): (Timestamp, Timestamp)) -> Self {
        let id = SpanId::new(trace, name, attempt);
        Self { trace, id, parent: None, name, start, end: end.max(start), attributes: Vec::new(), error: None }
    }

    /// Sets the span that caused this one.
    pub fn after(self, parent: SpanId) -> Self {
        Self { parent: Some(parent), ..self }
    }

    /// Adds a text, cut to [`SPAN_TEXT`] bytes.
    pub fn text(mut self, key: &'static str, text: &str) -> Self {
        self.attributes.push((key, SpanValue::Text(cut(text, SPAN_TEXT).to_owned())));
        self
    }

    /// Adds a number.
    pub fn number(mut self, key: &'static str, number: i64) -> Self {
        self.attributes.push((key, SpanValue::Number(number)));
        self
    }

    /// Marks the stage as failed, if there is a reason.
    pub fn failed(self, why: Option<&str>) -> Self {
        Self { error: why.map(|why| cut(why, SPAN_TEXT).to_owned()), ..self }
    }

    /// Memory of the span, as an estimate in bytes.
    pub fn bytes(&self) -> usize {
        let texts = self.attributes.iter().map(|(key, value)| match value {
            SpanValue::Text(text) => key.len() + text.len(),
            SpanValue::Number(_) => key.len(),
        });
        SPAN_BYTES + texts.sum::<usize>() + self.error.as_ref().map_or(0, String::len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn ids_are_hashes_of_the_documented_texts() {
        let trace = TraceId::new("6f2c", time("2026-11-21T10:00:03Z"), 7);
        let text = "ganglion.dev/trace\x006f2c\x002026-11-21T10:00:03.000000Z\x007\x00";
        let expected: String = Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(trace.to_string(), expected);
        assert_eq!(trace.to_string(), "e4958e99297037c0d608a59ed861697e");
        assert_eq!(SpanId::new(trace, "execution", "3").to_string(), "e85332e0b077c39c");
        assert_eq!(format!("{:016x}", trace.low_bits()), &trace.to_string()[16..]);
    }

    #[test]
    fn texts_are_cut_and_no_span_ends_before_its_start() {
        let trace = TraceId::new("u", Timestamp::UNIX_EPOCH, 0);
        let times = (time("2026-11-21T10:00:03Z"), time("2026-11-21T10:00:01Z"));
        let span =
            Span::new(trace, ("sample", ""), times).text("name", &"ä".repeat(300)).failed(Some(&"x".repeat(999)));
        assert_eq!(span.end, span.start);
        assert!(span.bytes() < SPAN_BYTES + 2 * SPAN_TEXT + 8, "{}", span.bytes());
        assert_eq!(span.error.as_ref().map(String::len), Some(SPAN_TEXT));
    }

    proptest! {
        #[test]
        fn other_facts_have_other_ids(
            (one, other) in ("[a-f0-9]{1,6}", "[a-f0-9]{1,6}"),
            (first, second) in (0..9_i64, 0..9_i64),
            (micros, later) in (0..3_i64, 0..3_i64),
        ) {
            let at = |micros| Timestamp::from_microsecond(micros).unwrap();
            let same = (&one, first, micros) == (&other, second, later);
            let ids = (TraceId::new(&one, at(micros), first), TraceId::new(&other, at(later), second));
            prop_assert_eq!(ids.0 == ids.1, same);
        }
    }
}
