//! Tests of the choice of a device, and of the texts of the choice and the findings.

use crate::{CPU_BUILD, Described};
use expect_test::expect;
use ferrotune_devices::{Machine, Report, Support, connect, detect};

const FULL_BUILD: Support = Support { cuda: true };
const LIBTPU: &str = "usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so";

/// The choice as `device: reason`, or the error.
fn choice(report: &Report, support: Support, require: bool) -> String {
    match connect(report, support, require) {
        Ok(connection) => format!("{}: {}", connection.device, connection.reason),
        Err(error) => error.to_string(),
    }
}

#[test]
fn nothing_but_a_cpu_is_said_with_its_reasons() {
    let report = Described::new(&[], &[]).report();
    let lines =
        [choice(&report, CPU_BUILD, false), choice(&report, FULL_BUILD, false), choice(&report, CPU_BUILD, true)];
    expect![[r#"
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver, and this build of candle has no CUDA; using the CPU (1 core)
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)
        no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; leave out --require to fall back to CUDA or the CPU"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_cuda_device_is_used_where_the_build_can() {
    let described = Described::new(
        &[("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA L4\nDevice Minor: \t 0\n")],
        &[],
    )
    .with_nodes("dev/nvidia", 1);
    let report = described.report();
    let lines =
        [choice(&report, FULL_BUILD, true), choice(&report, CPU_BUILD, false), choice(&report, CPU_BUILD, true)];
    expect![[r#"
        no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; leave out --require to fall back to CUDA or the CPU
        cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; the NVIDIA L4 is not used: this build of candle has no CUDA; `ferrotune install --cuda` makes one; using the CPU (1 core)
        no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; leave out --require to fall back to CUDA or the CPU"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_tpu_is_used_or_what_hinders_is_said() {
    let with_libtpu = Described::new(&[(LIBTPU, "")], &[]).with_pci("0x0063", "0x0000", 8).report();
    let without_libtpu = Described::new(&[], &[]).with_pci("0x006f", "0x0000", 1).report();
    let named = Described::new(&[(LIBTPU, "")], &[("TPU_NAME", "far-away")]).report();
    let lines = [
        choice(&with_libtpu, FULL_BUILD, true),
        choice(&with_libtpu, CPU_BUILD, false),
        choice(&with_libtpu, CPU_BUILD, true),
        choice(&without_libtpu, FULL_BUILD, false),
        choice(&named, FULL_BUILD, false),
    ];
    expect![[r#"
        tpu: using the TPU v5e (8 chips, by PCI)
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
        cuda:0  NVIDIA L4                  unknown                     driver 535.104.05
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
    assert_eq!(choice(&report, CPU_BUILD, false).lines().count(), 1);
}

#[test]
fn this_machine_can_be_looked_at() {
    let mut machine = Machine::this();
    machine.metadata = ferrotune_devices::Metadata::Skip;
    let report = detect(&machine, None);
    assert!(report.cpu.cores >= 1);
    assert!(report.cpu.memory_bytes.is_some(), "{report:?}");
}
