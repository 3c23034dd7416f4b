//! A file that exists in full or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, process};

use crate::output::failure::Failure;

/// A report that is not yet written. The report is written to a draft in the same directory, and moved to its place
/// when the draft is complete.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    draft: PathBuf,
}

impl ReportFile {
    /// Checks, before anything is measured, that the report can be written to `path`. Leaves nothing behind: a signal
    /// that interrupts the measurement leaves no draft.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let cannot = |why: &dyn std::fmt::Display| {
            Failure::Usage(format!("cannot write the report to '{}': {why}", path.display()))
        };
        // Moving a file to this path would replace a device as well as a report.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(cannot(&"it is not a regular file"));
        }
        let name = path.file_name().ok_or_else(|| cannot(&"it has no file name"))?;
        let draft = path.with_file_name(format!(".{}.{}.draft", name.to_string_lossy(), process::id()));
        File::create(&draft).and_then(|_| fs::remove_file(&draft)).map_err(|error| cannot(&error))?;
        Ok(Self { path: path.to_owned(), draft })
    }

    /// As [`Self::create`]; without a path, the report has this name, in the target directory.
    pub fn create_or_default(path: Option<&Path>, name: &str) -> Result<Self, Failure> {
        path.map_or_else(|| Self::create(&default_path(name)?), Self::create)
    }

    /// Returns the path of the report.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the report.
    pub fn commit(self, text: &str) -> Result<(), Failure> {
        self.write(text).map_err(|error| {
            // An incomplete draft is of no use. If there is no draft, the removal fails, which does no harm.
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

/// Returns the path of a report by this name, if no path is given: in `lab` in cargo's target directory, which is
/// created if necessary. The target directory is that of the workspace around the current directory.
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
