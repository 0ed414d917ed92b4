//! Output of a command: text, or complete data for programs.

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

/// Error: a result was not written.
#[derive(Debug, Error)]
pub enum Error {
    #[error("the result cannot be serialized as JSON")]
    Json(#[from] serde_json::Error),
    #[error("the result cannot be serialized as YAML")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

impl OutputFormat {
    /// Formats the result.
    pub fn of<T: Serialize>(self, answer: &T, text: impl FnOnce() -> String) -> Result<String, Error> {
        match self {
            Self::Text => Ok(text()),
            Self::Json => Ok(serde_json::to_string_pretty(answer)? + "\n"),
            Self::Yaml => Ok(serde_saphyr::to_string(answer)?),
        }
    }
}
