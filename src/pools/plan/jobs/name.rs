//! Validates the name of a job.

use super::problem::Fault;

/// Maximum length of a name, in characters.
pub const MOST_CHARACTERS: usize = 253;

/// Checks that a job can have this name.
pub fn check(name: &str) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(Fault::EmptyName);
    }
    if name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace) {
        return Err(Fault::BlankEnd);
    }
    if let Some(control) = name.chars().find(|character| character.is_control()) {
        return Err(Fault::Control(control));
    }
    // A name never has more characters than bytes, so counting them is rarely necessary.
    if name.len() > MOST_CHARACTERS {
        let characters = name.chars().count();
        if characters > MOST_CHARACTERS {
            return Err(Fault::LongName(characters));
        }
    }
    Ok(())
}
