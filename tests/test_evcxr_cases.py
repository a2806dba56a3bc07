"""What evcxr's own tests and tour promise, as cells: a notebook that was written for evcxr_jupyter runs here.

The behaviours are those of evcxr 0.22; cells, names and values are ours. What is only about evcxr's wording, or about its
interface for Rust programs, is not here.
"""

import pytest

from session import wait_for
from test_dependencies import crate

# A crate with state, and one that reads it.
COUNTER = (
    "use std::sync::atomic::{AtomicU32, Ordering};\nstatic TALLY: AtomicU32 = AtomicU32::new(1);\n"
    "pub fn set(tally: u32) { TALLY.store(tally, Ordering::SeqCst) }\n"
    "pub fn get() -> u32 { TALLY.load(Ordering::SeqCst) }"
)
READER = "pub fn get() -> u32 { counter::get() }"


def names(kernel):
    """Names of the notebook's variables, sorted."""
    listed = kernel.ok(":vars").result or ""
    return sorted(line.split(":")[0] for line in listed.splitlines())


def type_of(kernel, name):
    return kernel.ok(f":type {name}").result


def shown(kernel, cell):
    """The MIME bundles that a cell shows, its value among them."""
    messages = []
    outcome = kernel.run(cell, watch=messages.append)
    assert outcome.error is None, outcome
    return [message["content"]["data"] for message in messages if "data" in message["content"]]


class TestVariables:
    def test_changed_variable_keeps_its_value(self, kernel):
        kernel.ok("let mut tally = 20; let step = 3;")
        kernel.ok("tally = tally + step;")
        assert kernel.ok("tally").result == "23"

    def test_variable_without_mut_cannot_be_changed(self, kernel):
        kernel.ok("let fixed = 3;")
        outcome = kernel.fails("fixed = 9;")
        assert outcome.error.startswith("CompilationError: error[E0594]") and outcome.error.endswith("(line 1, column 1)")

    def test_values_of_a_nested_type_come_out_of_a_question_mark(self, kernel):
        kernel.ok(
            "pub mod outer { pub mod inner { pub struct Coin {} impl Coin { pub fn worth(&self) -> i32 { 20 } } } }\n"
            "fn mint() -> Result<Option<outer::inner::Coin>, i32> { Ok(Some(outer::inner::Coin {})) }"
        )
        kernel.ok("let left = mint()?;")
        kernel.ok("let right = mint()?;")
        assert kernel.ok("left.unwrap().worth() + right.unwrap().worth()").result == "40"

    def test_shared_cell_is_changed_through_another_owner(self, kernel):
        kernel.ok(
            "use std::cell::RefCell; use std::rc::Rc;\n"
            "let word: Rc<RefCell<String>> = Rc::new(RefCell::new(String::new())); let owner: Rc<RefCell<String>> = Rc::clone(&word);"
        )
        kernel.ok('word.borrow_mut().push_str("sun"); let ending = "set";')
        kernel.ok("word.borrow_mut().push_str(ending);")
        assert kernel.ok("owner.borrow()").result == '"sunset"'

    def test_moved_variable_is_gone(self, kernel):
        kernel.ok('let parcel = Some("book".to_owned());')
        assert type_of(kernel, "parcel") == "parcel: Option<String>"
        assert kernel.ok("parcel.unwrap()").result == '"book"'
        assert "parcel" not in names(kernel)

    def test_value_that_is_shown_is_not_moved(self, kernel):
        kernel.ok("#[derive(Debug)] pub struct Spot { pub x: i32, pub y: i32 }\nlet spot = Spot { x: 2, y: 6 };")
        assert kernel.ok("spot").result == "Spot { x: 2, y: 6 }"
        kernel.ok("let Spot { x, y: height } = spot;")
        assert kernel.ok("(x, height)").result == "(2, 6)"

    @pytest.mark.parametrize(
        ("cell", "name", "type_name"),
        [
            ("let pair = (7, 2.5);", "pair", "(i32, f64)"),
            ("let row = [9; 4];", "row", "[i32; 4]"),
            ("let many: Vec<_> = (1..8).collect();", "many", "Vec<i32>"),
            ("struct Grid<const N: usize> { cells: [u8; N] }\nlet grid: Grid<2> = Grid::<2> { cells: [5, 6] };", "grid", "Grid<2>"),
            ("mod r#try { pub struct Go {} }\nlet reserved = r#try::Go {};", "reserved", "r#try::Go"),
            ("let _ = 1; let (first, ..) = (42u8, 43, 44);", "first", "u8"),
        ],
    )
    def test_type_is_found_without_being_written(self, kernel, cell, name, type_name):
        kernel.ok(cell)
        assert type_of(kernel, name) == f"{name}: {type_name}"
        kernel.ok(f"let _ = &{name};")

    def test_pattern_of_which_nothing_is_kept_is_no_error(self, kernel):
        before = names(kernel)
        kernel.ok("let _ = String::new();")
        assert names(kernel) == before

    def test_variables_of_a_redefined_type_are_dropped_by_name(self, kernel):
        kernel.ok("struct Old { x: i32 }\nlet old_one = Old { x: 1 }; let old_two = Old { x: 2 };")
        kernel.ok("struct Old { x: i32, y: i32 }\nlet fresh = Old { x: 3, y: 4 };")
        assert kernel.ok("fresh.x").result == "3"
        assert {"old_one", "old_two"}.isdisjoint(names(kernel))

    def test_variable_that_the_cell_drops_is_no_error(self, kernel):
        kernel.ok("let brief = String::new(); std::mem::drop(brief);")
        assert "brief" not in names(kernel)

    def test_first_variable_may_come_after_a_cell_without_any(self, start):
        kernel = start()
        assert kernel.ok('println!("no variable yet");').stdout == "no variable yet\n"
        kernel.ok("let late = 42;")
        assert kernel.ok("late").result == "42"


class TestItems:
    def test_function_is_called_from_the_cell_that_defines_the_next(self, kernel):
        kernel.ok("pub fn base() -> i32 { 40 }")
        kernel.ok("pub fn sum() -> i32 { base() + 4 }\nassert_eq!(sum(), 44);")
        assert kernel.ok("sum()").result == "44"

    def test_function_is_replaced(self, kernel):
        kernel.ok("pub fn level(x: i32) -> i32 { x + 1 }")
        assert kernel.ok("(1..4).map(level).collect::<Vec<i32>>()").result == "[2, 3, 4]"
        kernel.ok("pub fn level(x: i32) -> i32 { x * 10 }")
        assert kernel.ok("(1..4).map(level).collect::<Vec<i32>>()").result == "[10, 20, 30]"

    def test_macro_is_called_from_a_later_cell(self, kernel):
        kernel.ok("macro_rules! plus { ($a:expr) => { 30 + $a }; }")
        assert kernel.ok("plus!(3)").result == "33"

    def test_value_of_a_thread_local_may_print_when_it_is_dropped(self, kernel):
        kernel.ok(
            'pub struct Bell {} impl Drop for Bell { fn drop(&mut self) { println!("ding"); } }\n'
            "pub fn ring() { thread_local! { pub static BELL: Bell = Bell {}; } BELL.with(|_| ()) }"
        )
        kernel.ok("ring();")
        kernel.ok("ring();")

    def test_import_may_be_repeated(self, kernel):
        kernel.ok("use std::collections::BTreeMap;")
        kernel.ok("use std::collections::BTreeMap;")
        kernel.ok("use std::collections::{BTreeMap, BTreeSet}; let _ = BTreeMap::<u8, BTreeSet<u8>>::new();")

    def test_imports_of_every_form_stay(self, kernel):
        kernel.ok(
            "mod fleet { pub struct Ship {} impl Ship { pub fn crew() -> i32 { 12 } pub fn new() -> Ship { Ship {} } }\n"
            "pub struct Raft {} pub trait Sail { fn speed(&self) -> i32 { 9 } } impl Sail for Ship {}\n"
            "pub mod east { pub fn dawn() {} } pub mod west { pub fn dusk() {} } }\n"
            "use std::iter::Iterator as _; use fleet::Sail as _; use fleet::east::*; use fleet::west::*; use fleet::Ship;"
        )
        kernel.fails("use fleet::no::such::thing;")
        assert kernel.ok("use fleet::Ship as _; Ship::crew()").result == "12"
        assert kernel.ok("use fleet::{Raft, Ship}; dawn(); dusk(); Ship::new().speed()").result == "9"

    @pytest.mark.parametrize("cell", ["use crate;", "use nowhere;", "use std::nothing::Here;", "let lost = absent();"])
    def test_cell_that_does_not_compile_leaves_nothing_behind(self, kernel, cell):
        assert kernel.fails(cell).error.startswith("CompilationError: ")
        kernel.ok("use std::collections::VecDeque;")
        assert kernel.ok('"f".to_string() + "ine"').result == '"fine"'

    def test_trait_is_implemented_again(self, kernel):
        kernel.ok("struct Dog; trait Speak { fn sound(&self) -> &'static str; } impl Speak for Dog { fn sound(&self) -> &'static str { \"wuff\" } }")
        assert kernel.ok("Dog.sound()").result == '"wuff"'
        kernel.ok('impl Speak for Dog { fn sound(&self) -> &\'static str { "bark" } }')
        assert kernel.ok("Dog.sound()").result == '"bark"'

    def test_trait_is_implemented_again_for_a_type_of_another_cell(self, kernel):
        kernel.ok("#[derive(Clone)] struct Cat;")
        kernel.ok("trait Purr { fn purr(&self) -> i32; }")
        kernel.ok("impl Purr for Cat { fn purr(&self) -> i32 { 1 } }")
        kernel.ok("impl Purr for Vec<Cat> { fn purr(&self) -> i32 { 10 } }")
        kernel.ok("impl Purr for Cat { fn purr(&self) -> i32 { 2 } }")
        assert kernel.ok("(Cat.purr(), vec![Cat].purr())").result == "(2, 10)"

    def test_inherent_method_is_defined_again(self, kernel):
        kernel.ok("struct Lamp;")
        kernel.ok("impl Lamp { fn watts(&self) -> i32 { 40 } }")
        kernel.ok("impl Lamp { fn watts(&self) -> i32 { 60 } }")
        assert kernel.ok("Lamp.watts()").result == "60"

    @pytest.mark.parametrize("name", ["alloc", "core", "proc_macro", "std"])
    def test_crate_of_the_compiler_needs_no_dependency(self, start, name):
        kernel = start()
        kernel.ok(f"extern crate {name};")
        kernel.ok(f"use {name} as of_the_compiler;")
        assert kernel.ok(":show_deps").display.startswith("no crate has been added; ")
        assert kernel.ok("40 + 2").result == "42"


class TestLastExpression:
    @pytest.mark.parametrize(
        ("cell", "result"),
        [
            ("assert_eq!(36i32 + 6, 42)", None),
            ('format!("{:3x}", 11)', '"  b"'),
            ('let word = "ab".to_owned() + "cd"; word', '"abcd"'),
            ("for _ in 1..3 {} for _ in 1..3 {} 17", "17"),
            ("()", None),
        ],
    )
    def test_value_of_the_last_expression_is_shown(self, kernel, cell, result):
        assert kernel.ok(cell).result == result

    @pytest.mark.parametrize(
        ("cell", "result"),
        [
            ("unsafe { std::mem::transmute::<i32, u32>(3) } as u8 == 3", "true"),
            ("{ 4 } + 1", "5"),
            ("match 3 { 3 => 1, _ => 2 } + 1", "2"),
            ("if true { 1 } else { 2 } as u8", "1"),
            ("{ 4 } == 4 && { 5 } == 5", "true"),
            ("let begun = 1;\nunsafe { std::mem::transmute::<i32, u32>(3) } as u8 + begun", "4"),
        ],
    )
    def test_expression_that_begins_with_a_block_is_shown(self, kernel, cell, result):
        assert kernel.ok(cell).result == result

    @pytest.mark.parametrize(
        ("cell", "result"),
        [
            ("{ 4u32 }.pow(2)", "16"),
            ("if true { vec![1] } else { vec![] }\n    .len()", "1"),
            ("{ println!(\"side\"); }\n-1", "-1"),
            ("if true {} else {}\n*&5", "5"),
        ],
    )
    def test_statement_that_is_a_block_ends_where_rust_ends_it(self, kernel, cell, result):
        assert kernel.ok(cell).result == result

    @pytest.mark.parametrize("cell", ["{ 4 } + 1", "unsafe { f() } as u8 == 3", "let a = 1;\nmatch a { _ => 2 } + a"])
    def test_console_runs_an_expression_that_begins_with_a_block(self, kernel, cell):
        assert kernel.ask("is_complete_request", {"code": cell})["status"] == "complete"

    def test_type_with_its_own_display_shows_itself(self, kernel):
        kernel.ok(
            "pub struct Rows<T> { pub cells: Vec<T>, pub width: usize }\n"
            "impl<T: std::fmt::Debug> Rows<T> { pub fn evcxr_display(&self) {\n"
            'let rows: String = self.cells.chunks(self.width).map(|row| format!("<li>{row:?}</li>")).collect();\n'
            'println!("EVCXR_BEGIN_CONTENT text/html\\n<ul>{rows}</ul>\\nEVCXR_END_CONTENT"); } }'
        )
        html = "<ul><li>[1, 2]</li><li>[3, 4]</li></ul>"
        assert [bundle["text/html"] for bundle in shown(kernel, "let rows = Rows { cells: vec![1, 2, 3, 4], width: 2 };\nrows")] == [html]

    def test_trait_of_the_notebook_shows_a_type_of_another_crate(self, kernel):
        kernel.ok(
            "pub trait Showing { fn evcxr_display(&self); }\n"
            "impl Showing for std::time::Duration { fn evcxr_display(&self) {\n"
            'println!("EVCXR_BEGIN_CONTENT image/png\\niVBORw0KGgo=\\nEVCXR_END_CONTENT"); } }'
        )
        assert [bundle.get("image/png") for bundle in shown(kernel, "std::time::Duration::from_secs(1)")] == ["iVBORw0KGgo="]

    @pytest.mark.parametrize("mime", ["application/json", "application/vnd.vegalite.v5+json", "application/vnd.plotly.v1+json"])
    def test_content_of_a_json_type_is_an_object(self, kernel, mime):
        cell = f'println!("EVCXR_BEGIN_CONTENT {mime}\\n{{{{\\"data\\": [1, 2.5]}}}}\\nEVCXR_END_CONTENT");'
        assert [bundle[mime] for bundle in shown(kernel, cell)] == [{"data": [1, 2.5]}]


class TestOutput:
    def test_lines_reach_the_stream_on_which_they_were_printed(self, kernel):
        outcome = kernel.ok('println!("out 1"); eprintln!("err 1"); println!("out 2"); eprintln!("err 2"); format!("va{}", "lue")')
        assert (outcome.stdout, outcome.stderr, outcome.result) == ("out 1\nout 2\n", "err 1\nerr 2\n", '"value"')

    def test_thread_goes_on_after_its_cell(self, kernel):
        kernel.ok(
            "use std::sync::{Arc, Mutex};\nlet beats = Arc::new(Mutex::new(0i32));\n"
            "std::thread::spawn({ let beats = Arc::clone(&beats); move || for _ in 0..200 {\n"
            "*beats.lock().unwrap() += 1; std::thread::sleep(std::time::Duration::from_millis(5)); } });"
        )
        seen = int(kernel.ok("*beats.lock()?").result)
        wait_for(lambda: int(kernel.ok("*beats.lock()?").result) > seen, "beat of the thread")


class TestFailures:
    def test_panic_loses_no_variable(self, kernel):
        kernel.ok("let list = vec![1, 2]; let code = 7;")
        assert kernel.fails('panic!("on purpose {}", code);').error == "Panic: on purpose 7 (line 1 of the cell)"
        assert kernel.ok("(&list, code)").result == "([1, 2], 7)"

    def test_process_that_is_aborted_keeps_items_and_variables(self, start):
        kernel = start()
        kernel.ok("pub fn kept() -> i32 { 42 }\nlet number = 5i32;")
        assert "SIGABRT" in kernel.fails("std::process::abort();").error
        assert kernel.ok("kept() + number").result == "47"
        kernel.ok(":clear")
        assert "cannot find function `kept`" in kernel.fails("kept()").error
        assert names(kernel) == []

    def test_question_mark_shows_the_error_once(self, kernel):
        outcome = kernel.fails('std::fs::read_to_string("/no/such/file")?;')
        assert outcome.error == "Error: No such file or directory (os error 2) (line 1 of the cell)"
        said = outcome.stderr + outcome.traceback
        assert said.count("No such file or directory") == 1, said

    def test_form_of_an_error_can_be_chosen(self, start):
        kernel = start()
        kernel.ok(":efmt {:?}")
        assert 'kind: NotFound' in kernel.fails('std::fs::read_to_string("/no/such/file")?;').error
        kernel.fails(":efmt x")

    def test_cell_that_ends_at_a_question_mark_keeps_its_changes_and_no_new_variable(self, kernel):
        kernel.ok('let owned = "owned".to_string(); let copy = 40; let mut text = "text".to_string(); let mut count = 41;')
        kernel.fails(
            'text.push_str("+"); count += 1; let copy = 50; let extra = 51;\nstd::fs::read_to_string("/no/such/file")?;\n'
            'text.push_str("-"); count += 10;'
        )
        assert kernel.ok("(&owned, &text, count)").result == '("owned", "text+", 42)'
        assert "extra" not in names(kernel)

    def test_cell_that_shadows_a_variable_and_panics_keeps_its_changes(self, kernel):
        kernel.ok("let cover = vec![1]; let mut sum = 0;")
        kernel.fails('sum = 1;\nlet cover = 5;\npanic!("at {cover}");')
        assert kernel.ok("(sum, &cover)").result == "(1, [1])"

    def test_variable_that_a_failed_cell_has_shadowed_has_its_old_value(self, kernel):
        kernel.ok("let shade = 40;")
        kernel.fails('let shade = 50; std::fs::read_to_string("/no/such/file")?;')
        assert kernel.ok("shade").result == "40"

    def test_cell_that_moves_a_variable_and_ends_at_a_question_mark_changes_nothing(self, kernel):
        kernel.ok("let whole = vec![1, 2]; let mut other = 1;")
        kernel.fails('other = 2; let taken = whole; std::fs::read_to_string("/no/such/file")?; drop(taken);')
        assert kernel.ok("(&whole, other)").result == "([1, 2], 1)"

    def test_error_inside_a_macro_points_at_the_users_line(self, kernel):
        outcome = kernel.fails('let mut out = String::new(); out.push_str(format!("7"));')
        assert outcome.error == "CompilationError: error[E0308]: mismatched types (line 1, column 43)"
        assert 'out.push_str(format!("7"));' in outcome.traceback

    def test_missing_trait_behind_a_macro_points_at_the_users_variable(self, kernel):
        outcome = kernel.fails('let mut out = String::new(); write!(out, "7").unwrap();')
        assert outcome.error.endswith("(line 1, column 37)")

    def test_columns_count_characters_and_not_bytes(self, kernel):
        cell = 'let a = 10;\nlet s = "猫  äö"; let n: String = 42; fn five() -> i32 {\n    println!("猫  äö"); (\n    )\n}'
        traceback = kernel.fails(cell).traceback
        assert "line 2, column 34" in traceback
        assert "line 3, column 24" in traceback

    def test_missing_semicolon_after_let_is_named(self, kernel):
        kernel.ok("mod shelf { pub mod box_ { pub struct Egg {} } }")
        outcome = kernel.fails("let egg = shelf::box_::Egg {}")
        assert "expected `;`" in outcome.error and outcome.error.endswith("(line 1, column 30)")
        assert "evcxr" not in outcome.traceback

    def test_missing_parenthesis_is_placed_where_it_was_opened(self, kernel):
        outcome = kernel.fails("std::mem::drop(42); std::mem::drop(")
        assert outcome.error.endswith("(line 1, column 35)")


    def test_bracket_that_nothing_opened_is_refused(self, kernel):
        kernel.ok("let mut count = 1;")
        for cell in ["}", "count = 2;\n}\ncount = 3;", ")"]:
            assert kernel.fails(cell).error.startswith("CompilationError: ")
        assert kernel.ok("count").result == "1"

    def test_error_of_several_lines_is_shown_whole(self, kernel):
        outcome = kernel.run('Err::<(), _>("first line\\nsecond line")?;')
        assert "first line\nsecond line" in outcome.traceback


class TestCrates:
    def test_state_of_crates_stays_from_cell_to_cell(self, start, tmp_path):
        kernel = start()
        kernel.fails(':dep bad = { path = "this_path_leads_nowhere" }\n40')
        counter = crate(tmp_path, "counter", COUNTER)
        kernel.fails(f':dep counter = {{ path = "{counter}", features = ["absent"] }}')
        other = crate(tmp_path, "other", "pub fn two() -> u32 { 2 }")
        cell = f":dep {counter}\n:dep {other}\ncounter::set(765);\ncounter::get() + other::two()"
        assert kernel.ok(cell).result == "767"
        assert kernel.ok("counter::get()").result == "765"

    def test_two_crates_share_the_state_of_a_third(self, start, tmp_path):
        kernel = start()
        counter = crate(tmp_path, "counter", COUNTER)
        reader = crate(tmp_path, "reader", READER, ["counter"])
        both = "(counter::get(), reader::get())"
        assert kernel.ok(f":dep {counter}\n:dep {reader}\ncounter::set(7); {both}").result == "(7, 7)"
        assert kernel.ok(both).result == "(7, 7)"

    def test_name_with_hyphens_is_used_with_underscores(self, start, tmp_path):
        kernel = start()
        root = crate(tmp_path, "name-with-hyphens", "pub fn six() -> i32 { 6 }")
        assert kernel.ok(f":dep {root}\nuse name_with_hyphens;\nname_with_hyphens::six()").result == "6"

    def test_crates_that_the_user_has_added_are_listed(self, start, tmp_path):
        kernel = start()
        assert "ferrotune" not in kernel.ok(":show_deps").display
        one, two = [crate(tmp_path, name, "") for name in ["one", "two"]]
        kernel.ok(f':dep one = {{ path = "{one}", version = "0.3.1" }}')
        kernel.ok(f":dep {two}")
        assert kernel.ok(":show_deps").display == f'one = {{ path = "{one}", version = "0.3.1" }}\ntwo = {{ path = "{two}" }}'

    def test_dependency_that_does_not_exist_is_placed_on_its_line(self, kernel):
        outcome = kernel.fails('// a comment before the commands\n:dep nowhere = { path = "/this/leads/nowhere" }')
        assert "(line 2, column 6)" in outcome.error

    def test_unknown_command_is_refused_before_the_cell_runs(self, kernel):
        kernel.ok("let mut runs = 0;")
        assert kernel.fails(":no_such_command\nruns += 1;").error.startswith("CommandError: there is no command :no_such_command")
        assert kernel.ok("runs").result == "0"

    def test_settings_of_evcxr_do_not_reach_cells(self, start, tmp_path, monkeypatch):
        settings = tmp_path / "settings/evcxr"
        settings.mkdir(parents=True)
        (settings / "evcxr.toml").write_text("[evcxr]\nallow_static_linking = false\npreserve_vars_on_panic = false\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(settings.parent))
        kernel = start()
        root = crate(tmp_path, "counter", COUNTER)
        assert kernel.ok(f":dep {root}\ncounter::get()").result == "1"


class TestAnswers:
    def test_documentation_of_an_item_is_shown(self, kernel):
        kernel.ok("/// How many there are.\nstruct Amount(usize);")
        text = kernel.ok(":doc Amount").display
        assert "struct Amount(usize)" in text and "How many there are." in text
        assert "ctx" not in text

    def test_name_at_the_cursor_is_documented_as_text_and_html(self, kernel):
        code = "let _v: Vec<u8> = Vec::new()"
        answer = kernel.inspect(code, code.index("new") + 3)
        assert answer["found"] and "text/plain" in answer["data"] and "<" in answer["data"]["text/html"]

    def test_unknown_name_has_no_documentation(self, kernel):
        answer = kernel.inspect("never_defined_anywhere()", 10)
        assert (answer["found"], answer["data"]) == (False, {})

    def test_command_is_completed(self, kernel):
        answer = kernel.complete(":de")
        assert (answer["matches"], answer["cursor_start"], answer["cursor_end"]) == ([":dep"], 0, 3)
        (kind,) = answer["metadata"]["_jupyter_types_experimental"]
        assert (kind["text"], kind["type"]) == (":dep", "magic")

    def test_only_names_that_begin_as_typed_are_offered(self, kernel):
        code = "fn words() -> Vec<String> { vec![] }\nwords().res"
        answer = kernel.complete(code)
        assert (answer["cursor_start"], answer["cursor_end"]) == (len(code) - 3, len(code))
        assert any(text.startswith("reserve") for text in answer["matches"])
        assert all(text.startswith("res") for text in answer["matches"]), answer["matches"]
        kinds = {kind["text"].split("(")[0]: kind["type"] for kind in answer["metadata"]["_jupyter_types_experimental"]}
        assert kinds["reserve"] == "function"
        assert kernel.complete("fn words() -> Vec<String> { vec![] }\nwords().zzzz")["matches"] == []

    def test_variables_are_offered(self, kernel):
        kernel.ok("let velvet1 = 42; let velvet2 = String::new();")
        assert {"velvet1", "velvet2"} <= set(kernel.complete("let _ = velv")["matches"])

    @pytest.mark.parametrize(("code", "name"), [("use dock::", "Pier"), ("use dock::Pier; Pier::", "length")])
    def test_imports_are_completed(self, kernel, code, name):
        kernel.ok("mod dock { pub struct Pier {} impl Pier { pub fn length() {} } }")
        assert any(text.startswith(name) for text in kernel.complete(code)["matches"])

    def test_variables_are_listed_with_their_types(self, start):
        kernel = start()
        kernel.ok("use std::sync::{Arc, Mutex};\nlet counter = Arc::new(Mutex::new(3i32)); let word = String::new();")
        assert sorted(kernel.ok(":vars").result.splitlines()) == ["counter: Arc<Mutex<i32>>", "word: String"]

    def test_commands_are_listed(self, kernel):
        assert ":dep" in kernel.ok(":help").display
