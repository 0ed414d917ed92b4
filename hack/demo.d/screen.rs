//! Output of the demo: permanent lines, and on a terminal also a table below them that is redrawn in place.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Meaning of a text, shown as its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Quiet,
    Good,
    Bad,
    Replacement,
    Victim,
    Surplus,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Quiet => "2",
            Self::Good => "32",
            Self::Bad => "1;31",
            Self::Replacement => "36",
            Self::Victim => "35",
            Self::Surplus => "33",
        }
    }

    fn color(self) -> Option<Color> {
        match self {
            Self::Plain => None,
            Self::Quiet => Some(Color::DarkGrey),
            Self::Good => Some(Color::Green),
            Self::Bad => Some(Color::Red),
            Self::Replacement => Some(Color::Cyan),
            Self::Victim => Some(Color::Magenta),
            Self::Surplus => Some(Color::Yellow),
        }
    }
}

pub struct Field(pub String, pub Tone);

pub struct Screen {
    terminal: bool,
    color: bool,
    live: ProgressBar,
}

impl Screen {
    pub fn new() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let target = if terminal { ProgressDrawTarget::stdout() } else { ProgressDrawTarget::hidden() };
        let live = ProgressBar::with_draw_target(None, target);
        // This fallback is never used: a template without a spinner is always valid.
        live.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { terminal, color: terminal && std::env::var_os("NO_COLOR").is_none(), live }
    }

    fn print(&self, text: &str) {
        if self.terminal { self.live.suspend(|| println!("{text}")) } else { println!("{text}") }
    }

    /// Colors a text by its tone if colors are enabled.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        if self.color && tone != Tone::Plain { format!("\x1b[{}m{text}\x1b[0m", tone.code()) } else { text.to_owned() }
    }

    pub fn gap(&self) {
        self.print("");
    }

    pub fn say(&self, text: &str) {
        self.print(text);
    }

    pub fn title(&self, text: &str) {
        self.print(&if self.color { format!("\n\x1b[1m{text}\x1b[0m\n") } else { format!("\n{text}\n") });
    }

    pub fn heading(&self, text: &str) {
        self.print(&if self.color { format!("\n\x1b[1;34m── {text}\x1b[0m\n") } else { format!("\n-- {text}\n") });
    }

    /// Shows a step while it runs, on a terminal only.
    pub fn doing(&self, text: &str) {
        self.live.set_message(self.paint(Tone::Quiet, &format!("  … {text}")));
        self.live.tick();
    }

    /// Prints a finished step.
    pub fn done(&self, what: &str, detail: &str) {
        self.rest();
        self.print(&format!("  {} {what:<15} {}", self.paint(Tone::Good, "✔"), self.paint(Tone::Quiet, detail)));
    }

    /// Prints a manifest that is about to be applied.
    pub fn manifest(&self, yaml: &str) {
        for line in yaml.trim_end().lines() {
            let (code, comment) = line.split_once(" #").map_or((line, None), |(code, more)| (code, Some(more)));
            let comment = comment.map(|text| self.paint(Tone::Quiet, &format!(" #{text}"))).unwrap_or_default();
            self.print(&format!("    {code}{comment}"));
        }
        self.print("");
    }

    /// Prints an event and the time since the beginning of the act.
    pub fn event(&self, after: Duration, subject: &str, text: &str, tone: Tone) {
        let time = self.paint(Tone::Quiet, &format!("{:>7.2}s", after.as_secs_f64()));
        self.print(&format!("{time}  {} {text}", self.paint(tone, &format!("{subject:<24}"))));
    }

    /// Prints one check: its name, the observed value, and whether it passed.
    pub fn verdict(&self, what: &str, seen: &str, good: bool) {
        let (mark, tone) = if good { ("✔", Tone::Good) } else { ("✘", Tone::Bad) };
        self.print(&format!("  {} {what:<34} {}", self.paint(tone, mark), self.paint(tone, seen)));
    }

    pub fn good(&self, text: &str) {
        self.print(&self.paint(Tone::Good, text));
    }

    pub fn bad(&self, text: &str) {
        self.rest();
        let text = self.paint(Tone::Bad, text);
        if self.terminal { self.print(&text) } else { eprintln!("{text}") }
    }

    /// Sets the live part below the permanent lines, on a terminal only.
    pub fn live(&self, parts: &[String]) {
        if self.terminal {
            self.live.set_message(format!("\n{}", parts.join("\n")));
            self.live.tick();
        }
    }

    /// Clears the live part.
    pub fn rest(&self) {
        self.live.set_message("");
        self.live.suspend(|| {});
    }

    /// Formats a table as text.
    pub fn table(&self, header: &[&str], rows: Vec<Vec<Field>>) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.force_no_tty();
        if self.color {
            table.enforce_styling();
        }
        let head = |name: &&str| Cell::new(name).fg(Color::DarkGrey).set_alignment(CellAlignment::Left);
        table.set_header(header.iter().map(head));
        for row in rows {
            table.add_row(row.into_iter().map(|Field(text, tone)| match tone.color() {
                Some(color) => Cell::new(text).fg(color),
                None => Cell::new(text),
            }));
        }
        let indent = |line: &str| format!("  {}", line.trim_end());
        table.to_string().lines().map(indent).collect::<Vec<_>>().join("\n")
    }
}
