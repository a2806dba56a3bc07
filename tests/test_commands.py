"""evcxr's `:commands`: each one works here, or says in one line what to do instead, and no command breaks a later cell."""

import pytest

REFUSED = [
    ":env KEY=value",
    ":internal_debug",
    ":last_error_json",
    ":load_config",
    ":toolchain stable",
]

# Commands of notebooks that were written for evcxr, which mean nothing here.
WITHOUT_EFFECT = [
    ":allow_static_linking 0",
    ":cache 100",
    ":clear_cache",
    ":codegen_backend cranelift",
    ":fmt {:#?}",
    ":linker mold",
    ":preserve_vars_on_panic 0",
    ":quit",
    ":sccache 1",
    ":time_passes",
    ":timing",
    ":types",
]

# Each command, and the command that reverts it, if there is one.
WORKING = [
    (":vars", None),
    (":type point", None),
    (":t point", None),
    (":doc Vec", None),
    (":explain", None),
    (":help", None),
    (":last_compile_dir", None),
    (":show_deps", None),
    (":version", None),
    (":build_env KEY=value", None),
    (":efmt {:?}", ":efmt {}"),
    (":offline 1", ":offline 0"),
    (":opt 0", ":opt 2"),
]


@pytest.fixture(scope="module")
def notebook(kernel):
    """A notebook with a variable of a type that a cell defines."""
    kernel.ok("#[derive(Debug)]\nstruct Point { x: i64 }\nlet mut point = Point { x: 1 };")
    return kernel


@pytest.mark.parametrize("command", REFUSED)
def test_command_that_does_not_work_says_so_before_anything_runs(notebook, command):
    outcome = notebook.run(f"{command}\nlet never = 1;")
    name = command.split()[0]
    assert outcome.error.startswith(f"CommandError: {name} does not work here; "), outcome.error
    assert "\n" not in outcome.error
    assert "never" not in (notebook.ok(":vars").result or "")


@pytest.mark.parametrize("command", WITHOUT_EFFECT)
def test_command_that_means_nothing_here_says_so_and_the_cell_goes_on(notebook, command):
    outcome = notebook.ok(f"{command}\npoint.x + 1")
    assert outcome.result == "2"
    assert outcome.stderr.startswith(f"{command.split()[0]} changes nothing here: ") and outcome.stderr.count("\n") == 1


def test_no_refused_command_has_broken_anything(notebook):
    for command in REFUSED:
        notebook.run(command)
    assert notebook.ok("point.x").result == "1"
    assert notebook.ok("%undo").display.startswith("undone: the last cell; ")


def test_unknown_command_names_the_list(notebook):
    outcome = notebook.run(":cler\nlet never = 1;")
    assert outcome.error == "CommandError: there is no command :cler; :help lists those that work"


def test_list_has_what_works_and_nothing_else(notebook):
    shown = notebook.ok(":help").display
    names = [line.split()[0] for line in shown.splitlines()[1:]]
    assert {":clear", ":dep", ":help", ":opt", ":restart", ":vars"} <= set(names)
    assert not set(names) & {command.split()[0] for command in REFUSED}


def test_commands_that_only_tell_something(notebook):
    assert notebook.ok(":vars").result == "point: Point"
    assert notebook.ok(":type point").result == "point: Point"
    assert notebook.ok(":t point").result == "point: Point"
    assert "A contiguous growable array type" in notebook.ok(":doc Vec").display
    assert notebook.ok(":version").result.startswith("0.")
    assert notebook.ok(":last_compile_dir").result.startswith("/")
    assert notebook.ok(":show_deps").display.startswith("no crate has been added; ")
    notebook.run("let text: u8 = 1u16;")
    assert "Expected type did not match the received type" in notebook.ok(":explain").result


def test_settings_hold_also_after_going_back(notebook):
    notebook.ok("let mark = 1;")
    notebook.ok(":opt 0\n:efmt {:?}\n:build_env KEY=value\n:offline 1")
    assert notebook.ok('env!("KEY")').result == '"value"'
    notebook.ok("%undo 2")
    assert notebook.ok('env!("KEY")').result == '"value"'
    assert notebook.run("Err::<(), _>(std::fmt::Error)?;").error == "Error: Error (line 1 of the cell)"
    assert notebook.run(":opt 9").error == "CommandError: :opt takes one of 0, 1, 2, 3, and was given 9"
    notebook.ok(":opt 2\n:efmt {}\n:offline 0")
    assert notebook.ok("point.x").result == "1"


def test_clear_leaves_a_notebook_like_a_new_one_and_can_be_undone(start):
    kernel = start()
    kernel.ok("struct Point { x: i64 }\nlet point = Point { x: 1 };")
    kernel.ok("%checkpoint made")
    kernel.ok(":clear")
    assert kernel.ok(":vars").result in (None, "")
    assert "cannot find" in kernel.run("Point { x: 1 }.x").error
    cell = "use candle_core::{Device, Tensor};\nTensor::new(1f32, &Device::Cpu)?.to_scalar::<f32>()?"
    assert kernel.ok(cell).result == "1.0"
    assert kernel.ok(":clear\nlet point = 5;\npoint").result == "5"
    assert kernel.ok("%undo 3").display == "undone: the last 3 cells; the variables are point"
    assert kernel.ok("point.x").result == "1"
    kernel.ok(":clear")
    assert kernel.ok("%restore made").display == "restored made; the variables are point"
    assert kernel.ok("point.x").result == "1"
    assert "CellDied" in kernel.fails("std::process::abort();").error
    assert kernel.ok("point.x").result == "1"


def test_restart_drops_the_variables_and_keeps_the_definitions(start):
    kernel = start()
    kernel.ok("struct Point { x: i64 }\nlet point = Point { x: 1 };")
    kernel.ok(":restart")
    assert "cannot find value `point`" in kernel.fails("point.x").error
    assert kernel.ok("Point { x: 3 }.x").result == "3"
    assert kernel.ok("%undo 3").display == "undone: the last 3 cells; the variables are point"
    assert kernel.ok("point.x").result == "1"


def test_looking_at_a_command_does_not_carry_it_out(start):
    kernel = start()
    kernel.ok("let kept = 7; let text = String::new();")
    cell = ":restart\n:clear\ntext.is_emp"
    assert kernel.complete(cell)["matches"] == ["is_empty"]
    kernel.inspect(":restart\nkept", 13)
    assert kernel.complete("// text\n  :cl")["matches"] == [":clear"]
    assert kernel.ok("kept").result == "7"


def test_every_command_goes_with_going_back_and_with_crates(start, tmp_path):
    crate = tmp_path / "seven"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "seven"\nversion = "0.1.0"\nedition = "2021"\n')
    (crate / "src/lib.rs").write_text("pub fn seven() -> i64 { 7 }\n")
    kernel = start()
    kernel.ok("#[derive(Debug)]\nstruct Point { x: i64 }\nlet point = Point { x: 1 };")
    kernel.ok("%checkpoint made")

    def all_commands(state):
        # Something for `:explain`.
        assert kernel.run("let text: u8 = 1u16;").error
        for command in REFUSED:
            assert kernel.run(command).error.startswith("CommandError: "), (state, command)
        for command, back in WORKING:
            assert kernel.run(command).error is None, (state, command)
            if back:
                kernel.ok(back)
            assert kernel.ok("point.x").result == "1", (state, command)
        assert kernel.ok("candle_core::Tensor::new(1f32, &candle_core::Device::Cpu)?.to_scalar::<f32>()?").result == "1.0"

    all_commands("at first")
    kernel.ok(f':dep seven = {{ path = "{crate}" }}')
    assert kernel.ok("seven::seven()").result == "7"
    all_commands("after :dep")
    assert kernel.ok("seven::seven()").result == "7"
    kernel.ok("let more = 1;")
    kernel.ok("%undo")
    all_commands("after %undo")
    kernel.ok("%restore made")
    all_commands("after %restore")
    kernel.ok(f':dep seven = {{ path = "{crate}" }}')
    assert kernel.ok("seven::seven() + point.x").result == "8"
