"""Values show themselves: tensors, structs, maps and types of the notebook at a cell's end, and what changes on the screen later."""

import base64
import io
import struct
import zlib

import pytest


def shown(kernel, code):
    """The bundles of all that a cell shows, but for a line about another cargo, which another test may run at the same time."""
    bundles = []

    def take(message):
        if message["msg_type"] in ("execute_result", "display_data"):
            bundle = message["content"]["data"]
            if not bundle.get("text/plain", "").startswith("Blocking"):
                bundles.append(bundle)

    outcome = kernel.run(code, take)
    assert outcome.error is None, outcome.traceback
    return bundles


def only(kernel, code):
    (bundle,) = shown(kernel, code)
    return bundle


@pytest.fixture(scope="module")
def notebook(kernel):
    kernel.ok(
        "use candle_core::{DType, Device, Tensor, Var};\nlet cpu = Device::Cpu;\n"
        "#[derive(Clone, Debug)]\npub struct Run { pub id: u32, pub name: String, pub loss: Option<f64> }\n"
        "fn runs(count: u32) -> Vec<Run> {\n"
        '    (0..count).map(|id| Run { id, name: format!("<run {id}>"), loss: (id > 0).then(|| 1.0 / id as f64) }).collect()\n}'
    )
    return kernel


class TestTensors:
    @pytest.mark.parametrize(
        "tensor, text",
        [
            ("Tensor::new(&[[1f32, -2.5], [0.25, f32::NAN]], &cpu)?", "Tensor [2, 2] f32 on cpu\n1.0000  -2.5000\n0.2500      NaN"),
            ("Tensor::new(3u8, &cpu)?", "Tensor [] u8 on cpu\n3"),
            ("Tensor::new(&[-7i64, 10], &cpu)?", "Tensor [2] i64 on cpu\n-7  10"),
            ("Tensor::new(&[0.5f32], &cpu)?.to_dtype(DType::BF16)?", "Tensor [1] bf16 on cpu\n0.5000"),
            ("Tensor::zeros((0, 3), DType::F32, &cpu)?", "Tensor [0, 3] f32 on cpu\nno values"),
            ("Var::zeros(2, DType::F64, &cpu)?", "Tensor [2] f64 on cpu\n0.0  0.0"),
            ("&Tensor::new(&[[1u32], [2]], &cpu)?", "Tensor [2, 1] u32 on cpu\n1\n2"),
        ],
    )
    def test_a_tensor_is_a_table_of_its_values(self, notebook, tensor, text):
        bundle = only(notebook, tensor)
        assert bundle["text/plain"] == text
        title, *rows = text.splitlines()
        assert f"<b>{title}</b>" in bundle["text/html"]
        cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row.split()) + "</tr>" for row in rows if row != "no values")
        assert f">{cells}</table>" in bundle["text/html"]

    def test_tensors_of_a_tuple_are_shown_one_below_the_other(self, notebook):
        bundle = only(notebook, "(Tensor::new(&[1u8, 2], &cpu)?, Tensor::new(&[0.5f32], &cpu)?)")
        assert bundle["text/plain"] == "0: Tensor [2] u8 on cpu\n1  2\n\n1: Tensor [1] f32 on cpu\n0.5000"
        assert bundle["text/html"].count("</table>") == 2

    def test_a_corner_of_a_large_tensor_is_shown(self, notebook):
        text = only(notebook, "Tensor::arange(0u32, 2 * 100 * 1000, &cpu)?.reshape((2, 100, 1000))?")["text/plain"]
        title, *rows, which = text.splitlines()
        assert title == "Tensor [2, 100, 1000] u32 on cpu" and which == "the values at [0, .., ..], the first of 2 matrices"
        assert [row.split() for row in rows[:2]] == [
            ["0", "1", "2", "3", "4", "…", "995", "996", "997", "998", "999"],
            ["1000", "1001", "1002", "1003", "1004", "…", "1995", "1996", "1997", "1998", "1999"],
        ]
        assert len(rows) == 11 and len({len(row) for row in rows}) == 1 and rows[-1].split()[0] == "99000"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("Tensor::ones(2, DType::F4, &cpu)?", "unsupported dtype F4 for op ones"),
        ("Tensor::zeros(2, DType::F6E2M3, &cpu)?", "unsupported dtype F6E2M3 for op zeros"),
        ("Tensor::full(candle_core::dummy_dtype::F8E8M0, 2, &cpu)?", "unsupported dtype F8E8M0 for op full"),
        ("let f4 = candle_core::dummy_dtype::F4; Tensor::arange(f4, f4, &cpu)?", "unsupported dtype F4 for op arange"),
        ("RAW.one_set()?", "unsupported dtype F8E8M0 for op one_set"),
        ('RAW.save_safetensors("a", "no.safetensors")?', "unsupported dtype F8E8M0 for op save_safetensors"),
    ],
)
def test_type_of_which_candle_has_no_values_is_an_error(notebook, cell, error):
    raw = "Tensor::from_raw_buffer(&[1, 2], DType::F8E8M0, &[2], &cpu)?"
    assert notebook.fails(cell.replace("RAW", raw)).error == f"Error: {error} (line 1 of the cell)"


def pixels(bundle):
    """Width, height, and the bytes of the rows of a PNG file that was written with the filter of differences to the left."""
    file = base64.b64decode(bundle["image/png"])
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    reader, chunks = io.BytesIO(file[8:]), {}
    while header := reader.read(8):
        length, name = struct.unpack(">I4s", header)
        content = reader.read(length)
        assert reader.read(4) == struct.pack(">I", zlib.crc32(name + content))
        chunks[name] = content
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert depth == 8 and list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    step = {0: 1, 2: 3}[colour]
    data, rows = zlib.decompress(chunks[b"IDAT"]), []
    size = width * step + 1
    for start in range(0, len(data), size):
        assert data[start] == 1
        row = [0] * step
        for value in data[start + 1 : start + size]:
            row.append((value + row[-step]) % 256)
        rows.append(row[step:])
    assert len(rows) == height
    return width, height, rows


class TestImages:
    def test_grey_and_colour_in_both_layouts(self, notebook):
        bundle = only(notebook, "ferrotune::display::image(&Tensor::new(&[[0u8, 255], [128, 1]], &cpu)?)?")
        assert bundle["text/plain"] == "<image, 2 × 2 pixels, grey>"
        width, height, rows = pixels(bundle)
        # Small images are enlarged.
        assert (width, height, rows[0][::8], rows[8][::8]) == (16, 16, [0, 255], [128, 1])
        colour = "let colour = Tensor::new(&[1f32, 0.0, 0.5], &cpu)?.reshape((3, 1, 1))?.broadcast_as((3, 4, 5))?;\n"
        first = only(notebook, colour + "ferrotune::display::image(&colour)?")
        last = only(notebook, "ferrotune::display::image(&colour.permute((1, 2, 0))?.to_dtype(DType::F64)?)?")
        assert first == last and first["text/plain"] == "<image, 5 × 4 pixels, RGB>"
        assert pixels(first)[2][0] == [255, 0, 128] * 40

    def test_a_batch_is_a_grid(self, notebook):
        batch = "let batch = Tensor::arange(0u8, 4, &cpu)?.reshape((4, 1, 1, 1))?.broadcast_as((4, 1, 600, 300))?;\n"
        width, height, rows = pixels(only(notebook, batch + "ferrotune::display::image(&batch)?;"))
        assert (width, height) == (602, 1202)
        assert rows[0][299:303] == [0, 128, 128, 1] and rows[-1][299:303] == [2, 128, 128, 3]
        text = only(notebook, "ferrotune::display::image(&Tensor::rand(0f32, 1.0, (100, 28, 28), &cpu)?)?;")["text/plain"]
        assert text == "<64 of 100 images, each 28 × 28 pixels, grey>"

    def test_what_is_no_image_is_an_error_with_the_cure(self, notebook):
        error = notebook.fails("ferrotune::display::image(&Tensor::zeros((2, 2, 4, 4), DType::F32, &cpu)?)?;").error
        assert "a tensor of shape [2, 2, 4, 4] is no image" in error and "reshape it" in error


class TestCollections:
    def test_structs_are_rows_of_a_table(self, notebook):
        bundle = only(notebook, "runs(3)")
        assert bundle["text/plain"].splitlines() == [
            "   id  name       loss",
            '0   0  "<run 0>"  None',
            '1   1  "<run 1>"  Some(1.0)',
            '2   2  "<run 2>"  Some(0.5)',
        ]
        assert bundle["text/html"].startswith("<table>") and "&lt;run 2&gt;" in bundle["text/html"]
        assert only(notebook, "&runs(3)[..]") == bundle
        text = only(notebook, "runs(1000)")["text/plain"].splitlines()
        assert len(text) == 1 + 20 + 1 + 5 + 1 and text[-2].startswith('999  999  "<run 999>"')
        assert text[-1] == 'the first 20 and the last 5 of 1,000 rows are shown; println!("{:?}", …) prints all'

    def test_maps_are_tables(self, notebook):
        map_ = 'std::collections::HashMap::from([("b", 0.5), ("a", 1.0), ("c", 2.0)])'
        assert only(notebook, map_)["text/plain"] == 'key  value\n"a"    1.0\n"b"    0.5\n"c"    2.0'
        map_ = "runs(2).into_iter().map(|run| (run.id, run)).collect::<std::collections::BTreeMap<_, _>>()"
        assert only(notebook, map_)["text/plain"].splitlines()[0] == "key  id  name       loss"

    def test_long_values_are_shortened_and_a_line_says_how_to_see_all(self, notebook):
        text = only(notebook, "(0..100_000).collect::<Vec<u32>>()")["text/plain"]
        assert text.startswith("[0, 1, 2, 3,") and ", 99, …, 99990, " in text and len(text) < 2000
        assert text.endswith('the first 100 and the last 10 of 100,000 elements are shown; println!("{:?}", …) prints all')
        text = only(notebook, '"é".repeat(128_000)')["text/plain"]
        assert len(text) < 10_200 and text.endswith('10,000 of 128,000 characters are shown; println!("{}", …) prints all')
        text = only(notebook, "Some(vec![0u8; 100_000])")["text/plain"]
        assert len(text) < 10_200 and text.endswith('the first 10,000 characters are shown; println!("{:?}", …) prints all')
        assert only(notebook, "vec![1.5, 2.0]") == {"text/plain": "[1.5, 2.0]"}


class TestOwnTypes:
    def test_a_type_shows_itself_at_the_end_of_a_cell_and_in_vectors(self, notebook):
        notebook.ok(
            "use ferrotune::display::{Bundle, Show};\npub struct Colour(u8);\nimpl Show for Colour {\n    fn bundle(&self) -> Bundle {\n"
            '        Bundle::text(format!("red {}", self.0)).with("text/html", "<i>red</i>")\n    }\n}'
        )
        assert shown(notebook, "let red = Colour(3);\nred") == [{"text/plain": "red 3", "text/html": "<i>red</i>"}]
        assert shown(notebook, "&red") == shown(notebook, "red")
        assert only(notebook, "vec![Colour(1), Colour(2)]")["text/plain"] == "   value\n0  red 1\n1  red 2"

    def test_a_derived_struct_is_a_table_and_its_variables_live_on(self, start):
        kernel = start()
        kernel.ok(
            "use ferrotune::display::Show;\n#[derive(Show)]\npub struct Fit {\n    id: u32,\n    loss: f64,\n    #[show(skip)]\n    hidden: Box<dyn Fn()>,\n}\n"
            "impl Fit { pub fn half(&self) -> f64 { self.loss / 2.0 } }"
        )
        kernel.ok("let fit = Fit { id: 7, loss: 0.5, hidden: Box::new(|| ()) };")
        assert shown(kernel, "fit") == shown(kernel, "&fit")
        assert kernel.ok("fit").result == "field  value\nid         7\nloss     0.5"
        kernel.ok("let mut fits = vec![fit];\nfits.push(Fit { id: 12, loss: 0.25, hidden: Box::new(|| ()) });")
        assert kernel.ok("fits").result == "   id  loss\n0   7   0.5\n1  12  0.25"
        # The analysis knows the types of the variables.
        assert "half" in kernel.complete("fits[0].ha")["matches"]
        assert kernel.ok("fits.pop().unwrap().half()").result == "0.125"
        # A type that is defined anew takes its variables along.
        kernel.ok("#[derive(Show)]\npub struct Fit { epoch: usize }")
        assert "cannot find value `fits`" in kernel.fails("fits").error
        assert kernel.ok("Fit { epoch: 3 }").result == "field  value\nepoch      3"

    @pytest.mark.parametrize(
        "definition, error",
        [
            ("struct Inner;\n#[derive(ferrotune::display::Show)]\nstruct Outer { a: u8, inner: Inner }", "`Inner` doesn't implement `Debug` (line 3, column 23)"),
            ("#[derive(ferrotune::display::Show)]\nenum Mode { Slow }", "`Show` is derived for structs only"),
            ("#[derive(ferrotune::display::Show)]\nstruct Outer {\n    #[show(hide)] a: u8\n}", "the only option of a field is `#[show(skip)]` (line 3, column 12)"),
        ],
    )
    def test_what_cannot_be_derived_is_an_error_at_its_place(self, notebook, definition, error):
        assert error in notebook.fails(definition).error

    @pytest.mark.parametrize("receiver", ["self", "mut self", "&self", "&mut self"])
    def test_evcxr_display_may_take_the_value_in_any_way(self, start, receiver):
        kernel = start()
        kernel.ok(
            "#[derive(Debug)] pub struct Page { text: String }\n"
            f"impl Page {{ pub fn evcxr_display({receiver}) {{\n"
            'println!("EVCXR_BEGIN_CONTENT text/html\\n<p>{}</p>\\nEVCXR_END_CONTENT", self.text); } }\n'
            'fn page() -> Page { Page { text: "own".to_owned() } }'
        )
        assert shown(kernel, "page()") == [{"text/html": "<p>own</p>"}]
        if "&" in receiver:
            assert shown(kernel, "let mut page = page();\npage") == [{"text/html": "<p>own</p>"}]
        # Other values are shown as ever.
        assert kernel.ok("let fixed = candle_core::Tensor::new(1u8, &candle_core::Device::Cpu)?;\nfixed").result == "Tensor [] u8 on cpu\n1"
        assert kernel.ok("fixed").result == "Tensor [] u8 on cpu\n1"
        assert kernel.ok("1 + 1").result == "2"


def test_a_crate_that_knows_evcxr_shows_its_values(start, tmp_path):
    crate = tmp_path / "plots"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "plots"\nversion = "0.1.0"\nedition = "2021"\n')
    show = 'println!("EVCXR_BEGIN_CONTENT {}\\n{}\\nEVCXR_END_CONTENT", '
    (crate / "src/lib.rs").write_text(
        "#[derive(Clone, Debug)]\npub struct Plot(pub u8);\nimpl Plot {\n    pub fn evcxr_display(&self) {\n"
        f'        {show}"application/vnd.plotly.v1+json", format!("{{{{\\"data\\": [{{}}]}}}}", self.0));\n    }}\n}}\n'
        f'pub struct Picture;\nimpl Picture {{\n    pub fn evcxr_display(&self) {{\n        {show}"image/png", "iVBORw0KGgo=");\n    }}\n}}\n'
    )
    kernel = start()
    kernel.ok(f":dep plots = {{ path = {str(crate)!r} }}".replace("'", '"'))
    assert shown(kernel, "let plot = plots::Plot(7);\nplot") == [{"application/vnd.plotly.v1+json": {"data": [7]}}]
    assert shown(kernel, "&plot") == [{"application/vnd.plotly.v1+json": {"data": [7]}}]
    assert shown(kernel, "plots::Picture") == [{"image/png": "iVBORw0KGgo="}]
    assert shown(kernel, "Box::new(plots::Picture)") == [{"image/png": "iVBORw0KGgo="}]
    # Its other values are shown as those of the notebook are.
    assert kernel.ok("vec![plot.clone()]").result == "[Plot(7)]"


class TestScreen:
    def test_a_later_cell_changes_what_is_shown(self, notebook):
        messages = []

        def take(message):
            if "transient" in message["content"]:
                messages.append((message["msg_type"], message["content"]["data"]["text/plain"], message["content"]["transient"]))

        cell = (
            'use ferrotune::display::{self, Bundle};\nlet status = display::text("loading");\n'
            'display::show_as("loss", Bundle::text("0.9"));'
        )
        notebook.run(cell, take)
        notebook.run('status.update(Bundle::text("loaded"));\ndisplay::update("loss", Bundle::text("0.4"));', take)
        (first, later) = messages[:2], messages[2:]
        assert [(kind, text) for kind, text, _ in first] == [("display_data", "loading"), ("display_data", "0.9")]
        assert [(kind, text) for kind, text, _ in later] == [("update_display_data", "loaded"), ("update_display_data", "0.4")]
        assert [ids for *_, ids in first] == [ids for *_, ids in later] and first[1][2] == {"display_id": "loss"}

    def test_values_are_shown_in_a_loop(self, notebook):
        texts = [bundle["text/plain"] for bundle in shown(notebook, 'for epoch in 0..2 { ferrotune::show!(epoch, runs(1)); }\n"end"')]
        assert texts == ["0", texts[1], "1", texts[1], '"end"'] and texts[1].startswith("   id  name")

    def test_latex_is_typeset(self, notebook):
        assert only(notebook, 'ferrotune::display::latex(r"$\\frac{1}{2}$");')["text/latex"] == r"$\frac{1}{2}$"

    def test_bars_within_a_bar_are_lines_of_one_display(self, notebook):
        pause = "std::thread::sleep(std::time::Duration::from_millis(120));"
        cell = (
            'for _ in ferrotune::progress(0..2).named("epoch") {\n'
            f'    for _ in ferrotune::progress(0..4).named("batch") {{ {pause} }}\n}}'
        )
        ids, texts = set(), []

        def take(message):
            if "transient" in message["content"]:
                ids.add(message["content"]["transient"]["display_id"])
                texts.append(message["content"]["data"]["text/plain"])

        notebook.run(cell, take)
        assert len(ids) == 1
        assert texts[0].startswith("epoch   0% 0/2") and "\n" not in texts[0]
        assert any(text.count("\n") == 1 and "\nbatch " in text and text.endswith(" left") for text in texts), texts
        assert texts[-1].startswith("epoch 100% 2/2, ") and "\n" not in texts[-1] and "left" not in texts[-1]


def test_the_peak_of_a_statement_is_measured(notebook):
    notebook.ok("let block = vec![1u8; 200 << 20];")

    def increment_mib(cell):
        peak, increment = notebook.ok(cell).display.split(", increment: ")
        assert peak.startswith("peak memory: ")
        number, unit = increment.split()
        return float(number) * {"B": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 1024}[unit]

    assert 195 < increment_mib("%memit block.clone()") < 210
    assert increment_mib("%memit block.len()") < 5
    assert 95 < increment_mib("%%memit let copy = block.clone();\nlet half = copy[..100 << 20].to_vec();\nhalf") < 110
    assert notebook.fails('%memit "x".parse::<u8>()?').error == "Error: invalid digit found in string (line 1 of the cell)"
    assert "cannot move out of `block`" in notebook.run("%memit drop(block)").error
    assert notebook.run("%memit").error.startswith("MagicError: %memit has nothing to run; usage: ")
    assert notebook.ok("block.len()").result == str(200 << 20)
