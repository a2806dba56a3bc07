//! `%cd` and `%env`: the working folder and the environment of the cell process, and of processes that the kernel starts later.
//!
//! A generated cell changes the running cell process; `supervisor/settings.rs` keeps the settings for later processes.

use crate::cell_supervisor::settings::Settings;
use crate::engine::Engine;
use crate::engine::handlers::files;
use crate::failure::{ErrorName, Failure};
use anyhow::{Context, Result, bail};
use ferrotune_machine::process;
use ferrotune_magics::{Env, Folder};
use std::path::{Path, PathBuf};

/// Beginnings of the names of environment variables that the kernel itself sets for the compiler.
const OF_COMPILER: [&str; 4] = ["PATH", "RUST", "CARGO", "EVCXR"];

/// Words in the names of environment variables whose values are secret.
const SECRETS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASS", "_PWD", "CREDENTIAL"];

/// The Rust that shows all environment variables of the cell process. The list of secret words replaces `SECRETS`.
const LIST: &str = r#"{
    let mut lines: ::std::vec::Vec<::std::string::String> = ::std::env::vars_os().map(|(name, value)| {
        let name = name.to_string_lossy().into_owned();
        let is_secret = SECRETS.iter().any(|word| name.to_uppercase().contains(word));
        let value = if is_secret { "<hidden>".into() } else { value.to_string_lossy() };
        ::std::format!("{name}={value}")
    }).collect();
    lines.sort();
    ::ferrotune::display::text(lines.join("\n"));
}"#;

impl Engine {
    /// Carries out `%cd`.
    pub(in crate::engine) fn change_folder(&mut self, folder: &Folder) -> Result<(), Failure> {
        let pid = self.supervisor.report()?.cells_pid;
        let now = process::folder(pid).context("the folder of the cells is unknown");
        let now = now.map_err(Failure::of_magic)?;
        let target = self.target(folder, &now).map_err(Failure::of_magic)?;
        let name = target.to_str().context("the folder's name is no text").map_err(Failure::of_magic)?;
        self.look(&format!("std::env::set_current_dir({name:?})?;"))?;
        self.enter(&target).map_err(Failure::of_magic)?;
        self.notebook.previous_folder = Some(now);
        self.show_text(name);
        Ok(())
    }

    fn target(&self, folder: &Folder, now: &Path) -> Result<PathBuf> {
        let named = match folder {
            Folder::Home => files::expanded("~")?,
            Folder::Previous => {
                self.notebook.previous_folder.clone().context("there is no earlier folder; %cd FOLDER goes to one")?
            }
            Folder::Path(path) => files::expanded(path)?,
        };
        let target = now.join(&named).canonicalize().with_context(|| format!("cannot go to {}", named.display()))?;
        if !target.is_dir() {
            bail!("{} is a file; name a folder", named.display());
        }
        Ok(target)
    }

    /// Changes the working folder of the kernel and of all processes that it starts later.
    fn enter(&mut self, target: &Path) -> Result<()> {
        if let Some(study) = &mut self.notebook.current_studies.last_study {
            *study = std::path::absolute(&*study)?;
        }
        self.notebook.current_studies.has_moved = true;
        std::env::set_current_dir(target)?;
        let mut settings = Settings::read(self.runtime.folder())?;
        settings.folder = Some(target.to_owned());
        settings.write(self.runtime.folder())
    }

    /// Carries out `%env`.
    pub(in crate::engine) fn environment(&mut self, request: &Env) -> Result<(), Failure> {
        match request {
            Env::List => self.look(&LIST.replace("SECRETS", &format!("{SECRETS:?}"))),
            Env::Show { name } => {
                let missing = format!("no environment variable {name} is set; %env {name}=VALUE sets it");
                self.look(&format!(
                    "match ::std::env::var_os({name:?}) {{\n\
                     Some(value) => drop(::ferrotune::display::text(value.to_string_lossy())),\n\
                     None => Err({missing:?})?,\n}}"
                ))
            }
            Env::Set { name, value } => self.set_variable(name, value),
        }
    }

    fn set_variable(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.look(&format!("unsafe {{ ::std::env::set_var({name:?}, {value:?}) }};"))?;
        let mut settings = Settings::read(self.runtime.folder()).map_err(Failure::of_magic)?;
        settings.variables.insert(name.to_owned(), value.to_owned());
        settings.write(self.runtime.folder()).map_err(Failure::of_magic)?;
        // When evcxr crashes, it prints the environment of the compiler.
        let is_secret = SECRETS.iter().any(|word| name.to_uppercase().contains(word));
        if !is_secret && !OF_COMPILER.iter().any(|own| name.starts_with(own)) {
            let set = self.evaluator.run(&format!(":build_env {name}={value}"));
            set.map_err(|error| Failure::of_lines(ErrorName::MagicError, &error.to_string()))?;
        }
        self.show_text(format!("{name}={}", if is_secret { "<hidden>" } else { value }));
        Ok(())
    }
}
