//! Rewrites the source that evcxr generates for a cell. evcxr writes the code of the variable store into every cell; the rewritten
//! cell uses the store of the prelude, which is already compiled. The store also gets a fingerprint of each variable's type.
//!
//! Never moves a line, so that evcxr still finds the user's lines.

use super::definitions::Definitions;
use super::dependencies::{Dependencies, Extern};
use super::last_expression;
use super::shadows::{self, Shadowed};
use super::unnamed;
use anyhow::{Context, Result};
use std::borrow::Cow;
use std::path::Path;

/// First line of the module with evcxr's variable store.
const MODULE: &str = "mod evcxr_internal_runtime {";
/// First line of the last function in that module.
const LAST_FUNCTION: &str = "pub fn create_variable_store()";
/// First line of the error type that evcxr writes for `?`.
const ERROR_TYPE: &str = "struct EvcxrUserCodeError {}";
/// The lines around the user's code in evcxr's two forms: those above it, and those below it, which report a panic to evcxr.
const CATCHES: [(&[&str], &[&str]); 2] = [
    (
        &["match ::std::panic::catch_unwind(", "::std::panic::AssertUnwindSafe(||{"],
        &["})) {", "::std::result::Result::Ok(_) => {}", "::std::result::Result::Err(_) => {", PANIC, "}}"],
    ),
    (&["if ::std::panic::catch_unwind(||{"], &["}).is_err() {", PANIC, "}"]),
];
const PANIC: &str = "::std::println!(\"EVCXR_PANIC_NOTIFICATION\");";
/// The lines around the future of a cell with `.await`: the first and the last line before it, and the line behind it.
const RUNTIME: &str = "let mut mutex =";
const FUTURE: &str = ".block_on(async {";
const FUTURE_END: &str = "});";
/// The line above the variables, in the source that evcxr only analyses.
const ANALYSIS: &str = "async fn evcxr_analysis_wrapper(";
/// The last line of the cell's function.
const RETURN: &str = "evcxr_variable_store";
const PUT_BACK: &str = "evcxr_variable_store.put_back";
/// The beginnings of lines that check or store a variable.
const STORE_CALLS: [&str; 5] = [
    "vars_ok &= evcxr_variable_store.check_variable",
    "vars_ok &= evcxr_variable_store.check_borrower",
    "evcxr_variable_store.put_variable",
    "evcxr_variable_store.put_borrower",
    "evcxr_variable_store.keep_settled",
];

/// Rewrites the file, and returns its new text. A source in an unexpected form stays as it is: it then compiles more slowly, and
/// only the compiler distinguishes a redefined type from the old one.
pub(super) fn prepare(path: &Path, dependencies: &Dependencies) -> Result<String> {
    let source = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let library = dependencies.library.as_ref();
    let source = match with_store_of_prelude(&source, library.map(|library| library.name.as_str())) {
        Some(source) => {
            let source = with_calls_of_prelude(&source);
            let source = match library.filter(|library| library.awaits) {
                Some(library) => with_runtime_of(&library.name, &source).unwrap_or(source),
                None => source,
            };
            // rustc reports the error of a source that cannot be parsed.
            with_fingerprints(&source, &dependencies.externs).unwrap_or(source)
        }
        None => with_static_parameters(&source),
    };
    std::fs::write(path, &source).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(source)
}

/// Replaces evcxr's variable store by the prelude's, and links the library of the user's crates.
fn with_store_of_prelude(source: &str, library: Option<&str>) -> Option<String> {
    let mut lines: Vec<&str> = source.lines().collect();
    let start = lines.iter().position(|line| *line == MODULE)?;
    let last = start + lines[start..].iter().position(|line| line.starts_with(LAST_FUNCTION))?;
    let end = last + lines[last..].windows(2).position(|pair| pair == ["}", "}"])?;
    let mut linked = "pub use ::ferrotune::cell::store::*;".to_owned();
    linked.extend(library.map(|name| format!(" extern crate {name} as _;")));
    lines[start + 1] = &linked;
    for line in &mut lines[start + 2..=end] {
        *line = "";
    }
    let mut source = lines.join("\n");
    source.push('\n');
    Some(source)
}

/// Makes the cell pass the error of a `?`, a panic and the value of the last expression to the prelude.
fn with_calls_of_prelude(source: &str) -> String {
    let mut lines: Vec<Cow<'_, str>> = source.lines().map(Cow::from).collect();
    if let Some(at) = lines.iter().position(|line| line.trim() == ERROR_TYPE)
        && let [_, _, from, print, ..] = &mut lines[at..]
        && let Some(text) = print.trim().strip_prefix("::std::eprintln!(").and_then(|rest| rest.strip_suffix(");"))
    {
        let with_place = text.replacen("{}", "{:#}", 1).replacen("{:?}", "{:#?}", 1);
        *print = format!(
            "::ferrotune::cell::failed(::std::any::type_name::<T>(), ::std::format_args!({text}), ::std::format_args!({with_place}));"
        )
        .into();
        *from = format!("#[track_caller] {}", from.trim()).into();
    }
    run_with_prelude(&mut lines);
    last_expression::show_with_prelude(&mut lines);
    unnamed::leave_in_store(&mut lines);
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

/// Makes the prelude run the user's code and catch its panic: what catches is compiled once, and not in each cell.
fn run_with_prelude(lines: &mut [Cow<'_, str>]) {
    let at = |lines: &[Cow<'_, str>], wanted: &[&str]| {
        lines.windows(wanted.len()).rposition(|window| window.iter().map(|line| line.trim()).eq(wanted.iter().copied()))
    };
    let found = CATCHES.iter().find_map(|(above, below)| {
        let (begin, end) = at(lines, above).zip(at(lines, below))?;
        Some((begin..begin + above.len(), end..end + below.len()))
    });
    let Some((above, below)) = found else { return };
    lines[above.clone()].fill("".into());
    lines[above.start] = "::ferrotune::cell::run(::std::boxed::Box::new(||{".into();
    lines[below.clone()].fill("".into());
    lines[below.start] = "}));".into();
}

/// Makes a cell with `.await` run its future in the library of the user's crates.
fn with_runtime_of(library: &str, source: &str) -> Option<String> {
    let mut lines: Vec<Cow<'_, str>> = source.lines().map(Cow::from).collect();
    let start = lines.iter().position(|line| line == RUNTIME)?;
    let begin = start + lines[start..].iter().position(|line| line == FUTURE)?;
    let end = lines.iter().rposition(|line| line == FUTURE_END)?;
    lines[start..begin].fill("".into());
    lines[begin] = format!("::{library}::block_on(::std::pin::pin!(async {{ let _ = async {{").into();
    lines[end] = "}.await; }));".into();
    Some(lines.iter().flat_map(|line| [line, "\n"]).collect())
}

/// Gives the references in the types of parameters the lifetime `'static`: in the source that evcxr only analyses, variables are
/// parameters, and their references outlive the function.
fn with_static_parameters(source: &str) -> String {
    let mut is_parameter = false;
    let mut result = String::with_capacity(source.len());
    for line in source.lines() {
        is_parameter &= !line.starts_with(')');
        match is_parameter {
            true => result += &static_references(line),
            false => result += line,
        }
        result.push('\n');
        is_parameter |= line == ANALYSIS;
    }
    result
}

fn static_references(type_name: &str) -> String {
    let mut result = String::with_capacity(type_name.len());
    for (at, character) in type_name.char_indices() {
        result.push(character);
        if character == '&' && !type_name[at + 1..].trim_start().starts_with('\'') {
            result += "'static ";
        }
    }
    result
}

/// Adds the fingerprint of a variable's type to each line that checks or stores the variable.
fn with_fingerprints(source: &str, externs: &[Extern]) -> syn::Result<String> {
    let definitions = Definitions::parse(source, externs)?;
    let call = |Statement { call, type_name, name, rest }: Statement<'_>| -> syn::Result<String> {
        Ok(match definitions.fingerprint(type_name)? {
            Some(print) => format!("{call}_as::<{type_name}>(::std::stringify!({name}), {print:#x}{rest}"),
            None => format!("{call}::<{type_name}>(::std::stringify!({name}){rest}"),
        })
    };
    let lines: Vec<&str> = source.lines().collect();
    let end = lines.iter().rposition(|line| *line == RETURN);
    let mut result = String::with_capacity(source.len());
    for (at, line) in lines.iter().enumerate() {
        if end == Some(at) {
            for Shadowed { name, type_name } in shadows::of(&lines) {
                result += &call(Statement { call: PUT_BACK, type_name, name, rest: &format!(", {name});") })?;
            }
        }
        match statement(line) {
            Some(statement) => result += &call(statement)?,
            None => result += line,
        }
        result.push('\n');
    }
    Ok(result)
}

/// A generated line that checks or stores a variable.
struct Statement<'a> {
    call: &'a str,
    type_name: &'a str,
    name: &'a str,
    /// The rest of the line after the variable's name.
    rest: &'a str,
}

fn statement(line: &str) -> Option<Statement<'_>> {
    let (call, rest) = line.split_once("::<")?;
    if !STORE_CALLS.contains(&call) {
        return None;
    }
    let (type_name, rest) = rest.rsplit_once(">(::std::stringify!(")?;
    let (name, rest) = rest.split_once(')')?;
    Some(Statement { call, type_name, name, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_is_run_by_the_library_and_no_line_moves() {
        let source = "fn user() {\nlet mut mutex =\nstore; match\nmutex\n.block_on(async {\nf(|| {\n});\nOk(())\n});\n})) {\n}\n";
        let expected = "fn user() {\n\n\n\n::crates::block_on(::std::pin::pin!(async { let _ = async {\nf(|| {\n});\nOk(())\n}.await; }));\n})) {\n}\n";
        assert_eq!(with_runtime_of("crates", source).as_deref(), Some(expected));
        assert_eq!(with_runtime_of("crates", "fn user() {}\n"), None);
    }

    #[test]
    fn the_store_comes_from_the_prelude_and_no_line_moves() {
        let source = "fn a() {}\nmod evcxr_internal_runtime {\n// text\npub struct X;\npub fn create_variable_store() -> *mut X {\n    todo\n}\n}\nfn user() {}\n";
        let expected =
            "fn a() {}\nmod evcxr_internal_runtime {\npub use ::ferrotune::cell::store::*;\n\n\n\n\n}\nfn user() {}\n";
        assert_eq!(with_store_of_prelude(source, None).as_deref(), Some(expected));
        let linked = with_store_of_prelude(source, Some("crates")).unwrap();
        assert_eq!(linked.replace(" extern crate crates as _;", ""), expected);
        assert_eq!(with_store_of_prelude("fn user() {}\n", None), None);
    }

    #[test]
    fn errors_panics_and_values_go_to_the_prelude() {
        let source = "            struct EvcxrUserCodeError {}
            impl<T: ::std::fmt::Debug> ::std::convert::From<T> for EvcxrUserCodeError {
                fn from(error: T) -> Self {
                    ::std::eprintln!(\"{:?}\", error);
                    ::std::println!(\"{}\", evcxr_internal_runtime::USER_ERROR_OCCURRED);
(
f
(
1
)
).evcxr_display();
match ::std::panic::catch_unwind(
  ::std::panic::AssertUnwindSafe(||{
g();
})) {\u{20}
  ::std::result::Result::Ok(_) => {}
  ::std::result::Result::Err(_) => {
    ::std::println!(\"EVCXR_PANIC_NOTIFICATION\");
}}
h();
";
        let expected = "            struct EvcxrUserCodeError {}
            impl<T: ::std::fmt::Debug> ::std::convert::From<T> for EvcxrUserCodeError {
#[track_caller] fn from(error: T) -> Self {
::ferrotune::cell::failed(::std::any::type_name::<T>(), ::std::format_args!(\"{:?}\", error), ::std::format_args!(\"{:#?}\", error));
                    ::std::println!(\"{}\", evcxr_internal_runtime::USER_ERROR_OCCURRED);
(&(
f
(
1
)
)).evcxr_display();
::ferrotune::cell::run(::std::boxed::Box::new(||{

g();
}));




h();
";
        assert_eq!(with_calls_of_prelude(source), expected);
    }

    #[test]
    fn references_outlive_the_function_that_is_analysed() {
        let source = "fn f(a: &str) {}\nasync fn evcxr_analysis_wrapper(\nmut a: &str,\nb: (&'static str, &&mut u8),\n) -> R {\nlet c: &str = &d;\n";
        let expected = "fn f(a: &str) {}\nasync fn evcxr_analysis_wrapper(\nmut a: &'static str,\nb: (&'static str, &'static &'static mut u8),\n) -> R {\nlet c: &str = &d;\n";
        assert_eq!(with_static_parameters(source), expected);
    }

    #[test]
    fn a_shadowed_variable_goes_back_with_its_fingerprint() {
        let source = "struct P(u8);
fn run() {
let p = evcxr_variable_store.take_variable::<P>(::std::stringify!(p));
let _ = (|| -> ::std::result::Result<(), EvcxrUserCodeError> {
let p = 1;
evcxr_variable_store.put_variable::<i32>(::std::stringify!(p), p);
::std::result::Result::Ok(())})();
evcxr_variable_store
}
";
        let print = Definitions::parse(source, &[]).unwrap().fingerprint("P").unwrap().unwrap();
        let back = format!(
            "evcxr_variable_store.put_back_as::<P>(::std::stringify!(p), {print:#x}, p);evcxr_variable_store\n}}"
        );
        assert_eq!(with_fingerprints(source, &[]).unwrap(), source.replace("evcxr_variable_store\n}", &back));
    }

    #[test]
    fn variables_of_the_users_types_are_checked_and_stored_with_a_fingerprint() {
        let source = "struct P(Vec<u8>);
fn run() {
vars_ok &= evcxr_variable_store.check_variable::<Vec<P>>(::std::stringify!(p));
vars_ok &= evcxr_variable_store.check_variable::<Vec<f32>>(::std::stringify!(q));
let p = evcxr_variable_store.take_variable::<Vec<P>>(::std::stringify!(p));
evcxr_variable_store.put_variable::<Vec<P>>(::std::stringify!(p), p);
}
";
        let expected = "struct P(Vec<u8>);
fn run() {
vars_ok &= evcxr_variable_store.check_variable_as::<Vec<P>>(::std::stringify!(p), PRINT);
vars_ok &= evcxr_variable_store.check_variable::<Vec<f32>>(::std::stringify!(q));
let p = evcxr_variable_store.take_variable::<Vec<P>>(::std::stringify!(p));
evcxr_variable_store.put_variable_as::<Vec<P>>(::std::stringify!(p), PRINT, p);
}
";
        let print = Definitions::parse(source, &[]).unwrap().fingerprint("Vec<P>").unwrap().unwrap();
        assert_eq!(with_fingerprints(source, &[]).unwrap(), expected.replace("PRINT", &format!("{print:#x}")));
    }
}
