//! Parses one job per line. Ignores whitespace at both ends, empty lines, and lines that begin with `#`.

use super::Job;
use super::name;
use super::problem::{JobsProblem, Place};

/// Parses the jobs of such a text.
pub fn parse(text: &str) -> Result<Vec<Job>, JobsProblem> {
    let mut jobs = Vec::new();
    for (line, name) in (1..).zip(text.lines().map(str::trim)) {
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        name::check(name).map_err(|fault| JobsProblem::new(Place { line, item: None }, fault, name))?;
        jobs.push(Job { name: name.into(), weight: 1, dedicated: false });
    }
    Ok(jobs)
}
