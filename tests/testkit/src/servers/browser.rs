//! Debian's Chromium without a window: opens a picture as a reader does, in light and dark colors, and measures it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use tempfile::TempDir;

use super::prometheus::peer;

/// Seconds after which the browser is killed.
const TIMEOUT: &str = "60";

/// Measures the picture: the boxes of its texts by the document, its pixels by a copy on a canvas.
const PAGE: &str = include_str!("browser.html");

/// Colors that the reader prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorScheme {
    Light,
    Dark,
}

/// A picture as the browser shows it.
#[derive(Clone, Debug, Deserialize)]
pub struct MeasuredPicture {
    /// Number of texts.
    pub texts: usize,
    /// Pairs of texts that overlap.
    pub overlaps: Vec<String>,
    /// Texts that are not completely within the picture.
    pub outside: Vec<String>,
    /// Number of pixels with another color than the corner.
    pub drawn: usize,
    pub pixels: usize,
    /// Colors of the page and of its text, such as `rgb(255, 255, 255)`.
    pub background: String,
    pub ink: String,
}

/// The browser, and a home for its files.
pub struct Browser {
    program: PathBuf,
    home: TempDir,
}

impl Browser {
    pub fn new() -> Result<Self> {
        let (program, home) = (peer("chromium")?, TempDir::new()?);
        let fonts = root_of(&program)?.join("usr/share/fonts");
        let cache = home.path().join("fonts");
        let config =
            format!("<fontconfig><dir>{}</dir><cachedir>{}</cachedir></fontconfig>", fonts.display(), cache.display());
        fs::write(home.path().join("fonts.conf"), config)?;
        Ok(Self { program, home })
    }

    /// Opens the picture, and measures it.
    pub fn measure(&self, picture: &str, scheme: ColorScheme) -> Result<MeasuredPicture> {
        let page = self.home.path().join("page.html");
        fs::write(&page, PAGE.replace("@PICTURE@", picture))?;
        let dumped = self.run(scheme, &["--virtual-time-budget=10000", "--dump-dom"], &page)?;
        let text = dumped.split("<pre id=\"measured\">").nth(1).and_then(|rest| rest.split("</pre>").next());
        let text = text.filter(|text| !text.is_empty()).with_context(|| format!("nothing was measured: {dumped}"))?;
        let decoded = BASE64.decode(text).context("the measurement is not base64")?;
        serde_json::from_slice(&decoded).context("the measurement cannot be parsed")
    }

    /// Takes a screenshot of the picture alone.
    pub fn screenshot(&self, picture: &str, scheme: ColorScheme, to: &Path) -> Result<()> {
        let page = self.home.path().join("page.svg");
        fs::write(&page, picture)?;
        let size = |name: &str| {
            let value = picture.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?;
            value.parse::<u32>().ok()
        };
        let (width, height) = (size("width").context("no width")?, size("height").context("no height")?);
        let window = format!("--window-size={width},{height}");
        self.run(scheme, &[&window, &format!("--screenshot={}", to.display())], &page)?;
        ensure!(to.exists(), "there is no screenshot");
        Ok(())
    }

    fn run(&self, scheme: ColorScheme, arguments: &[&str], page: &Path) -> Result<String> {
        let root = root_of(&self.program)?;
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        let libraries = format!("{}:{}", libraries.display(), libraries.join("pulseaudio").display());
        let preferred = match scheme {
            ColorScheme::Dark => "--blink-settings=preferredColorScheme=0",
            ColorScheme::Light => "--blink-settings=preferredColorScheme=1",
        };
        let mut command = Command::new("timeout");
        // The sandbox needs rights that a container may not have; the pages are our own.
        command.args(["--kill-after=5", TIMEOUT]).arg(&self.program).args(["--no-sandbox", "--disable-gpu", preferred]);
        command.args(["--disable-background-networking", "--no-first-run", "--hide-scrollbars"]);
        command.arg(format!("--user-data-dir={}", self.home.path().join("profile").display()));
        command.args(arguments).arg(format!("file://{}", page.display()));
        command.env("LD_LIBRARY_PATH", libraries).env("FONTCONFIG_FILE", self.home.path().join("fonts.conf"));
        command.env("HOME", self.home.path()).stdin(Stdio::null());
        let done = command.output().context("cannot start Chromium")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "Chromium ended with {}: {said}", done.status);
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

/// The directory into which the packages were unpacked.
fn root_of(program: &Path) -> Result<&Path> {
    program.ancestors().nth(4).context("the path of Chromium is too short")
}
