//! What commands get of the environment of the process that submits them. The rest may hold secrets, which an engine would
//! store or show.

use std::ffi::OsString;

/// What finds programs and libraries, and speaks the user's language and time zone.
const KEPT: [&str; 9] = ["HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "TZ", "USER"];

/// The variables of this process that commands get.
pub(crate) fn kept() -> impl Iterator<Item = (&'static str, OsString)> {
    KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}
