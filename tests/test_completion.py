"""Completion and inspection: what a user may write at the cursor, in the order in which they want it, and nothing of ours."""

import os
import re
import time

import pytest



def offered(kernel, code, cursor=None):
    """The names that a completion offers, without brackets, in their order."""
    return [text.split("(")[0].rstrip("!:") for text in kernel.complete(code, cursor)["matches"]]


def entries(kernel, code):
    """The completions as JupyterLab reads them."""
    return kernel.complete(code)["metadata"]["_jupyter_types_experimental"]


def replaced(kernel, code, cursor=None):
    """The text that a completion replaces, and what may stand there."""
    answer = kernel.complete(code, cursor)
    return code[answer["cursor_start"] : answer["cursor_end"]], answer["matches"]


@pytest.fixture(scope="module")
def notebook(kernel):
    """A notebook with variables and types to complete."""
    kernel.ok("use candle_core::{DType, Device, Tensor};\nlet tensor = Tensor::zeros((2, 2), DType::F32, &Device::Cpu)?;")
    kernel.ok("let mut words = vec![String::new()]; let velvet = 1u64;")
    kernel.ok(
        "mod shop { pub struct Till { pub coins: u64, secret: u64 }\n"
        "impl Till { pub fn new() -> Till { Till { coins: 1, secret: 2 } } fn hidden(&self) {}\n"
        "pub fn count(&self) -> u64 { self.coins + self.secret } } }\nlet till = shop::Till::new();"
    )
    return kernel


class TestOfRust:
    def test_private_fields_are_not_offered(self, notebook):
        kinds = {entry["type"] for entry in entries(notebook, "tensor.")}
        assert "instance" not in kinds, entries(notebook, "tensor.")[:8]

    def test_public_fields_are_offered_and_private_items_are_not(self, notebook):
        names = offered(notebook, "till.")
        assert {"coins", "count"} <= set(names)
        assert not {"secret", "hidden"} & set(names)

    def test_fields_of_the_notebooks_own_types_are_offered(self, notebook):
        notebook.ok("struct Own { part: u8 }\nlet own = Own { part: 1 };")
        assert offered(notebook, "own.")[0] == "part"

    @pytest.mark.parametrize("code", ["e", "evcxr", "f", "s", "let _ = v", "words.", "tensor.", "till.", "E", "S", "r"])
    def test_nothing_of_ours_is_offered(self, notebook, code):
        ours = ("evcxr", "Evcxr", "run_user_code", "ferrotune_share", "vars_ok", "Show", "SimpleBackend")
        assert [name for name in offered(notebook, code) if name.startswith(ours)] == []

    @pytest.mark.parametrize(
        ("code", "in_order"),
        [
            ("words.", ["push", "clone", "into"]),
            ("words.", ["len", "cmp", "type_id"]),
            ("tensor.", ["matmul", "clone", "into"]),
            ("till.", ["coins", "count", "into"]),
        ],
    )
    def test_own_methods_come_before_those_of_traits_and_blanket_ones_last(self, notebook, code, in_order):
        names = offered(notebook, code)
        places = [names.index(name) for name in in_order]
        assert places == sorted(places), names[:20]

    def test_no_name_is_offered_twice(self, notebook):
        names = offered(notebook, "words.")
        assert sorted(set(names)) == sorted(names)

    def test_arguments_are_not_inserted(self, notebook):
        texts = notebook.complete("words.")["matches"]
        assert [text for text in texts if text.startswith("push")][0] in ("push", "push("), texts
        assert [text for text in texts if "(" in text.rstrip("()")] == []

    def test_methods_have_a_signature(self, notebook):
        signatures = {entry["text"].split("(")[0]: entry.get("signature") for entry in entries(notebook, "words.")}
        assert "value: T" in signatures["push"] or "value: String" in signatures["push"]
        assert signatures["len"].endswith("-> usize")

    @pytest.mark.parametrize("code", ["println!(\"{}\", velv", "f(g(1, velv", "if velv", "{ let a = 1; velv", "words.iter().map(|word| velv"])
    def test_unclosed_code_is_completed(self, notebook, code):
        assert replaced(notebook, code) == ("velv", ["velvet"])

    @pytest.mark.parametrize("code", ["%time velv", "%%time\nlet a = 1;\nvelv", "%device\nvelv"])
    def test_rust_beside_magics_is_completed(self, notebook, code):
        assert replaced(notebook, code) == ("velv", ["velvet"])

    def test_trial_is_completed_in_an_objective(self, notebook):
        cell = "%%tune --objective loss:min\n|trial| {\n    trial."
        assert {"int", "float", "report"} <= set(offered(notebook, cell))

    def test_trial_is_inspected_in_an_objective(self, notebook):
        cell = '%%tune --objective loss:min\n|trial| {\n    let lr = trial.float("lr", 1e-4, 1e-1)?;\n    Ok(lr)\n}'
        assert notebook.inspect(cell, cell.index("float") + 3)["found"]

    @pytest.mark.parametrize(
        ("marked", "signature"),
        [
            ("words.push(|)", "fn push(&mut self, value: T)"),
            ("candle_core::Tensor::randn(|)", "fn randn<S, T>(mean: T, std: T, s: S, device: &Device)"),
            ("candle_core::Tensor::randn(0f32, | 1f32", "fn randn<S, T>(mean: T, std: T, s: S, device: &Device)"),
            ('ferrotune::data::csv("a|.csv")', "fn csv(files: &str)"),
            ('ferrotune::data::csv("a.csv").features(["x"]).class_of(|)', "fn class_of<S>("),
            ('%%tune --objective loss:min\n|trial| {\n    let lr = trial.float(|);\n    Ok(lr)\n}', "fn float<T>("),
        ],
    )
    def test_between_the_brackets_of_a_call_the_function_is_shown(self, notebook, marked, signature):
        cell = marked.replace("|", "", 1) if "%%" not in marked else marked.replace("(|)", "()")
        cursor = marked.index("|") if "%%" not in marked else marked.index("(|)") + 1
        text = notebook.inspect(cell, cursor)["data"]["text/plain"]
        assert signature in " ".join(text.split()).replace("( ", "("), text

    def test_documentation_names_paths_that_a_cell_can_write(self, notebook):
        for name in ["ferrotune::Trial", "ferrotune::data::csv", "ferrotune::optim::Lion"]:
            data = notebook.inspect(name, len(name))["data"]
            shown = data["text/plain"] + data["text/html"]
            assert not re.search(r"ferrotune_[a-z]", shown), shown
            assert data["text/plain"].startswith(name.rsplit("::", 1)[0] + "\n"), data["text/plain"][:80]

    def test_notebook_is_not_called_by_the_name_of_its_crate(self, notebook):
        cell = "shop::Till::new()"
        data = notebook.inspect(cell, len(cell) - 4)["data"]
        assert "Till" in data["text/plain"]
        assert "ctx" not in data["text/plain"] + data["text/html"]

    def test_documentation_has_no_hidden_lines(self, notebook):
        cell = "Tensor::zeros"
        data = notebook.inspect(cell, len(cell))["data"]
        assert "# Ok::<" not in data["text/plain"] + data["text/html"]

    def test_answer_does_not_wait_for_the_running_cell(self, notebook):
        msg_id = notebook.begin('println!("asleep"); std::thread::sleep(std::time::Duration::from_secs(6));')
        notebook.wait_for_text(msg_id, "asleep\n")
        started = time.monotonic()
        request = notebook.request("complete_request", {"code": "words.pus", "cursor_pos": 9})
        answer = notebook.receive("shell")
        seconds = time.monotonic() - started
        notebook.published(request)
        if answer["parent_header"]["msg_id"] == request:
            notebook.reply(msg_id)
        else:
            answer = notebook.reply(request)
        notebook.rest_of(msg_id)
        assert answer["content"]["matches"] != []
        assert seconds < 2


class TestOfMagics:
    @pytest.mark.parametrize(
        ("code", "word", "match"),
        [
            ("%%tune --objective acc:max --or", "--or", "--oracle"),
            ("%%tune --or", "--or", "--oracle"),
            ("%plot history --proj", "--proj", "--project"),
            ("%tu", "%tu", "%tune"),
            ("let a = 1;\n%und", "%und", "%undo"),
        ],
    )
    def test_only_the_last_word_is_replaced(self, kernel, code, word, match):
        text, matches = replaced(kernel, code)
        assert text == word
        assert match in matches or f"%{match}" in matches

    @pytest.mark.parametrize(
        ("code", "word", "some"),
        [
            ("%%tune --objective acc:max --oracle ", "", {"tpe", "random", "auto"}),
            ("%%tune --objective acc:max --oracle tp", "tp", {"tpe"}),
            ("%%tune --objective acc:max --pruner ", "", {"median"}),
            ("%plot hi", "hi", {"history"}),
            ("%export ", "", {"csv", "parquet"}),
            ("%memory wa", "wa", {"watch"}),
            ("%memory ", "", {"watch", "limit"}),
            ("%tune st", "st", {"status", "stop"}),
            ("%gc a", "a", {"all"}),
            ("%lsmagic be", "be", {"best"}),
        ],
    )
    def test_values_are_offered(self, kernel, code, word, some):
        text, matches = replaced(kernel, code)
        assert text == word
        assert some <= set(matches), matches

    def test_checkpoints_are_offered(self, kernel):
        kernel.ok("let point = 1;\n%checkpoint before_training")
        assert replaced(kernel, "%restore bef") == ("bef", ["before_training"])

    def test_studies_are_offered(self, kernel):
        for name in ["digits", "words"]:
            folder = kernel.folder / "studies" / name
            folder.mkdir(parents=True)
            (folder / "journal.log").write_text("")
        (kernel.folder / "studies" / "plain").mkdir()
        assert replaced(kernel, "%resume dig") == ("dig", ["digits"])
        assert replaced(kernel, "%best --project ") == ("", ["digits", "words"])

    def test_files_are_offered(self, kernel):
        (kernel.folder / "table one.csv").write_text("")
        assert replaced(kernel, "%export csv tab") == ("tab", ['"table one.csv"'])


class TestOfText:
    def test_path_in_a_string_is_completed(self, kernel):
        folder = kernel.folder / "data"
        folder.mkdir()
        (folder / "digits.csv").write_text("")
        (folder / "digits_old").mkdir()
        assert replaced(kernel, 'std::fs::read_to_string("data/dig') == ("data/dig", ["data/digits.csv", "data/digits_old/"])
        code = 'std::fs::read_to_string("dat")?;'
        assert replaced(kernel, code, code.index('")')) == ("dat", ["data/"])
        assert replaced(kernel, f'std::fs::read("{os.fspath(folder)}/digits.') == (f"{folder}/digits.", [f"{folder}/digits.csv"])

    def test_string_that_is_no_path_is_left_alone(self, kernel):
        assert kernel.complete('println!("no such fil')["matches"] == []

    def test_crate_after_dep_is_completed(self, kernel):
        """Crates that cargo has downloaded before; completion does not use the network."""
        text, matches = replaced(kernel, ":dep ito")
        assert (text, matches) == ("ito", ["itoa"])

    def test_version_after_dep_is_completed(self, kernel):
        text, matches = replaced(kernel, ':dep itoa = "1')
        assert text == "1"
        assert matches != [] and all(version.startswith("1.") for version in matches), matches
