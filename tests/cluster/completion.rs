//! Completion in real shells and in kubectl: names come from the cluster, and a cluster that refuses, hangs or is gone
//! gives none, soon, and without a word.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rstest::rstest;
use tempfile::TempDir;
use testkit::action::move_pod;
use testkit::operator::program;
use testkit::plane::cluster::kubectl;
use testkit::plane::kubeconfig;
use testkit::terminal::PtySession;
use testkit::testbed::loops::{demo, put};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, story};
use tokio::net::TcpListener;
use tokio::process::Command;

/// Bound of a completion that gets no answer, with the start of the program on a busy machine.
const BOUND: Duration = Duration::from_secs(4);

/// Last line of each answer.
const NO_FILES: &str = ":4";

/// Columns and rows of the terminals.
const SIZE: (u16, u16) = (200, 100);

/// A user with the program under both names, kubectl, and its completion.
struct ShellUser {
    home: TempDir,
    kubectl: PathBuf,
}

impl ShellUser {
    async fn new(kubeconfig: &str) -> Result<Self> {
        let (home, program, kubectl) = (TempDir::new()?, program()?, kubectl().await?);
        let file = |name: &str| home.path().join(name);
        std::fs::write(file("kubeconfig"), kubeconfig)?;
        for name in ["ganglion", "kubectl-ganglion"] {
            symlink(&program, file(name))?;
        }
        symlink(&kubectl, file("kubectl"))?;
        let output = Command::new(&program).args(["completion", "kubectl"]).output().await?;
        let plugin = file("kubectl_complete-ganglion");
        std::fs::write(&plugin, output.stdout)?;
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { home, kubectl })
    }

    async fn administrator(testbed: &Testbed) -> Result<Self> {
        Self::new(&testbed.administrator().await?).await
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let home = self.home.path().display().to_string();
        vec![("PATH", format!("{home}:/usr/bin:/bin")), ("KUBECONFIG", format!("{home}/kubeconfig")), ("HOME", home)]
    }

    /// Starts a shell in a terminal, and loads the completion.
    async fn shell(&self, name: &str) -> Result<PtySession> {
        let (args, load) = match name {
            "zsh" => (&["-f", "-i"][..], "autoload -U compinit; compinit -u -D; source <(ganglion completion zsh)"),
            "fish" => (&["--no-config", "--private"][..], "ganglion completion fish | source"),
            _ => (&["--norc", "--noprofile", "-i"][..], "source <(ganglion completion bash)"),
        };
        let (path, more) = shell(name).await?;
        let variables = [self.variables(), more].concat();
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut session = PtySession::start(&path, args, &variables, SIZE)?;
        // The quotes keep the echo of the typed line apart from what it prints.
        session.press(&format!("{load}; echo rea''dy\r")).await?;
        session.shows(&["ready"]).await?;
        Ok(session)
    }

    /// Candidates for the last word by a program that answers like kubectl. The rest of its output must be empty.
    async fn candidates(&self, program: &Path, words: &[&str]) -> Result<Vec<String>> {
        let mut command = Command::new(program);
        command.arg("__complete").args(words).env_clear().envs(self.variables());
        let output = command.output().await?;
        let text = String::from_utf8(output.stdout)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut lines: Vec<String> =
            text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect();
        ensure!(output.status.success() && lines.pop().as_deref() == Some(NO_FILES), "{text}{said}");
        // kubectl explains the directive on standard error.
        ensure!(said.is_empty() || program == self.kubectl, "{said}");
        Ok(lines)
    }

    /// Candidates of `ganglion`, which must be those of `kubectl ganglion`.
    async fn same(&self, words: &[&str]) -> Result<Vec<String>> {
        let own = self.candidates(&self.home.path().join("ganglion"), words).await?;
        let by_kubectl = self.candidates(&self.kubectl, &[&["ganglion"], words].concat()).await?;
        ensure!(own == by_kubectl, "{own:?} is not {by_kubectl:?} of kubectl");
        Ok(own)
    }
}

/// Path of a shell of this machine, or of Debian's package without an installation, and the variables that it needs.
async fn shell(name: &str) -> Result<(PathBuf, Vec<(&'static str, String)>)> {
    if name == "bash" {
        return Ok((PathBuf::from("/bin/bash"), Vec::new()));
    }
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/peers");
    let output = Command::new(peers).arg(name).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let root = path.ancestors().find(|folder| folder.join("usr/share").exists()).context("no root")?.to_owned();
    let share = root.join("usr/share");
    if name == "fish" {
        let folders =
            ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu"];
        let libraries: Vec<String> = folders.map(|folder| root.join(folder).display().to_string()).into();
        return Ok((path, vec![("LD_LIBRARY_PATH", libraries.join(":"))]));
    }
    let functions = share.join("zsh/functions");
    let mut folders = vec![functions.display().to_string()];
    for folder in ["Completion", "Completion/Base", "Completion/Zsh", "Completion/Unix", "Completion/Linux"] {
        folders.push(functions.join(folder).display().to_string());
    }
    Ok((path, vec![("FPATH", folders.join(":"))]))
}

/// Two loops whose names begin with the same letter, and an action.
async fn make_objects(testbed: &Testbed) -> Result<()> {
    Workload::deployment("web", 1).make(testbed).await?;
    put(testbed, "checkout", demo()).await?;
    put(testbed, "catalog", demo()).await?;
    testbed.act("tidy", move_pod("none", "node-0")).await?;
    Ok(())
}

#[test]
fn names_are_those_of_the_cluster_with_kubectl_too() {
    story("completion-names", async |testbed| {
        make_objects(testbed).await?;
        let user = ShellUser::administrator(testbed).await?;
        let ns = testbed.ns.as_str();
        for (words, expected) in [
            (&["explain", "loop", "-n", ns, ""][..], &["catalog", "checkout"][..]),
            (&["explain", "loop", "-n", ns, "ch"], &["checkout"]),
            (&["explain", "loop", "-n", ns, "x"], &[]),
            (&["push", "-n", ns, "ca"], &["catalog"]),
            (&["approve", &format!("--namespace={ns}"), "ch"], &["checkout"]),
            (&["explain", "wa", "-n", ns, ""], &["tidy"]),
            (&["explain", "swp", "-n", ns, ""], &[]),
            (&["timeline", "loop", "-n", ns, "ca"], &["catalog"]),
            (&["timeline", "action", "-n", ns, ""], &["tidy"]),
            (&["top", "wa,l"], &["wa,loop"]),
            (&["explain", "loop", "-n", &ns[..ns.len() - 1]], &[ns]),
            (&["explain", "loop", &format!("--namespace={ns}")], &[&format!("--namespace={ns}")]),
            (&["drain", "--unc"], &["--uncordon"]),
            (&["expl"], &["explain"]),
            (&["explain", ""], &["loop", "wa", "swp", "placement", "node", "help"]),
        ] {
            let found = user.same(words).await?;
            ensure!(found == expected, "{words:?}: {found:?}");
        }
        let nodes = user.same(&["drain", "node-0", "node-"]).await?;
        ensure!(nodes.contains(&"node-1".to_owned()) && !nodes.contains(&"node-0".to_owned()), "{nodes:?}");
        let contexts = user.same(&["drain", "--context", ""]).await?;
        ensure!(contexts.len() == 1, "{contexts:?}");
        Ok(())
    });
}

#[rstest]
fn a_shell_inserts_the_only_name_and_quotes_files(#[values("bash", "zsh", "fish")] name: &str) {
    story(&format!("completion-{name}"), async |testbed| {
        make_objects(testbed).await?;
        let user = ShellUser::administrator(testbed).await?;
        let home = user.home.path();
        std::fs::write(home.join("a $(touch made)"), "")?;
        let mut session = user.shell(name).await?;
        let ns = &testbed.ns;
        session.press(&format!("ganglion explain loop -n {ns} ch\t")).await?;
        session.shows(&[&format!("{ns} checkout")]).await?;
        // The completed command runs, so the loop is explained.
        session.press("\r").await?;
        session.shows(&[&format!("Loop checkout in namespace {ns} acts on")]).await?;
        session.press(&format!("ganglion timeline wa -n {ns} t\t")).await?;
        session.shows(&[&format!("{ns} tidy")]).await?;
        session.press(&format!("\x15ganglion check -f {}/a\t", home.display())).await?;
        session.shows(&[r"/a\ \$\(touch\ made\)"]).await?;
        session.press("\r").await?;
        session.shows(&["there is no ClosedLoop in "]).await?;
        ensure!(!home.join("made").exists(), "the name of a file was run:\n{}", session.text());
        session.press("exit 7\r").await?;
        session.ends_with(7).await
    });
}

#[test]
fn bash_completes_values_after_an_equals_sign_and_lists_several_names() {
    story("completion-words", async |testbed| {
        make_objects(testbed).await?;
        let user = ShellUser::administrator(testbed).await?;
        let mut session = user.shell("bash").await?;
        let part = &testbed.ns[..testbed.ns.len() - 1];
        session.press(&format!("ganglion explain loop --namespace={part}\t")).await?;
        session.shows(&[&format!("loop --namespace={} ", testbed.ns)]).await?;
        session.press("c\t\t").await?;
        session.shows(&["catalog", "checkout"]).await?;
        ensure!(!session.text().contains("rror"), "{}", session.text());
        Ok(())
    });
}

#[test]
fn who_may_list_nothing_gets_nothing_and_no_message() {
    story("completion-forbidden", async |testbed| {
        make_objects(testbed).await?;
        testbed.kubectl(&["create", "serviceaccount", "nobody"], None).await?;
        let token = testbed.token("nobody").await?;
        let user = ShellUser::new(&kubeconfig::direct(&testbed.plane.cluster.config, &token)).await?;
        for words in [
            &["explain", "loop", "-n", &testbed.ns, ""][..],
            &["drain", ""],
            &["explain", "loop", "-n", ""],
            &["explain", "placement", "--policy", ""],
        ] {
            let found = user.same(words).await?;
            ensure!(found.is_empty(), "{words:?}: {found:?}");
        }
        ensure!(user.same(&["expl"]).await? == ["explain"]);
        Ok(())
    });
}

#[test]
fn a_cluster_that_is_gone_or_hangs_gives_nothing_soon() {
    story("completion-hangs", async |_| {
        // Accepts connections, and never answers.
        let hangs = TcpListener::bind("127.0.0.1:0").await?;
        let port = hangs.local_addr()?.port();
        let plugin = "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable, command: sh, args: [-c, 'echo noise >&2; sleep 60']}";
        let missing = "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable, command: sh, args: [-c, 'echo noise >&2; exit 1']}";
        // A name that a shell would not read as it is.
        let odd = ["a b", "it''s", "\"", "$(touch made)", "`touch made`", "a;touch made"];
        let contexts: String =
            odd.iter().map(|name| format!(", {{name: '{name}', context: {{cluster: c, user: u}}}}")).collect();
        for (what, server, account) in [
            ("gone", "http://127.0.0.1:1".to_owned(), "token: x"),
            ("hangs", format!("http://127.0.0.1:{port}"), "token: x"),
            ("a credential plugin that hangs", format!("http://127.0.0.1:{port}"), plugin),
            ("a credential plugin that fails", format!("http://127.0.0.1:{port}"), missing),
        ] {
            let config = format!(
                "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{server}'}}}}], \
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}{contexts}], users: [{{name: u, user: {{{account}}}}}]}}"
            );
            let user = ShellUser::new(&config).await?;
            let begun = Instant::now();
            let found = user.candidates(&user.home.path().join("ganglion"), &["explain", "loop", ""]).await?;
            let took = begun.elapsed();
            ensure!(found.is_empty() && took < BOUND, "{what}: {found:?} after {took:?}");
            let found = user.same(&["drain", "--context", ""]).await?;
            ensure!(found == ["c"], "{what}: {found:?}; contexts need no cluster");
        }
        let user = ShellUser::new("not: [a kubeconfig").await?;
        ensure!(
            user.same(&["drain", "--context", ""]).await?.is_empty() && user.same(&["drain", ""]).await?.is_empty()
        );
        Ok(())
    });
}
