//! Numbers that depend on the time.

use jiff::Timestamp;

use super::Calendar;
use crate::common::{FieldError, number};
use ganglion_api::closed_loop::metric::CronSource;
use ganglion_api::scalars::Number;

/// A source `cron`.
#[derive(Clone, Debug)]
pub struct CronNumber {
    windows: Vec<Calendar>,
    value: String,
    otherwise: String,
}

impl CronNumber {
    /// Parses a source. `field`: its path in messages.
    pub fn parse(field: &str, source: &CronSource) -> Result<Self, FieldError> {
        let windows = super::parse(&format!("{field}.during"), Some(&source.during))?;
        let otherwise = source.otherwise.clone().unwrap_or_else(|| "0".into());
        for (member, value) in [("value", &source.value), ("otherwise", &otherwise)] {
            number(&format!("{field}.{member}"), value)?;
        }
        let text = |number: &Number| number.as_str().to_owned();
        Ok(Self { windows, value: text(&source.value), otherwise: text(&otherwise) })
    }

    /// The number at this time, as it is written in the spec.
    pub fn at(&self, now: Timestamp) -> &str {
        if super::phase(&self.windows, now).open { &self.value } else { &self.otherwise }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn parse(source: Value) -> Result<CronNumber, String> {
        CronNumber::parse("cron", &serde_json::from_value(source).unwrap()).map_err(|error| error.to_string())
    }

    fn office() -> Value {
        json!({"start": "0 8 * * MON-FRI", "until": "0 18 * * MON-FRI", "timeZone": "Europe/Berlin"})
    }

    /// The 27th is a Friday; Berlin is one hour ahead of UTC in winter.
    #[rstest]
    #[case::before("2026-11-27T06:59:59Z", "2")]
    #[case::begin("2026-11-27T07:00:00Z", "1k")]
    #[case::end("2026-11-27T17:00:00Z", "2")]
    #[case::second_window("2026-11-28T12:30:00Z", "1k")]
    #[case::weekend("2026-11-28T13:30:00Z", "2")]
    fn the_number_depends_on_the_time(#[case] now: &str, #[case] expected: &str) {
        let noon = json!({"cron": "0 12 * * SAT", "duration": "1h"});
        let number = parse(json!({"during": [office(), noon], "value": "1k", "otherwise": "2"})).unwrap();
        assert_eq!(number.at(now.parse().unwrap()), expected);
    }

    #[test]
    fn the_number_of_other_times_is_0_by_default() {
        let number = parse(json!({"during": [office()], "value": "-3"})).unwrap();
        assert_eq!(number.at("2026-11-28T12:30:00Z".parse().unwrap()), "0");
    }

    #[rstest]
    #[case(json!({"during": [office()], "value": "many"}), "cron.value: ")]
    #[case(json!({"during": [office()], "value": "1", "otherwise": "few"}), "cron.otherwise: ")]
    #[case(json!({"during": [office(), {"cron": "0 0 30 2 *", "duration": "1h"}], "value": "1"}), "cron.during[1].cron: ")]
    #[case(json!({"during": [{"start": "0 8 * * *", "until": "0 8 * * *"}], "value": "1"}), "such a window never opens")]
    fn a_source_that_cannot_work_is_refused_with_its_field(#[case] source: Value, #[case] words: &str) {
        let problem = parse(source).unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
}
