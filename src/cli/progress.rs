//! Progress of a command on standard error: in a terminal one line that is redrawn in place and removed at the end,
//! elsewhere a line now and then. Standard output stays free for the result.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use console::Term;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::output::OutputFormat;
use super::signals::Interrupts;
use super::width::{clean, cut};
use ganglion_core::layout::age;

/// Time for which a command shows no progress: most end before.
const QUIET: Duration = Duration::from_secs(1);

/// Minimum time between two lines outside a terminal.
const PACE: Duration = Duration::from_secs(5);

/// Interval between two looks at the line in a terminal, which shows the time.
const REDRAW: Duration = Duration::from_millis(200);

/// Columns that stay free at the end of the line: terminals echo ^C there, and some wrap a line that fills the last
/// column.
const FREE: usize = 3;

/// Maximum length of a text, in characters.
const LONGEST: usize = 500;

/// Returns to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Destination of the progress.
pub trait ProgressOutput: Send {
    /// Width in columns. None: not a terminal.
    fn columns(&self) -> Option<usize>;
    fn write(&mut self, text: &str);
}

impl ProgressOutput for Term {
    fn columns(&self) -> Option<usize> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
        (self.is_term() && !is_dumb).then(|| usize::from(self.size().1))
    }

    fn write(&mut self, text: &str) {
        // An error of the terminal must not end the command.
        let _ = self.write_str(text);
    }
}

/// Progress of one command.
pub struct CommandProgress(Mutex<ProgressPen>);

impl CommandProgress {
    /// Progress on standard error. Outside a terminal, only output as text has progress: programs read the others.
    pub fn new(format: OutputFormat) -> Self {
        Self::on(Box::new(Term::stderr()), format)
    }

    fn on(output: Box<dyn ProgressOutput>, format: OutputFormat) -> Self {
        let begun = Instant::now();
        Self(Mutex::new(ProgressPen { output, format, begun, text: String::new(), shown: None, is_drawn: false }))
    }

    /// Sets what the command does now, or what it waits for. Empty: nothing is shown.
    pub fn set(&self, text: &str) {
        let mut pen = self.pen();
        pen.text = clean(text, LONGEST);
        pen.show(Instant::now());
    }

    /// Writes a line of the result to standard output. In a terminal, it is also what the command does now.
    pub fn print(&self, line: &str) {
        let mut pen = self.pen();
        pen.clear();
        println!("{line}");
        if pen.output.columns().is_some() {
            pen.text = clean(line, LONGEST);
        }
    }

    /// Runs `work` and shows its progress. None: a signal arrived, and `work` was not completed.
    pub async fn follow<T>(&self, interrupts: &mut Interrupts, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let mut looks = interval(REDRAW);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let result = loop {
            tokio::select! {
                biased;
                () = interrupts.arrived() => break None,
                result = &mut work => break Some(result),
                _ = looks.tick() => self.pen().show(Instant::now()),
            }
        };
        self.pen().clear();
        result
    }

    fn pen(&self) -> MutexGuard<'_, ProgressPen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows the current text at the right times.
struct ProgressPen {
    output: Box<dyn ProgressOutput>,
    format: OutputFormat,
    begun: Instant,
    text: String,
    /// The last line that was written, and when.
    shown: Option<(Instant, String)>,
    /// Whether a line is in the terminal.
    is_drawn: bool,
}

impl ProgressPen {
    fn show(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.begun);
        if elapsed < QUIET {
            return;
        }
        if self.text.is_empty() {
            self.clear();
            return;
        }
        match self.output.columns() {
            Some(columns) => self.draw(now, elapsed, columns),
            None if self.format == OutputFormat::Text => self.add_line(now),
            None => {}
        }
    }

    fn draw(&mut self, now: Instant, elapsed: Duration, columns: usize) {
        let begun = Timestamp::UNIX_EPOCH;
        let end = begun + SignedDuration::try_from(elapsed).unwrap_or_default();
        let line = format!("[{}] {}", age(begun, end), self.text);
        let line = cut(&line, columns.saturating_sub(FREE));
        let is_shown = self.shown.as_ref().is_some_and(|(_, shown)| *shown == line);
        if !(self.is_drawn && is_shown) {
            self.output.write(&format!("{CLEAR}{line}"));
            self.is_drawn = true;
            self.shown = Some((now, line));
        }
    }

    fn add_line(&mut self, now: Instant) {
        let is_due = match &self.shown {
            None => true,
            Some((at, shown)) => *shown != self.text && now.saturating_duration_since(*at) >= PACE,
        };
        if is_due {
            self.output.write(&format!("{}\n", self.text));
            self.shown = Some((now, self.text.clone()));
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            self.output.write(CLEAR);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cli::width::width;

    /// A terminal, or a file without columns, that keeps what is written.
    #[derive(Clone, Default)]
    struct ScriptedTerminal(Arc<Mutex<(Option<usize>, String)>>);

    impl ScriptedTerminal {
        fn wide(columns: usize) -> Self {
            Self(Arc::new(Mutex::new((Some(columns), String::new()))))
        }

        fn resize(&self, columns: usize) {
            self.0.lock().unwrap().0 = Some(columns);
        }

        fn taken(&self) -> String {
            std::mem::take(&mut self.0.lock().unwrap().1)
        }
    }

    impl ProgressOutput for ScriptedTerminal {
        fn columns(&self) -> Option<usize> {
            self.0.lock().unwrap().0
        }

        fn write(&mut self, text: &str) {
            self.0.lock().unwrap().1.push_str(text);
        }
    }

    fn progress(output: &ScriptedTerminal, format: OutputFormat) -> (CommandProgress, Instant) {
        let progress = CommandProgress::on(Box::new(output.clone()), format);
        let begun = progress.pen().begun;
        (progress, begun)
    }

    fn after(progress: &CommandProgress, begun: Instant, millis: u64, text: &str) {
        let mut pen = progress.pen();
        pen.text = clean(text, LONGEST);
        pen.show(begun + Duration::from_millis(millis));
    }

    #[test]
    fn a_terminal_has_one_line_that_is_redrawn_and_removed() {
        let output = ScriptedTerminal::wide(80);
        let (progress, begun) = progress(&output, OutputFormat::Text);
        after(&progress, begun, 900, "reads pods");
        assert_eq!(output.taken(), "", "short commands show nothing");
        after(&progress, begun, 1000, "reads pods");
        assert_eq!(output.taken(), "\r\x1b[K[1s] reads pods");
        after(&progress, begun, 1200, "reads pods");
        assert_eq!(output.taken(), "", "nothing has changed");
        after(&progress, begun, 2000, "reads pods");
        assert_eq!(output.taken(), "\r\x1b[K[2s] reads pods");
        after(&progress, begun, 150_000, "reads nodes\r\n\x1b[31m");
        assert_eq!(output.taken(), "\r\x1b[K[2m] reads nodes   [31m", "no escape sequence of others");
        progress.pen().clear();
        assert_eq!(output.taken(), "\r\x1b[K");
        progress.pen().clear();
        assert_eq!(output.taken(), "", "there is nothing to remove");
        // The line comes back after other output.
        after(&progress, begun, 150_000, "reads nodes");
        assert_eq!(output.taken(), "\r\x1b[K[2m] reads nodes");
        after(&progress, begun, 150_000, "");
        assert_eq!(output.taken(), "\r\x1b[K", "nothing to show");
    }

    #[test]
    fn a_line_never_wraps() {
        let output = ScriptedTerminal::wide(20);
        let (progress, begun) = progress(&output, OutputFormat::Text);
        let text = "漢".repeat(300);
        after(&progress, begun, 1000, &text);
        assert_eq!(output.taken(), format!("\r\x1b[K[1s] {}…", "漢".repeat(5)));
        for columns in [0, 1, 2, 5, 40] {
            output.resize(columns);
            after(&progress, begun, 1000, &text);
            let drawn = output.taken();
            let taken = drawn.strip_prefix(CLEAR).map_or(0, width);
            assert!(taken <= columns.saturating_sub(FREE), "{columns}: {drawn}");
        }
    }

    #[test]
    fn elsewhere_there_is_a_line_now_and_then() {
        let output = ScriptedTerminal::default();
        let (progress, begun) = progress(&output, OutputFormat::Text);
        for (millis, text, written) in [
            (500, "reads pods", ""),
            (1000, "reads pods", "reads pods\n"),
            (1100, "reads nodes", ""),
            (5900, "plans", ""),
            (6000, "plans", "plans\n"),
            (60_000, "plans", ""),
            (60_100, "waits", "waits\n"),
        ] {
            after(&progress, begun, millis, text);
            assert_eq!(output.taken(), written, "{millis}");
        }
        progress.pen().clear();
        assert_eq!(output.taken(), "");
    }

    #[test]
    fn programs_that_read_the_output_get_no_lines() {
        let output = ScriptedTerminal::default();
        let (progress, begun) = progress(&output, OutputFormat::Json);
        after(&progress, begun, 9000, "reads pods");
        assert_eq!(output.taken(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_shown_until_it_ends() {
        let output = ScriptedTerminal::wide(80);
        let progress = CommandProgress::on(Box::new(output.clone()), OutputFormat::Text);
        let mut interrupts = super::super::signals::interrupts().unwrap();
        let work = async {
            progress.set("waits");
            tokio::time::sleep(Duration::from_millis(2500)).await;
            7
        };
        assert_eq!(progress.follow(&mut interrupts, work).await, Some(7));
        assert_eq!(output.taken(), "\r\x1b[K[1s] waits\r\x1b[K[2s] waits\r\x1b[K");
    }
}
