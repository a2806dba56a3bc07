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

    def test_error_has_the_place_where_it_came_into_an_earlier_function(self, kernel):
        number = number_of(kernel, 'fn read() -> ferrotune::Result<String> {\n    let a = 1;\n    let text = std::fs::read_to_string("/no/such/file")?;\n    Ok(text)\n}')
        kernel.ok("fn pass() -> ferrotune::Result<String> {\n    read()\n}")
        for cell in ["let a = 1;\n\nread()?;", "pass()?;"]:
            outcome = kernel.fails(cell)
            assert outcome.error == f"Error: No such file or directory (os error 2) (In [{number}] line 3)", outcome.error
            assert not OURS.search(shown(outcome)), outcome.traceback
        # A text, and a call of the library, have places, too.
        number = number_of(kernel, 'fn refuse(n: u8) -> ferrotune::Result<u8> {\n    if n > 2 {\n        Err("too large")?\n    }\n    ferrotune::Trial::of([("lr", 0.1.into())]).int("n", 1..=3).get()\n}')
        assert kernel.fails("refuse(3)?;").error == f"Error: too large (In [{number}] line 3)"
        expected = f"Error: Trial::of has no value for `n`, only for lr; add it (In [{number}] line 5)"
        assert kernel.fails("refuse(1)?;").error == expected

    def test_a_variable_of_a_cell_that_has_failed_is_not_said_to_be_moved(self, kernel):
        number = number_of(kernel, "let earlier = 5;") + 1
        error = kernel.fails('let unmade = String::from("x");\nlet empty: Vec<i32> = vec![];\nempty[1]').error
        assert error.startswith("Panic: index out of bounds"), error
        error = kernel.fails("unmade.len() + earlier").error
        assert f"In [{number}], which makes `unmade`, has failed; run it again" in error, error

    def test_error_of_a_trial_has_its_line_in_the_cell_and_in_an_earlier_one(self, kernel):
        model = "use ferrotune::prelude::*;\nfn model(n: usize) -> Result<Tensor> {\n    let a = Tensor::zeros((2, n), DType::F32, &Device::Cpu)?;\n    Ok(a.matmul(&a)?)\n}"
        number = number_of(kernel, model)
        for project, line, place in [("in-cell", "Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?.reshape(7)?", "line 4 of the cell"), ("earlier", "model(3)?", f"In [{number}] line 4")]:
            outcome = kernel.fails(f"%%tune --objective loss:min --max-trials 4 --project {project}\n|trial| {{\n    let lr = trial.float(\"lr\", 0.0..=1.0).get()?;\n    let t = {line};\n    Ok(lr)\n}}")
            assert "the first 3 trials all failed" in outcome.error and outcome.error.endswith(f"({place})"), outcome.error
            assert place in kernel.ok(f"%trials --project {project}").display

    def test_error_of_candle_in_a_models_forward_has_its_line(self, kernel):
        model = "use ferrotune::prelude::*;\nstruct Tall;\nimpl Module for Tall {\n    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {\n        let y = (x + 1.0)?;\n        y.matmul(x)\n    }\n}"
        of_model = number_of(kernel, model)
        kernel.ok("fn deep(net: &Tall, n: usize) -> candle_core::Result<Tensor> {\n    let x = Tensor::zeros((2, n), DType::F32, &Device::Cpu)?;\n    net.forward(&x)\n}")
        for _ in range(2):
            error = kernel.fails("let a = 1;\ndeep(&Tall, 3)?;").error
            assert error == f"Error: shape mismatch in matmul, lhs: [2, 3], rhs: [2, 3] (In [{of_model}] line 6)", error
        # A process finds the lines of libraries that it has loaded after its first error, too.
        later = number_of(kernel, "fn flat() -> candle_core::Result<Tensor> {\n    Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?.reshape(7)\n}")
        assert kernel.fails("flat()?;").error.endswith(f"(In [{later}] line 2)")
        number = number_of(kernel, "let kept: Box<dyn Fn() -> candle_core::Result<Tensor>> = Box::new(|| {\n    Tensor::zeros(3, DType::F32, &Device::Cpu)?.reshape(7)\n});")
        assert kernel.fails("kept()?;").error.endswith(f"(In [{number}] line 2)")
        # Another error with such a text has its own place, and one that a cell has handled is forgotten.
        assert kernel.ok("deep(&Tall, 3).is_err()").result == "true"
        assert "line 2" in kernel.fails('let a = 1;\nErr::<(), _>("no such thing")?;').traceback
        outcome = kernel.fails("%%tune --objective loss:min --max-trials 4 --project forward\n|trial| {\n    let lr = trial.float(\"lr\", 0.0..=1.0).get()?;\n    deep(&Tall, 3)?;\n    Ok(lr)\n}")
        assert outcome.error.endswith(f"(In [{of_model}] line 6)"), outcome.error

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

    @pytest.mark.parametrize("cell", ["let never: u8 = 300;", "let a = (1;", ':dep nowhere = { path = "/this/leads/nowhere" }\n1'])
    def test_error_is_one_line_and_its_explanation_follows(self, kernel, cell):
        (error,) = kernel.run(cell).errors
        assert "\n" not in error["evalue"].strip(), error["evalue"]
        assert "evcxr" not in error["evalue"] + "".join(error["traceback"])

    @pytest.mark.parametrize(
        ("cell", "line"),
        [
            ("let t = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;", "use candle_core::Tensor;"),
            ("fn kind() -> DType { todo!() }", "use candle_core::DType;"),
            ("let x = vars.i(Device::Cpu);", "use candle_core::Device;"),
            ("fn half(n: f32) -> Result<f32> { Ok(n / 2.0) }", "use ferrotune::Result;"),
            ("let objective = |trial: &Trial| 1;", "use ferrotune::Trial;"),
            ('data::csv("x")?;', "use ferrotune::data;"),
            ("let layer = linear(2, 3, builder)?;", "use candle_nn::linear;"),
            ("struct Net(Vec<Conv2d>);", "use candle_nn::Conv2d;"),
            ("impl Module for u8 {}", "use candle_nn::Module;"),
        ],
    )
    def test_name_of_a_training_notebook_comes_with_its_import(self, start, cell, line):
        kernel = start()
        outcome = kernel.fails(cell)
        assert f"write `{line}`" in outcome.traceback, outcome.traceback
        assert "use ferrotune::prelude::*;" in outcome.traceback and ":dep" not in outcome.traceback, outcome.traceback
        assert kernel.ok(line).error is None

    def test_prelude_has_all_that_is_offered_and_leaves_the_users_names_alone(self, start):
        kernel = start()
        kernel.ok("use ferrotune::prelude::*;")
        kernel.ok(
            "struct Net { layer: Linear, vars: VarMap }\nimpl Module for Net { fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> { self.layer.forward(x) } }\n"
            "fn net() -> Result<Net> { let vars = VarMap::new(); let layer = linear(2, 1, VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?; Ok(Net { layer, vars }) }"
        )
        kernel.ok("let net = net()?; let mut optimiser = AdamW::new_lr(net.vars.all_vars(), 0.1)?;")
        kernel.ok("let x = Tensor::ones((4, 2), DType::F32, &Device::Cpu)?; let loss = loss::mse(&net.forward(&x)?, &x.i((.., 0..1))?)?; optimiser.backward_step(&loss)?;")
        assert kernel.ok("let loss = 3; let data = 4; let D = 5; loss + data + D").result == "12"
        assert kernel.ok("struct Dataset(u8); let own = Dataset(3); own.0").result == "3"

    def test_variable_that_is_gone_says_why_and_what_to_do(self, start):
        kernel = start()
        kernel.ok("let mut sold = vec![1]; let (left, right) = (vec![2], vec![3]);")
        number = number_of(kernel, "let sum = sold.len(); drop(sold); let twice = left;")
        for name in ["sold", "left"]:
            assert f"`{name}` was moved by In [{number}]; clone it there, or %undo (line 1, column 1)" in kernel.run(f"{name}.len()").error
        kernel.ok("%undo")
        assert kernel.ok("sold.len() + left.len()").result == "2"
        # What a failing cell has moved is there again.
        kernel.fails('drop(sold); panic!("no")')
        assert kernel.ok("sold.len()").result == "1"
        number = number_of(kernel, "struct P { x: u8 }\nlet p = P { x: 1 };")
        kernel.ok("struct P { x: u16 }")
        outcome = kernel.fails("p.x")
        assert f"run In [{number}] again" in outcome.error and f"run In [{number}] again to have it" in outcome.stderr
        error = kernel.fails("fn count() -> usize { right.len() }").error
        assert "`right` is a variable, and no fn or other item sees variables; pass it as an argument" in error

    @pytest.mark.parametrize("cell", ["import numpy as np", "from torch import nn", "def double(x):\n    return 2 * x", "for i in range(3):\n    print(i)", "let a = 1;\nif a == 1:\n    a"])
    def test_python_is_called_by_its_name(self, kernel, cell):
        error = kernel.fails(cell).error
        assert "this line is Python, and cells are Rust" in error and "fn" not in error.split(";")[0]

    def test_mistake_in_a_magic_is_not_hidden_by_all_its_options(self, kernel):
        for cell, said in [
            ("%%tune --objectiv loss:min\n|trial| Ok(1.0)", "unknown option --objectiv; did you mean --objective? %tune? lists all options"),
            ("%%tune --objective loss:min --trials 3\n|trial| Ok(1.0)", "unknown option --trials; did you mean --max-trials?"),
        ]:
            error = kernel.fails(cell).error
            assert said in error and len(error) < 160, error

    def test_objective_that_cannot_be_compiled_shows_no_generated_code(self, kernel):
        kernel.ok("let boxed: Box<dyn Fn(i32) -> i32> = Box::new(|x| x + 1);")
        outcome = kernel.fails("%%tune --objective loss:min\n|trial| Ok(boxed(3) as f64)")
        assert "cannot travel to a trial" in outcome.error
        for ours in ["ferrotune_launch", "ferrotune::tune", "ferrotune_trial", "ferrotune_state"]:
            assert ours not in outcome.traceback, outcome.traceback
        assert outcome.traceback.count("cannot travel to a trial") == 1, outcome.traceback
        error = kernel.fails("%%tune --objective loss:min\n|trial: &mut ferrotune::Trial| Ok(1.0)").error
        assert "the objective takes the trial as `|trial|` or `|trial: &Trial|`" in error

    def test_warning_of_a_forgotten_result_does_not_recommend_to_hide_it(self, kernel):
        stderr = kernel.ok('std::fs::remove_file("no such file");').stderr
        assert "write `?` behind it" in stderr and "let _" not in stderr, stderr
