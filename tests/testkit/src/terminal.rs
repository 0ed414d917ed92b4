//! A program in a pseudo-terminal: keys go in, and the screen is read as a person would see it.

use std::num::NonZeroU16;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use pty_process::{Command, OwnedReadPty, OwnedWritePty, Size, open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use vt100::Parser;

use crate::TIMEOUT;

/// Shell script that runs the program, and then shows the modes of the terminal and the exit code. Ctrl-C ends the
/// program, and not the script.
const SHELL: &str = r#"trap : INT; "$@"; code=$?; stty -a; echo "left with $code""#;

/// A program in a pseudo-terminal. Dropping it kills the program.
pub struct PtySession {
    shell: Child,
    keys: OwnedWritePty,
    screen: Arc<PtyScreen>,
    reader: JoinHandle<()>,
}

/// The screen, and a signal for each change.
struct PtyScreen {
    parser: Mutex<Parser>,
    changed: Notify,
}

impl PtyScreen {
    fn read<T>(&self, read: impl FnOnce(&mut Parser) -> T) -> T {
        read(&mut self.parser.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PtySession {
    /// Starts the program with these arguments and variables in a terminal of this size: columns, rows.
    pub fn start(program: &Path, args: &[&str], variables: &[(&str, &str)], size: (u16, u16)) -> Result<Self> {
        let (pty, pts) = open()?;
        let (columns, rows) = size;
        pty.resize(Size::new(rows, columns))?;
        let mut command = Command::new("sh").args(["-c", SHELL, "sh"]).arg(program).args(args).env_clear();
        command = command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TERM", "xterm-256color");
        command = command.envs(variables.iter().copied()).kill_on_drop(true);
        let shell = command.spawn(pts)?;
        let (output, keys) = pty.into_split();
        let parser = Mutex::new(Parser::new(positive(rows)?, positive(columns)?, 0));
        let screen = Arc::new(PtyScreen { parser, changed: Notify::new() });
        let reader = tokio::spawn(read_all(output, Arc::clone(&screen)));
        Ok(Self { shell, keys, screen, reader })
    }

    /// Sends keys, as the bytes that a terminal sends.
    pub async fn press(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes()).await.context("the terminal is closed")
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        let (height, width) = (positive(rows)?, positive(columns)?);
        self.screen.read(|parser| parser.set_size(height, width));
        Ok(self.keys.resize(Size::new(rows, columns))?)
    }

    /// Lines of the screen as text.
    pub fn text(&self) -> String {
        self.screen.read(|parser| parser.screen().contents())
    }

    /// Whether the alternate screen is shown, or the cursor is hidden, or pasted text is marked.
    pub fn is_changed(&self) -> bool {
        self.screen.read(|parser| {
            let screen = parser.screen();
            screen.alternate_screen() || screen.hide_cursor() || screen.bracketed_paste()
        })
    }

    /// Whether a cell of the screen has a color.
    pub fn has_color(&self) -> bool {
        self.screen.read(|parser| {
            let screen = parser.screen();
            let (rows, columns) = screen.size();
            let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
            let mut cells = cells.filter_map(|(row, column)| screen.cell(row, column));
            cells.any(|cell| cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default)
        })
    }

    /// Waits until the screen contains all these words.
    pub async fn shows(&self, words: &[&str]) -> Result<()> {
        self.until(&format!("{words:?}"), |text| words.iter().all(|word| text.contains(word))).await
    }

    /// Waits until the screen passes a test.
    pub async fn until(&self, what: &str, test: impl Fn(&str) -> bool) -> Result<()> {
        let passed = async {
            loop {
                let changed = self.screen.changed.notified();
                if test(&self.text()) {
                    return;
                }
                changed.await;
            }
        };
        timeout(TIMEOUT, passed).await.with_context(|| format!("the screen never had {what}:\n{}", self.text()))
    }

    /// Process id of the program.
    pub fn pid(&self) -> Result<u32> {
        let shell = self.shell.id().context("the shell has ended")?;
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
        children.split_whitespace().next().context("the program has ended")?.parse().context("no process id")
    }

    /// Waits until the program has ended with this code. Checks that it left the terminal as it was.
    pub async fn ends_with(mut self, code: i32) -> Result<()> {
        self.shows(&["left with "]).await?;
        let status: ExitStatus = timeout(TIMEOUT, self.shell.wait()).await.context("the shell does not end")??;
        let text = self.text();
        ensure!(status.success() && text.contains(&format!("left with {code}")), "{text}");
        ensure!(!self.is_changed(), "the terminal was not restored:\n{text}");
        for mode in ["icanon", "isig", "echo", "opost"] {
            let is_set = text.split_whitespace().any(|word| word == mode);
            ensure!(is_set, "the terminal was left without {mode}:\n{text}");
        }
        Ok(())
    }
}

impl Drop for PtySession {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Applies the output of the program to the screen until the terminal is closed.
async fn read_all(mut output: OwnedReadPty, screen: Arc<PtyScreen>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = output.read(&mut bytes).await {
        screen.read(|parser| parser.process(&bytes[..count]));
        screen.changed.notify_waiters();
    }
}

fn positive(size: u16) -> Result<NonZeroU16> {
    NonZeroU16::new(size).context("a terminal has at least one row and column")
}
