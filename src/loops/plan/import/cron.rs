//! Cron triggers of a ScaledObject as entries of `schedule`, or as metrics of a formula.
//!
//! KEDA takes the largest number of all open triggers, and a schedule its first open entry, so the entries are sorted
//! by their numbers.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::difference::ImportDifference as D;
use super::draft::LoopDraft;
use crate::schedule::Calendar;
use ganglion_api::closed_loop::policy::Window;

/// Maximum number of entries of a schedule.
const MOST: usize = 8;

/// Time in which differences are searched: one year.
const HORIZON: SignedDuration = SignedDuration::from_hours(24 * 366);

/// Names of cron fields.
const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Number of a cron trigger outside of its window.
const OUTSIDE: i32 = 1;

/// Fields of the metadata of a cron trigger.
const FIELDS: [&str; 4] = ["timezone", "start", "end", "desiredReplicas"];

/// Adds the schedule. `triggers`: metadata of each cron trigger, with its field in messages. `is_alone`: no other
/// trigger sets the number.
pub fn convert(
    draft: &mut LoopDraft,
    triggers: &[(String, &BTreeMap<String, String>)],
    (is_alone, max): (bool, i32),
    now: Timestamp,
) {
    if triggers.len() > MOST {
        let count = triggers.len();
        draft
            .refuse(format!("there are {count} cron triggers, and a schedule has at most {MOST} entries: remove some"));
        return;
    }
    let mut entries: Vec<(i32, Value)> = Vec::new();
    for (field, metadata) in triggers {
        match entry(draft, field, metadata, now) {
            Ok((window, desired)) => {
                let number = desired.min(max);
                let member = if is_alone { "to" } else { "min" };
                entries.push((number, json!({"during": window, member: number})));
            }
            Err(problem) => draft.refuse(problem),
        }
    }
    entries.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    let entries: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
    draft.pace.insert("schedule".to_owned(), json!(entries));
    draft.differs([D::CronAtOnce, D::ClockChange]);
}

/// Adds a metric for a formula. Returns its name. `trigger`: field of the trigger in messages, its name and its
/// metadata.
pub fn operand(
    draft: &mut LoopDraft,
    (field, name, metadata): (&str, &str, &BTreeMap<String, String>),
    now: Timestamp,
) -> Option<String> {
    match entry(draft, field, metadata, now) {
        Ok((window, desired)) => {
            let (value, otherwise) = (desired.to_string(), OUTSIDE.to_string());
            let source = json!({"cron": {"during": [window], "value": value, "otherwise": otherwise}});
            Some(draft.metric(name, source, None))
        }
        Err(problem) => {
            draft.refuse(problem);
            None
        }
    }
}

fn entry(
    draft: &mut LoopDraft,
    field: &str,
    metadata: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<(Window, i32), String> {
    if let Some(unknown) = metadata.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(format!("{field}.metadata.{unknown} is unknown: a cron trigger has {}", FIELDS.join(", ")));
    }
    let text = |name: &str| {
        let found = metadata.get(name).filter(|text| !text.is_empty()).cloned();
        found.ok_or_else(|| format!("{field}.metadata.{name} is missing"))
    };
    let fields = |name: &str| {
        let text = text(name)?;
        match NAMED.iter().find(|(name, _)| *name == text) {
            Some((_, fields)) => Ok((*fields).to_owned()),
            None if text.starts_with('@') => Err(format!("{field}.metadata.{name} is {text}: use five cron fields")),
            None => Ok(text),
        }
    };
    let (start, end) = (fields("start")?, fields("end")?);
    let desired = text("desiredReplicas")?;
    let desired = desired
        .parse::<i32>()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("{field}.metadata.desiredReplicas is {desired}: use a whole number above 0"))?;
    let window = Window {
        start: Some(start.clone()),
        until: Some(end.clone()),
        time_zone: Some(text("timezone")?),
        ..Window::default()
    };
    let calendar = Calendar::parse(&format!("{field}.metadata"), &window).map_err(|error| error.to_string())?;
    if let Some(period) = calendar.first_period_unlike_next_end(now, HORIZON) {
        draft.notes.push(format!(
            "{field}: start `{start}` and end `{end}` do not alternate. The loop is open from each start to the next end; \
             KEDA is open whenever the next end comes before the next start. They differ, for example, from {} to {}: KEDA is \
             {}, the loop {}",
            period.begin,
            period.end,
            if period.open { "closed" } else { "open" },
            if period.open { "open" } else { "closed" },
        ));
    }
    Ok((window, desired))
}
