//! What can be the name of a job.

use super::problem::Fault;

/// How long a name can be.
pub const MOST_CHARACTERS: usize = 253;

/// Whether a job can have this name.
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
    // No name has more characters than bytes.
    if name.len() > MOST_CHARACTERS {
        let characters = name.chars().count();
        if characters > MOST_CHARACTERS {
            return Err(Fault::LongName(characters));
        }
    }
    Ok(())
}
