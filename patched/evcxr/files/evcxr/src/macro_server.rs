//! The process that expands procedural macros for rust-analyzer: a program of the toolchain, which loads what cargo has built.

use ra_ap_base_db::ProcMacroLoadingError;
use ra_ap_base_db::ProcMacroPaths;
use ra_ap_hir::ProcMacrosBuilder;
use ra_ap_ide_db::FxHashMap;
use ra_ap_load_cargo::load_proc_macro;
use ra_ap_paths::AbsPathBuf;
use ra_ap_proc_macro_api::ProcMacroClient;
use ra_ap_project_model::ProjectWorkspace;
use ra_ap_project_model::ProjectWorkspaceKind;
use ra_ap_project_model::TargetKind;

/// The process, or why there is none.
pub(crate) struct MacroServer(Result<ProcMacroClient, ProcMacroLoadingError>);

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
        if let Some(before) = before.filter(|before| before.0.is_ok() && !before.has_ended()) {
            return before;
        }
        let because = |error: String| ProcMacroLoadingError::ProcMacroSrvError(error.into_boxed_str());
        let program = workspace.find_sysroot_proc_macro_srv().unwrap_or_else(|| Err(anyhow::anyhow!("there is no sysroot")));
        let environment = FxHashMap::<String, Option<String>>::default();
        MacroServer(program.map_err(|error| because(error.to_string())).and_then(|program| {
            ProcMacroClient::spawn(&program, &environment, workspace.toolchain.as_ref(), 1).map_err(|error| because(error.to_string()))
        }))
    }

    /// Whether the process has ended, so that no macro is expanded any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.as_ref().is_ok_and(|client| client.exited().is_some())
    }

    /// Loads the libraries of the crates that define procedural macros.
    pub(crate) fn load(&self, libraries: ProcMacroPaths) -> ProcMacrosBuilder {
        let load = |library: Result<(String, AbsPathBuf), ProcMacroLoadingError>| {
            let (_, library) = library?;
            load_proc_macro(self.0.as_ref().map_err(Clone::clone)?, &library, &[])
        };
        libraries.into_iter().map(|(id, library)| (id, load(library))).collect()
    }
}
