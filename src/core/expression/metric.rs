//! Names that a score of a metric may use, and their values.
//!
//! Owns the vocabulary and the reading of a [`MetricView`]. Must not depend on operators or syntax.

use super::kind::Kind;
use cel::common::types::{CelDouble, CelInt, CelString};
use cel::common::value::CowVal;

/// Values of a metric in alarm that a score may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricView<'a> {
    /// `metric.name`.
    pub name: &'a str,
    /// `metric.side`: Low, High, Equal or Missing.
    pub side: &'a str,
    /// `metric.value`; 0 if unknown.
    pub value: f64,
    /// `metric.excess`: distance of the value beyond its level, relative to the level; 0 if undefined.
    pub excess: f64,
    /// `metric.rank`: position in the ranking, from 0.
    pub rank: i64,
    /// `metric.wanted`, `metric.served` and `metric.limited`: the counters of the metric.
    pub wanted: i64,
    pub served: i64,
    pub limited: i64,
}

/// A name that has a value for every metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricField {
    Name,
    Side,
    Value,
    Excess,
    Rank,
    Wanted,
    Served,
    Limited,
}

const FIELDS: [(&str, MetricField); 8] = [
    ("metric.name", MetricField::Name),
    ("metric.side", MetricField::Side),
    ("metric.value", MetricField::Value),
    ("metric.excess", MetricField::Excess),
    ("metric.rank", MetricField::Rank),
    ("metric.wanted", MetricField::Wanted),
    ("metric.served", MetricField::Served),
    ("metric.limited", MetricField::Limited),
];

impl MetricField {
    pub(super) fn named(path: &str) -> Option<Self> {
        FIELDS.iter().find(|(name, _)| *name == path).map(|(_, field)| *field)
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Name | Self::Side => Kind::Text,
            Self::Value | Self::Excess => Kind::Double,
            Self::Rank | Self::Wanted | Self::Served | Self::Limited => Kind::Int,
        }
    }

    pub(super) fn read<'b>(self, metric: &MetricView<'b>) -> CowVal<'b, 'b> {
        let int = |value: i64| CowVal::owned(CelInt::from(value));
        match self {
            Self::Name => CowVal::owned(CelString::from(metric.name)),
            Self::Side => CowVal::owned(CelString::from(metric.side)),
            Self::Value => CowVal::owned(CelDouble::from(metric.value)),
            Self::Excess => CowVal::owned(CelDouble::from(metric.excess)),
            Self::Rank => int(metric.rank),
            Self::Wanted => int(metric.wanted),
            Self::Served => int(metric.served),
            Self::Limited => int(metric.limited),
        }
    }
}

/// All names, for messages.
pub(super) fn known_names() -> String {
    FIELDS.map(|(name, _)| name).join(", ")
}
