//! Magics that only read the table of magics or the folders of studies. They need neither evcxr nor the cell process. A cell of a
//! subshell that has only such magics is therefore answered while another cell runs.

use crate::engine::handlers::current_studies::CurrentStudies;
use crate::engine::handlers::{profile, studies};
use crate::engine::steps;
use crate::execution::{Output, Payload};
use crate::failure::Failure;
use anyhow::{Context, Result};
use ferrotune_display::Bundle;
use ferrotune_magics::{Action, Best, Step, Study};
use std::path::Path;
use tokio::sync::mpsc::UnboundedSender;

/// A function that carries out one read-only magic and returns its outputs.
type Look<'a> = Box<dyn FnOnce(&CurrentStudies) -> Result<Vec<Output>, Failure> + 'a>;

/// Whether a cell has read-only magics, and nothing else.
pub(crate) fn only_looks(code: &str) -> bool {
    let is_look = |step: &Step| matches!(step, Step::Action(action) if look(action).is_some());
    steps(code).is_ok_and(|steps| !steps.is_empty() && steps.iter().all(is_look))
}

/// Runs a cell of read-only magics to its end.
pub(in crate::engine) fn run(code: &str, current_studies: &CurrentStudies, outputs: &UnboundedSender<Output>) {
    let send = |output| {
        if outputs.send(output).is_err() {
            tracing::debug!("an output came after its cell's front end had gone");
        }
    };
    let result = steps(code).and_then(|steps| {
        for step in &steps {
            let Step::Action(action) = step else { continue };
            let shown = look(action).map_or_else(|| Ok(Vec::new()), |look| look(current_studies))?;
            shown.into_iter().for_each(send);
        }
        Ok(())
    });
    send(Output::Done(result));
}

/// The function that carries out a read-only magic; none for all other magics.
pub(in crate::engine) fn look(action: &Action) -> Option<Look<'_>> {
    Some(match action {
        Action::Trials(request) => of_study(&request.study, move |folder| studies::trials(folder, request)),
        Action::TrialProfile(request) => Box::new(move |current_studies| {
            let bundles = profile::of_trial(&current_studies.folder_of(&request.study)?, request.trial);
            Ok(bundles.map_err(Failure::of_magic)?.into_iter().map(Output::display).collect())
        }),
        Action::Best(request) => Box::new(move |current_studies| best(current_studies, request)),
        Action::Space(study) => of_study(study, studies::space),
        Action::Plot(request) => of_study(&request.study, move |folder| studies::plot(folder, request)),
        Action::Studies { directory } => {
            Box::new(move |current_studies| shown(studies::overview(&current_studies.directory(directory.as_deref()))))
        }
        Action::Lsmagic { name: None } => Box::new(|_| shown(Ok(Bundle::text(ferrotune_magics::lsmagic())))),
        Action::Lsmagic { name: Some(name) } => Box::new(move |_| shown(help(name))),
        Action::Help { name } => Box::new(move |_| {
            let page = help(name).map_err(Failure::of_magic)?;
            Ok(vec![Output::Payload(Payload::Page(page.data))])
        }),
        _ => return None,
    })
}

fn of_study<'a>(study: &'a Study, bundle: impl FnOnce(&Path) -> Result<Bundle> + 'a) -> Look<'a> {
    Box::new(move |current_studies| shown(bundle(&current_studies.folder_of(study)?)))
}

fn shown(bundle: Result<Bundle>) -> Result<Vec<Output>, Failure> {
    Ok(vec![Output::display(bundle.map_err(Failure::of_magic)?)])
}

/// Carries out `%best`.
fn best(current_studies: &CurrentStudies, request: &Best) -> Result<Vec<Output>, Failure> {
    let best = studies::best(&current_studies.folder_of(&request.study)?, request);
    let (bundle, code) = best.map_err(Failure::of_magic)?;
    let next = code.map(|code| Output::Payload(Payload::NextCell(code)));
    Ok([Output::display(bundle)].into_iter().chain(next).collect())
}

/// The help of a magic.
pub(in crate::engine) fn help(name: &str) -> Result<Bundle> {
    let help = ferrotune_magics::help(name).with_context(|| format!("there is no magic {name}"))?;
    Ok(Bundle::text(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cells_without_rust_and_without_effects_look() {
        for cell in
            ["%lsmagic", "%best 3 --project a\n\n// a comment\n%trials --project a", "%tune?", "%studies --directory x"]
        {
            assert!(only_looks(cell), "{cell}");
        }
        for cell in ["", "1", "%lsmagic\n1", "%undo", "%whos", "%export model", "!ls", "%no_such", "name?"] {
            assert!(!only_looks(cell), "{cell}");
        }
    }
}
