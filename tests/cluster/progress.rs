//! Commands that wait for a cluster that does not answer: they show one line in a terminal, plain lines elsewhere, and
//! Ctrl-C ends them.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use testkit::operator::program;
use testkit::process::run;
use testkit::terminal::PtySession;
use testkit::{TIMEOUT, block_on, root};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;

const INTERRUPTED: i32 = 130;

/// Columns of a narrow terminal.
const COLUMNS: u16 = 20;

/// An API server that accepts connections and never answers, and the commands that wait for it.
struct SilentCluster {
    home: TempDir,
    _listener: TcpListener,
}

impl SilentCluster {
    async fn new() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let home = TempDir::new()?;
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{token: x}}}}]}}",
            listener.local_addr()?
        );
        std::fs::write(home.path().join("kubeconfig"), config)?;
        Ok(Self { home, _listener: listener })
    }

    /// Each command, with what its progress says.
    fn commands(&self) -> Vec<(Vec<String>, &'static str)> {
        let sample = |path: &str| root().join("samples").join(path).display().to_string();
        let (action, closed_loop) = (sample("workloadaction/create-minimal.yaml"), sample("closedloop/minimal.yaml"));
        let commands = [
            (vec!["drain", "node-0"], "reads the nodes"),
            (vec!["plan", "-f", &action], "asks the API server whether it accepts action 1 of 1"),
            (vec!["check", "-f", &closed_loop], "checks loop 1 of 1"),
            (vec!["check", "cluster"], "waits for the API server at http://127.0.0.1:"),
            (vec!["remove", "--yes"], "reads the operator's leases"),
        ];
        let file = self.home.path().join("kubeconfig").display().to_string();
        let complete = |args: Vec<&str>| args.into_iter().chain(["--kubeconfig", &file]).map(str::to_owned).collect();
        commands.into_iter().map(|(args, progress)| (complete(args), progress)).collect()
    }
}

#[test]
fn a_terminal_of_twenty_columns_has_one_line_until_control_c() {
    block_on(async {
        let cluster = SilentCluster::new().await?;
        for (args, progress) in cluster.commands() {
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            let mut session = PtySession::start(&program()?, &words, &[], (COLUMNS, 60))?;
            session.shows(&["[2s] "]).await?;
            let text = session.text();
            let shown = text.strip_prefix("[2s] ").and_then(|line| line.strip_suffix('…'));
            ensure!(shown.is_some_and(|start| progress.starts_with(start)), "{args:?}: {text:?}");
            session.press("\x03").await?;
            session.shows(&["left with"]).await?;
            let text = session.text();
            ensure!(
                text.starts_with("Interrupted. Nothing was changed, and nothing goes on in the cluster.\n"),
                "{text:?}"
            );
            session.ends_with(INTERRUPTED).await?;
        }
        anyhow::Ok(())
    })
    .unwrap();
}

#[test]
fn without_a_terminal_there_are_plain_lines_until_a_signal() {
    block_on(async {
        let cluster = SilentCluster::new().await?;
        for (args, progress) in cluster.commands() {
            let mut command = Command::new(program()?);
            command.args(&args).env_clear().kill_on_drop(true);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            let mut errors = BufReader::new(child.stderr.take().context("no standard error")?);
            let mut said = String::new();
            tokio::time::timeout(TIMEOUT, errors.read_line(&mut said)).await??;
            ensure!(said.starts_with(progress) && said.ends_with('\n'), "{args:?}: {said:?}");
            let mut interrupt = Command::new("sh");
            interrupt.args(["-c", "kill -INT \"$0\"", &child.id().context("it has ended")?.to_string()]);
            run(interrupt, None).await?;
            tokio::time::timeout(TIMEOUT, errors.read_to_string(&mut said)).await??;
            let output = child.wait_with_output().await?;
            ensure!(output.status.code() == Some(INTERRUPTED) && output.stdout.is_empty(), "{args:?}: {output:?}");
            let end = "\nInterrupted. Nothing was changed, and nothing goes on in the cluster.\n";
            ensure!(said.ends_with(end) && !said.contains(['\r', '\x1b']), "{args:?}: {said:?}");
        }
        anyhow::Ok(())
    })
    .unwrap();
}
