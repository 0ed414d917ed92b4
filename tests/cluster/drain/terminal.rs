//! A drain in a pseudo-terminal: one progress line, which Ctrl-C and the end remove.

use anyhow::ensure;
use kube::ResourceExt;
use tempfile::TempDir;
use testkit::eye::Seen;
use testkit::operator::program;
use testkit::terminal::PtySession;
use testkit::testbed::story;

use super::{EMPTY, INTERRUPTED, lease_is_held, on_the_first};

const WIDE: (u16, u16) = (120, 40);

const NARROW: (u16, u16) = (20, 80);

/// Progress lines on the screen.
fn progress_lines(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with('[')).count()
}

#[test]
fn a_terminal_shows_one_line_and_an_interruption_names_the_actions() {
    story("drain-terminal", async |testbed| {
        let (nodes, scene) = on_the_first(testbed).await?;
        let node = nodes.names[0].as_str();
        let home = TempDir::new()?;
        let config = home.path().join("kubeconfig").display().to_string();
        std::fs::write(&config, testbed.administrator().await?)?;
        let drain = |size| PtySession::start(&program()?, &["drain", node], &[("KUBECONFIG", &config)], size);
        // No operator processes the action. The lease says that one works.
        lease_is_held(testbed).await?;
        testbed.operator.lock().await.kill();
        for (size, shown) in [
            (WIDE, format!("s] Node {node}: 0 replicas moved, 0 in motion, 2 pods to go; ")),
            // The same command follows the action of the first.
            (NARROW, "[3s] Node ".to_owned()),
        ] {
            let mut session = drain(size)?;
            let made = |seen: &Seen| seen.actions.values().next().map(|action| action.name_any());
            let action = testbed.eye.until("the action of the drain", made).await?;
            session.shows(&[&shown]).await?;
            ensure!(progress_lines(&session.text()) == 1, "{}", session.text());
            session.press("\x03").await?;
            let expected = format!(
                "\nInterrupted. 1 action continues in the cluster: {}/{action}.\n\
                 To continue, and to follow the actions: kubectl ganglion drain {node} -w\n\
                 To abort the actions, and uncordon: kubectl ganglion drain {node} --uncordon\n",
                testbed.ns,
            );
            session.shows(&[&expected, "left with"]).await?;
            ensure!(progress_lines(&session.text()) == 0, "{}", session.text());
            session.ends_with(INTERRUPTED).await?;
        }

        testbed.operator.lock().await.start()?;
        let session = drain(WIDE)?;
        session.shows(&["going on with 1 open action", "2 replicas moved", "left with"]).await?;
        ensure!(progress_lines(&session.text()) == 0, "{}", session.text());
        session.ends_with(EMPTY).await?;
        scene.at_rest(testbed, 2).await?;
        Ok(())
    });
}
