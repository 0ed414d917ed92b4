//! The first hop: what was measured in, alarms out.
//!
//! | file | what it decides |
//! |---|---|
//! | `tag` | which sample counts |
//! | `level` | which alarm a value raises |
//! | `observe` | the next status |
//! | `status_texts` | its words and conditions, and when it is worth a write |

pub mod level;
pub mod observe;
mod status_texts;
pub mod tag;

#[cfg(test)]
mod tests;

pub use observe::{Around, Got, LastServedFound, Measurement, News, Point, Seen, Watch};
