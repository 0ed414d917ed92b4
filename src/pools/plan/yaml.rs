//! Limits for reading YAML that users wrote.

use serde_saphyr::Options;
use serde_saphyr::options::NonFiniteFloatPolicy;

/// Options for the content of a ConfigMap. A text of 1 MiB has at most half as many nodes as bytes; the alias limits
/// keep aliases from multiplying them.
pub fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: 1_000_000, max_events: 2_000_000, max_aliases: 10_000 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        emit_comments: false,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}
