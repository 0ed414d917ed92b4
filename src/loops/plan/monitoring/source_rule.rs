//! Rules about the values of each kind of source, in one table: when a value is partial, how old it may be, and what
//! counts as new. The page of the kind contains the table; a test compares it.
//!
//! All times are of the operator's clock, except where a rule says that a source reports the time of its measurement.

use jiff::{SignedDuration, Timestamp};

use ganglion_api::closed_loop::metric::Source;

/// Minimum of the default age of values that come at a pace of their own. metrics-server measures once a minute in
/// several distributions, and a value is up to half a minute old when it is served; senders are rarely slower.
pub const OWN_PACE_AGE: SignedDuration = SignedDuration::from_secs(150);

/// Time from which the age of a value counts. Unless a source reports it, a value of the same time is the same
/// measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredAt {
    /// Arrival of the sample: the sender's clock orders its samples, and is not trusted otherwise.
    Arrival,
    /// Start of the query: the value was not measured earlier.
    Query,
    /// Time that the source reports, at most the current time.
    Reported,
    /// Start of the query: until then, the source says that the value is valid. It reports the time of the measurement
    /// as well, and does not write a measurement that differs little from the one before.
    Confirmed,
}

impl MeasuredAt {
    /// Description of the time for the page.
    fn time(self) -> &'static str {
        match self {
            Self::Arrival => "the arrival of the sample",
            Self::Query | Self::Confirmed => "the start of the query",
            Self::Reported => "the oldest measurement",
        }
    }

    /// Description of a new value for the page.
    fn novelty(self) -> &'static str {
        match self {
            Self::Arrival => "each sample with a later time",
            Self::Query => "each answer",
            Self::Reported => "a later measurement",
            Self::Confirmed => "a later `sampledAt`",
        }
    }
}

/// Rules about the values of one kind of source.
#[derive(Clone, Copy, Debug)]
pub struct SourceRule {
    /// Name of the source in a spec.
    pub name: &'static str,
    /// Whether a source is of this kind.
    is_of: fn(&Source) -> bool,
    /// Whether the operator sends a query for the value once per interval.
    pub is_polled: bool,
    /// Whether the query is a request to the API server, as the account of the loop.
    pub reads_as_account: bool,
    /// Description of the answers without a value because a part of them is missing.
    pub partial: &'static str,
    pub measured_at: MeasuredAt,
    /// Values come at a pace of their own, which may be slower than the interval of the loop.
    pub own_pace: bool,
}

const PARTIAL_ANSWER: &str = "the server says that its answer is partial, or warns about it; HTTP 206";

/// The rules, in the order of the fields of a source.
pub const SOURCE_RULES: [SourceRule; 11] = [
    SourceRule {
        name: "push",
        is_of: |source| source.push.is_some(),
        is_polled: false,
        reads_as_account: false,
        partial: "the sample lacks the key",
        measured_at: MeasuredAt::Arrival,
        own_pace: true,
    },
    SourceRule {
        name: "prometheus",
        is_of: |source| source.prometheus.is_some(),
        is_polled: true,
        reads_as_account: false,
        partial: PARTIAL_ANSWER,
        measured_at: MeasuredAt::Query,
        own_pace: false,
    },
    SourceRule {
        name: "http",
        is_of: |source| source.http.is_some(),
        is_polled: true,
        reads_as_account: false,
        partial: PARTIAL_ANSWER,
        measured_at: MeasuredAt::Query,
        own_pace: false,
    },
    SourceRule {
        name: "scaler",
        is_of: |source| source.scaler.is_some(),
        is_polled: true,
        reads_as_account: false,
        partial: "the answer has no value of the metric, or more than one",
        measured_at: MeasuredAt::Query,
        own_pace: false,
    },
    SourceRule {
        name: "object",
        is_of: |source| source.object.is_some(),
        is_polled: true,
        reads_as_account: true,
        partial: "the condition was observed for an older generation",
        measured_at: MeasuredAt::Query,
        own_pace: false,
    },
    SourceRule {
        name: "resource",
        is_of: |source| source.resource.is_some(),
        is_polled: true,
        reads_as_account: true,
        partial: "no ready pod is measured; other missing pods widen the range of the value",
        measured_at: MeasuredAt::Reported,
        own_pace: true,
    },
    SourceRule {
        name: "external",
        is_of: |source| source.external.is_some(),
        is_polled: true,
        reads_as_account: true,
        partial: "the adapter answers an empty list, or several values without `several: Sum`",
        measured_at: MeasuredAt::Reported,
        own_pace: true,
    },
    SourceRule {
        name: "custom",
        is_of: |source| source.custom.is_some(),
        is_polled: true,
        reads_as_account: true,
        partial: "the adapter answers an empty list; other missing pods widen the range of the value",
        measured_at: MeasuredAt::Reported,
        own_pace: true,
    },
    SourceRule {
        name: "cron",
        is_of: |source| source.cron.is_some(),
        is_polled: true,
        reads_as_account: false,
        partial: "never",
        measured_at: MeasuredAt::Query,
        own_pace: false,
    },
    SourceRule {
        name: "nodeConfig",
        is_of: |source| source.node_config.is_some(),
        is_polled: false,
        reads_as_account: false,
        partial: "Sum: a node has no fresh value; others: no node has one",
        measured_at: MeasuredAt::Confirmed,
        own_pace: false,
    },
    SourceRule {
        name: "loop",
        is_of: |source| source.loop_.is_some(),
        is_polled: false,
        reads_as_account: false,
        partial: "the loop has no Decision",
        measured_at: MeasuredAt::Query,
        own_pace: false,
    },
];

impl SourceRule {
    /// Rules about this source. A formula is no source of its own; its operands are. A source without a member cannot
    /// have a value; the schema refuses it.
    pub fn of(source: &Source) -> Self {
        let found = SOURCE_RULES.into_iter().find(|rule| (rule.is_of)(source));
        found.unwrap_or(SOURCE_RULES[SOURCE_RULES.len() - 1])
    }

    /// Row of the table in the page of the kind.
    pub fn row(self) -> String {
        let age = if self.own_pace { "three intervals, at least 150s" } else { "three intervals" };
        let (time, novelty) = (self.measured_at.time(), self.measured_at.novelty());
        format!("| {} | {} | {time} | {age} | {novelty} |", self.name, self.partial)
    }

    /// Maximum age of a value if the metric does not set one.
    pub fn default_age(self, interval: SignedDuration) -> SignedDuration {
        let polls = interval.saturating_mul(3);
        if self.own_pace { polls.max(OWN_PACE_AGE) } else { polls }
    }
}

/// Returns when a pushed sample arrived: now if it was awaited. A sample that a process finds when it starts, or at the
/// end of a pause, counts from its own time, since nobody knows when it arrived.
pub fn arrival(sample_time: &str, was_awaited: bool, now: Timestamp) -> Timestamp {
    if was_awaited {
        return now;
    }
    sample_time.parse().unwrap_or(now).min(now)
}
