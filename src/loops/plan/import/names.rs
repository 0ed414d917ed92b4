//! Names of metrics: a letter followed by letters, digits and `_`, at most 40 characters, each once.

use std::collections::BTreeSet;

/// Maximum length, in bytes.
const LONGEST: usize = 40;

/// Names that are in use.
#[derive(Debug, Default)]
pub struct MetricNames(BTreeSet<String>);

impl MetricNames {
    /// Returns a new name that resembles this text.
    pub fn add(&mut self, text: &str) -> String {
        let plain = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
        let mut base: String = text.chars().map(plain).take(LONGEST).collect();
        if !base.starts_with(|char: char| char.is_ascii_alphabetic()) {
            base.insert_str(0, "m_");
            base.truncate(LONGEST);
        }
        let mut name = base.clone();
        let mut number = 2;
        while !self.0.insert(name.clone()) {
            let suffix = format!("_{number}");
            name = base[..base.len().min(LONGEST - suffix.len())].to_owned() + &suffix;
            number += 1;
        }
        name
    }
}
