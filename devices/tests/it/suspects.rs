//! Tests of the reasons why an attached TPU does not open on Colab and Kaggle, and of the advice to the user.

use crate::Described;
use crate::tpus::COLAB_LIBTPU;
use expect_test::expect;
use ferrotune_devices::probe::ProbeError;
use ferrotune_devices::{Report, connect};

/// Colab's machine with one chip.
fn colab(variables: &[(&str, &str)]) -> Described {
    Described::new(&[(COLAB_LIBTPU, "")], variables).with_pci("0x0063", "0x0000", 1).with_nodes("dev/accel", 1)
}

fn died(words: &str) -> ProbeError {
    ProbeError::Died { plugin: "/libtpu.so".into(), how: "SIGABRT".into(), words: format!(": {words}") }
}

fn hung() -> ProbeError {
    ProbeError::Hung { plugin: "/libtpu.so".into(), seconds: 120, words: String::new() }
}

/// The reason why the CPU is chosen, without the part on CUDA.
fn reason(mut report: Report, failure: &ProbeError) -> String {
    report.note_failure("tpu", &failure.to_string());
    let connection = connect(&report, false).expect("there is a CPU");
    assert_eq!(connection.device, "cpu");
    let reason = connection.reason.split("; no CUDA").next().unwrap_or_default().to_owned();
    let refusal = connect(&report, true).expect_err("the TPU is required").to_string();
    assert!(refusal.starts_with(&reason), "{refusal}");
    reason
}

#[test]
fn messages_of_libtpu_have_their_cures() {
    let messages = [
        "The TPU is already in use by process with pid 42. Not attempting to load libtpu.so in this process.",
        "TPU initialization failed: open(/dev/accel0): Device or resource busy",
        "Internal error when accessing libtpu multi-process lockfile. Run \"$ sudo rm /tmp/libtpu_lockfile\".",
        "Failed to get TPU metadata (tpu-env) from instance metadata for variable CHIPS_PER_HOST_BOUNDS",
        "Unexpected chips per host bounds: 2,2,1",
        "open(/dev/accel0): Operation not permitted",
        "something new",
    ];
    let skipped = [("TPU_SKIP_MDS_QUERY", "1")];
    let cures = messages.map(|message| {
        let reason = reason(colab(&skipped).report(), &died(message));
        reason.split_once(message).map(|(_, cure)| cure.to_owned()).unwrap_or(reason)
    });
    expect![[r#"
        ; only one process can use a TPU; end the other one, or restart its notebook
        ; only one process can use a TPU; end the other one, or restart its notebook
        ; remove /tmp/libtpu_lockfile, which is another user's, if no process uses the TPU
        ; start the kernel with TPU_SKIP_MDS_QUERY=1 where there is no metadata server, as on Colab
        ; start the kernel without TPU_CHIPS_PER_HOST_BOUNDS and TPU_CHIPS_PER_PROCESS_BOUNDS
        ; the device nodes are not yours; a container needs --privileged

    "#]]
    .assert_eq(&cures.map(|cure| format!("{cure}\n")).concat());
}

#[test]
fn a_plugin_that_hangs_is_explained_by_the_machine() {
    let bounds = colab(&[("TPU_SKIP_MDS_QUERY", "1"), ("TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1")]);
    let several = colab(&[("TPU_SKIP_MDS_QUERY", "1"), ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")]);
    let metadata = colab(&[("TPU_SKIP_MDS_QUERY", "0")]);
    let held = colab(&[("TPU_SKIP_MDS_QUERY", "1")]);
    held.write("proc/77/comm", "python3\n");
    held.link("proc/77/fd/5", "/dev/accel0");
    let reasons = [bounds, several, metadata, held].map(|machine| reason(machine.report(), &hung()) + "\n");
    expect![[r#"
        the TPU v5e (1 chip, by PCI) is not used: it does not open: /libtpu.so did not answer within 120 s and was ended; is the device in use by another process?; TPU_CHIPS_PER_HOST_BOUNDS is 2,2,1, and this machine has 1 chip; start the kernel without it
        the TPU v5e (1 chip, by PCI) is not used: it does not open: /libtpu.so did not answer within 120 s and was ended; is the device in use by another process?; ALLOW_MULTIPLE_LIBTPU_LOAD is set, so libtpu does not look whether another process has the TPU; start the kernel without it
        the TPU v5e (1 chip, by PCI) is not used: it does not open: /libtpu.so did not answer within 120 s and was ended; is the device in use by another process?; libtpu may wait for a metadata server; start the kernel with TPU_SKIP_MDS_QUERY=1 where there is none
        the TPU v5e (1 chip, by PCI) is not used: it does not open: /libtpu.so did not answer within 120 s and was ended; is the device in use by another process?; process 77 (python3) has /dev/accel0 open; end it, or restart its notebook
    "#]].assert_eq(&reasons.concat());
}

#[test]
fn settings_that_fit_are_no_suspects() {
    let suspects = |variables: &[(&str, &str)], chips: usize| {
        let machine = Described::new(&[(COLAB_LIBTPU, "")], variables).with_pci("0x0063", "0x0000", chips);
        machine.report().tpu_suspects
    };
    let skip = ("TPU_SKIP_MDS_QUERY", "1");
    assert_eq!(suspects(&[skip], 1), Vec::<String>::new());
    assert_eq!(suspects(&[skip, ("TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1")], 4), Vec::<String>::new());
    // A process may use a part of the chips.
    assert_eq!(suspects(&[skip, ("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1")], 4), Vec::<String>::new());
    assert_eq!(suspects(&[skip, ("TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1")], 1).len(), 1);
    assert_eq!(suspects(&[skip, ("TPU_CHIPS_PER_HOST_BOUNDS", "many")], 4).len(), 1);
    let huge = suspects(&[skip, ("TPU_CHIPS_PER_HOST_BOUNDS", "99999999999,99999999999,99999999999")], 4);
    assert_eq!(huge.len(), 1);
    // Without a chip there is nothing to open.
    assert_eq!(
        Described::new(&[], &[("TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1")]).report().tpu_suspects,
        Vec::<String>::new()
    );
}
