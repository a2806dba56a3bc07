//! Object stores for the files that workers run: the stores from which data is read, with the same credentials.

use ferrotune_reader::{get_object, put_object};
use ferrotune_tuner::supervisor;
use std::fs::File;
use std::io::Write;

pub(crate) struct Objects;

impl supervisor::Objects for Objects {
    fn put(&self, address: &str, file: &File, bytes: u64) -> Result<(), String> {
        put_object(address, file, bytes).map_err(|error| format!("{error:#}"))
    }

    fn get(&self, address: &str, most_bytes: u64, to: &mut dyn Write) -> Result<bool, String> {
        get_object(address, most_bytes, to).map_err(|error| format!("{error:#}"))
    }
}
