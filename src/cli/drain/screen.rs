//! Progress output of a drain: a tree that is redrawn in a terminal, otherwise one line per change.

use std::collections::BTreeSet;

use console::Term;
use jiff::Timestamp;

use super::super::output::OutputFormat;
use super::super::progress::CommandProgress;
use crate::operator::drain::Drain;
use ganglion_actions_plan::drain::{news, summary, tree};

/// Shows the progress of a drain.
pub struct Screen<'a> {
    way: Way,
    /// For the summary, where no tree is shown.
    progress: &'a CommandProgress,
    term: Term,
    /// Number of lines of the tree in the terminal.
    drawn: usize,
    told: BTreeSet<String>,
}

enum Way {
    Tree,
    /// One line for each change (`all`), or for each replica that ended.
    Lines {
        all: bool,
    },
    /// Standard output is for programs.
    Nothing,
}

impl<'a> Screen<'a> {
    /// `watch`: show all changes.
    pub fn new(watch: bool, output: OutputFormat, progress: &'a CommandProgress) -> Self {
        let term = Term::stdout();
        let way = match (output == OutputFormat::Text, watch && term.is_term()) {
            (false, _) => Way::Nothing,
            (true, true) => Way::Tree,
            (true, false) => Way::Lines { all: watch },
        };
        Self { way, progress, term, drawn: 0, told: BTreeSet::new() }
    }

    /// Shows the current state of the drain.
    pub fn show(&mut self, drain: &Drain) {
        match self.way {
            Way::Tree => {
                self.progress.set("");
                return self.draw(drain);
            }
            Way::Lines { all } => {
                for line in news(&drain.progress(), all) {
                    if self.told.insert(line.clone()) {
                        self.progress.print(&line);
                    }
                }
            }
            Way::Nothing => {}
        }
        self.progress.set(&summary(&drain.progress()));
    }

    fn draw(&mut self, drain: &Drain) {
        let (rows, columns) = self.term.size();
        let room = (usize::from(rows).saturating_sub(1).max(2), usize::from(columns).max(20));
        let lines = tree(&drain.progress(), drain.since(), Timestamp::now(), room);
        // An error of the terminal must not end the drain.
        let _ = self.term.clear_last_lines(self.drawn);
        let _ = self.term.write_line(&lines.join("\n"));
        self.drawn = lines.len();
    }
}
