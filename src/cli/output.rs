//! How a command writes what it has found out: as text, or in full for programs.

use clap::ValueEnum;
use serde::Serialize;
use thiserror::Error;

/// Output format.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    #[value(alias = "table")]
    Text,
    Json,
    Yaml,
}

/// Why an answer was not written.
#[derive(Debug, Error)]
pub enum Error {
    #[error("the answer cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("the answer cannot be written as YAML")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

impl OutputFormat {
    /// The answer in this format.
    ///
    /// # Errors
    /// It cannot be written in it.
    pub fn of<T: Serialize>(self, answer: &T, text: impl FnOnce() -> String) -> Result<String, Error> {
        match self {
            Self::Text => Ok(text()),
            Self::Json => Ok(serde_json::to_string_pretty(answer)? + "\n"),
            Self::Yaml => Ok(serde_saphyr::to_string(answer)?),
        }
    }
}
