//! Every sample is accepted by the API server as it stands, and does what its name says on the workload beside it.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::common::kstatus::{message, ready};
use crate::common::workload::settled;
use crate::common::world::{World, stories, story};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples")
}

fn files(below: &str) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join(below))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    ensure!(!files.is_empty(), "no samples in {below}");
    Ok(files)
}

async fn apply(world: &World, file: &Path, more: &[&str]) -> Result<String> {
    // The sample's own namespace, if it names one, is the user's; here it is the world's.
    let text = std::fs::read_to_string(file)?;
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("  namespace:")).collect();
    let mut args = vec!["apply", "-f", "-"];
    args.extend(more);
    world.kubectl(&args, Some(&text.join("\n"))).await
}

#[test]
fn every_sample_is_accepted() {
    story("samples", async |world| {
        for kind in ["workloadaction", "workloadactionreceipt"] {
            for file in files(kind)? {
                apply(world, &file, &["--dry-run=server", "--validate=strict"]).await?;
            }
        }
        Ok(())
    });
}

/// Those that need no pod by name, on the nodes of the plane.
#[test]
fn samples_of_supported_actions_run() {
    let names = ["create-minimal", "move-minimal", "plan"];
    let cases = names.map(|name| (format!("sample-{name}"), name));
    stories(cases.into(), async |world, name| {
        apply(world, &root().join("workload.yaml"), &[]).await?;
        settled(world, "web", 3).await?;
        apply(world, &root().join("workloadaction").join(format!("{name}.yaml")), &[]).await?;
        let applied = |seen: &crate::common::eye::Seen| seen.actions.keys().next().cloned();
        let action = world.eye.until("the sample to be there", applied).await?;
        let action = world.over(&action).await?;
        ensure!(
            ready(&action).is_some_and(|(status, _)| status == "True"),
            "{:?} {}",
            ready(&action),
            message(&action)
        );
        Ok(())
    });
}
