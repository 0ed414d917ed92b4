//! The image, unpacked by umoci from its archive: size, user, labels, and modes of its files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::root;
use testkit::servers::prometheus::peer;

use super::{check, file, output, read_json};

/// User and group of the program in the image.
pub const USER: u32 = 65_532;

/// Maximum size of the image in bytes.
const MAX_IMAGE: u64 = 40_000_000;

pub struct UnpackedImage {
    pub home: TempDir,
    pub manifest: Value,
    pub config: Value,
    /// Specification of the container that umoci derives from the image.
    pub container: Value,
}

impl UnpackedImage {
    pub async fn unpack() -> Result<Self> {
        let home = TempDir::new()?;
        let layout = home.path().join("layout");
        fs::create_dir(&layout)?;
        output("tar", &["--extract", "--file", &file(".oci.tar")?.display().to_string()], &layout).await?;
        let index = read_json(&layout.join("index.json"))?;
        let blob = |descriptor: &Value| -> Result<Value> {
            let digest = descriptor["digest"].as_str().context("no digest")?;
            read_json(&layout.join("blobs").join(digest.replace(':', "/")))
        };
        let manifest = blob(&index["manifests"][0])?;
        let config = blob(&manifest["config"])?;
        let version = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"].as_str();
        let image = format!("layout:{}", version.context("the image has no tag")?);
        output(peer("umoci")?, &["unpack", "--rootless", "--image", &image, "bundle"], home.path()).await?;
        let container = read_json(&home.path().join("bundle/config.json"))?;
        Ok(Self { home, manifest, config, container })
    }

    pub fn root(&self) -> PathBuf {
        self.home.path().join("bundle/rootfs")
    }
}

/// Paths below a directory, with their modes, except symbolic links.
fn modes(directory: &Path, found: &mut Vec<(PathBuf, u32)>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let metadata = path.symlink_metadata()?;
        if !metadata.is_symlink() {
            found.push((path.clone(), metadata.permissions().mode()));
        }
        if metadata.is_dir() {
            modes(&path, found)?;
        }
    }
    Ok(())
}

#[test]
fn the_image_is_small_and_has_a_user_and_labels() {
    check(async {
        let image = UnpackedImage::unpack().await?;
        let size = file(".oci.tar")?.metadata()?.len();
        ensure!(size < MAX_IMAGE, "the image has {size} bytes");
        let process = &image.container["process"];
        ensure!(process["user"]["uid"] == USER && process["user"]["gid"] == USER, "{process}");
        ensure!(process["args"] == json!(["/usr/bin/ganglion"]), "{process}");
        ensure!(image.config["os"] == "linux" && image.config["architecture"].is_string(), "{}", image.config);
        let labels = [&image.config["config"]["Labels"], &image.manifest["annotations"]];
        let version = env!("CARGO_PKG_VERSION");
        for (label, value) in [("title", "ganglion"), ("licenses", "Apache-2.0"), ("version", version)] {
            let label = format!("org.opencontainers.image.{label}");
            ensure!(labels.iter().all(|labels| labels[&label] == value), "{label} is not {value}: {labels:?}");
        }
        let revision = labels[0]["org.opencontainers.image.revision"].as_str().unwrap_or_default();
        let head = output("git", &["rev-parse", "HEAD"], &root()).await?;
        ensure!(revision.trim_end_matches("-dirty") == head.trim(), "{revision} is not {head}");
        let passwd = fs::read_to_string(image.root().join("etc/passwd"))?;
        ensure!(passwd.contains(&format!("ganglion:x:{USER}:{USER}:")), "{passwd}");
        Ok(())
    });
}

#[test]
fn the_image_has_no_shell_and_no_file_that_gives_or_takes_rights() {
    check(async {
        let image = UnpackedImage::unpack().await?;
        let mut found = Vec::new();
        modes(&image.root(), &mut found)?;
        ensure!(found.len() > 20, "{found:?}");
        for (path, mode) in &found {
            ensure!(mode & 0o6000 == 0, "{} is setuid or setgid", path.display());
            let is_sticky = path.is_dir() && mode & 0o1000 != 0;
            ensure!(mode & 0o002 == 0 || is_sticky, "{} can be written by everybody", path.display());
            let is_shell = ["sh", "bash", "dash", "busybox"].iter().any(|name| path.ends_with(name));
            ensure!(!is_shell || path.is_dir(), "{} is a shell", path.display());
        }
        Ok(())
    });
}
