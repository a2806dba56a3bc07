//! Tests of the engine: the sources that it gives its evaluator, its orders to the cell supervisor, and the outputs for the user.

mod table;

use super::evaluate::evaluator::FIRST_CELL;
use super::startup::{self, Ended};
use crate::execution::Work;
use evcxr::Error;
use ferrotune_link::{CellEnding, KernelFrame, Stream, SupervisorReply};
use serde_json::json;
use std::sync::mpsc;
use std::time::Instant;
use table::{Row, Table, fails, panics, ran, texts_of};

/// The evaluator's error for a cell whose process has already reported the cause.
fn message() -> Error {
    Error::Message("evcxr's own words".to_owned())
}

/// The rows of an evaluator that forgets everything, runs the first cell again, and declares a state.
fn redeclared(state: Row) -> [Row; 3] {
    [ran(":clear").without_statements().knows(&[]), ran(FIRST_CELL), state]
}

#[test]
fn a_value_is_shown_whether_the_evaluator_or_the_link_has_it() {
    let mut table = Table::new();
    table.check("1 + 1", [ran("1 + 1").value("2")], ["result: 2", "done"]);
    assert_eq!(table.orders(), ["begin 1", "sync"]);
    let data = json!({"text/plain": "2"}).as_object().cloned().unwrap_or_default();
    let frame = KernelFrame::Result { data, metadata: serde_json::Map::new() };
    table.check("1 + 1", [ran("1 + 1").sends(frame)], ["result: 2", "done"]);
    table.check("f();", [ran("f();").value("()")], ["done"]);
}

#[test]
fn output_comes_before_the_end_of_its_cell() {
    let text = |text: &str| KernelFrame::Stream { stream: Stream::Stdout, text: text.to_owned() };
    let row = ran("f()").sends(text("one")).value("3").sends(text("two"));
    Table::new().check("f()", [row], ["stdout: one", "stdout: two", "result: 3", "done"]);
}

#[test]
fn rust_and_magics_run_in_their_order_and_rust_keeps_its_lines() {
    let mut table = Table::new();
    let rows = [ran("let b = 1;\nlet a = b;\n").knows(&["b", "a"]), ran("\n\n\na + 1").value("2")];
    table.check("let b = 1;\nlet a = b;\n%who\na + 1", rows, ["shown: a  b", "result: 2", "done"]);
}

#[test]
fn nothing_runs_after_a_failure() {
    let rows = [fails("f()?;\n", message()).sends(KernelFrame::Failed { message: "no".to_owned(), location: None })];
    Table::new().check("f()?;\n%who\n1 + 1", rows, ["Error: no"]);
}

#[test]
fn nothing_runs_of_a_cell_that_is_wrong_somewhere() {
    for (code, error) in [
        ("f();\n%whoo", "MagicError: unknown magic %whoo; did you mean %who? %lsmagic lists them all"),
        (
            ":toolchain x\nf();",
            "CommandError: :toolchain does not work here; choose it with `rustup default` or RUSTUP_TOOLCHAIN, and restart the kernel",
        ),
        ("f();\ng(", "CompilationError: error: this `(` is never closed (line 2, column 2)"),
        ("f();\n1 +", "CompilationError: error: expected expression (line 2, column 4)"),
    ] {
        Table::new().check(code, [], [error]);
    }
}

#[test]
fn crates_of_every_cell_are_left_out_of_what_is_added() {
    let expected = "stderr: candle_core is part of every cell; the :dep line is not needed, and was left out";
    let rows = [ran("\n:dep itoa = \"1\"\nf();")];
    Table::new().check(":dep candle-core = \"0.9\"\n:dep itoa = \"1\"\nf();", rows, [expected, "done"]);
}

#[test]
fn a_panic_and_an_error_say_what_the_cell_said_and_not_what_evcxr_says() {
    let mut table = Table::new();
    let panic = KernelFrame::Panic { message: "boom".to_owned(), location: None };
    let row = ran("f();").value("1").sends(panic.clone()).sends(KernelFrame::Panicked);
    table.check("f();", [row], ["Panic: boom"]);
    // A panic that the cell has caught is no failure.
    table.check("f();", [ran("f();").sends(panic)], ["done"]);
    let failed = KernelFrame::Failed { message: "no".to_owned(), location: None };
    table.check("f()?;", [fails("f()?;", message()).sends(failed)], ["Error: no"]);
    table.check("f();", [fails("f();", message())], ["Error: evcxr's own words"]);
    table.check(
        "f();",
        [fails("f();", Error::CompilationErrors(Vec::new()))],
        ["CompilationError: the cell does not compile"],
    );
}

#[test]
fn a_crash_says_what_became_of_the_variables() {
    let ending = CellEnding::Signalled { signal: 11 };
    let threads = vec!["loader".to_owned()];
    let mut table = Table::with_variables(&["a"]);
    let restored = KernelFrame::Restored { ending: ending.clone(), threads: Vec::new(), running: true };
    let text = "CellDied: the process of the cells was ended by SIGSEGV; every variable is as it was before the cell";
    table.check("f();", [fails("f();", message()).sends(restored)], [text]);
    assert_eq!(table.engine.undo.now.names(), ["a"]);

    // A cell that has moved a variable and failed keeps its own failure.
    let restored = KernelFrame::Restored { ending: CellEnding::TakenBack, threads, running: true };
    let failed = KernelFrame::Failed { message: "no".to_owned(), location: None };
    let expected = "stderr: the cell has moved a variable, and every variable is as it was before the cell, but these threads of \
                earlier cells are gone: loader; a lock that one of them held stays locked, and a cell that takes it waits \
                until you interrupt it";
    table.check("f();", [fails("f();", message()).sends(failed).sends(restored)], [expected, "Error: no"]);

    let died = fails("f();", Error::SubprocessTerminated(String::new())).sends(KernelFrame::Died { ending }).knows(&[]);
    let text = "CellDied: the process of the cells was ended by SIGSEGV; a new process has been started, and the variables are \
                lost";
    table.check("f();", [died], [text]);
    assert!(table.engine.undo.now.names().is_empty());
    table.check("1", [ran("1").value("1")], ["result: 1", "done"]);
}

#[test]
fn variables_of_a_type_that_is_defined_anew_are_dropped_and_the_cell_runs_again() {
    let mut table = Table::with_variables(&["p", "q"]);
    let rows =
        [fails("p.x", message()).sends(KernelFrame::Changed { names: vec!["p".to_owned()] }), ran("p.x").value("1")];
    let expected = "stderr: the variable p was dropped: its type has been defined anew since it was made, or its value is gone; run the cell \
         that makes it again to have it";
    table.check("p.x", rows, [expected, "result: 1", "done"]);
    assert_eq!(table.orders(), ["begin 2", "sync", "sync"]);
}

#[test]
fn a_variable_that_a_failing_cell_has_shadowed_is_known_again() {
    let mut table = Table::with_variables(&["a", "b"]);
    let failed = KernelFrame::Failed { message: "no".to_owned(), location: None };
    table.check("let a = 1; f()?;", [ran("let a = 1; f()?;").sends(failed).knows(&["b"])], ["Error: no"]);
    assert_eq!(table.orders(), ["begin 2", "sync"]);
    assert_eq!(table.engine.undo.now.names(), ["a", "b"]);
}

#[test]
fn an_interrupt_stops_what_was_sent_before_it_and_nothing_later() {
    let mut table = Table::new();
    let (work, mut outputs) = table.work("f();", []);
    assert!(!table.interrupts.interrupt(Instant::now()), "nothing runs yet");
    table.engine.take(work);
    let stopped = "Interrupted: the cell was stopped before it ran; no variable has changed";
    assert_eq!(texts_of(&mut outputs), [stopped]);
    // A cell that was stopped while it was compiled has the same error, whatever evcxr's result is.
    table.check("f();", [fails("f();", message()).sends(KernelFrame::Cancelled)], [stopped]);
    table.check("f();", [ran("f();")], ["done"]);
}

#[test]
fn undo_brings_back_the_variables_and_then_the_evaluator() {
    let mut table = Table::with_variables(&["a"]);
    table.check("g();", [ran("g();").knows(&["a", "b"])], ["done"]);
    table.keeps_snapshots_before(&[1, 2]);
    table.orders();
    let state = "vars_ok &= evcxr_variable_store.check_variable::<i32>(::std::stringify!(a));\n\
        if !vars_ok { return ::std::result::Result::Ok(()); }\n}\n";
    let undone = ["shown: undone: the last cell; the variables are a", "done"];
    table.check("%undo", redeclared(ran(state).knows(&["a"])), undone);
    // The cell of %undo has number 3, and the cells that it runs in the evaluator have no number.
    let expected = ["begin 3", "report", "return before 2", "begin", "sync", "sync", "sync", "sync", "begin 3"];
    assert_eq!(table.orders(), expected);
    table.keeps_snapshots_before(&[1]);
    table.check("%undo 2", [], ["MagicError: only the last cell can be undone"]);
}

#[test]
fn a_cell_that_cannot_be_undone_has_no_number() {
    let mut table = Table::with_variables(&["a"]);
    table.can_be_undone = false;
    table.check("a", [ran("a").value("1")], ["result: 1", "done"]);
    assert_eq!(table.orders(), ["begin", "sync"]);
    table.keeps_snapshots_before(&[1]);
    let undone = ["shown: undone: the last cell; there are no variables", "done"];
    table.check("%undo", redeclared(ran("if !vars_ok { return ::std::result::Result::Ok(()); }\n}\n")), undone);
}

#[test]
fn a_snapshot_that_does_not_wake_costs_the_variables() {
    let mut table = Table::with_variables(&["a"]);
    table.check("%checkpoint trained", [], ["shown: kept as trained; %restore trained brings it back", "done"]);
    assert_eq!(table.orders(), ["begin 2", "keep trained"]);
    table.check("%restore trian", [], ["MagicError: there is no checkpoint trian; trained"]);
    table.set_return_reply(SupervisorReply::Lost);
    let lost = "EngineError: the snapshot did not wake in time, and the variables are lost";
    table.check(
        "%restore trained",
        redeclared(ran("if !vars_ok { return ::std::result::Result::Ok(()); }\n}\n")),
        [lost],
    );
    assert!(table.engine.undo.now.names().is_empty());
    table.check("%restore trained", [], ["MagicError: there is no checkpoint trained; %checkpoint NAME makes one"]);
}

#[test]
fn a_supervisor_that_has_ended_is_started_again_with_the_limit_and_without_variables() {
    let mut table = Table::with_variables(&["a"]);
    let limited = ["shown: a cell that holds more than 2.0 GiB is stopped from now on", "done"];
    table.check("%memory limit 2GiB", [], limited);
    table.engine.supervisor.kill();
    let expected = "EngineError: the supervisor of the cells ended (signal: 9 (SIGKILL)); it was started again, and the \
                variables are lost";
    table.check("f();", redeclared(ran("if !vars_ok { return ::std::result::Result::Ok(()); }\n}\n")), [expected]);
    let limits = table.orders().into_iter().filter(|order| order.starts_with("limit")).count();
    assert_eq!(limits, 2, "the new one has the limit, too");
    table.check("f();", [ran("f();")], ["done"]);
}

#[test]
fn an_evaluator_that_panics_ends_its_engine_and_the_cell_says_so() {
    let mut table = Table::new();
    let (work, mut outputs) = table.work("f();", [panics("f();")]);
    let (later, queue) = mpsc::channel::<Work>();
    assert_eq!(startup::run(&mut table.engine, Some(work), &queue), Ended::Panicked);
    let text =
        "EngineError: the compiler's front end failed on this cell; it was started again, and the variables are lost";
    assert_eq!(texts_of(&mut outputs), [text]);
    drop(later);
    assert_eq!(startup::run(&mut table.engine, None, &queue), Ended::NoMoreWork);
}

#[test]
fn time_says_how_long_the_statements_ran() {
    let mut table = Table::new();
    let (work, mut outputs) = table.work("%time f()", [ran("f()").value("1")]);
    table.engine.take(work);
    let texts = texts_of(&mut outputs);
    assert!(texts[1].starts_with("stdout: Wall time: 3.0 ms (and "), "{texts:?}");
    assert_eq!((texts.len(), texts[0].as_str(), texts[2].as_str()), (3, "result: 1", "done"));
}
