//! The terminal: raw mode and the alternate screen, and their end in all cases.

use std::io::{self, stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use tokio::sync::Notify;

/// Whether this process has changed the terminal.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// Restores the terminal when it is dropped, and when any thread panics.
pub struct TerminalGuard;

impl TerminalGuard {
    /// Changes the terminal. `panicked` is notified if a thread panics.
    pub fn enter(panicked: Arc<Notify>) -> io::Result<Self> {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            report(info);
            panicked.notify_one();
        }));
        let guard = Self;
        change()?;
        Ok(guard)
    }

    /// Restores the terminal for other programs.
    pub fn leave(&self) {
        restore();
    }

    /// Changes the terminal again, whatever other programs have done with it.
    pub fn enter_again(&self) -> io::Result<()> {
        restore();
        change()
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

fn change() -> io::Result<()> {
    CHANGED.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, Hide)
}

/// Restores the terminal once. An error would concern a terminal that is gone.
fn restore() {
    if CHANGED.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), Show, DisableBracketedPaste, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
