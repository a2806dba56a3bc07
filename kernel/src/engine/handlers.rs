//! What each magic asks for, one file a subject. A handler performs the action that `magics/` has described.

pub(super) mod captures;
pub(super) mod current_studies;
pub(super) mod devices;
pub(super) mod files;
pub(super) mod history;
pub(super) mod magics;
pub(super) mod memory;
pub(super) mod notebook_file;
pub(super) mod objective;
pub(super) mod packages;
pub(super) mod profile;
pub(super) mod questions;
pub(super) mod read_only;
pub(super) mod scripts;
pub(super) mod search;
pub(super) mod settings;
pub(super) mod shell;
pub(super) mod studies;
pub(super) mod timing;
pub(super) mod variables;
pub(super) mod watch;
