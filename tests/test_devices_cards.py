"""A card by its short name, as a user of Colab's GPU runtime has it: its plugin is found beside the Python of the notebook. There is no
card here, so the test plugin stands in for NVIDIA's; it has two devices.
"""

import re

from test_devices import HELPER, PLUGIN

SEARCH = """%%tune --objective loss:min --max-trials {} --oracle random --project card
|trial| {{
    let rate = trial.float("rate", 0.0..=1.0).get()?;
    Ok(candle_core::Tensor::new(rate as f32, &trial.device()?)?.to_scalar::<f32>()? as f64)
}}"""


def beside(python):
    """The environment of a kernel whose notebook belongs to this Python."""
    return {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", "FERROTUNE_PYTHON": str(python), **HELPER}


def install(python, package, plugin=PLUGIN):
    """Puts a plugin, by default the test plugin, in place of a package's."""
    library = python / "lib/python3.12/site-packages/jax_plugins" / package / "xla_cuda_plugin.so"
    library.parent.mkdir(parents=True)
    library.symlink_to(plugin)
    return library


def test_a_card_has_its_short_name_in_every_text(start, tmp_path):
    python = tmp_path / "python"
    session = start(env=beside(python))
    missing = session.fails("%tpu_connect --plugin cuda").error
    assert re.search(r'the CUDA plugin is not installed, .* pip install "jax-cuda1[23]-plugin\[with-cuda\]"', missing), missing
    library = install(python, "xla_cuda13")
    displays = session.ok("%tpu_connect --plugin cuda").displays
    assert re.match(r"cuda opens: 2 × ", displays[0]) and displays[1:] == ["connected to cuda: chosen by --plugin"], displays
    session.ok("use candle_core::{DType, Device, Tensor};\nlet device = ferrotune::device::current()?;")
    assert session.ok("let x = Tensor::arange(0f32, 2., &device)?;\nx").result == "Tensor [2] f32 on cuda\n0.0  1.0"
    assert session.ok('format!("{device:?} {:?}", ferrotune::xla::cores(&device)?)').result == '"cuda [cuda, cuda:1]"'
    assert "on cuda" in session.ok("%whos").display
    mismatch = session.fails("(&x + &Tensor::ones(2, DType::F32, &Device::Cpu)?)?;").error
    assert "lhs: cuda, rhs: Cpu" in mismatch, mismatch
    assert session.ok("%tpu_connect --plugin cuda:1").displays[-1] == "connected to cuda:1: chosen by --plugin"
    assert session.ok("Tensor::ones(1, DType::F32, &ferrotune::device::current()?)?").result == "Tensor [1] f32 on cuda:1\n1.0"
    # The path of a library that has a short name means the short name.
    assert session.ok(f"%tpu_connect --plugin {library}").displays[-1] == "connected to cuda: chosen by --plugin"


def test_a_study_of_a_card_resumes_where_the_plugin_lies_elsewhere(start, tmp_path):
    for trial, package in enumerate(["xla_cuda13", "xla_cuda12"]):
        install(tmp_path / package, package)
        session = start(env=beside(tmp_path / package))
        session.ok("%tpu_connect --plugin cuda")
        session.ok(SEARCH.format(trial + 1))
        assert re.search(r"^device: cuda \(", session.ok(f"%trials {trial} --project card").display, re.M)
