//! Tests of detection on machines with and without attached TPUs.

use crate::Described;
use expect_test::{Expect, expect};
use ferrotune_devices::Generation;

pub(crate) const COLAB_LIBTPU: &str = "usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so";
pub(crate) const KAGGLE_LIBTPU: &str = "usr/local/lib/python3.10/site-packages/libtpu/libtpu.so";

pub(crate) fn check(described: &Described, tpu: Option<&str>, expected: Expect) {
    expected.assert_eq(&described.shown(tpu));
}

#[test]
fn a_machine_without_anything_has_a_cpu() {
    check(
        &Described::new(&[], &[]),
        None,
        expect![[r#"
            Source                                                 Found                       Meaning
            TPU_NAME, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_CONFIG  not set                     no TPU is named
            /sys/bus/pci/devices                                   no device of vendor 0x1ae0  no TPU on the bus
            /dev/accel*, /dev/vfio/*                               absent                      no TPU by its device nodes
            libtpu                                                 not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia                                    absent                      no NVIDIA driver, so no CUDA device
            CPU                                                    unknown model (1 core)      always there
            cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}

#[test]
fn colab_v5e_1_has_one_chip_whatever_its_bounds_say() {
    let variables = [
        ("COLAB_TPU_1VM", "1"),
        ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
        ("TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1"),
        ("TPU_WORKER_HOSTNAMES", "localhost"),
        ("TPU_SKIP_MDS_QUERY", "1"),
    ];
    let described = Described::new(&[("dev/vfio/vfio", ""), (COLAB_LIBTPU, "")], &variables)
        .with_pci("0x0063", "0x004f", 1)
        .with_nodes("dev/vfio/", 1);
    check(
        &described,
        None,
        expect![[r#"
            Source                                                 Found                                                     Meaning
            TPU_NAME, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_CONFIG  not set                                                   no TPU is named
            /sys/bus/pci/devices                                   1 device of vendor 0x1ae0                                 1 chip of a TPU v5e
            /dev/vfio/*                                            1 device                                                  device nodes, here of a TPU
            TPU_ACCELERATOR_TYPE                                   v5litepod-4                                               agrees: a TPU machine
            TPU_WORKER_HOSTNAMES                                   localhost                                                 agrees: a TPU machine
            COLAB_TPU_1VM                                          1                                                         agrees: a TPU machine
            TPU_CHIPS_PER_HOST_BOUNDS                              2,2,1                                                     not used to count chips: wrong on machines with one chip
            libtpu                                                 /usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so  libtpu is here, in its Python package
            /proc/driver/nvidia                                    absent                                                    no NVIDIA driver, so no CUDA device
            CPU                                                    unknown model (1 core)                                    always there
            libtpu: /usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so
            tpu: using the TPU v5e (1 chip, by PCI)
        "#]],
    );
}

#[test]
fn colab_cpu_with_an_empty_hint_has_no_tpu() {
    let variables = [("COLAB_TPU_1VM", ""), ("TPU_NAME", "")];
    check(
        &Described::new(&[(COLAB_LIBTPU, "")], &variables),
        None,
        expect![[r#"
            Source                                                 Found                                                     Meaning
            TPU_NAME, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_CONFIG  not set                                                   no TPU is named
            /sys/bus/pci/devices                                   no device of vendor 0x1ae0                                no TPU on the bus
            /dev/accel*, /dev/vfio/*                               absent                                                    no TPU by its device nodes
            COLAB_TPU_1VM                                          empty                                                     counts as absent
            libtpu                                                 /usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so  libtpu is here, in its Python package
            /proc/driver/nvidia                                    absent                                                    no NVIDIA driver, so no CUDA device
            CPU                                                    unknown model (1 core)                                    always there
            libtpu: /usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so
            cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}

#[test]
fn kaggle_v5e_8_has_eight_chips() {
    let described = Described::new(&[("dev/vfio/vfio", ""), (KAGGLE_LIBTPU, "")], &[("TPU_ACCELERATOR_TYPE", "v5e-8")])
        .with_pci("0x0063", "0x0000", 8)
        .with_nodes("dev/vfio/", 8);
    check(
        &described,
        None,
        expect![[r#"
            Source                                                 Found                                                     Meaning
            TPU_NAME, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_CONFIG  not set                                                   no TPU is named
            /sys/bus/pci/devices                                   8 devices of vendor 0x1ae0                                8 chips of a TPU v5e
            /dev/vfio/*                                            8 devices                                                 device nodes, here of a TPU
            TPU_ACCELERATOR_TYPE                                   v5e-8                                                     agrees: a TPU machine
            libtpu                                                 /usr/local/lib/python3.10/site-packages/libtpu/libtpu.so  libtpu is here, in its Python package
            /proc/driver/nvidia                                    absent                                                    no NVIDIA driver, so no CUDA device
            CPU                                                    unknown model (1 core)                                    always there
            libtpu: /usr/local/lib/python3.10/site-packages/libtpu/libtpu.so
            tpu: using the TPU v5e (8 chips, by PCI)
        "#]],
    );
}

#[test]
fn gce_v4_8_has_four_chips_beside_googles_network_card() {
    let nic = "sys/bus/pci/devices/0000:00:03.0";
    let files = [
        (&*format!("{nic}/vendor"), "0x1ae0\n"),
        (&*format!("{nic}/device"), "0x0042\n"),
        ("sys/class/dmi/id/product_name", "Google Compute Engine\n"),
    ];
    let described =
        Described::new(&files, &[("TPU_NAME", "local")]).with_pci("0x005e", "0x0000", 4).with_nodes("dev/accel", 4);
    check(
        &described,
        None,
        expect![[r#"
            Source                Found                              Meaning
            TPU_NAME              local                              the TPU is attached to this machine, if there is one
            /sys/bus/pci/devices  4 devices of vendor 0x1ae0         4 chips of a TPU v4
            /sys/bus/pci/devices  1 device of vendor 0x1ae0: 0x0042  not TPUs that this version knows
            /dev/accel*           4 devices                          the device nodes of a TPU
            libtpu                not found                          needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia   absent                             no NVIDIA driver, so no CUDA device
            CPU                   unknown model (1 core)             always there
            cpu: the TPU v4 (4 chips, by PCI) is not used: libtpu is not installed; pip install libtpu, or set TPU_LIBRARY_PATH; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}

#[test]
fn gce_v5p_16_is_one_of_two_machines() {
    let variables = [
        ("TPU_ACCELERATOR_TYPE", "v5p-16"),
        ("TPU_WORKER_HOSTNAMES", "10.0.0.2,10.0.0.3"),
        ("TPU_LIBRARY_PATH", "/opt/libtpu.so"),
    ];
    let files =
        [("dev/vfio/vfio", ""), ("opt/libtpu.so", ""), ("sys/class/dmi/id/product_name", "Google Compute Engine\n")];
    let described = Described::new(&files, &variables).with_pci("0x0062", "0x0000", 4).with_nodes("dev/vfio/", 4);
    check(
        &described,
        None,
        expect![[r#"
            Source                                                 Found                       Meaning
            TPU_NAME, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_CONFIG  not set                     no TPU is named
            /sys/bus/pci/devices                                   4 devices of vendor 0x1ae0  4 chips of a TPU v5p
            /dev/vfio/*                                            4 devices                   device nodes, here of a TPU
            TPU_ACCELERATOR_TYPE                                   v5p-16                      agrees: a TPU machine
            TPU_WORKER_HOSTNAMES                                   10.0.0.2,10.0.0.3           agrees: one of the 2 machines of a slice, which compute only together
            TPU_LIBRARY_PATH                                       /opt/libtpu.so              libtpu is here
            /proc/driver/nvidia                                    absent                      no NVIDIA driver, so no CUDA device
            CPU                                                    unknown model (1 core)      always there
            libtpu: /opt/libtpu.so
            tpu: using the TPU v5p (4 chips, by PCI)
        "#]],
    );
}

#[test]
fn gce_v6e_8_has_eight_chips() {
    let described = Described::new(&[("dev/vfio/vfio", "")], &[("TPU_ACCELERATOR_TYPE", "v6e-8")])
        .with_pci("0x006f", "0x0000", 8)
        .with_nodes("dev/vfio/", 8);
    check(
        &described,
        Some("local"),
        expect![[r#"
            Source                Found                       Meaning
            --tpu                 local                       only a TPU attached to this machine will do
            /sys/bus/pci/devices  8 devices of vendor 0x1ae0  8 chips of a TPU v6e
            /dev/vfio/*           8 devices                   device nodes, here of a TPU
            TPU_ACCELERATOR_TYPE  v6e-8                       agrees: a TPU machine
            libtpu                not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia   absent                      no NVIDIA driver, so no CUDA device
            CPU                   unknown model (1 core)      always there
            cpu: the TPU v6e (8 chips, by PCI) is not used: libtpu is not installed; pip install libtpu, or set TPU_LIBRARY_PATH; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}

#[test]
fn gke_gives_a_pod_device_nodes_and_variables() {
    let variables = [("TPU_ACCELERATOR_TYPE", "v6e-4"), ("TPU_WORKER_HOSTNAMES", "pod-0.tpu,pod-1.tpu")];
    check(
        &Described::new(&[], &variables).with_nodes("dev/vfio/", 4),
        None,
        expect![[r#"
            Source                                                 Found                       Meaning
            TPU_NAME, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_CONFIG  not set                     no TPU is named
            /sys/bus/pci/devices                                   no device of vendor 0x1ae0  no TPU on the bus
            /dev/vfio/*                                            4 devices                   device nodes, here of a TPU
            TPU_ACCELERATOR_TYPE                                   v6e-4                       agrees: a TPU machine
            TPU_WORKER_HOSTNAMES                                   pod-0.tpu,pod-1.tpu         agrees: one of the 2 machines of a slice, which compute only together
            libtpu                                                 not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia                                    absent                      no NVIDIA driver, so no CUDA device
            CPU                                                    unknown model (1 core)      always there
            cpu: the TPU v6e (4 chips, by /dev/vfio/*) is not used: libtpu is not installed; pip install libtpu, or set TPU_LIBRARY_PATH; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}

#[test]
fn every_pci_id_has_its_generation() {
    for (device, subsystem, expected) in [
        ("0x0027", "0x004e", Generation::V2),
        ("0x0027", "0x004f", Generation::V3),
        ("0x0027", "0x0000", Generation::V2OrV3),
        ("0x005e", "0x0000", Generation::V4),
        ("0x0062", "0x0000", Generation::V5p),
        ("0x0063", "0x0000", Generation::V5e),
        ("0x006F", "0x0000", Generation::V6e),
        ("0x0076", "0x0000", Generation::V7x),
    ] {
        let tpu = Described::new(&[], &[]).with_pci(device, subsystem, 4).report().tpu.expect(device);
        assert_eq!((tpu.generation, tpu.chips, &*tpu.source), (Some(expected), Some(4), "PCI"));
    }
}

#[test]
fn device_nodes_without_a_bus_are_a_tpu_of_unknown_kind() {
    let tpu = Described::new(&[("dev/accel/accel0", "")], &[]).with_nodes("dev/accel", 0).report().tpu;
    assert_eq!(tpu, None, "the folder /dev/accel belongs to other accelerators");
    let tpu = Described::new(&[], &[]).with_nodes("dev/accel", 4).report().tpu.expect("nodes are chips");
    assert_eq!((tpu.generation, tpu.chips), (None, Some(4)));
}

#[test]
fn a_hint_alone_is_no_tpu_and_is_said() {
    let report = Described::new(&[], &[("COLAB_TPU_1VM", "1")]).report();
    assert_eq!(report.tpu, None);
    let expected = "no PCI device of vendor 0x1ae0 (COLAB_TPU_1VM alone proves nothing), no TPU_NAME";
    assert_eq!(report.no_tpu, expected);
}

#[test]
fn a_chip_on_the_bus_without_device_nodes_is_a_tpu_that_a_container_cannot_open() {
    let report = Described::new(&[], &[]).with_pci("0x0062", "0x0000", 4).report();
    assert_eq!(report.tpu.as_ref().and_then(|tpu| tpu.chips), Some(4));
    assert!(report.table_text().contains("the chips cannot be opened here"), "{}", report.table_text());
}

#[test]
fn vfio_groups_alone_are_no_tpu() {
    check(
        &Described::new(&[], &[]).with_nodes("dev/vfio/", 2),
        None,
        expect![[r#"
            Source                                                 Found                       Meaning
            TPU_NAME, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_CONFIG  not set                     no TPU is named
            /sys/bus/pci/devices                                   no device of vendor 0x1ae0  no TPU on the bus
            /dev/vfio/*                                            2 devices                   devices passed through; nothing says that one is a TPU
            libtpu                                                 not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia                                    absent                      no NVIDIA driver, so no CUDA device
            CPU                                                    unknown model (1 core)      always there
            cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}
