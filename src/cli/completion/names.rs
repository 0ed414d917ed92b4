//! Names from the cluster or the kubeconfig, with bounds for time, number and characters. Every failure is an empty
//! list.

use std::ffi::OsString;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use clap::builder::Command;
use kube::api::{DynamicObject, ListParams};
use kube::config::{ExecInteractiveMode, Kubeconfig};
use kube::{Api, ResourceExt};

use super::MOST_CANDIDATES;
use super::sources::NameSource;
use crate::cli::cluster::{self, ClusterOptions};
use crate::operator::{self, ClusterAccess};

/// Maximum time of an answer, from the start of the program.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// Number of objects per request.
const PAGE: u32 = 500;

/// Maximum length of the name of an object, in bytes.
const MOST_BYTES: usize = 253;

/// Finds names by the options in the same command line.
pub struct NameFinder {
    cluster: ClusterOptions,
    namespace: Option<String>,
    /// The words before the last one.
    words: Vec<String>,
    until: Instant,
}

impl NameFinder {
    /// Reads the options in the words of an incomplete command line.
    pub fn new(command: Command, words: &[OsString]) -> Self {
        let until = Instant::now() + TIMEOUT;
        let complete = &words[..words.len().saturating_sub(1)];
        let matches = command.ignore_errors(true).try_get_matches_from(complete).unwrap_or_default();
        let mut leaf: &ArgMatches = &matches;
        while let Some((_, below)) = leaf.subcommand() {
            leaf = below;
        }
        let namespace = leaf.try_get_one::<String>("namespace").ok().flatten();
        Self {
            cluster: ClusterOptions::found_in(leaf),
            namespace: namespace.filter(|name| !name.is_empty()).cloned(),
            words: complete.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            until,
        }
    }

    /// Names that begin with `start`. An argument with several values (`is_list`) does not get one twice.
    pub fn find(&self, source: NameSource, start: &str, is_list: bool) -> Vec<String> {
        let (cluster, namespace, start) = (self.cluster.clone(), self.namespace.clone(), start.to_owned());
        let found = within(self.until.saturating_duration_since(Instant::now()), move || match source {
            NameSource::Contexts => Some(contexts(cluster, &start)?),
            source => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
                runtime.block_on(objects(cluster, namespace, source, &start))
            }
        });
        let mut names = found.unwrap_or_default();
        names.retain(|name| !is_list || !self.words.contains(name));
        names
    }
}

/// Result of `work`, or None if it takes longer. Its thread is not joined: a credential plugin can hang without limit.
fn within<T: Send + 'static>(time: Duration, work: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    // Without a thread, nothing arrives.
    let _ = thread::Builder::new().spawn(move || sender.send(work()));
    receiver.recv_timeout(time).ok().flatten()
}

fn contexts(cluster: ClusterOptions, start: &str) -> Option<Vec<String>> {
    let file = match ClusterAccess::from(cluster).kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let mut names: Vec<String> = file.ok()?.contexts.into_iter().map(|context| context.name).collect();
    names.retain(|name| is_candidate(name, start));
    names.truncate(MOST_CANDIDATES);
    Some(names)
}

async fn objects(
    cluster: ClusterOptions,
    namespace: Option<String>,
    source: NameSource,
    start: &str,
) -> Option<Vec<String>> {
    let (mut config, namespace) = cluster::configured(cluster, namespace).await.ok()?;
    if let Some(exec) = &mut config.auth_info.exec {
        // A credential plugin must neither ask nor write in the middle of a command line.
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    let client = operator::client(config).ok()?;
    let kind = source.kind()?;
    let api: Api<DynamicObject> = match source.is_namespaced() {
        true => Api::namespaced_with(client, &namespace, &kind),
        false => Api::all_with(client, &kind),
    };
    let mut params = ListParams::default().limit(PAGE);
    let mut names = Vec::new();
    loop {
        let page = api.list_metadata(&params).await.ok()?;
        names.extend(page.items.iter().map(ResourceExt::name_any).filter(|name| is_candidate(name, start)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if names.len() < MOST_CANDIDATES => params = params.continue_token(&token),
            _ => break,
        }
    }
    names.truncate(MOST_CANDIDATES);
    Some(names)
}

/// Whether a name can be inserted into a command line as it is. The name of a context is any text, a server can answer
/// with any, and not every shell quotes what it inserts: a name that needs quotes is no candidate.
fn is_candidate(name: &str, start: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.:/@+".contains(char);
    name.starts_with(start) && name.len() <= MOST_BYTES && !name.starts_with('-') && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn finder(words: &[&str]) -> NameFinder {
        NameFinder::new(Cli::command(), &words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_wherever_they_are() {
        for words in [
            &["ganglion", "explain", "loop", "-n", "shop", "--context", "prod", ""][..],
            &["ganglion", "explain", "loop", "--namespace=shop", "--context=prod", "w"],
            &["ganglion", "explain", "wa", "--context=prod", "go", "-nshop", ""],
            &["ganglion", "push", "web", "cpu=1", "-n", "shop", "--context", "prod", "--time", ""],
        ] {
            let found = finder(words);
            assert_eq!(found.namespace.as_deref(), Some("shop"), "{words:?}");
            assert_eq!(ClusterAccess::from(found.cluster).context.as_deref(), Some("prod"), "{words:?}");
        }
        for words in [&["ganglion"][..], &["ganglion", "explain", "loop", "-n", ""], &["ganglion", "--help", ""], &[]] {
            assert_eq!(finder(words).namespace, None, "{words:?}");
        }
    }

    #[test]
    fn names_that_a_shell_would_read_otherwise_are_no_candidates() {
        for name in ["web", "a.b-c", "admin@prod", "arn:aws:eks:eu:1:cluster/x"] {
            assert!(is_candidate(name, ""), "{name}");
        }
        let long = "a".repeat(MOST_BYTES + 1);
        assert!(is_candidate(&"a".repeat(MOST_BYTES), "a"));
        for name in ["$(id)", "it's", "a\"b", "a b", "a;b", "--force", "a\nb", "`id`", "ä", "a\u{1b}[1m", &long] {
            assert!(!is_candidate(name, ""), "{name}");
        }
        assert!(is_candidate("web", "we") && !is_candidate("web", "x"));
    }

    #[test]
    fn contexts_are_those_of_the_kubeconfig() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config");
        let context = |name: &str| format!("- {{name: '{name}', context: {{cluster: c, user: u}}}}\n");
        let all = ["prod", "staging", "a b", "a\"b", "$(touch x)", "`id`", "a;b", "a&b"].map(context).concat();
        std::fs::write(&file, format!("apiVersion: v1\nkind: Config\ncontexts:\n{all}")).unwrap();
        let path = file.display().to_string();
        let found = finder(&["ganglion", "drain", "--kubeconfig", &path, "prod", ""]);
        assert_eq!(found.find(NameSource::Contexts, "", false), ["prod", "staging"]);
        assert_eq!(found.find(NameSource::Contexts, "", true), ["staging"], "prod is in the command line");
        assert_eq!(found.find(NameSource::Contexts, "x", false), [""; 0]);
        let without = finder(&["ganglion", "drain", "--kubeconfig", "/none", ""]);
        assert_eq!(without.find(NameSource::Contexts, "", false), [""; 0]);
    }

    #[test]
    fn work_that_hangs_is_given_up() {
        let begun = Instant::now();
        let (_held, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(50), move || never.recv().ok()), None);
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(within(Duration::from_secs(5), || Some(1)), Some(1));
    }
}
