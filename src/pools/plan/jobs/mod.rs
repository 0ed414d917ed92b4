//! The jobs of a pool, from the texts of its sources: how a text is read, and how several sources become one table.
//!
//! | file | what |
//! |---|---|
//! | `lines` | one job a line |
//! | `list` | a YAML or JSON list |
//! | `name` | what can be the name of a job |
//! | `node` | any node of a YAML or JSON document |
//! | `problem` | what is wrong with a text, in words |
//! | `table` | all jobs of a pool, each once |

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

/// The jobs of a text: one a line, or a YAML or JSON list of names and objects, or an object whose member `jobs` is such a list.
/// In the order of the text, as often as it names them.
///
/// # Errors
///
/// Something in the text is no job. A part of the jobs would be dealt as if it were all of them.
pub fn parse(text: &str) -> Result<Vec<Job>, JobsProblem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_yaml(text) { list::parse(text) } else { lines::parse(text) }
}

/// Whether the text is YAML (and so possibly JSON): by how its content begins, or by a member `jobs` further on, before which
/// other members may stand.
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
