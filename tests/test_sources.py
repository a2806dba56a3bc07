"""Datasets from files, in cells: tables, records, images and arrays, whole and damaged ones."""

import csv
import gzip
import io
import json
import os
import pathlib
import random
import struct

import duckdb
import numpy
import pyarrow
import pyarrow.feather
import pytest
import safetensors.numpy
from PIL import Image
from tensorboard.summary.writer.record_writer import RecordWriter

from test_tune import tune

IMPORTS = "use candle_core::{DType, Device, Tensor};\nuse ferrotune::data::{self, Dataset};"


@pytest.fixture(scope="module")
def notebook(kernel):
    # What reads files is compiled already. Cells that are not optimised take a third of the time of the compiler.
    kernel.ok(":opt 0")
    kernel.ok(IMPORTS)
    return kernel


def write_table(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rooms", "age", "name, of it", "price"])
        writer.writerows(rows)


ROWS = [[index % 7, index / 4, ["flat", "house, large"][index % 2], index * 1.5] for index in range(40_000)]


def test_a_table_of_text_becomes_rows(notebook):
    write_table(notebook.folder / "houses.csv", ROWS)
    notebook.ok('let houses = data::csv("houses.csv").features(["age", "rooms"]).label("price").read()?;')
    assert notebook.ok("houses.len()").result == "Some(40000)"
    notebook.ok("let (inputs, prices) = houses.skip(30_001).iter().next().unwrap()?;")
    assert notebook.ok("(inputs.to_vec1::<f32>()?, prices.to_scalar::<f32>()?)").result == "([7500.25, 6.0], 45001.5)"
    notebook.ok('let kinds = data::csv("houses.csv").features(["age"]).class_of("name, of it", ["flat", "house, large"]).stream()?;')
    notebook.ok("let classes: Vec<u32> = kinds.batch(999, false).iter().map(|b| Ok(b?.1.sum_all()?.to_scalar()?)).collect::<Result<_, candle_core::Error>>()?;")
    assert notebook.ok("(classes.len(), classes.iter().sum::<u32>())").result == "(41, 20000)"
    assert notebook.ok('data::csv("houses.csv").columns()?').result == '["rooms", "age", "name, of it", "price"]'


def test_parts_of_a_table_may_be_compressed(notebook):
    (notebook.folder / "parts").mkdir()
    for part in range(3):
        with gzip.open(notebook.folder / f"parts/{part}.csv.gz", "wt") as file:
            file.write("x;y\n" + "".join(f"{part};{row}\n" for row in range(5)))
    notebook.ok("""let parts = data::csv("parts/*.csv.gz").delimiter(b';').all_features().class("y").read()?.to_tensors()?;""")
    assert notebook.ok("parts.0.flatten_all()?.to_vec1::<f32>()?").result == str([float(part) for part in range(3) for _ in range(5)])
    assert notebook.ok("parts.1.to_vec1::<u32>()?").result == str(list(range(5)) * 3)


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("a,b\n1,2\n3,\n", "", "row 1 of bad.csv, column `b`: there is no value; of a number, say with `missing` what stands for it"),
        ("a,b\n1,2\n3,x\n", "", "row 1 of bad.csv, column `b`: `x` is no number"),
        ("a,b\n1,2\n3\n", "", "row 1 of bad.csv: it has 1 values, and the header has 2"),
        ("a,c\n1,2\n", "", "bad.csv has no column `b`; it has `a`, `c`"),
        ("a,b\n1,-nan\n", "", "row 0 of bad.csv, column `b`: there is no value"),
        ('a,b\n1,2\n3,"4\n5,6\n7,8\n', '.class_of("b", ["2", "4\\n5,6\\n7,8"])', "row 1 of bad.csv: the file ends within a quoted value"),
        ("a,b,b\n1,2,3\n", "", "bad.csv has several columns `b`"),
        ("a,b\n1,2\n", '.label("a")', "the column `a` is asked for twice"),
        ("a,b\n1,2\n", '.class_of("b", ["2", "2"])', "the class `2` is named twice"),
        ("a,b\n1,2\n", '.class_of("b", Vec::<String>::new())', "no class is named; name them"),
        ("a,b\n1,2.5\n", '.class("b")', "row 0 of bad.csv, column `b`: `2.5` is no class: not a whole number from 0 on"),
        ("a,b\n1,2\n", '.class_of("b", ["1"])', "row 0 of bad.csv, column `b`: `2` is not among the listed classes"),
    ],
)
def test_a_damaged_table_is_an_error_that_names_the_place(notebook, text, options, error):
    (notebook.folder / "bad.csv").write_text(text)
    features = '["a"]' if options else '["a", "b"]'
    outcome = notebook.fails(f'data::csv("bad.csv").features({features}){options}.read()?;')
    assert error in outcome.error, outcome.error


def test_missing_numbers_and_files(notebook):
    (notebook.folder / "gaps.csv").write_text("a,b\n1,\n,NA\nnan,4\n")
    notebook.ok('let gaps = data::csv("gaps.csv").all_features().missing(-1.).read()?.to_tensors()?;')
    assert notebook.ok("gaps.to_vec2::<f32>()?").result == "[[1.0, -1.0], [-1.0, -1.0], [-1.0, 4.0]]"
    assert "no column is named for the features" in notebook.fails('data::csv("gaps.csv").features(Vec::<String>::new()).read()?').error
    (notebook.folder / "lines.csv").write_text('a,b\n1,"two\nlines"\n2,"two\nmore"\n')
    assert notebook.ok('data::csv("lines.csv").features(["a"]).stream()?.iter().count()').result == "2"
    assert "there is no file `nowhere/*.csv`" in notebook.fails('data::csv("nowhere/*.csv").all_features().read()?').error


def write_parquet(path, query, options="ROW_GROUP_SIZE 10000"):
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet, {options})")


PARQUET = "SELECT i AS id, i * 0.5 AS half, (i % 3)::UTINYINT AS kind, i::FLOAT AS f, 'text' AS t, 1.25::DECIMAL(9, 2) AS d, i % 2 = 0 AS even FROM range(45000) r(i)"


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "lz4_raw"])
def test_columns_of_parquet_become_rows(notebook, codec):
    write_parquet(notebook.folder / f"{codec}.parquet", PARQUET, f"ROW_GROUP_SIZE 10240, CODEC '{codec}'")
    notebook.ok(f'let table = data::parquet("{codec}.parquet").features(["half", "d", "f", "even"]).class("kind");')
    notebook.ok("let rows = table.stream()?;")
    assert notebook.ok("rows.len()").result == "Some(45000)"
    notebook.ok("let (all, kinds) = table.read()?.to_tensors()?;")
    assert notebook.ok("(all.dims2()?, all.get(44999)?.to_vec1::<f32>()?)").result == "((45000, 4), [22499.5, 1.25, 44999.0, 0.0])"
    assert notebook.ok("kinds.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?").result == "45000.0"
    # Batches that cross row groups, and single rows, are the same rows.
    notebook.ok("let batches = rows.batch(777, false).iter().map(|b| Ok(b?.0)).collect::<Result<Vec<_>, candle_core::Error>>()?;")
    notebook.ok("let together = Tensor::cat(&batches, 0)?;")
    assert notebook.ok("(&together - &all)?.abs()?.max_all()?.to_scalar::<f32>()?").result == "0.0"
    assert notebook.ok("rows.skip(20_479).iter().next().unwrap()?.0.get(2)?.to_scalar::<f32>()?").result == "20479.0"
    assert notebook.ok("(rows.batch(777, true).len(), batches.len())").result == "(Some(57), 58)"
    notebook.ok("fn first(rows: &Dataset<(Tensor, Tensor)>) -> f32 { rows.iter().next().unwrap().unwrap().0.flatten_all().unwrap().to_vec1::<f32>().unwrap()[2] }")
    skipped = "[rows.skip(5), rows.skip(5).skip(10_300), rows.shard(3, 4), rows.batch(10, false).skip(2), rows.skip(5).batch(10, false)]"
    assert notebook.ok(f"{skipped}.map(|rows| first(&rows))").result == "[5.0, 10305.0, 3.0, 20.0, 5.0]"
    notebook.ok("let mut part = rows.skip(5).epoch(0); part.seek(data::Position { epoch: 0, element: 10 });")
    assert notebook.ok("part.next().unwrap()?.0.get(2)?.to_scalar::<f32>()?").result == "15.0"


def test_a_table_stays_that_of_its_folder_and_of_its_time(notebook):
    query = "SELECT i::FLOAT AS x FROM range({}) r(i)"
    write_parquet(notebook.folder / "kept.parquet", query.format(5000))
    write_table(notebook.folder / "kept.csv", ROWS[:3])
    notebook.ok('let kept = data::parquet("kept.parquet").all_features().stream()?; let texts = data::csv("kept.csv").features(["age"]).stream()?;')
    notebook.ok("%cd /")
    notebook.ok("let counts = (kept.iter().filter(|row| row.is_ok()).count(), texts.iter().filter(|row| row.is_ok()).count());")
    notebook.ok(f"%cd {notebook.folder}")
    assert notebook.ok("counts").result == "(5000, 3)"
    write_parquet(notebook.folder / "kept.parquet", query.format(4000))
    error = notebook.fails("kept.iter().collect::<Result<Vec<_>, _>>()?").error
    assert "kept.parquet has changed since the dataset was made" in error, error


def test_missing_values_of_parquet(notebook):
    write_parquet(notebook.folder / "gaps.parquet", "SELECT CASE WHEN i % 10 = 3 THEN NULL ELSE i END AS x FROM range(100) r(i)")
    error = notebook.fails('data::parquet("gaps.parquet").all_features().read()?').error
    assert "row 3 of gaps.parquet, column `x`: there is no value; of a number, say with `missing`" in error, error
    notebook.ok('let x = data::parquet("gaps.parquet").all_features().missing(f32::NAN).read()?.to_tensors()?.flatten_all()?;')
    notebook.ok("let x = x.to_vec1::<f32>()?;")
    write_parquet(notebook.folder / "nan.parquet", "SELECT 'nan'::FLOAT AS x")
    assert "there is no value" in notebook.fails('data::parquet("nan.parquet").all_features().read()?').error
    assert notebook.ok("(x[2], x[3].is_nan(), x[4], x.iter().filter(|x| x.is_nan()).count())").result == "(2.0, true, 4.0, 10)"


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT 'a' AS x", "column `x`: its type BYTE_ARRAY is no number"),
        ("SELECT now() AS x", "is no number; store it as one"),
        ("SELECT [1, 2] AS x", "has lists, which are neither a number nor text"),
    ],
)
def test_columns_that_are_no_numbers_are_an_error(notebook, query, error):
    write_parquet(notebook.folder / "odd.parquet", query)
    outcome = notebook.fails('data::parquet("odd.parquet").all_features().read()?')
    assert error in outcome.error, outcome.error


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("SELECT 3000000000::UINTEGER AS x", "[3000000000]"),
        ("SELECT 7::UBIGINT AS x", "[7]"),
        ("SELECT true AS x", "[1]"),
        ("SELECT 1.25::DECIMAL(9, 2) AS x", "its type is decimal, and no class"),
        ("SELECT DATE '2020-01-01' AS x", "is no number; store it as one"),
        ("SELECT NULL::INTEGER AS x", ", column `x`: there is no value"),
        ("SELECT -1 AS x", ", column `x`: `-1` is no class"),
    ],
)
def test_classes_of_parquet_are_whole_numbers(notebook, query, outcome):
    write_parquet(notebook.folder / "classes.parquet", f"SELECT 1.5::FLOAT AS f, * FROM ({query})")
    cell = 'data::parquet("classes.parquet").features(["f"]).class("x").read()?.to_tensors()?.1.to_vec1::<u32>()?'
    if outcome.startswith("["):
        assert notebook.ok(cell).result == outcome
    else:
        assert outcome in notebook.fails(cell).error


def outcomes_of_damaged(notebook, whole, randomly, begin, ending, verbs):
    """How many rows are read of 20 damaged files, of which every other one is cut off."""
    for number in range(20):
        damaged = bytearray(whole[: randomly.randrange(len(whole))] if number % 2 else whole)
        if number % 2 == 0:
            place = begin()
            damaged[place : place + 100] = randomly.randbytes(100)
        (notebook.folder / f"damaged-{number}.{ending}").write_bytes(damaged)
    outcome = notebook.ok(f"""
    let mut outcomes = Vec::new();
    for number in 0..20 {{
        let file = format!("damaged-{{number}}.{ending}");
        match data::{ending}(&file){verbs}.read().map(|rows| rows.len()) {{
            Ok(rows) => outcomes.push(rows),
            Err(error) => {{ assert!(error.to_string().contains(&file) || error.to_string().contains("process that reads"), "{{error}}"); outcomes.push(None) }}
        }}
    }}
    outcomes""")
    return outcome.result.strip("[]").split(", ")


def test_a_damaged_parquet_file_is_an_error_and_never_short(notebook):
    path = notebook.folder / "whole.parquet"
    write_parquet(path, PARQUET)
    whole = path.read_bytes()
    randomly = random.Random(7)
    outcomes = outcomes_of_damaged(notebook, whole, randomly, lambda: randomly.randrange(len(whole) - 100), "parquet", '.features(["id", "half"])')
    assert set(outcomes) <= {"None", "Some(45000)"} and outcomes.count("None") >= 10, outcomes


def arrow_table(rows):
    numbers = numpy.arange(rows)
    kinds = pyarrow.array([["cat", "dog", "eel"][number % 3] for number in numbers])
    return pyarrow.table(
        {
            "half": numbers * 0.5,
            "id": numbers.astype("u2" if rows < 1 << 16 else "u4"),
            "text": kinds,
            "f": numbers.astype("f4"),
            "h": (numbers % 100).astype("f2"),
            "kind": kinds.dictionary_encode(),
            "d": pyarrow.array(numbers).cast(pyarrow.decimal128(21, 2)),
            "even": numbers % 2 == 0,
            "lists": [[1, 2]] * rows,
        }
    )


def write_arrow(path, table, stream=False, rows=10_000, **options):
    make = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with make(path, table.schema, options=pyarrow.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)


@pytest.mark.parametrize(("stream", "compression"), [(False, None), (True, "zstd")])
def test_columns_of_arrow_become_rows(notebook, stream, compression):
    write_arrow(notebook.folder / "a.arrow", arrow_table(45_000), stream, compression=compression)
    notebook.ok('let table = data::arrow("a.arrow").features(["f", "half", "d", "even", "h"]).class_of("kind", ["eel", "cat", "dog"]);')
    notebook.ok("let rows = table.stream()?;")
    assert notebook.ok("rows.len()").result == "Some(45000)"
    notebook.ok("let (all, kinds) = table.read()?.to_tensors()?;")
    assert notebook.ok("(all.dims2()?, all.get(44999)?.to_vec1::<f32>()?)").result == "((45000, 5), [44999.0, 22499.5, 44999.0, 0.0, 99.0])"
    assert notebook.ok("kinds.narrow(0, 29_999, 4)?.to_vec1::<u32>()?").result == "[0, 1, 2, 0]"
    assert notebook.ok("rows.skip(20_479).iter().next().unwrap()?.0.get(0)?.to_scalar::<f32>()?").result == "20479.0"
    notebook.ok('let texts = data::arrow("a.arrow").features(["id"]).class_of("text", ["eel", "cat", "dog"]).read()?.to_tensors()?;')
    assert notebook.ok("(texts.1.ne(&kinds)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?, texts.0.max_all()?.to_scalar::<f32>()?)").result == "(0.0, 44999.0)"


def test_files_of_arrow_follow_each_other(notebook):
    for number, rows in enumerate((1000, 0, 250)):
        pyarrow.feather.write_feather(arrow_table(rows), str(notebook.folder / f"part-{number}.feather"))
    notebook.ok('let parts = data::arrow("part-*.feather").features(["f"]).class("id").stream()?;')
    assert notebook.ok("(parts.len(), parts.iter().map(|row| row.unwrap().1.to_scalar::<u32>().unwrap()).sum::<u32>())").result == f"(Some(1250), {999 * 500 + 249 * 125})"


def test_missing_values_of_arrow(notebook):
    kinds = pyarrow.array(["a", None, "b"]).dictionary_encode()
    write_arrow(notebook.folder / "gaps.arrow", pyarrow.table({"x": pyarrow.array([1, None, 3]), "y": [0.5, float("nan"), 1], "n": pyarrow.nulls(3), "k": kinds}))
    error = notebook.fails('data::arrow("gaps.arrow").features(["x"]).read()?').error
    assert "row 1 of gaps.arrow, column `x`: there is no value; of a number, say with `missing`" in error, error
    assert notebook.ok('data::arrow("gaps.arrow").features(["x", "n", "y"]).missing(-1.).read()?.to_tensors()?.to_vec2::<f32>()?').result == (
        "[[1.0, -1.0, 0.5], [-1.0, -1.0, -1.0], [3.0, -1.0, 1.0]]"
    )
    error = notebook.fails('data::arrow("gaps.arrow").features(["y"]).missing(0.).class_of("k", ["a", "b"]).read()?').error
    assert "row 1 of gaps.arrow, column `k`: there is no value" in error, error


ODD_COLUMNS = {
    '.features(["text"])': "column `text`: its type Utf8 is no number; store it as one",
    '.features(["lists"])': "is no number; store it as one",
    '.features(["nothing"])': "odd.arrow has no column `nothing`; it has `half`, `id`, ",
    '.features(["f"]).class("half")': "column `half`: its type Float64 is no class: neither a whole number nor text",
    '.features(["f"]).class_of("text", ["cat"])': "row 1 of odd.arrow, column `text`: `dog` is not among the listed classes",
}


def test_columns_of_arrow_that_do_not_fit_are_an_error(notebook):
    write_arrow(notebook.folder / "odd.arrow", arrow_table(3))
    calls = ", ".join(f'data::arrow("odd.arrow"){call}.read().err().map(|error| error.to_string())' for call in ODD_COLUMNS)
    errors = notebook.ok(f'for error in [{calls}] {{ println!("{{}}", error.unwrap()); }}').stdout.splitlines()
    assert all(part in error for part, error in zip(ODD_COLUMNS.values(), errors, strict=True)), errors


def test_what_is_no_arrow_file_says_so(notebook):
    (notebook.folder / "no.arrow").write_text("a,b\n1,2\n")
    assert "no.arrow is no Arrow file" in notebook.fails('data::arrow("no.arrow").all_features().read()?').error
    (notebook.folder / "old.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    assert "old.feather has version 1 of Feather; write it again in version 2" in notebook.fails('data::arrow("old.feather").all_features().read()?').error
    (notebook.folder / "empty.arrow").write_bytes(b"")
    assert "empty.arrow is no Arrow file: it is empty" in notebook.fails('data::arrow("empty.arrow").all_features().read()?').error
    first, second = (pyarrow.table({"k": pyarrow.array(texts).dictionary_encode()}) for texts in (["a", "b"], ["c"]))
    with pyarrow.ipc.new_stream(notebook.folder / "changes.arrow", first.schema) as writer:
        writer.write_table(first)
        writer.write_table(second)
    error = notebook.fails('data::arrow("changes.arrow").all_features().read()?').error
    assert "a dictionary changes within the stream; write it as a file" in error, error


@pytest.mark.parametrize("stream", [False, True])
def test_a_damaged_arrow_file_is_an_error_and_never_short(notebook, stream):
    path = notebook.folder / "whole.arrow"
    write_arrow(path, arrow_table(45_000), stream, compression="lz4")
    whole = path.read_bytes()
    randomly = random.Random(11)

    def begin():
        return randomly.choice([randomly.randrange(len(whole) - 100), randomly.randrange(3000), len(whole) - randomly.randrange(110, 2000)])

    verbs = '.features(["id", "half"]).class_of("kind", ["cat", "dog", "eel"])'
    outcomes = outcomes_of_damaged(notebook, whole, randomly, begin, "arrow", verbs)
    assert set(outcomes) <= {"None", "Some(45000)"} and outcomes.count("None") >= 10, outcomes


def test_lines_and_json_lines(notebook):
    (notebook.folder / "b.txt").write_bytes("drei\r\nvier €\n\nlast".encode())
    (notebook.folder / "a.txt").write_text("one\ntwo\n")
    notebook.ok('let texts = data::lines("?.txt")?.iter().collect::<Result<Vec<_>, _>>()?;')
    assert notebook.ok("texts").result == '["one", "two", "drei", "vier €", "", "last"]'
    with gzip.open(notebook.folder / "reviews.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": f"review {index}", "stars": index % 5}) + "\n" for index in range(100_000))
    notebook.ok('let stars: Dataset<u32> = data::json_lines("reviews.jsonl.gz")?.map(2, |review| Ok(review["stars"].as_u64().ok_or("no stars")? as u32));')
    notebook.ok("let stars: Vec<u32> = stars.skip(99_990).iter().collect::<Result<_, _>>()?;")
    assert notebook.ok("stars").result == "[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]"
    (notebook.folder / "bad.jsonl").write_text('{"a": 1}\n{"a": \n')
    error = notebook.fails('data::json_lines("bad.jsonl")?.iter().collect::<Result<Vec<_>, _>>()?').error
    assert "record 1, counted over all of bad.jsonl: EOF while parsing" in error, error
    (notebook.folder / "latin.txt").write_bytes(b"good\nb\xe4d\n")
    error = notebook.fails('data::lines("latin.txt")?.iter().collect::<Result<Vec<_>, _>>()?').error
    assert "record 1 of latin.txt: the line is not UTF-8" in error, error


def test_tf_records_are_checked(notebook):
    records = [os.urandom(length) for length in [0, 1, 5000, 300_000, 7]]
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    for record in records:
        writer.write(record)
    whole = buffer.getvalue()
    (notebook.folder / "all.tfrecord").write_bytes(whole)
    (notebook.folder / "all.tfrecord.gz").write_bytes(gzip.compress(whole))
    for name in ["all.tfrecord", "all.tfrecord.gz"]:
        notebook.ok(f'let records = data::tf_records("{name}")?.iter().collect::<Result<Vec<_>, _>>()?;')
        assert notebook.ok("records.iter().map(Vec::len).collect::<Vec<_>>()").result == "[0, 1, 5000, 300000, 7]"
        assert notebook.ok("records.concat().iter().map(|b| u64::from(*b)).sum::<u64>()").result == str(sum(b"".join(records)))
    changed = bytearray(whole)
    changed[len(whole) - 8] ^= 1
    (notebook.folder / "changed.tfrecord").write_bytes(changed)
    error = notebook.fails('data::tf_records("changed.tfrecord")?.iter().count(); data::tf_records("changed.tfrecord")?.iter().collect::<Result<Vec<_>, _>>()?').error
    assert "record 4 of changed.tfrecord: its checksum does not fit" in error, error
    (notebook.folder / "cut.tfrecord").write_bytes(whole[:-3])
    error = notebook.fails('data::tf_records("cut.tfrecord")?.iter().collect::<Result<Vec<_>, _>>()?').error
    assert "record 4 of cut.tfrecord: the file ends within the record" in error, error


def readers(notebook):
    """The processes that read files for this notebook."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if arguments[:2] == [b"ferrotune", b"reader"] and (process / "cwd").readlink() == notebook.folder:
                found.append(int(process.name))
        except OSError:
            pass  # it has ended
    return found


@pytest.fixture(scope="module")
def photos(notebook):
    """40 images of two classes, of different sizes, whose first pixel has the number of the image."""
    for number in range(40):
        folder = notebook.folder / "photos" / ["cats", "dogs"][number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        ending = ["png", "bmp", "webp"][number % 3]
        image = Image.new("RGB", (8 + number % 3, 8), (number, 10, 200))
        image.save(folder / f"{number:02}.{ending}", **({"lossless": True} if ending == "webp" else {}))
    (notebook.folder / "photos/cats/notes.txt").write_text("no image")
    notebook.ok('let photos = data::image_folder("photos", [3, 8, 8])?;')
    return notebook


def test_images_of_folders_have_the_class_of_their_folder(photos):
    assert photos.ok("(photos.images.len(), &photos.classes)").result == '(Some(40), ["cats", "dogs"])'
    photos.ok("let (images, classes) = photos.images.to_tensors()?;")
    assert photos.ok("(images.dims4()?, images.dtype(), classes.sum_all()?.to_scalar::<u32>()?)").result == "((40, 3, 8, 8), F32, 20)"
    photos.ok("let red = (images.narrow(1, 0, 1)?.flatten_from(1)?.mean(1)? * 255.)?.round()?.to_vec1::<f32>()?;")
    order = [float(number) for number in [*range(0, 40, 2), *range(1, 40, 2)]]
    assert photos.ok("red").result == str(order)
    assert photos.ok("(images.get(3)?.get(2)?.mean_all()?.to_scalar::<f32>()? * 255.).round()").result == "200.0"


def test_grey_and_resized_images_are_those_of_pillow(notebook):
    folder = notebook.folder / "grey" / "all"
    folder.mkdir(parents=True)
    size = (97, 61)
    image = Image.frombytes("RGB", size, random.Random(3).randbytes(size[0] * size[1] * 3)).resize((200, 150), Image.Resampling.BICUBIC)
    image.save(folder / "one.jpg", quality=95)
    # As phones do that append a short film.
    with open(folder / "one.jpg", "ab") as file:
        file.write(b"film" + bytes([0xFF, 0xDA]) * 3)
    image = Image.open(folder / "one.jpg")
    expected = image.resize((40, 30), Image.Resampling.BILINEAR).tobytes()
    notebook.ok('let (image, _) = data::image_folder("grey", [3, 30, 40])?.images.iter().next().unwrap()?;')
    notebook.ok("let pixels: Vec<i32> = (image.permute((1, 2, 0))?.flatten_all()? * 255.)?.round()?.to_vec1::<f32>()?.into_iter().map(|p| p as i32).collect();")
    pixels = json.loads(notebook.ok('println!("{pixels:?}");').stdout)
    assert max(abs(pixel - other) for pixel, other in zip(pixels, expected, strict=True)) <= 3
    notebook.ok('let (image, _) = data::image_folder("grey", [1, 30, 40])?.images.iter().next().unwrap()?;')
    grey = json.loads(notebook.ok('println!("{:?}", (image.flatten_all()? * 255.)?.round()?.to_vec1::<f32>()?);').stdout)
    expected = image.convert("L").resize((40, 30), Image.Resampling.BILINEAR).tobytes()
    assert max(abs(pixel - other) for pixel, other in zip(grey, expected, strict=True)) <= 4


def test_images_are_shuffled_split_and_continued_without_reading_the_others(photos):
    (photos.folder / "photos/dogs/99.png").write_bytes(b"damaged")
    photos.ok('let damaged = data::image_folder("photos", [3, 8, 8])?.images;')
    error = photos.fails("damaged.iter().collect::<Result<Vec<_>, _>>()?").error
    assert "cannot decode" in error and "photos/dogs/99.png" in error, error
    assert photos.ok("damaged.take(40).iter().collect::<Result<Vec<_>, _>>()?.len()").result == "40"
    (photos.folder / "photos/dogs/99.png").unlink()
    photos.ok("let [train, valid] = photos.images.split([0.75, 0.25], 7)?; let train = train.shuffle(100, 3);")
    photos.ok("""fn redness(dataset: &Dataset<(Tensor, Tensor)>) -> Dataset<u32> {
        dataset.map(2, |(image, _)| Ok((image.get(0)?.mean_all()?.to_scalar::<f32>()? * 255.).round() as u32))
    }""")
    photos.ok("let whole: Vec<u32> = redness(&train).epoch(0).collect::<Result<_, _>>()?;")
    photos.ok("let mut iter = redness(&train).epoch(0); let mut seen: Vec<u32> = iter.by_ref().take(11).collect::<Result<_, _>>()?;")
    assert photos.run("std::process::abort();").error
    photos.ok("seen.extend(iter.by_ref().collect::<Result<Vec<_>, _>>()?);")
    assert photos.ok("seen == whole").result == "true"
    photos.ok("let mut all = [whole.clone(), redness(&valid).iter().collect::<Result<Vec<_>, _>>()?].concat(); all.sort();")
    assert photos.ok("all == (0..40).collect::<Vec<u32>>()").result == "true"


def test_a_search_captures_images(photos):
    objective = """
    let count = images.batch(8, false).epoch(0).map(|batch| Ok(batch?.0.dim(0)?)).sum::<Result<usize, candle_core::Error>>()?;
    if count != 20 { return Err(format!("{count}").into()); }
    Ok(0.5)"""
    photos.ok("let [images, _] = photos.images.split([0.5, 0.5], 7)?;")
    photos.ok(tune(objective, "--objective loss:min --max-trials 2 --concurrency 2", "images"))


def test_readers_end_with_what_reads(photos):
    photos.ok("let mut iter = photos.images.iter(); iter.next();")
    assert readers(photos)
    photos.ok("drop(iter);")
    assert readers(photos) == []
    photos.ok("let _ = photos.images.to_tensors()?;")
    assert readers(photos) == []


def test_idx_mnist_and_cifar(notebook):
    folder = notebook.folder / "mnist"
    folder.mkdir()
    for part, count in [("train", 30), ("t10k", 10)]:
        pixels = bytes(number % 256 for number in range(count * 28 * 28))
        images = struct.pack(">HBBIII", 0, 8, 3, count, 28, 28) + pixels
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, count) + bytes(i % 10 for i in range(count)))
    notebook.ok('let [train, test] = data::mnist("mnist")?; let (images, digits) = train.to_tensors()?;')
    assert notebook.ok("(images.dims4()?, digits.dtype(), test.len())").result == "((30, 1, 28, 28), U32, Some(10))"
    assert notebook.ok("(images.flatten_all()?.get(255)?.to_scalar::<f32>()?, digits.get(17)?.to_scalar::<u32>()?)").result == "(1.0, 7)"
    (notebook.folder / "f.idx").write_bytes(struct.pack(">HBBI", 0, 0x0D, 1, 3) + struct.pack(">fff", 1.5, -2, 0.25))
    assert notebook.ok('data::idx("f.idx")?.to_vec1::<f32>()?').result == "[1.5, -2.0, 0.25]"
    (notebook.folder / "i.idx").write_bytes(struct.pack(">HBBI", 0, 0x0B, 1, 3) + struct.pack(">hhh", 1, -2, 300))
    assert notebook.ok('data::idx("i.idx")?.to_vec1::<i64>()?').result == "[1, -2, 300]"
    whole = (notebook.folder / "f.idx").read_bytes()
    for length in range(len(whole)):
        (notebook.folder / f"cut-{length}.idx").write_bytes(whole[:length])
    notebook.ok(f'for length in 0..{len(whole)} {{ let error = data::idx(format!("cut-{{length}}.idx")).unwrap_err().to_string(); assert!(error.contains(&format!("cut-{{length}}.idx is no IDX file")), "{{error}}"); }}')
    folder = notebook.folder / "cifar"
    folder.mkdir()
    for number, name in enumerate(["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]):
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([number]) + bytes([255] * 1024 + [0] * 2048) for _ in range(4)))
    whole = (folder / "data_batch_2.bin").read_bytes()
    (folder / "data_batch_2.bin").write_bytes(whole[:-2073])
    (folder / "data_batch_1.bin").write_bytes((folder / "data_batch_1.bin").read_bytes()[:-1000])
    error = notebook.fails('data::cifar10("cifar")?').error
    assert "cifar/data_batch_1.bin has no whole number of images" in error, error
    for number in (1, 2):
        (folder / f"data_batch_{number}.bin").write_bytes(b"".join(bytes([number - 1]) + whole[1:3073] for _ in range(4)))
    notebook.ok('let [train, test] = data::cifar10("cifar")?; let (images, classes) = train.to_tensors()?;')
    assert notebook.ok("(images.dims4()?, test.len(), images.get(9)?.mean((1, 2))?.to_vec1::<f32>()?, classes.to_vec1::<u32>()?[9])").result == "((20, 3, 32, 32), Some(4), [1.0, 0.0, 0.0], 2)"


def test_a_reader_that_is_killed_is_an_error_of_the_element(photos):
    photos.ok("let mut iter = photos.images.iter(); iter.next();")
    for pid in readers(photos):
        os.kill(pid, 9)
    error = photos.fails("iter.collect::<Result<Vec<_>, _>>()?").error
    assert "the process that reads images has ended (signal: 9 (SIGKILL))" in error and "photos/" in error, error


def test_a_cache_is_made_once_and_mapped_by_all_trials(photos):
    photos.ok("let decoded = photos.images.map(1, |pair| { println!(\"decoded\"); Ok(pair) }).cache_in(\"photos.cache\")?;")
    photos.ok("let again: Dataset<(Tensor, Tensor)> = photos.images.map(1, |_| Err(\"made again\".into())).cache_in(\"photos.cache\")?;")
    assert photos.ok("(again.len(), again.skip(3).iter().next().unwrap()?.0.dims3()?)").result == "(Some(40), (3, 8, 8))"
    assert [path.name for path in photos.folder.glob("photos.cache*")] == ["photos.cache"]
    objective = f"""
    let made = std::path::Path::new({json.dumps(str(photos.folder))}).join("made");
    let images = some.map(1, move |pair| {{ use std::io::Write; writeln!(std::fs::File::options().create(true).append(true).open(&made)?, "x")?; Ok(pair) }});
    let rows = images.cache_in({json.dumps(str(photos.folder / "trials.cache"))})?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    if !maps.contains("trials.cache") || rows.len() != Some(20) {{ return Err("not mapped".into()); }}
    Ok(0.5)"""
    photos.ok("let [some, _] = photos.images.split([0.5, 0.5], 7)?;")
    photos.ok(tune(objective, "--objective loss:min --max-trials 4 --concurrency 2", "cached"))
    assert (photos.folder / "made").read_text() == "x\n" * 20
    error = photos.fails('Dataset::from_tensors(Tensor::zeros(3, DType::F32, &Device::Cpu)?)?.take(0).cache_in("none")?').error
    assert "Dataset::cache_in: the dataset has no elements" in error, error
    error = photos.fails('Dataset::from_iter(0..3u32).map(1, |number| Ok(Tensor::zeros(number as usize, DType::F32, &Device::Cpu)?)).cache_in("none")?').error
    assert "batch 0: " in error, error
    assert list(photos.folder.glob("none*")) == [], "nothing is left behind"
    error = photos.fails('Dataset::from_tensors(Tensor::zeros(3, DType::F32, &Device::Cpu)?)?.cache_in("photos.cache")?').error
    assert "the cache photos.cache does not fit: its elements have more than 1 tensors" in error, error
    (photos.folder / "other.cache").write_bytes(b"something else")
    error = photos.fails('photos.images.cache_in("other.cache")?').error
    assert "the cache other.cache does not fit" in error and "delete it" in error, error


def test_arrays_of_numpy_are_mapped(notebook):
    folder = notebook.folder
    numbers = numpy.arange(24, dtype="<f4").reshape(2, 3, 4)
    numpy.save(folder / "plain.npy", numbers)
    numpy.save(folder / "fortran.npy", numpy.asfortranarray(numbers))
    numpy.save(folder / "flags.npy", numpy.array([True, False, True]))
    numpy.save(folder / "none.npy", numpy.zeros((0, 5), "<f8"))
    for name in ["plain", "fortran"]:
        with gzip.open(folder / f"{name}.npy.gz", "wb") as file:
            file.write((folder / f"{name}.npy").read_bytes())
        for file in [f"{name}.npy", f"{name}.npy.gz", f"file://{folder}/{name}.npy"]:
            notebook.ok(f'let read = data::npy("{file}")?;')
            assert notebook.ok("(read.dims(), read.dtype())").result == "([2, 3, 4], F32)"
            assert notebook.ok("read.flatten_all()?.to_vec1::<f32>()?").result == str(numbers.flatten().tolist())
    assert notebook.ok('data::npy("flags.npy")?.to_vec1::<u8>()?').result == "[1, 0, 1]"
    assert notebook.ok('data::npy("none.npy")?.dims()').result == "[0, 5]"
    maps = f'std::fs::read_to_string("/proc/self/maps")?.matches("{folder}/plain.npy").count()'
    assert int(notebook.ok(maps).result) > 0, "it is mapped"
    notebook.ok('let rows = Dataset::from_tensors(data::npy("plain.npy")?)?.batch(2, true);')
    assert notebook.ok("rows.iter().next().unwrap()?.dims()").result == "[2, 3, 4]"


def test_tensors_of_safetensors_are_mapped(notebook):
    folder = notebook.folder
    tensors = {"images": numpy.arange(6, dtype="<f4").reshape(3, 2), "labels": numpy.array([2, 0, 1], "<i8")}
    safetensors.numpy.save_file(tensors, folder / "rows.safetensors", metadata={"made": "by a test"})
    with gzip.open(folder / "rows.safetensors.gz", "wb") as file:
        file.write((folder / "rows.safetensors").read_bytes())
    safetensors.numpy.save_file({"seen": numpy.array([True, False])}, folder / "flags.safetensors")
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header += b" " * (5 - len(header) % 4)  # the numbers are not aligned
    (folder / "odd.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.5, 2.5))
    for file in ["rows.safetensors", "rows.safetensors.gz"]:
        notebook.ok(f'let read = data::safetensors("{file}")?;')
        assert notebook.ok("read.keys().collect::<Vec<_>>()").result == '["images", "labels"]'
        assert notebook.ok('read["images"].to_vec2::<f32>()?').result == "[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]"
        assert notebook.ok('read["labels"].to_vec1::<i64>()?').result == "[2, 0, 1]"
    assert notebook.ok('data::safetensors("flags.safetensors")?["seen"].to_vec1::<u8>()?').result == "[1, 0]"
    assert notebook.ok('data::safetensors("odd.safetensors")?["a"].to_vec1::<f32>()?').result == "[1.5, 2.5]"


def test_damaged_arrays_are_errors(notebook):
    folder = notebook.folder
    numpy.save(folder / "whole.npy", numpy.arange(1000.0))
    (folder / "cut.npy").write_bytes((folder / "whole.npy").read_bytes()[:-8])
    numpy.save(folder / "big.npy", numpy.arange(3, dtype=">f4"))
    (folder / "text.npy").write_text("no array")
    safetensors.numpy.save_file({"a": numpy.arange(9.0)}, folder / "whole.safetensors")
    (folder / "cut.safetensors").write_bytes((folder / "whole.safetensors").read_bytes()[:-8])
    numpy.save(folder / "objects.npy", numpy.array([None, "x"]), allow_pickle=True)
    numpy.savez(folder / "several.npz", a=numpy.arange(3))
    (folder / "cut.npy.gz").write_bytes(gzip.compress((folder / "cut.npy").read_bytes()))
    (folder / "half.npy.gz").write_bytes(gzip.compress((folder / "whole.npy").read_bytes())[:-9])
    for cell, message in [
        ('data::npy("cut.npy")?', "cannot read cut.npy: its shape [1000] of f64 does not match the 7992 bytes behind its header"),
        ('data::npy("cut.npy.gz")?', "cannot read cut.npy.gz: its shape [1000] of f64 does not match the 7992 bytes"),
        ('data::npy("half.npy.gz")?', "cannot read half.npy.gz"),
        ('data::npy("big.npy")?', 'cannot read big.npy: its type >f4 is none of candle\'s; save `array.astype("<f4")`'),
        ('data::npy("objects.npy")?', "cannot read objects.npy: its type |O is none of candle's; save"),
        ('data::npy("several.npz")?', "cannot read several.npz: it is an NPZ archive; save each of its arrays"),
        ('data::npy("text.npy")?', "cannot read text.npy: it is no NPY file; write it with numpy.save"),
        ('data::npy("missing.npy")?', "cannot open missing.npy"),
        ('data::safetensors("cut.safetensors")?', "cannot read cut.safetensors: it is no whole safetensors file"),
        ('data::safetensors("text.npy")?', "cannot read text.npy: it is no whole safetensors file"),
    ]:
        assert message in notebook.fails(cell).error, cell
