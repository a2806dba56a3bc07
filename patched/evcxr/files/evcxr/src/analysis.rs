//! What an editor asks about code that does not run, also while other code runs: the source that rust-analyzer sees in place
//! of the user's, and rust-analyzer itself. A question runs nothing, and writes no file.

use crate::code_block::CodeBlock;
use crate::errors::Error;
use crate::eval_context::ContextState;
use crate::rust_analyzer::RustAnalyzer;
use crate::rust_analyzer::load_workspace;
use ra_ap_ide::{Analysis, FileId};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The user's code amid generated code.
pub struct AnalysedCode {
    code: CodeBlock,
}

impl AnalysedCode {
    /// What rust-analyzer sees.
    pub fn source(&self) -> String {
        self.code.code_string()
    }

    /// Where a byte of the user's code is in the source. None for one that is not there, as in a comment above the code.
    pub fn offset_of(&self, user_offset: usize) -> Option<usize> {
        self.code.user_offset_to_output_offset(user_offset).ok()
    }

    /// Where a byte of the source is in the user's code. None for generated code.
    pub fn user_offset_of(&self, offset: usize) -> Option<usize> {
        self.code.output_offset_to_user_offset(offset).ok()
    }
}

impl ContextState {
    /// The source that rust-analyzer sees in place of the user's code.
    ///
    /// # Errors
    ///
    /// The code cannot be split into statements that fit the state.
    pub fn analysed(mut self, user_code: &str) -> Result<AnalysedCode, Error> {
        // Both would change the code at the cursor.
        self.config.display_final_expression = false;
        self.config.expand_use_statements = false;
        let (block, info) = CodeBlock::from_original_user_code(user_code);
        let block = self.apply(block, &info.nodes)?;
        Ok(AnalysedCode { code: self.analysis_code(block) })
    }
}

/// A rust-analyzer that several threads ask, one after the other.
#[derive(Clone)]
pub struct SharedAnalyzer(Arc<Mutex<RustAnalyzer>>);

impl SharedAnalyzer {
    pub(crate) fn new(analyzer: RustAnalyzer) -> Self {
        Self(Arc::new(Mutex::new(analyzer)))
    }

    /// A panic leaves rust-analyzer as it was: it gets a new source before each question.
    pub(crate) fn lock(&self) -> MutexGuard<'_, RustAnalyzer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the variables that cargo gets, besides its own, where it looks for the crates of the manifest with a path.
    pub fn set_cargo_environment(
        &self,
        environment: impl Fn(&Path) -> anyhow::Result<Vec<(String, String)>> + Send + Sync + 'static,
    ) {
        self.lock().set_cargo_environment(Arc::new(environment));
    }

    /// Whether rust-analyzer can answer at once: it has read crates, and nobody asks it now.
    pub(crate) fn is_ready(&self) -> bool {
        let analyzer = match self.0.try_lock() {
            Ok(analyzer) => analyzer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        analyzer.unused_for().is_some()
    }

    /// Makes rust-analyzer forget the crates, unless it is asked now or was asked in this time. It reads them again when it is asked.
    ///
    /// # Errors
    ///
    /// The folder of the session cannot be made.
    pub fn forget_unused(&self, idle: Duration) -> Result<(), Error> {
        let mut analyzer = match self.0.try_lock() {
            Ok(analyzer) => analyzer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        if analyzer.unused_for().is_some_and(|unused| unused >= idle) {
            analyzer.forget()?;
        }
        Ok(())
    }

    /// Sets the source. Others can ask while cargo looks for crates and builds them.
    pub(crate) fn set_source(&self, source: String) -> Result<MutexGuard<'_, RustAnalyzer>, Error> {
        let manifest = self.lock().changed_manifest(&source)?;
        let workspace = manifest.map(load_workspace).transpose()?;
        let mut analyzer = self.lock();
        analyzer.set_source_in(source, workspace)?;
        Ok(analyzer)
    }

    /// Asks about a source. Waits while code that is evaluated is analysed, and not while it is compiled and runs.
    ///
    /// # Errors
    ///
    /// `ask` fails, or this is the first question and cargo does not find the crates of the manifest, or cannot build them.
    pub fn look_at<T>(
        &self,
        source: &str,
        ask: impl FnOnce(&Analysis, FileId) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let first = self.lock().first_manifest()?;
        let workspace = first.map(load_workspace).transpose()?;
        let mut analyzer = self.lock();
        let (analysis, file) = analyzer.look_at(source, workspace);
        let answer = ask(&analysis, file);
        analyzer.was_used();
        answer
    }
}
