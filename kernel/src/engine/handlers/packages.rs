//! `%dep`, which asks cargo for the newest version of a crate, in an empty package, and adds the crate as `:dep` does.

use crate::cell_supervisor::settings::Settings;
use crate::engine::Engine;
use crate::environment;
use crate::failure::{ErrorName, Failure};
use anyhow::{Context, Result, bail};
use ferrotune_magics::Dep;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use toml_edit::DocumentMut;

/// The manifest of an empty package, to which cargo can add a crate.
const MANIFEST: &str =
    "[package]\nname = \"notebook\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[lib]\npath = \"lib.rs\"\n";

/// The time between two checks whether the user has interrupted the cell.
const INTERVAL: Duration = Duration::from_millis(20);

impl Engine {
    pub(in crate::engine) fn add_crate(&mut self, request: &Dep) -> Result<(), Failure> {
        let dependency = self.resolve(request).map_err(Failure::of_magic)?;
        let Some(dependency) = dependency else {
            let text = format!("cargo was stopped before it had found {}; nothing has changed", request.package);
            return Err(Failure::new(ErrorName::Interrupted, text));
        };
        let line = format!(":dep {dependency}");
        self.show_text(line.as_str());
        self.run_user_code(&line, 1).map(drop)
    }

    /// The dependency, with the version that cargo chooses, as a line of a manifest; none if the user has interrupted the cell.
    fn resolve(&self, Dep { package, features }: &Dep) -> Result<Option<String>> {
        let folder = tempfile::tempdir().context("cannot make a folder for cargo")?;
        let manifest = folder.path().join("Cargo.toml");
        std::fs::write(&manifest, MANIFEST)?;
        std::fs::write(folder.path().join("lib.rs"), "")?;
        let mut command = environment::cargo()?;
        command.envs(Settings::read(self.runtime.folder())?.variables);
        environment::restore_path(&mut command);
        command.args(["add", "--quiet", "--manifest-path"]).arg(&manifest).arg(package);
        command.args(features.iter().flat_map(|features| ["--features", features.as_str()]));
        let child =
            command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = child.spawn().context("cargo cannot be started")?;
        if !self.wait_for_cargo(child)? {
            return Ok(None);
        }
        added(&manifest).map(Some)
    }

    /// Waits until cargo has succeeded. False if the user has interrupted cargo; an error if cargo has failed.
    fn wait_for_cargo(&self, mut child: Child) -> Result<bool> {
        while child.try_wait()?.is_none() {
            if self.link.is_interrupted() {
                child.kill()?;
                child.wait()?;
                return Ok(false);
            }
            std::thread::sleep(INTERVAL);
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or(text.trim());
            bail!("cargo cannot add the crate: {line}");
        }
        Ok(true)
    }
}

/// The first dependency in a manifest, as one line.
fn added(manifest: &Path) -> Result<String> {
    let document: DocumentMut = std::fs::read_to_string(manifest)?.parse()?;
    let dependencies = document.get("dependencies").and_then(toml_edit::Item::as_table);
    let (name, value) = dependencies.and_then(|table| table.iter().next()).context("cargo has added no crate")?;
    Ok(format!("{name} = {}", value.to_string().trim()))
}
