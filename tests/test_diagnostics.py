"""What the compiler, a panic or an error says: in the user's own lines, once, with the cure, and with nothing of ours."""

import re

import pytest

OURS = re.compile(r"evcxr|src/lib\.rs|run_user_code|\bctx\b|ferrotune::cell|\.evcxr_display")


def shown(outcome):
    """All that a user reads under a cell."""
    return outcome.stderr + (outcome.traceback if outcome.errors else "")


def number_of(kernel, cell):
    """Runs a cell that must not fail, and returns the number that front ends write beside it."""
    reply, _ = kernel.execute(cell)
    assert reply["status"] == "ok", reply
    return reply["execution_count"]


class TestWarnings:
    @pytest.mark.parametrize(
        ("cell", "line", "text"),
        [
            ('std::fs::remove_file("no such file");', 1, "must be used"),
            ('let a = 1;\n{ let _b = a;\n  std::fs::remove_file("no such file"); }', 3, "must be used"),
            ("vec![1].iter().map(|x| x + 1);", 1, "must be used"),
            ("fn forever() -> u8 { loop { return 1; }; 2 }", 1, "unreachable"),
            ("match 3 { _ => {} 3 => {} }", 1, "unreachable pattern"),
            ("let n = 1u8; n == 2;", 1, "must be used"),
            ("fn again(n: u8) -> u8 { again(n) }", 1, "recursing"),
        ],
    )
    def test_error_that_is_dropped_is_warned_of_with_its_line(self, kernel, cell, line, text):
        outcome = kernel.ok(cell)
        assert text in outcome.stderr
        assert "warning" in outcome.stderr and f"line {line}, column " in outcome.stderr
        assert not OURS.search(outcome.stderr)

    def test_warning_comes_once(self, kernel):
        outcome = kernel.ok('fn careless() { std::fs::remove_file("no such file"); }\ncareless();')
        assert outcome.stderr.count("warning") == 1, outcome.stderr
        assert kernel.ok("careless();").stderr == ""
        assert kernel.ok("let after = 1;").stderr == ""

    def test_line_of_an_earlier_function_is_not_taken_for_one_of_this_cell(self, kernel):
        assert "line 2, column " in kernel.ok('fn sloppy() {\n    std::fs::remove_file("no such file");\n}').stderr
        assert kernel.ok('let _ = std::fs::remove_file("no such file");').stderr == ""

    def test_dropped_report_of_a_trial_is_warned_of(self, kernel):
        cell = (
            "%%tune --objective loss:min --max-trials 1 --project careless --oracle random\n"
            '|trial| {\n    let x = trial.float("x", 0.0..=1.0).get()?;\n    trial.report(0, [("loss", x)]);\n    Ok(x)\n}'
        )
        outcome = kernel.run(cell)
        assert "must be used" in outcome.stderr and "line 4, column " in outcome.stderr

    @pytest.mark.parametrize(
        "cell",
        [
            "let unused = 1;",
            "let mut unchanged = 1;",
            "use std::rc::Rc;",
            "fn uncalled() {}",
            "fn idle() { let inner = 1; }",
            "struct camel_case;",
            "macro_rules! unused { () => {}; }",
            "let CONSTANT = 5;",
            "let _ = std::fs::remove_file(\"no such file\");",
            "std::fs::remove_file(\"no such file\").ok();",
        ],
    )
    def test_what_is_usual_in_a_notebook_is_not_warned_of(self, kernel, cell):
        assert kernel.ok(cell).stderr == ""

    def test_attribute_of_the_user_silences_a_warning(self, kernel):
        assert kernel.ok('#[allow(unused_must_use)]\nfn calm() { std::fs::remove_file("no such file"); }').stderr == ""

    def test_warning_of_another_cell_does_not_replace_an_error(self, kernel):
        kernel.ok("struct lower_case; macro_rules! spare { () => {}; }")
        kernel.ok("trait Three { fn size(&self) -> u8; } impl Three for u8 { fn size(&self) -> u8 { 3 } }")
        kernel.ok("trait Four { fn size(&self) -> u8; } impl Four for u8 { fn size(&self) -> u8 { 4 } }")
        outcome = kernel.fails("let one = 1u8;\none.size()")
        assert outcome.error == "CompilationError: error[E0034]: multiple applicable items in scope (line 2, column 5)"


class TestPlaces:
    @pytest.mark.parametrize(
        ("cell", "error"),
        [
            ("1 +", r"expected expression.* \(line 1, column [34]\)"),
            ("let a = 1;\nlet b = a *", r"expected expression.* \(line 2, column 1[12]\)"),
            ("let a = 1;\nfoo(", r"\(line 2, column 4\)"),
            ("let a = (1;", r"\(line 1, column (9|11)\)"),
            ("}", r"\(line 1, column 1\)"),
            ('let s = "never closed;', r"\(line 1, column 9\)"),
            ("exit", r"cannot find value `exit` in this scope \(line 1, column 1\)"),
            ("exit(1)", r"cannot find function `exit` in this scope \(line 1, column 1\)"),
            ("use rand_of_no_crate::Rng;", r"unresolved import `rand_of_no_crate` \(line 1, column 5\)"),
            ("let a = 1;\nuse std::nothing::Here;", r"unresolved import `std::nothing` \(line 2, column 10\)"),
            ("use std::collections::{BTreeMap, NoMap};", r"unresolved import.*NoMap.*\(line 1, column 34\)"),
            ("use crate;", r"\(line 1, column 5\)"),
            ("let x = 1", r"expected `;`.* \(line 1, column 10\)"),
            ("let late = nowhere;", r"cannot find value `nowhere` in this scope \(line 1, column 12\)"),
            ("vec![1, 2].no_method()", r"no method named `no_method`.* \(line 1, column 12\)"),
            ('"a" + 1', r"cannot add `\{integer\}` to `&(?:'static )?str` \(line 1, column 5\)"),
        ],
    )
    def test_error_of_the_compiler_has_its_place(self, kernel, cell, error):
        outcome = kernel.fails(cell)
        assert re.search(error, outcome.error), outcome.error
        assert not OURS.search(shown(outcome)), outcome.traceback

    def test_error_at_a_question_mark_has_its_line_and_comes_once(self, kernel):
        outcome = kernel.fails('let a = 1;\nlet text = std::fs::read_to_string("/no/such/file")?;')
        assert outcome.error == "Error: No such file or directory (os error 2) (line 2 of the cell)"
        assert shown(outcome).count("No such file") == 1, shown(outcome)

    def test_error_at_a_question_mark_in_an_earlier_function_is_placed_where_the_cell_calls_it(self, kernel):
        kernel.ok('fn fetch() -> std::io::Result<String> {\n    let text = std::fs::read_to_string("/no/such/file")?;\n    Ok(text)\n}')
        assert kernel.fails("let a = 1;\n\nfetch()?;").error.endswith("(line 3 of the cell)")

    def test_panic_in_a_function_of_another_cell_names_the_cell(self, kernel):
        number = number_of(kernel, "fn far(n: u8) -> u8 {\n    assert!(n < 3);\n    n\n}")
        kernel.ok("let between = 1;")
        error = kernel.fails("far(9)").error
        assert error.startswith("Panic: assertion failed: n < 3")
        assert f"In [{number}]" in error and "line 2" in error

    @pytest.mark.parametrize("cell", ['panic!("same")', 'let a = 1; panic!("{a}");', 'if true {\n    panic!("same");\n}\npanic!("same");', 'let xs = vec![1];\n\nxs[4]'])
    def test_panic_has_its_line_even_if_two_lines_are_the_same(self, kernel, cell):
        line = next(n for n, text in enumerate(cell.split("\n"), 1) if "panic!" in text or "[4]" in text)
        assert kernel.fails(cell).error.endswith(f"(line {line} of the cell)")

    def test_panic_of_a_thread_has_the_line_of_its_cell(self, kernel):
        outcome = kernel.ok('let ended =\n    std::thread::spawn(|| panic!("boo")).join().is_err();')
        assert "panicked" in outcome.stderr and "boo" in outcome.stderr and "line 2" in outcome.stderr
        assert not OURS.search(outcome.stderr), outcome.stderr

    def test_debug_macro_has_the_line_of_its_cell(self, kernel):
        outcome = kernel.ok("let a = 1;\ndbg!(a + 6);")
        assert "a + 6 = 7" in outcome.stderr and "line 2" in outcome.stderr
        assert not OURS.search(outcome.stderr), outcome.stderr


class TestHints:
    def test_crate_that_is_missing_is_offered_as_dependency(self, kernel):
        for cell in ["use no_such_crate::Thing;", "no_such_crate::thing()"]:
            assert ":dep no_such_crate" in kernel.fails(cell).traceback

    def test_name_that_is_not_imported_comes_with_its_import(self, kernel):
        for cell, path in [("let map = BTreeMap::<u8, u8>::new();", "use std::collections::BTreeMap;"), ("exit(1)", "use std::process::exit;")]:
            assert path in kernel.fails(cell).traceback

    def test_method_of_a_trait_that_is_not_imported_comes_with_its_import(self, kernel):
        assert "use std::fmt::Write" in kernel.fails('let mut out = String::new(); write!(out, "7").unwrap();').traceback

    def test_suggestion_stands_in_its_line(self, kernel):
        traceback = kernel.fails("{ let text: String = 42; }").traceback
        assert "42.to_string()" in traceback, traceback
        assert not [line for line in traceback.splitlines() if line.strip() == ".to_string()"]

    @pytest.mark.parametrize("cell", ["let kept = || 8;", "let a = (1;", ':dep nowhere = { path = "/this/leads/nowhere" }\n1'])
    def test_error_is_one_line_and_its_explanation_follows(self, kernel, cell):
        (error,) = kernel.run(cell).errors
        assert "\n" not in error["evalue"].strip(), error["evalue"]
        assert "evcxr" not in error["evalue"] + "".join(error["traceback"])
