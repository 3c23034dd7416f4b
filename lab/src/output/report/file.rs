//! A file that is there in full or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, process};

use crate::output::failure::Failure;

/// A report to be. It is written beside its place and moved there when it is complete.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    draft: PathBuf,
}

impl ReportFile {
    /// Finds out, before anything is measured, whether the report can be written there. Leaves nothing behind: a command that
    /// interrupts the measurement finds no draft.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let cannot = |why: &dyn std::fmt::Display| {
            Failure::Usage(format!("cannot write the report to '{}': {why}", path.display()))
        };
        // Moving a file there would replace a device as well as a report.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(cannot(&"it is not a regular file"));
        }
        let name = path.file_name().ok_or_else(|| cannot(&"it has no file name"))?;
        let draft = path.with_file_name(format!(".{}.{}.draft", name.to_string_lossy(), process::id()));
        File::create(&draft).and_then(|_| fs::remove_file(&draft)).map_err(|error| cannot(&error))?;
        Ok(Self { path: path.to_owned(), draft })
    }

    /// Where it will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it.
    pub fn commit(self, text: &str) -> Result<(), Failure> {
        self.write(text).map_err(|error| {
            // Whatever there is of it is no use; if there is nothing, all the better.
            let _ = fs::remove_file(&self.draft);
            Failure::Run(format!("cannot write the report to '{}': {error}", self.path.display()))
        })
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut file = File::create(&self.draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&self.draft, &self.path)
    }
}

/// The place of a report by this name, if none is given: `lab` in cargo's target directory, which is made if need be;
/// that of the workspace that we are in.
pub fn default_path(name: &str) -> Result<PathBuf, Failure> {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).unwrap_or_else(|| {
        let here = env::current_dir().unwrap_or_default();
        let root = here.ancestors().find(|dir| dir.join("Cargo.lock").is_file()).unwrap_or(&here);
        root.join("target")
    });
    let folder = target.join("lab");
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::Usage(format!("cannot write a report in {}: {error}", folder.display())))?;
    Ok(folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_nothing() {
        let folder = std::env::temp_dir().join(format!("sudog-lab-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("report.html");

        let file = ReportFile::create(&path).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        file.commit("text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);

        assert!(ReportFile::create(&folder).is_err());
        assert!(ReportFile::create(&folder.join("none").join("report.html")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
