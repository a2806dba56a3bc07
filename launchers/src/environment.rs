//! The environment variables of the submitting process that commands receive. Other variables may contain secrets, which an
//! engine would store or show.

use std::ffi::OsString;

/// The variables by which programs and libraries are found, and those of the user's language and time zone.
const KEPT: [&str; 9] = ["HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "TZ", "USER"];

/// The variables of this process that commands receive.
pub(crate) fn kept() -> impl Iterator<Item = (&'static str, OsString)> {
    KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}
