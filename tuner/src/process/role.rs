//! The role of this process, in a program that runs itself again as the supervisor and the workers of its searches. The
//! process that the user has started has no role. Starts nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

/// The environment variable that carries a [`Role`].
pub const ROLE_VARIABLE: &str = "FERROTUNE_ROLE";

/// The purpose for which the program was started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The process supervises a search.
    Supervisor {
        /// The path of the search's spec, a JSON file.
        spec: PathBuf,
    },
    /// The process runs a trial's objective.
    Worker {
        /// The study's folder, as the program names it.
        study: PathBuf,
    },
}

impl Role {
    /// The role of this process; none in the process that the user has started.
    pub fn of_this_process() -> Option<Role> {
        Role::from_variable(&std::env::var_os(ROLE_VARIABLE)?)
    }

    /// The text of the role for [`ROLE_VARIABLE`].
    pub fn to_variable(&self) -> OsString {
        let (name, path) = match self {
            Role::Supervisor { spec } => ("supervisor:", spec),
            Role::Worker { study } => ("worker:", study),
        };
        let mut variable = OsString::from(name);
        variable.push(path);
        variable
    }

    fn from_variable(variable: &OsStr) -> Option<Role> {
        let path = |name: &str| {
            let path = variable.as_bytes().strip_prefix(name.as_bytes())?;
            Some(PathBuf::from(OsString::from_vec(path.to_vec())))
        };
        let supervisor = path("supervisor:").map(|spec| Role::Supervisor { spec });
        supervisor.or_else(|| Some(Role::Worker { study: path("worker:")? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_travel_with_paths_of_any_bytes() {
        let path = PathBuf::from(OsString::from_vec(b"studies/\xff:digits".to_vec()));
        for role in [Role::Supervisor { spec: path.clone() }, Role::Worker { study: path }] {
            assert_eq!(Role::from_variable(&role.to_variable()), Some(role));
        }
        assert_eq!(Role::from_variable(OsStr::new("spectator:x")), None);
    }
}
