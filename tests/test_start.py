"""The start of a kernel: what is answered before its engine is ready, and what the engine does not wait for."""

import pathlib

from session import TARGET, Session, resident_bytes


def test_a_misspelt_magic_has_its_error_before_the_engine_is_ready(tmp_path):
    # Without a cache the engine is ready only after minutes, when it has built its prelude.
    cache = tmp_path / "cache"
    session = Session(tmp_path, env={"XDG_CACHE_HOME": str(cache)})
    outcome = session.run("%lsmagicc")
    assert outcome.error == "MagicError: unknown magic %lsmagicc; did you mean %lsmagic? %lsmagic lists them all"
    assert not cache.exists()
    session.close()


def test_a_cell_for_which_no_engine_can_start_fails_and_the_next_one_tries_again(tmp_path):
    # The file is where the folder of the prelude has to be.
    cache = tmp_path / "cache" / "ferrotune"
    cache.parent.mkdir()
    cache.touch()
    session = Session(tmp_path, env={"XDG_CACHE_HOME": str(cache.parent)})
    for code in ["1 + 1", "2 + 2"]:
        assert session.run(code).error.startswith(f"EngineError: cannot create {cache}"), code
    cache.unlink()
    cache.symlink_to(TARGET / "cache" / "ferrotune")
    assert session.ok("3 + 3").result == "6"
    assert session.ok("let x = 1;\nx + 1").result == "2"
    session.close()


def test_variables_after_cells_without_one(tmp_path):
    session = Session(tmp_path)
    session.ok("#[derive(Clone, Debug, PartialEq)]\nstruct Point(i32);\nfn point() -> Vec<Point> { vec![Point(1)] }")
    assert session.ok("point().len()").result == "1"
    session.ok("let points = point();\nlet tensor = candle_core::Tensor::ones(3, candle_core::DType::F32, &candle_core::Device::Cpu)?;")
    assert session.ok("points == point() && tensor.dims() == [3]").result == "true"
    session.close()


def test_other_users_of_the_machine_cannot_read_the_cells(tmp_path):
    session = Session(tmp_path)
    folder = pathlib.Path(session.ok('std::env::var("FERROTUNE_RUNTIME")?').result.strip('"'))
    assert (folder / "cells/src/lib.rs").is_file() and folder.stat().st_mode & 0o077 == 0
    session.close()


def test_the_first_variables_do_not_wait_for_rust_analyzer(tmp_path):
    session = Session(tmp_path)
    kernel = session.manager.provisioner.process.pid
    before = resident_bytes(kernel)
    session.ok("use std::collections::HashMap;\nstruct Point { x: f32 }\nlet point = Point { x: 1.5 };")
    # What rust-analyzer knows is 80 MB. Later cells may come after a pause, in which it reads.
    assert resident_bytes(kernel) - before < 40 << 20
    session.ok("let words = HashMap::from([(1, vec![\"a\"])]); let ((low, mut high), real) = ((1, 2u8), 0.5);")
    session.ok("let tensor = candle_core::Tensor::ones((2, 3), candle_core::DType::F32, &candle_core::Device::Cpu)?;")
    session.ok("let add: Box<dyn Fn(i32) -> i32 + Send> = Box::new(move |number| number + low); let letters = &words[&1];")
    assert "mismatched types" in session.run("let wrong: u8 = words;").error
    session.ok("high += 1; let whole @ Some(part) = Some(real) else { return Ok(()) };")
    values = session.ok("(point.x, letters[0], high, add(2), tensor.dims().to_vec(), whole, part)").result
    assert values == '(1.5, "a", 3, 3, [2, 3], Some(0.5), 0.5)'
    assert session.complete("tensor.dim")["matches"]
    assert resident_bytes(kernel) - before > 50 << 20
    assert session.ok("let more = tensor.sum_all()?.to_scalar::<f32>()? + point.x;\nmore").result == "7.5"
    session.close()
