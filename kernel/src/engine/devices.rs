//! The magics of devices, as Rust that the cell process runs: a device belongs to the process that computes on it, and
//! that process' environment decides which devices it sees.

use super::report;
use crate::failure::{ErrorName, Failure};
use evcxr::CompilationError;
use ferrotune_magics::{DeviceChoice, TpuCheck, TpuConnect};

/// `%tpu_connect`
pub(super) fn connect(TpuConnect { choice, self_test }: &TpuConnect) -> String {
    let connect = match choice {
        DeviceChoice::Best { tpu, require } => format!("ferrotune::device::connect({tpu:?}, {require})"),
        DeviceChoice::Plugin(plugin) => format!("ferrotune::device::connect_plugin({plugin:?})"),
    };
    if *self_test { format!("if {connect} {{ ferrotune::device::self_test(); }}") } else { format!("{connect};") }
}

/// `%tpu_check`. The program is a variable, if the notebook has one of this name; otherwise a file.
pub(super) fn check(TpuCheck { tpu, program }: &TpuCheck, variables: &[(String, String)]) -> String {
    match variables.iter().find(|(name, _)| name == program) {
        Some((name, _)) => format!("ferrotune::device::check({tpu:?}, {name:?}, &mut {name});"),
        None => format!("ferrotune::device::check_file({tpu:?}, {program:?});"),
    }
}

/// The failure of `%tpu_check`: what it generates compiles, except for a variable that is made with `let`.
pub(super) fn explain(request: &TpuCheck, errors: &[CompilationError]) -> Failure {
    if errors.iter().any(|error| error.code() == Some("E0596")) {
        let name = &request.program;
        let text = format!(
            "a compiled step that has run is a variable made with `let mut`, and {name} is made with `let`; a file of this \
             name is checked as ./{name}"
        );
        return Failure::new(ErrorName::MagicError, text);
    }
    report::generated(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_wrote_stays_text() {
        let quoted = "\"); panic!(\"".to_owned();
        let source = check(&TpuCheck { tpu: "v5e:2x2".into(), program: quoted.clone() }, &[]);
        assert_eq!(source, r#"ferrotune::device::check_file("v5e:2x2", "\"); panic!(\"");"#);
        let request = TpuConnect { choice: DeviceChoice::Plugin(quoted), self_test: true };
        let source = connect(&request);
        let expected = r#"if ferrotune::device::connect_plugin("\"); panic!(\"") { ferrotune::device::self_test(); }"#;
        assert_eq!(source, expected);
        let request = TpuConnect { choice: DeviceChoice::Best { tpu: None, require: true }, self_test: false };
        assert_eq!(connect(&request), "ferrotune::device::connect(None, true);");
    }
    #[test]
    fn a_variable_is_checked_before_a_file_of_its_name() {
        let source = |program: &str| {
            let request = TpuCheck { tpu: "v5e:2x2".into(), program: program.to_owned() };
            check(&request, &[("step".to_owned(), "ferrotune::Step<'static>".to_owned())])
        };
        assert_eq!(source("step"), r#"ferrotune::device::check("v5e:2x2", "step", &mut step);"#);
        assert_eq!(source("./step"), r#"ferrotune::device::check_file("v5e:2x2", "./step");"#);
    }
}
