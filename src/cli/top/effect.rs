//! Tasks of the view outside its state.

use super::command::PlannedCommand;
use super::facts::TopId;
use super::model::TopScope;

/// A task for the program.
#[derive(Clone, Debug, PartialEq)]
pub enum TopEffect {
    /// Watch these namespaces from now on, as this epoch.
    Watch(TopScope, u64),
    Check(PlannedCommand),
    Perform(PlannedCommand),
    Explain(TopId),
    /// Stop the job, until the shell continues it.
    StopJob,
    Quit {
        interrupted: bool,
    },
}
