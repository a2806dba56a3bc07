//! A file with a line for each epoch.

use super::{Callback, Control, again};
use crate::history::{Epoch, Logs};
use ferrotune_state::Result;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

/// Writes a line of each epoch's metrics into a CSV file, as Keras' `CSVLogger` does. The file is made anew, and each line is on disk
/// before the next epoch begins.
#[derive(Debug)]
pub struct CsvLog {
    path: PathBuf,
    file: Option<File>,
}

impl CsvLog {
    /// A log in this file.
    pub fn new(path: impl Into<PathBuf>) -> CsvLog {
        CsvLog { path: path.into(), file: None }
    }
}

impl Callback for CsvLog {
    fn on_resume(&mut self, epochs: &[Epoch], control: &Control) -> Result<()> {
        again(self, epochs, control)
    }

    fn on_epoch_end(&mut self, epoch: usize, logs: &Logs, _control: &mut Control) -> Result<()> {
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", self.path.display());
        let mut line = String::new();
        if self.file.is_none() {
            let names: Vec<&str> = logs.keys().map(String::as_str).collect();
            line = format!("epoch,{}\n", names.join(","));
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create(&self.path).map_err(failed)?),
        };
        let values: Vec<String> = logs.values().map(f64::to_string).collect();
        line += &format!("{epoch},{}\n", values.join(","));
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)?;
        Ok(())
    }
}
