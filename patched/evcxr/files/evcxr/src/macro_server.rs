//! The process that expands procedural macros for rust-analyzer: a program of the toolchain, which loads what cargo has built.

use anyhow::Context;
use ra_ap_base_db::ProcMacroLoadingError;
use ra_ap_base_db::ProcMacroPaths;
use ra_ap_hir::ProcMacrosBuilder;
use ra_ap_ide_db::FxHashMap;
use ra_ap_load_cargo::load_proc_macro;
use ra_ap_paths::AbsPathBuf;
use ra_ap_proc_macro_api::MacroDylib;
use ra_ap_proc_macro_api::ProcMacroClient;
use ra_ap_project_model::ProjectWorkspace;
use ra_ap_project_model::ProjectWorkspaceKind;
use ra_ap_project_model::TargetKind;

pub(crate) struct MacroServer {
    /// The process, or why there is none.
    client: Result<ProcMacroClient, ProcMacroLoadingError>,
    /// A library that it has loaded.
    loaded: Option<AbsPathBuf>,
}

/// Whether a workspace has procedural macros or build scripts, which cargo has to build before rust-analyzer knows what they make.
pub(crate) fn are_built(workspace: &ProjectWorkspace) -> bool {
    let ProjectWorkspaceKind::Cargo { cargo, .. } = &workspace.kind else {
        return false;
    };
    let mut targets = cargo.packages().flat_map(|package| &cargo[package].targets);
    targets.any(|&target| matches!(cargo[target].kind, TargetKind::Lib { is_proc_macro: true } | TargetKind::BuildScript))
}

impl MacroServer {
    /// The process of before, unless it has ended, or a new one.
    pub(crate) fn of(workspace: &ProjectWorkspace, before: Option<MacroServer>) -> MacroServer {
        if let Some(before) = before.filter(|before| before.client.is_ok() && !before.has_ended()) {
            return before;
        }
        let client = Self::start(workspace).map_err(|error| ProcMacroLoadingError::ProcMacroSrvError(error.to_string().into()));
        MacroServer { client, loaded: None }
    }

    fn start(workspace: &ProjectWorkspace) -> anyhow::Result<ProcMacroClient> {
        let program = workspace.find_sysroot_proc_macro_srv().context("there is no sysroot")??;
        let environment = FxHashMap::<String, Option<String>>::default();
        Ok(ProcMacroClient::spawn(&program, &environment, workspace.toolchain.as_ref(), 1)?)
    }

    /// Whether the process has ended, as when a macro has aborted it. Asks it, since it ends some time after its last answer.
    pub(crate) fn has_ended(&self) -> bool {
        let (Ok(client), Some(loaded)) = (&self.client, &self.loaded) else {
            return false;
        };
        client.load_dylib(MacroDylib::new(loaded.clone())).is_err()
    }

    /// Loads the libraries of the crates that define procedural macros.
    pub(crate) fn load(&mut self, libraries: ProcMacroPaths) -> ProcMacrosBuilder {
        let mut load = |library: Result<(String, AbsPathBuf), ProcMacroLoadingError>| {
            let (_, library) = library?;
            let macros = load_proc_macro(self.client.as_ref().map_err(Clone::clone)?, &library, &[])?;
            self.loaded = Some(library);
            Ok(macros)
        };
        libraries.into_iter().map(|(id, library)| (id, load(library))).collect()
    }
}
