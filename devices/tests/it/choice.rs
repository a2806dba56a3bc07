//! Tests of the choice of a device, and of the texts of the choice and the findings.

use crate::Described;
use expect_test::expect;
use ferrotune_devices::probe::ProbeError;
use ferrotune_devices::{Machine, Report, connect, detect};

const PACKAGES: &str = "usr/local/lib/python3.12/dist-packages";
const CUDA_12: &str = "jax_plugins/xla_cuda12/xla_cuda_plugin.so";
const CUDA_13: &str = "jax_plugins/xla_cuda13/xla_cuda_plugin.so";
const ROCM: &str = "jax_plugins/xla_rocm7/xla_rocm_plugin.so";
const ONEAPI: &str = "jax_plugins/xla_oneapi/xla_oneapi_plugin.so";
const LIBTPU: &str = "usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so";

/// The choice as `device: reason`, or the error.
fn choice(report: &Report, require: bool) -> String {
    match connect(report, require) {
        Ok(connection) => format!("{}: {}", connection.device, connection.reason),
        Err(error) => error.to_string(),
    }
}

/// The files of a machine with one of NVIDIA's cards.
fn card(model: &str, driver: &str, plugins: &[&str]) -> Described {
    let version = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Sat\n");
    let information = format!("Model: \t {model}\nDevice Minor: \t 0\n");
    let described = Described::new(
        &[
            ("proc/driver/nvidia/version", &*version),
            ("proc/driver/nvidia/gpus/0000:01:00.0/information", &*information),
        ],
        &[],
    );
    plugins.iter().for_each(|plugin| described.write(&format!("{PACKAGES}/{plugin}"), ""));
    described.with_nodes("dev/nvidia", 1)
}

#[test]
fn nothing_but_a_cpu_is_said_with_its_reasons() {
    let report = Described::new(&[], &[]).report();
    let lines = [choice(&report, false), choice(&report, true)];
    expect![[r#"
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)
        no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; leave out --require to fall back to a card or the CPU"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn a_card_is_used_where_its_plugin_is_installed_or_what_is_missing_is_said() {
    let with_plugin = card("NVIDIA L4", "580.65.06", &[CUDA_13]).report();
    let lines = [
        choice(&with_plugin, false),
        choice(&with_plugin, true),
        choice(&card("NVIDIA L4", "580.65.06", &[]).report(), false),
        choice(&card("Tesla T4", "550.54.15", &[]).report(), false),
        choice(&card("Tesla P100-PCIE-16GB", "580.65.06", &[]).report(), false),
        choice(&card("Tesla T4", "470.82.01", &[]).report(), false),
    ];
    expect![[r#"
        cuda: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; using the NVIDIA L4
        no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; leave out --require to fall back to a card or the CPU
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the NVIDIA L4 is not used: the CUDA plugin is not installed; pip install "jax-cuda13-plugin[with-cuda]"; using the CPU (1 core)
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the Tesla T4 is not used: the CUDA plugin is not installed; pip install "jax-cuda12-plugin[with-cuda]"; using the CPU (1 core)
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the Tesla P100-PCIE-16GB is not used: the CUDA plugin is not installed; pip install "jax-cuda12-plugin[with-cuda]"; using the CPU (1 core)
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the Tesla T4 is not used: its driver 470.82.01 is too old; install 525 or newer; using the CPU (1 core)"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_card_whose_plugin_does_not_open_is_not_used() {
    let reason = |described: Described, plugin: &str, reason: &str| {
        let mut report = described.report();
        let drivers = report.drivers();
        let (device, library) = drivers.first().expect("the card has a plugin");
        assert!(device == "cuda" && library.ends_with(plugin), "{drivers:?}");
        let failure = ProbeError::Refused { plugin: library.clone(), reason: reason.to_owned() };
        report.note_failure("cuda", &failure.to_string());
        assert_eq!(report.drivers(), []);
        choice(&report, false).replace(&described.folder.path().display().to_string(), "")
    };
    let missing = "libcudnn.so.9: cannot open shared object file";
    let lines = [
        reason(card("NVIDIA L4", "580.65.06", &[CUDA_13, CUDA_12]), CUDA_13, missing),
        reason(card("NVIDIA L4", "550.54.15", &[CUDA_13, CUDA_12]), CUDA_12, "something new"),
        reason(card("NVIDIA L4", "550.54.15", &[CUDA_13]), CUDA_13, "CUDA driver version is insufficient"),
        reason(card("NVIDIA L4", "470.82.01", &[CUDA_12]), CUDA_12, "CUDA driver version is insufficient"),
    ];
    expect![[r#"
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the NVIDIA L4 is not used: it does not open: /usr/local/lib/python3.12/dist-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so: libcudnn.so.9: cannot open shared object file; pip install "jax-cuda13-plugin[with-cuda]" brings NVIDIA's libraries; using the CPU (1 core)
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the NVIDIA L4 is not used: it does not open: /usr/local/lib/python3.12/dist-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so: something new; using the CPU (1 core)
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the NVIDIA L4 is not used: it does not open: /usr/local/lib/python3.12/dist-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so: CUDA driver version is insufficient; its driver has CUDA 12: pip install "jax-cuda12-plugin[with-cuda]"; using the CPU (1 core)
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the NVIDIA L4 is not used: it does not open: /usr/local/lib/python3.12/dist-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so: CUDA driver version is insufficient; its driver 470.82.01 is too old; install 525 or newer; using the CPU (1 core)"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn cards_of_other_makers_are_used_where_their_plugin_is_installed() {
    let bus = |vendor: &str| {
        [("class", "0x030000"), ("vendor", vendor)]
            .map(|(file, text)| (format!("sys/bus/pci/devices/0000:03:00.0/{file}"), text.to_owned()))
    };
    let machine = |vendor: &str, nodes: &[&str], plugins: &[&str]| {
        let described = Described::new(&[], &[]);
        bus(vendor).iter().for_each(|(path, text)| described.write(path, text));
        nodes.iter().for_each(|node| described.write(node, ""));
        plugins.iter().for_each(|plugin| described.write(&format!("{PACKAGES}/{plugin}"), ""));
        choice(&described.report(), false)
    };
    let (kfd, render) = ("dev/kfd", "dev/dri/renderD128");
    let lines = [
        machine("0x1002", &[kfd, render], &[ROCM]),
        machine("0x1002", &[kfd, render], &[]),
        machine("0x1002", &[render], &[ROCM]),
        machine("0x8086", &[render], &[ONEAPI]),
        machine("0x8086", &[render], &[]),
    ];
    expect![[r#"
        rocm: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; using the AMD card
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the AMD card is not used: the ROCm plugin is not installed; pip install jax-rocm7-pjrt; using the CPU (1 core)
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)
        oneapi: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; using the Intel card
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_tpu_is_used_or_what_hinders_is_said() {
    let with_libtpu = Described::new(&[(LIBTPU, "")], &[]).with_pci("0x0063", "0x0000", 8).report();
    let without_libtpu = Described::new(&[], &[]).with_pci("0x006f", "0x0000", 1).report();
    let named = Described::new(&[(LIBTPU, "")], &[("TPU_NAME", "far-away")]).report();
    let lines = [
        choice(&with_libtpu, true),
        choice(&with_libtpu, false),
        choice(&without_libtpu, false),
        choice(&named, false),
    ];
    expect![[r#"
        tpu: using the TPU v5e (8 chips, by PCI)
        tpu: using the TPU v5e (8 chips, by PCI)
        cpu: the TPU v6e (1 chip, by PCI) is not used: libtpu is not installed; pip install libtpu, or set TPU_LIBRARY_PATH; no CUDA: no NVIDIA driver; using the CPU (1 core)
        cpu: the TPU far-away (by TPU_NAME) is not used: it is named but not attached to this machine, and only attached TPUs can be driven; no CUDA: no NVIDIA driver; using the CPU (1 core)"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn all_devices_are_listed_or_why_there_is_none() {
    let none = Described::new(&[], &[]).report().devices_text();
    let files = [
        ("proc/cpuinfo", "processor : 0\nmodel name : Big CPU\nflags : sse4_2 avx2\n"),
        ("proc/meminfo", "MemTotal: 16777216 kB\n"),
        ("sys/fs/cgroup/memory.max", "4294967296\n"),
        ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat\n"),
        ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA L4\nDevice Minor: \t 0\n"),
        (LIBTPU, ""),
    ];
    let all = Described::new(&files, &[]).with_nodes("dev/nvidia", 1).with_pci("0x0063", "0x0000", 4);
    let root = all.machine.root.display().to_string();
    let all = all.report().devices_text().replace(&root, "");
    expect![[r#"
        Device  Name           Memory   Detail
        cpu     unknown model  unknown  1 core, no known vector units
        cuda    none                    no NVIDIA driver
        tpu     none                    no PCI device of vendor 0x1ae0, no TPU_NAME

        Device  Name                       Memory                      Detail
        cpu     Big CPU                    limited to 4 GiB of 16 GiB  1 core, SSE4.2, AVX2
        cuda    NVIDIA L4                  unknown                     driver 535.104.05, the CUDA plugin is not installed; pip install "jax-cuda12-plugin[with-cuda]"
        tpu     TPU v5e (4 chips, by PCI)                              /usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so
    "#]].assert_eq(&format!("{none}\n{all}"));
}

#[test]
fn values_are_escaped_and_kept_on_one_line() {
    let long = "x".repeat(300);
    let described = Described::new(&[], &[("TPU_NAME", "<b>\"a\" & 'b'\n\u{1b}[31m"), ("COLAB_TPU_1VM", &long)]);
    let report = described.report();
    let html = report.table_html();
    assert!(html.contains("<td>&lt;b&gt;&quot;a&quot; &amp; &#39;b&#39;  [31m</td>"), "{html}");
    assert!(!html.contains("<b>") && !html.contains(&long), "{html}");
    assert_eq!(report.table_text().lines().count(), report.findings.len() + 1);
    assert!(report.table_text().chars().all(|c| c == '\n' || !c.is_control()));
    assert_eq!(choice(&report, false).lines().count(), 1);
}

#[test]
fn this_machine_can_be_looked_at() {
    let mut machine = Machine::this();
    machine.metadata = ferrotune_devices::Metadata::Skip;
    let report = detect(&machine, None);
    assert!(report.cpu.cores >= 1);
    assert!(report.cpu.memory_bytes.is_some(), "{report:?}");
}
