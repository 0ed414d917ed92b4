//! Parses the jobs of a pool from the texts of its sources, and merges several sources into one table.
//!
//! | file | description |
//! |---|---|
//! | `lines` | parses one job per line |
//! | `list` | parses a YAML or JSON list |
//! | `name` | validates the name of a job |
//! | `node` | reads any node of a YAML or JSON document |
//! | `problem` | describes an error in a text |
//! | `table` | merges the jobs of all sources, each once |

mod lines;
mod list;
mod name;
mod node;
mod problem;
mod table;
#[cfg(test)]
mod tests;

pub use name::MOST_CHARACTERS;
pub use problem::{Fault, JobsProblem, Place};
pub use table::{JobTable, Repeated, merge};

use super::Job;

/// Parses the jobs of a text: one job per line; or a YAML or JSON list of names and objects; or an object whose field
/// `jobs` is such a list. Returns them in the order of the text, with repetitions.
///
/// One invalid job fails the whole text: otherwise the valid part would be assigned as if it were complete.
pub fn parse(text: &str) -> Result<Vec<Job>, JobsProblem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_yaml(text) { list::parse(text) } else { lines::parse(text) }
}

/// Returns true if the text is YAML (which includes JSON): its content begins like YAML, or a later line is a field
/// `jobs`, which other fields may precede.
fn is_yaml(text: &str) -> bool {
    let mut content = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = content.next() else { return false };
    let begins = |marker: &str| {
        first.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    let opens_list = |line: &str| {
        let rest = line.strip_prefix("jobs:").map(str::trim_start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '#']))
    };
    first.starts_with(['[', '{']) || begins("-") || begins("---") || begins("jobs:") || content.any(opens_list)
}
