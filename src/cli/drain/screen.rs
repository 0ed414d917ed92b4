//! Progress output of a drain: a tree that is redrawn in a terminal, otherwise one line per change.

use std::collections::BTreeSet;

use console::Term;
use jiff::Timestamp;

use crate::operator::drain::Drain;
use ganglion_actions_plan::drain::{news, tree};

/// Shows the progress of a drain.
pub struct Screen {
    /// None: nothing is shown.
    way: Option<Way>,
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
}

impl Screen {
    /// `watch`: show all changes. `is_text`: standard output is for humans.
    pub fn new(watch: bool, is_text: bool) -> Self {
        let term = Term::stdout();
        let way = match (is_text, watch && term.is_term()) {
            (false, _) => None,
            (true, true) => Some(Way::Tree),
            (true, false) => Some(Way::Lines { all: watch }),
        };
        Self { way, term, drawn: 0, told: BTreeSet::new() }
    }

    /// Shows the current state of the drain.
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
        // An error of the terminal must not end the drain.
        let _ = self.term.clear_last_lines(self.drawn);
        let _ = self.term.write_line(&lines.join("\n"));
        self.drawn = lines.len();
    }

    /// Leaves the tree as it was last drawn.
    pub fn end(&mut self) {
        self.drawn = 0;
    }
}
