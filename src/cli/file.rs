//! Writes a file as a whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes the text to a file beside `path`, and renames it. A reader never sees a part of the text, and a file that
/// exists stays as it is if the text cannot be written.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let name =
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it is not the name of a file"))?;
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory; add the name of a file"));
    }
    let mut hidden = std::ffi::OsString::from(".");
    // A name may be as long as the file system permits, so that nothing can be added to it.
    hidden.push(name.to_string_lossy().chars().take(40).collect::<String>());
    hidden.push(format!(".{}", std::process::id()));
    let beside: PathBuf = path.with_file_name(hidden);
    let written = write_new(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The error that is returned is that of the text.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.svg");
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write(dir.path(), "x").unwrap_err().to_string().contains("is a directory"));
        assert!(write(&dir.path().join("no/such/folder.svg"), "x").is_err());
        assert!(write(Path::new("/"), "x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
