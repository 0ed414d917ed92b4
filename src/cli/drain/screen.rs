//! How a drain shows its progress: a tree that is drawn anew in a terminal, else a line for each change.

use std::collections::BTreeSet;

use console::Term;
use jiff::Timestamp;

use crate::operator::drain::Drain;
use ganglion_actions_plan::drain::{news, tree};

/// See the module.
pub struct Screen {
    /// None if nothing is to be shown.
    way: Option<Way>,
    term: Term,
    /// Lines of the tree that stand in the terminal.
    drawn: usize,
    told: BTreeSet<String>,
}

enum Way {
    Tree,
    /// Of each change, or of each end of a replica.
    Lines {
        all: bool,
    },
}

impl Screen {
    /// `watch`: all changes are wanted; `is_text`: standard output is for people.
    pub fn new(watch: bool, is_text: bool) -> Self {
        let term = Term::stdout();
        let way = match (is_text, watch && term.is_term()) {
            (false, _) => None,
            (true, true) => Some(Way::Tree),
            (true, false) => Some(Way::Lines { all: watch }),
        };
        Self { way, term, drawn: 0, told: BTreeSet::new() }
    }

    /// Shows the drain as it is now.
    pub fn show(&mut self, drain: &Drain) {
        match self.way {
            None => {}
            Some(Way::Tree) => self.draw(drain),
            Some(Way::Lines { all }) => {
                for line in news(&drain.progress(), all) {
                    if self.told.insert(line.clone()) {
                        println!("{line}");
                    }
                }
            }
        }
    }

    fn draw(&mut self, drain: &Drain) {
        let (rows, columns) = self.term.size();
        let room = (usize::from(rows).saturating_sub(1).max(2), usize::from(columns).max(20));
        let lines = tree(&drain.progress(), drain.since(), Timestamp::now(), room);
        // A terminal that does not take it is not worth an end.
        let _ = self.term.clear_last_lines(self.drawn);
        let _ = self.term.write_line(&lines.join("\n"));
        self.drawn = lines.len();
    }

    /// The tree stays as it was last drawn.
    pub fn end(&mut self) {
        self.drawn = 0;
    }
}
