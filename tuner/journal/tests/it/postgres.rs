//! A PostgreSQL server for one test: Debian's package, in a temporary folder, on a Unix socket there. Installs the package
//! if possible, and otherwise returns the reason why there is no server.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The id of the user `nobody` on every Linux: the server refuses to run as root.
const NOBODY: u32 = 65534;
/// The number in the name of the server's socket.
const PORT: u16 = 5432;

/// A running server, which stops when this value is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    child: Child,
}

/// Starts a server, or prints the reason why this test has none to standard error.
pub(crate) fn server() -> Option<Server> {
    match Server::start() {
        Ok(server) => Some(server),
        Err(reason) => {
            eprintln!("skipped: there is no PostgreSQL: {reason}");
            None
        }
    }
}

impl Server {
    fn start() -> Result<Server, String> {
        let programs = programs()?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        if is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).map_err(|error| error.to_string())?;
        }
        let data = folder.path().join("data");
        let mut init = as_nobody(&programs.join("initdb"));
        init.args(["-A", "trust", "-U", "ferrotune", "--no-sync", "-D"]).arg(&data);
        succeed(&mut init)?;
        let child = run(&programs, folder.path())?;
        let server = Server { folder, programs, child };
        server.wait_until_ready();
        Ok(server)
    }

    /// Makes a database on the server, and returns its address.
    pub(crate) fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        format!("postgresql://ferrotune@{}/{name}", self.folder.path().display().to_string().replace('/', "%2F"))
    }

    /// Runs SQL, and returns the output.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-U", "ferrotune", "-h"]).arg(self.folder.path());
        let ran = psql.args(["-d", database, "-c", sql]).output().expect("psql runs");
        assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// Stops the server at once, whatever it is doing, as if its machine failed.
    pub(crate) fn crash(&mut self) {
        let data = self.folder.path().join("data");
        let mut stop = as_nobody(&self.programs.join("pg_ctl"));
        succeed(stop.args(["stop", "-w", "-m", "immediate", "-D"]).arg(data)).expect("stopped");
        self.child.wait().expect("it has ended");
    }

    pub(crate) fn start_again(&mut self) {
        self.child = run(&self.programs, self.folder.path()).expect("it starts");
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        let mut ready = Command::new(self.programs.join("pg_isready"));
        ready.args(["-q", "-h"]).arg(self.folder.path());
        while !ready.status().expect("pg_isready runs").success() {
            assert!(Instant::now() < end, "the server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.folder.path().join("data");
        let mut stop = as_nobody(&self.programs.join("pg_ctl"));
        let stopped = succeed(stop.args(["stop", "-w", "-m", "immediate", "-D"]).arg(data));
        if stopped.is_ok() || self.child.kill().is_ok() {
            self.child.wait().expect("it has ended");
        }
    }
}

fn run(programs: &Path, folder: &Path) -> Result<Child, String> {
    let mut server = as_nobody(&programs.join("postgres"));
    server.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    server.args(["-p", &PORT.to_string(), "-c", "listen_addresses=", "-c", "max_connections=200"]);
    server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env("LC_ALL", "C");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let ran: Output = command.output().map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    if ran.status.success() { Ok(()) } else { Err(format!("{name}: {}", text.lines().last().unwrap_or_default())) }
}

/// The folder of the server's programs, which are installed if possible.
fn programs() -> Result<PathBuf, String> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _installing = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = installed() {
        return Ok(found);
    }
    if !is_root() {
        return Err("it is not installed; apt-get install postgresql".to_owned());
    }
    for arguments in [&["update"][..], &["install", "--yes", "--no-install-recommends", "postgresql"]] {
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "-o", "DPkg::Lock::Timeout=120"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        succeed(&mut apt)?;
    }
    installed().ok_or_else(|| "the package postgresql has no initdb".to_owned())
}

fn installed() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    programs.filter(|programs| programs.join("initdb").is_file()).max()
}
