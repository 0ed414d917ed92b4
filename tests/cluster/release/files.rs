//! Contents of the manifests, the bill of materials, the plugin and the checksums.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use testkit::plane::cluster::kubectl;
use testkit::process::run;
use testkit::root;
use tokio::process::Command;

use super::image::UnpackedImage;
use super::{check, directory, file, output, read_json, read_yaml};

/// Takes the images out of a manifest.
fn take_images(value: &mut Value, images: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(image) if name == "image" => images.push(std::mem::take(image)),
                    other => take_images(other, images),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| take_images(item, images)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn install_yaml_is_kustomize_base_with_the_image_by_its_digest() {
    check(async {
        let rendered = output(kubectl().await?, &["kustomize", "kustomize/base"], &root()).await?;
        let mut base: Vec<Value> = serde_saphyr::from_multiple(&rendered)?;
        let (mut install, crds) = (read_yaml(&file("install.yaml")?)?, read_yaml(&file("crds.yaml")?)?);
        let (mut replaced, mut images) = (Vec::new(), Vec::new());
        base.iter_mut().for_each(|object| take_images(object, &mut replaced));
        install.iter_mut().for_each(|object| take_images(object, &mut images));
        ensure!(base == install, "install.yaml differs from kustomize/base by more than the image");
        let index = read_json(&file(".oci")?.join("index.json"))?;
        let digest = index["manifests"][0]["digest"].as_str().context("no digest")?;
        ensure!(replaced.len() == 1 && images == [format!("registry.example.com/ganglion@{digest}")], "{images:?}");
        let first = &install[0]["kind"];
        ensure!(first == "ValidatingAdmissionPolicy", "the first object is a {first}");
        install.retain(|object| object["kind"] == "CustomResourceDefinition");
        // kustomize/base adds labels.
        let same = |(one, other): (&Value, &Value)| {
            one["metadata"]["name"] == other["metadata"]["name"] && one["spec"] == other["spec"]
        };
        ensure!(crds.len() == ganglion_api::all().len() && crds.len() == install.len(), "{} CRDs", crds.len());
        ensure!(crds.iter().zip(&install).all(same), "crds.yaml differs from install.yaml");
        Ok(())
    });
}

/// Names and versions of the crates that the program contains, without its own.
async fn crates() -> Result<BTreeSet<String>> {
    let options = ["tree", "--locked", "-p", "ganglion", "-e", "normal", "--prefix", "none"];
    let mut crates = BTreeSet::new();
    for line in output("cargo", &options, &root()).await?.lines() {
        let mut words = line.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        crates.insert(format!("{name} {}", version.trim_start_matches('v')));
    }
    crates.retain(|name| !name.starts_with("ganglion "));
    ensure!(crates.len() > 100, "{crates:?}");
    Ok(crates)
}

/// Names and versions of the Debian packages of the image.
async fn packages() -> Result<BTreeSet<String>> {
    let image = UnpackedImage::unpack().await?;
    let mut packages = BTreeSet::new();
    for entry in fs::read_dir(image.root().join("var/lib/dpkg/status.d"))? {
        let control = fs::read_to_string(entry?.path())?;
        let field = |name: &str| control.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        packages.insert(format!("{} {}", field("Package: "), field("Version: ")));
    }
    ensure!(packages.iter().any(|name| name.starts_with("libc6 ")), "{packages:?}");
    Ok(packages)
}

#[test]
fn the_bill_of_materials_names_the_crates_of_the_program_and_the_packages_of_the_image() {
    check(async {
        let bill = read_json(&file(".cdx.json")?)?;
        ensure!(bill["bomFormat"] == "CycloneDX" && bill["metadata"]["component"]["name"] == "ganglion", "{bill}");
        let components = bill["components"].as_array().context("no components")?;
        for (prefix, expected) in [("pkg:cargo/", crates().await?), ("pkg:deb/", packages().await?)] {
            let mut listed = BTreeSet::new();
            for one in components.iter().filter(|one| one["purl"].as_str().is_some_and(|url| url.starts_with(prefix))) {
                let (name, version) = (one["name"].as_str(), one["version"].as_str());
                listed.insert(format!("{} {}", name.context("no name")?, version.context("no version")?));
            }
            let differences: Vec<_> = listed.symmetric_difference(&expected).collect();
            ensure!(differences.is_empty(), "{prefix}: {differences:?}");
        }
        ensure!(!bill.to_string().contains("file://"), "the bill of materials has a path of this machine");
        let known: BTreeSet<&str> = components.iter().filter_map(|one| one["bom-ref"].as_str()).collect();
        let uses = bill["dependencies"].as_array().context("no dependencies")?;
        for used in uses.iter().filter_map(|one| one["dependsOn"].as_array()).flatten() {
            ensure!(used.as_str().is_some_and(|used| known.contains(used)), "{used} is not a component");
        }
        Ok(())
    });
}

#[test]
fn the_archive_of_the_plugin_works_with_kubectl_and_has_the_hash_of_its_manifest() {
    check(async {
        let (archive, home) = (file(".tar.gz")?, TempDir::new()?);
        let path = archive.display().to_string();
        output("tar", &["--extract", "--file", &path], home.path()).await?;
        ensure!(home.path().join("LICENSE").exists(), "the archive has no licence");
        let mut command = Command::new(kubectl().await?);
        command.args(["ganglion", "--version"]).env_clear().env("HOME", home.path()).stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/bin:/bin", home.path().display()));
        let version = run(command, None).await?;
        ensure!(version.trim() == format!("kubectl-ganglion {}", env!("CARGO_PKG_VERSION")), "{version}");
        let mut command = Command::new(kubectl().await?);
        command.args(["__complete", "ganglion", "expl"]).env_clear().env("HOME", home.path()).stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/bin:/bin", home.path().display()));
        let completed = run(command, None).await?;
        ensure!(completed.starts_with("explain\t") && completed.contains("\n:4\n"), "{completed}");

        let manifest = read_yaml(&file("ganglion.yaml")?)?;
        let platform = &manifest[0]["spec"]["platforms"][0];
        let hash = output("sha256sum", &[&path], home.path()).await?;
        ensure!(platform["sha256"] == hash.split(' ').next().unwrap_or_default(), "{platform} {hash}");
        let name = archive.file_name().context("no name")?.to_string_lossy();
        ensure!(platform["uri"].as_str().is_some_and(|uri| uri.ends_with(&*name)), "{platform}");
        Ok(())
    });
}

#[test]
fn every_file_has_a_checksum_that_holds() {
    check(async {
        output("sha256sum", &["--check", "--strict", "SHA256SUMS"], &directory()).await?;
        let sums = fs::read_to_string(directory().join("SHA256SUMS"))?;
        let listed: BTreeSet<String> = sums.lines().filter_map(|line| line.get(66..)).map(str::to_owned).collect();
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(directory())? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                found.insert(entry.file_name().to_string_lossy().into_owned());
            }
        }
        ensure!(found.remove("SHA256SUMS") && found == listed, "{found:?} {listed:?}");
        ensure!(found.len() == 7, "{found:?}");
        let notes = fs::read_to_string(directory().join("NOTES.md"))?;
        ensure!(notes.starts_with(&format!("# Ganglion {}\n", env!("CARGO_PKG_VERSION"))), "{notes}");
        ensure!(notes.lines().count() > 1, "the notes are empty");
        Ok(())
    });
}
