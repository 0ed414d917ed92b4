//! The alerts in config/monitoring, run by the real promtool in virtual time.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use testkit::process::run;
use testkit::servers::prometheus::peer;
use testkit::{block_on, root};
use tokio::process::Command;

/// Rules as the page extracts them for a Prometheus without prometheus-operator.
async fn rules() -> Result<String> {
    let page = fs::read_to_string(root().join("config/monitoring/README.md"))?;
    let command =
        page.lines().find_map(|line| line.strip_prefix("    sed ")).context("the page has no such command")?;
    let (command, _) = command.split_once(" > ").context("the command writes no file")?;
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("sed {command}")]).current_dir(root());
    run(shell, None).await
}

async fn promtool(words: &[&str], home: &Path) -> Result<String> {
    let mut command = Command::new(peer("prometheus")?.with_file_name("promtool"));
    command.args(words).current_dir(home);
    run(command, None).await
}

/// Runs the cases with these rules. Returns what promtool printed, as an error if a case fails.
async fn cases(rules: &str) -> Result<String> {
    let home = tempfile::tempdir()?;
    fs::write(home.path().join("rules.yaml"), rules)?;
    fs::copy(root().join("tests/peers/alerts.yaml"), home.path().join("alerts.yaml"))?;
    promtool(&["check", "rules", "--lint-fatal", "rules.yaml"], home.path()).await?;
    promtool(&["test", "rules", "alerts.yaml"], home.path()).await
}

#[test]
fn each_alert_fires_once_and_is_silent_for_a_healthy_installation() {
    block_on(async {
        let rules = rules().await.unwrap();
        cases(&rules).await.unwrap();
        // The cases notice an alert that fires too early, for others, or not at all.
        for (from, to) in [("for: 2m", "for: 0m"), ("outcome=\"panic\"", "outcome=\"ok\""), ("> 1800", "> 18000")] {
            assert!(rules.contains(from), "{from}");
            let error = cases(&rules.replace(from, to)).await.unwrap_err().to_string();
            assert!(error.contains("FAILED"), "{from}: {error}");
        }
    });
}
