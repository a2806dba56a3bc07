//! Tests of the names of plugins' devices, and of the search for their libraries.

use crate::Described;
use crate::tpus::COLAB_LIBTPU;
use expect_test::expect;
use ferrotune_devices::{DeviceName, NoPlugin, find_plugin, name_of_plugin};

const XLA_CPU: &str = "lib/python3.12/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so";
const NEWER_XLA_CPU: &str = "lib/python3.12/site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so";
const CUDA_13: &str = "lib/python3.12/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so";

#[test]
fn plugins_are_found_like_libtpu() {
    let find = |described: &Described, device: &str| -> Result<String, NoPlugin> {
        let found = find_plugin(&described.machine, device)?;
        Ok(found.strip_prefix(described.folder.path()).map_or(found.clone(), ToOwned::to_owned).display().to_string())
    };
    let colab = Described::new(&[(COLAB_LIBTPU, "")], &[]);
    let nothing = Described::new(&[], &[]);
    let installed = Described::new(
        &[(&format!("venv/{XLA_CPU}"), ""), (&format!("venv/{CUDA_13}"), ""), ("own.so", "")],
        &[("VIRTUAL_ENV", "/venv")],
    );
    let named = Described::new(
        &[(&format!("venv/{XLA_CPU}"), ""), ("own.so", "")],
        &[("VIRTUAL_ENV", "/venv"), ("FERROTUNE_XLA_CPU", "/own.so"), ("FERROTUNE_CUDA", "/own.so")],
    );
    let both = Described::new(
        &[(&format!("venv/{XLA_CPU}"), ""), (&format!("venv/{NEWER_XLA_CPU}"), "")],
        &[("VIRTUAL_ENV", "/venv")],
    );
    let found = [
        find(&both, "xla:cpu"),
        find(&nothing, "xla:cpu"),
        find(&nothing, "tpu"),
        find(&nothing, "cuda:0"),
        find(&nothing, "xla:/own.so"),
        find(&installed, "xla:cpu"),
        find(&installed, "xla:/own.so"),
        find(&named, "xla:cpu"),
        find(&colab, "tpu:0"),
        find(&colab, "tpu:1"),
        find(&installed, "cuda"),
        find(&installed, "cuda:1"),
        find(&named, "cuda"),
        find(&installed, "rocm"),
        find(&installed, "oneapi"),
    ]
    .map(|found| found.unwrap_or_else(|error| error.to_string()) + "\n");
    expect![[r#"
        venv/lib/python3.12/site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so
        XLA:CPU is not installed, and it is needed to compile for the CPU; pip install fastatomstruct-xla-cpu, or set FERROTUNE_XLA_CPU
        libtpu is not installed, and it is needed to drive a TPU; pip install libtpu, or set TPU_LIBRARY_PATH
        the CUDA plugin is not installed, and it is needed to drive NVIDIA's cards; pip install "jax-cuda12-plugin[with-cuda]", or set FERROTUNE_CUDA
        /own.so is not a file; name cuda, rocm, oneapi, cpu, or the library of a PJRT plugin
        venv/lib/python3.12/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so
        own.so
        own.so
        usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so
        tpu:1 is no device of a plugin; those are tpu, cuda, cuda:1 and so on, rocm, oneapi, xla:cpu and xla:FILE
        venv/lib/python3.12/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so
        venv/lib/python3.12/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so
        own.so
        the ROCm plugin is not installed, and it is needed to drive AMD's cards; pip install jax-rocm7-pjrt, or set FERROTUNE_ROCM
        the oneAPI plugin is not installed, and it is needed to drive Intel's cards; pip install jax-oneapi-pjrt, or set FERROTUNE_ONEAPI
    "#]].assert_eq(&found.concat());
}

#[test]
fn names_have_one_shortest_form() {
    let short = |name: &str| DeviceName::parse(name).map(|name| name.to_string());
    let named = [("tpu:0", "tpu"), ("cuda:0", "cuda"), ("cuda:1", "cuda:1"), ("rocm", "rocm"), ("xla:cpu", "xla:cpu")];
    for (name, shortest) in named.into_iter().chain([("xla:/opt/plugin.so", "xla:/opt/plugin.so")]) {
        assert_eq!(short(name).as_deref(), Some(shortest));
    }
    for other in ["cpu", "cuda:first", "cuda:", "cuda:-1", "tpu:1", "gpu", ""] {
        assert_eq!(short(other), None, "{other}");
    }
    assert_eq!(DeviceName::parse("cuda:3").map(|name| name.number()), Some(3));
}

/// A study of the device `cuda` resumes where the plugin has another path.
#[test]
fn a_library_of_a_package_has_a_short_name_and_another_one_its_path() {
    let described = Described::new(&[(&format!("venv/{CUDA_13}"), ""), ("own.so", "")], &[("VIRTUAL_ENV", "/venv")]);
    let root = described.folder.path().canonicalize().expect("it exists");
    let name = |plugin: &str| match name_of_plugin(&described.machine, plugin) {
        Ok(name) => name.to_string().replace(&root.display().to_string(), ""),
        Err(error) => error.to_string(),
    };
    assert_eq!(["cpu", "cuda", "cuda:1", "rocm"].map(name), ["xla:cpu", "cuda", "cuda:1", "rocm"]);
    assert_eq!(name(&root.join("venv").join(CUDA_13).display().to_string()), "cuda");
    assert_eq!(name(&root.join("own.so").display().to_string()), "xla:/own.so");
    let missing = "/nowhere.so is not a file; name cuda, rocm, oneapi, cpu, or the library of a PJRT plugin";
    assert_eq!(name("/nowhere.so"), missing);
}
