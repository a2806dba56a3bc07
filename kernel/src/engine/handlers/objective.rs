//! The conversion of the body of `%%tune` into a cell, which has a function that workers call and the start of the search.
//!
//! The user's lines keep their places, so that the compiler reports the user's lines and columns. Generated code is on the line
//! of the magic and after the last line.

mod source;

use crate::engine::evaluate::insertions::Insertions;
use crate::engine::evaluate::report;
use crate::engine::handlers::captures;
use crate::failure::{ErrorName, Failure};
use evcxr::{CompilationError, Variable};
use ferrotune_magics::Tune;
use ferrotune_space::spec::StudySpec;
use std::ops::Range;

/// The generated cell of an objective.
#[derive(Debug)]
pub(in crate::engine) struct Objective {
    pub(in crate::engine) source: String,
    /// The user's lines, counted from 1.
    body_lines: Range<usize>,
    /// Each captured variable's columns in the generated line, and its name.
    columns: Vec<(Range<usize>, String)>,
}

impl Objective {
    /// Expands the objective. `variables` are those of the notebook, which the objective may use.
    pub(in crate::engine) fn expand(tune: &Tune, variables: &[Variable]) -> Result<Self, Failure> {
        let free = captures::free_names(&tune.body).map_err(|error| {
            let start = error.span().start();
            let line = tune.body_line + start.line.saturating_sub(1);
            let text = format!(
                "{error} (line {line}, column {}); the body is a closure, as in |trial| {{ … }}",
                start.column + 1
            );
            Failure::new(ErrorName::CompilationError, text)
        })?;
        let captured: Vec<_> = variables.iter().filter(|variable| free.contains(&variable.name)).collect();
        let mut line = format!(
            "{{ #[unsafe(no_mangle)] pub extern \"C\" fn ferrotune_objective() -> i32 {{ \
             ::ferrotune::tune::in_cell(file!(), line!(), {}); \
             ::ferrotune::tune::run_objective(|ferrotune_trial, ferrotune_shared| {{",
            tune.body_line - 1
        );
        let mut columns = Vec::new();
        for Variable { name, type_name, .. } in &captured {
            let start = line.chars().count() + 1;
            line.push_str(&format!(
                " #[allow(unused_mut, unused_variables)] let mut {name} = <{type_name} as ::ferrotune::Share>::unpack({name:?}, ferrotune_shared)?;"
            ));
            columns.push((start..line.chars().count() + 1, name.clone()));
        }
        line.push_str(" ::ferrotune::tune::objective(ferrotune_trial, ");
        let mut source = "\n".repeat(tune.body_line.saturating_sub(2));
        source.push_str(&line);
        source.push('\n');
        source.push_str(&tune.body);
        if !tune.body.ends_with('\n') {
            source.push('\n');
        }
        source.push_str(") }) } ::ferrotune::tune::start(ferrotune_objective, &mut |ferrotune_launch| {");
        for Variable { name, .. } in &captured {
            source.push_str(&format!(" ferrotune_launch.share({name:?}, &{name});"));
        }
        // The source ends with a statement, since evcxr would compile code to show the value of an expression.
        source.push_str(" }); };");
        let body_lines = tune.body_line..tune.body_line + tune.body.lines().count();
        Ok(Self { source, body_lines, columns })
    }

    /// The specification of the cell's search, with the hash of the objective's source. A cell that names no project gets a project of
    /// its own. `items` is the source of the notebook's items.
    pub(in crate::engine) fn search(tune: &Tune, items: &str) -> Result<StudySpec, Failure> {
        let unreadable = |error| {
            let text = format!("the objective's source cannot be compared with that of earlier trials: {error}");
            Failure::new(ErrorName::TuneError, text)
        };
        let mut spec = tune.spec.clone();
        if !tune.is_named {
            spec.project = source::project(&tune.body, &spec).map_err(unreadable)?;
        }
        spec.source_hash = Some(source::hash(&tune.body, items).map_err(unreadable)?);
        Ok(spec)
    }

    /// The failure for the compiler's errors. An error in the generated line is about a variable that cannot be sent to the trials.
    pub(in crate::engine) fn explain(&self, errors: &[CompilationError]) -> Failure {
        let mut failure =
            report::compilation(errors, "", |line| self.body_lines.contains(&line), &Insertions::default());
        let variable = errors.iter().flat_map(CompilationError::spanned_messages).find_map(|message| {
            let span = message.span.filter(|span| span.start_line + 1 == self.body_lines.start)?;
            self.columns.iter().find(|(columns, _)| columns.contains(&span.start_column)).map(|(_, name)| name)
        });
        if let Some(name) = variable {
            failure.text = format!("variable `{name}`: {}", failure.text);
            failure.traceback.insert(
                0,
                format!("the objective uses the notebook's variable `{name}`, which must be sent to the trials:"),
            );
        }
        if errors.iter().any(|error| error.code() == Some("E0631")) {
            failure.text = format!("{}; the objective takes the trial as `|trial|` or `|trial: &Trial|`", failure.text);
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn tune(body: &str) -> Tune {
        let cell = format!("%%tune --objective loss:min\n{body}");
        match ferrotune_magics::parse(&cell).unwrap().remove(0) {
            ferrotune_magics::Step::Action(ferrotune_magics::Action::Tune(tune)) => *tune,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_users_lines_stay_where_they_are() {
        let body = "|trial| {\n    let x = data.len();\n    Ok(x as f64)\n}";
        let variables = [("data", "Vec<f64>"), ("other", "i32")].map(|(name, type_name)| Variable {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            is_mut: false,
            borrows: BTreeMap::new(),
        });
        let objective = Objective::expand(&tune(body), &variables).unwrap();
        let lines: Vec<_> = objective.source.lines().collect();
        assert_eq!(&lines[1..5], body.lines().collect::<Vec<_>>());
        assert!(lines[0].contains("<Vec<f64> as ::ferrotune::Share>::unpack(\"data\""));
        assert!(!objective.source.contains("other"));
        let (columns, name) = &objective.columns[0];
        let chunk: String = lines[0].chars().skip(columns.start - 1).take(columns.len()).collect();
        assert!(chunk.trim().starts_with("#[allow") && chunk.ends_with("?;") && name == "data");
    }

    #[test]
    fn a_body_that_does_not_parse_is_placed_in_the_cell() {
        let failure = Objective::expand(&tune("|trial| {\n    let = 3;\n}"), &[]).unwrap_err();
        assert!(failure.text.contains("(line 3, column 9)"), "{}", failure.text);
    }
}
