//! Answers of Prometheus.

use jiff::{SignedDuration, Timestamp};

use crate::monitoring::SourceResult;

/// Maximum difference between the time in an answer of Prometheus and the current time. Clocks differ, and servers with
/// its API evaluate up to half a minute in the past; an answer that is older comes from a cache.
const MAX_DIFFERENCE: SignedDuration = SignedDuration::from_mins(5);

/// Returns the value of a query that was evaluated at this time of the server's clock.
pub fn queried(value: String, evaluated: Timestamp, now: Timestamp) -> SourceResult {
    let difference = now.duration_since(evaluated);
    if difference.abs() <= MAX_DIFFERENCE {
        return Ok(value.into());
    }
    let minutes = difference.as_mins().abs();
    let side = if difference.is_positive() { "behind" } else { "ahead of" };
    Err(format!("the time of the answer is {minutes} min {side} the operator's clock: check the server's clock"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::victoria_metrics(-30, None)]
    #[case::slow(-40, None)]
    #[case::fast(40, None)]
    #[case::cached(-3600, Some("60 min behind"))]
    #[case::wrong(600, Some("10 min ahead of"))]
    fn a_small_difference_of_clocks_does_not_matter(#[case] seconds: i64, #[case] problem: Option<&str>) {
        let evaluated = Timestamp::from_second(seconds).unwrap();
        match (queried("5".into(), evaluated, Timestamp::UNIX_EPOCH), problem) {
            (Ok(value), None) => {
                assert_eq!((value.value.as_str(), value.at), ("5", None), "its age counts from the query")
            }
            (Err(error), Some(problem)) => assert!(error.contains(problem), "{error}"),
            (found, problem) => panic!("{found:?} instead of {problem:?}"),
        }
    }
}
