//! Completion of the command line: `ganglion completion` writes a script for a shell, which runs `ganglion __complete`
//! with the words before the cursor.
//!
//! The answer has the form that kubectl expects of its plugins, which is that of cobra: a candidate per line, with a
//! tab and a description if there is one, then a colon and a directive. Nothing else is ever written,
//! because the shell would show it in the middle of the command line. Files are completed by the shell, which knows how
//! to quote their names.

mod names;
mod sources;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::{ArgAction, Command};
use clap::{Arg, Args, CommandFactory, ValueEnum, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};

use super::{Cli, PLUGIN};
use names::NameFinder;
use sources::NameSource;

/// First argument of a request of a shell.
const REQUEST: &str = "__complete";

/// Maximum number of candidates.
const MOST_CANDIDATES: usize = 200;

/// Maximum length of a description, in characters.
const MOST_HELP: usize = 100;

/// Directive: there are no further candidates.
const NO_FILES: u32 = 4;

/// Directive: without candidates, the shell offers files.
const FILES: u32 = 0;

/// Options of `completion`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "bash: source <(ganglion completion bash), in ~/.bashrc\n\
    zsh: source <(ganglion completion zsh), in ~/.zshrc, after compinit\n\
    fish: ganglion completion fish | source, in ~/.config/fish/config.fish\n\
    kubectl ganglion: ganglion completion kubectl >DIR/kubectl_complete-ganglion; \
    chmod +x DIR/kubectl_complete-ganglion, where DIR is in the PATH; kubectl's own completion must be enabled, too.\n\n\
    Names are read from the cluster, with your rights, for at most two seconds.")]
pub struct CompletionArgs {
    /// Shell, or kubectl for `kubectl ganglion`.
    #[arg(value_name = "SHELL")]
    shell: CompletedShell,
}

/// Program that completes command lines.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum CompletedShell {
    Bash,
    Zsh,
    Fish,
    Kubectl,
}

/// Writes the script for a shell. It completes the program under the name by which it was called.
pub fn completion(args: &CompletionArgs) {
    print!("{}", script(args.shell, if super::is_plugin() { PLUGIN } else { "ganglion" }));
}

fn script(shell: CompletedShell, name: &str) -> String {
    let template = match shell {
        CompletedShell::Bash => include_str!("completion/ganglion.bash"),
        CompletedShell::Zsh => include_str!("completion/ganglion.zsh"),
        CompletedShell::Fish => include_str!("completion/ganglion.fish"),
        CompletedShell::Kubectl => include_str!("completion/kubectl.sh"),
    };
    template.replace("IDENTIFIER", &name.replace('-', "_")).replace("NAME", name)
}

/// Answers a request of a shell on standard output. Returns whether this process got one.
pub fn serve() -> bool {
    let Some(words) = request(std::env::args_os()) else { return false };
    // The shell would show the message of a panic in the middle of the command line.
    std::panic::set_hook(Box::new(|_| {}));
    let (found, directive) = candidates(words);
    // Nobody can be told that the shell has ended.
    let _ = std::io::stdout().write_all(reply(&found, directive).as_bytes());
    true
}

/// Words of the command line to complete, with the name of the program. None: these arguments are not a request.
fn request(args: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut args = args.into_iter();
    let program = args.next()?;
    (args.next()? == REQUEST).then(|| std::iter::once(program).chain(args).collect())
}

/// Candidates for the last word, and a directive.
fn candidates(mut words: Vec<OsString>) -> (Vec<CompletionCandidate>, u32) {
    if words.len() < 2 {
        words.push(OsString::new());
    }
    let last = words.len() - 1;
    let starts_option = words[last].to_string_lossy().starts_with('-');
    let finder = Arc::new(NameFinder::new(Cli::command(), &words));
    let is_file = Arc::new(AtomicBool::new(false));
    let mut command = with_names(Cli::command(), &finder, &is_file);
    let found = complete(&mut command, words, last, None).unwrap_or_default();
    // Options only where one was begun: they are many, and a single name is then inserted at once.
    let is_wanted =
        |found: &CompletionCandidate| starts_option || !found.get_value().to_string_lossy().starts_with('-');
    let wanted = found.into_iter().filter(|found| is_wanted(found) && !found.is_hide_set()).take(MOST_CANDIDATES);
    (wanted.collect(), if is_file.load(Ordering::Relaxed) { FILES } else { NO_FILES })
}

/// Adds the names in the cluster to the arguments that are names. `is_file` is set when a file is completed.
fn with_names(command: Command, finder: &Arc<NameFinder>, is_file: &Arc<AtomicBool>) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|argument| {
        let (finder, is_file) = (Arc::clone(finder), Arc::clone(is_file));
        if argument.get_value_hint() == ValueHint::AnyPath {
            return argument.add(ArgValueCompleter::new(move |_: &OsStr| {
                is_file.store(true, Ordering::Relaxed);
                Vec::new()
            }));
        }
        let Some(source) = NameSource::of(&name, argument.get_id().as_str()) else { return argument };
        let is_list = is_list(&argument);
        argument.add(ArgValueCompleter::new(move |start: &OsStr| {
            let names = finder.find(source, &start.to_string_lossy(), is_list);
            names.into_iter().map(CompletionCandidate::new).collect::<Vec<_>>()
        }))
    });
    command.mut_subcommands(|below| with_names(below, finder, is_file))
}

/// Whether an argument takes several values.
fn is_list(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append)
}

fn reply(candidates: &[CompletionCandidate], directive: u32) -> String {
    let mut text = String::new();
    for candidate in candidates {
        let value = candidate.get_value().to_string_lossy();
        if value.chars().any(char::is_control) {
            continue;
        }
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help: String = help.lines().next().unwrap_or_default().chars().take(MOST_HELP).collect();
        let help = if help.is_empty() { help } else { format!("\t{help}") };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{value}{help}");
    }
    let _ = writeln!(text, ":{directive}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Vec<String> {
        let words = std::iter::once("ganglion").chain(words.iter().copied()).map(OsString::from).collect();
        candidates(words).0.iter().map(|found| found.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_options_and_values_are_candidates() {
        let commands = asked(&[""]);
        for name in ["drain", "explain", "completion"] {
            assert!(commands.contains(&name.to_owned()), "{commands:?}");
        }
        assert!(commands.iter().all(|name| !name.starts_with('-')), "{commands:?}");
        assert_eq!(asked(&["expl"]), ["explain"]);
        assert_eq!(asked(&["drain", "--unc"]), ["--uncordon"]);
        assert_eq!(asked(&["plan", "-o", ""]), ["text", "json", "yaml"]);
        assert_eq!(asked(&["completion", "k"]), ["kubectl"]);
        assert_eq!(asked(&["completion", "bash", ""]), [""; 0]);
        assert_eq!(asked(&["top", "ncfg,s"]), ["ncfg,swp"]);
    }

    #[test]
    fn files_are_left_to_the_shell() {
        for words in [&["plan", "-f", ""][..], &["check", "cluster", "--settings=co"], &["drain", "--kubeconfig", "a"]]
        {
            let words = std::iter::once("ganglion").chain(words.iter().copied()).map(OsString::from).collect();
            assert!(matches!(candidates(words), (found, FILES) if found.is_empty()));
        }
    }

    #[test]
    fn only_requests_are_answered() {
        let answer = |words: &[&str]| {
            let (found, directive) = candidates(request(words.iter().map(OsString::from))?);
            Some(reply(&found, directive))
        };
        for words in [&[][..], &["ganglion"], &["ganglion", "explain"], &["ganglion", "explain", "__complete"]] {
            assert_eq!(answer(words), None, "{words:?}");
        }
        let found = answer(&["ganglion", "__complete", "expl"]).unwrap();
        let lines: Vec<&str> = found.lines().collect();
        assert!(lines[0].starts_with("explain\tExplains what a loop, "), "{found}");
        assert_eq!(lines[1..], [":4"]);
        // Without a word, as kubectl calls it, all commands are candidates.
        assert!(answer(&["kubectl-ganglion", "__complete"]).unwrap().contains("drain\t"));
    }

    #[test]
    fn a_reply_has_no_second_line_for_a_candidate() {
        let help = "a".repeat(300) + "\nb";
        let long = CompletionCandidate::new("web").help(Some(help.into()));
        assert_eq!(reply(&[long], NO_FILES), format!("web\t{}\n:4\n", "a".repeat(MOST_HELP)));
        assert_eq!(reply(&[CompletionCandidate::new("web"), CompletionCandidate::new("a\nb")], NO_FILES), "web\n:4\n");
        assert_eq!(reply(&[], FILES), ":0\n");
    }

    #[test]
    fn scripts_name_the_program() {
        for shell in [CompletedShell::Bash, CompletedShell::Zsh, CompletedShell::Fish] {
            let text = script(shell, PLUGIN);
            assert!(text.contains("kubectl-ganglion __complete") && text.contains("2>/dev/null"), "{text}");
            assert!(!text.contains("NAME") && !text.contains("IDENTIFIER"), "{text}");
        }
        assert!(script(CompletedShell::Bash, PLUGIN).contains("\n_kubectl_ganglion() {"));
        assert!(script(CompletedShell::Kubectl, "ganglion").starts_with("#!/bin/sh\n"));
    }
}
