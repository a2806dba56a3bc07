//! Tests of TPUs that the user or the environment names, and of the search for libtpu.

use crate::Described;
use crate::tpus::{COLAB_LIBTPU, KAGGLE_LIBTPU, check};
use expect_test::expect;

#[test]
fn two_tpus_asked_for_by_name_are_refused_even_where_one_is_attached() {
    let described = Described::new(&[(COLAB_LIBTPU, "")], &[("TPU_NAME", "third")])
        .with_pci("0x0063", "0x0000", 1)
        .with_nodes("dev/vfio/", 1);
    check(
        &described,
        Some("first, second"),
        expect![[r#"
            Source                Found                                                     Meaning
            --tpu                 first, second                                             names several TPUs; a notebook uses one
            /sys/bus/pci/devices  1 device of vendor 0x1ae0                                 1 chip of a TPU v5e
            /dev/vfio/*           1 device                                                  device nodes, here of a TPU
            libtpu                /usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so  libtpu is here, in its Python package
            /proc/driver/nvidia   absent                                                    no NVIDIA driver, so no CUDA device
            CPU                   unknown model (1 core)                                    always there
            libtpu: /usr/local/lib/python3.12/dist-packages/libtpu/libtpu.so
            cpu: no TPU: --tpu names 2 TPUs, and a notebook uses one; give one name; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}

#[test]
fn gke_endpoints_and_tpu_config_name_a_tpu() {
    let variables =
        [("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://10.0.0.2:8470"), ("TPU_CONFIG", "{\"tpu_node_name\": \"other\"}")];
    check(
        &Described::new(&[], &variables),
        None,
        expect![[r#"
            Source                           Found                       Meaning
            KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS  grpc://10.0.0.2:8470        names a TPU
            TPU_CONFIG                       {"tpu_node_name": "other"}  not used: KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS comes first
            /sys/bus/pci/devices             no device of vendor 0x1ae0  no TPU on the bus
            /dev/accel*, /dev/vfio/*         absent                      no TPU by its device nodes
            libtpu                           not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia              absent                      no NVIDIA driver, so no CUDA device
            CPU                              unknown model (1 core)      always there
            cpu: the TPU grpc://10.0.0.2:8470 (by KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS) is not used: it is named but not attached to this machine, and only attached TPUs can be driven; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
    check(
        &Described::new(&[], &[("TPU_CONFIG", "{\"tpu_node_name\": \"node\"}")]),
        None,
        expect![[r#"
            Source                    Found                       Meaning
            TPU_CONFIG                node                        names a TPU
            /sys/bus/pci/devices      no device of vendor 0x1ae0  no TPU on the bus
            /dev/accel*, /dev/vfio/*  absent                      no TPU by its device nodes
            libtpu                    not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia       absent                      no NVIDIA driver, so no CUDA device
            CPU                       unknown model (1 core)      always there
            cpu: the TPU node (by TPU_CONFIG) is not used: it is named but not attached to this machine, and only attached TPUs can be driven; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
    check(
        &Described::new(&[], &[("TPU_CONFIG", "{")]),
        None,
        expect![[r#"
            Source                    Found                       Meaning
            TPU_CONFIG                {                           not JSON, so it names no TPU
            /sys/bus/pci/devices      no device of vendor 0x1ae0  no TPU on the bus
            /dev/accel*, /dev/vfio/*  absent                      no TPU by its device nodes
            libtpu                    not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia       absent                      no NVIDIA driver, so no CUDA device
            CPU                       unknown model (1 core)      always there
            cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}

#[test]
fn an_explicit_name_comes_before_the_environment() {
    let described = Described::new(&[], &[("TPU_NAME", "from-environment")]);
    check(
        &described,
        Some("my-tpu"),
        expect![[r#"
            Source                    Found                       Meaning
            --tpu                     my-tpu                      names a TPU; the environment's names are not looked at
            /sys/bus/pci/devices      no device of vendor 0x1ae0  no TPU on the bus
            /dev/accel*, /dev/vfio/*  absent                      no TPU by its device nodes
            libtpu                    not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia       absent                      no NVIDIA driver, so no CUDA device
            CPU                       unknown model (1 core)      always there
            cpu: the TPU my-tpu (by --tpu) is not used: it is named but not attached to this machine, and only attached TPUs can be driven; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
    check(
        &described,
        Some("local"),
        expect![[r#"
            Source                    Found                       Meaning
            --tpu                     local                       only a TPU attached to this machine will do
            /sys/bus/pci/devices      no device of vendor 0x1ae0  no TPU on the bus
            /dev/accel*, /dev/vfio/*  absent                      no TPU by its device nodes
            libtpu                    not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia       absent                      no NVIDIA driver, so no CUDA device
            CPU                       unknown model (1 core)      always there
            cpu: no TPU: no PCI device of vendor 0x1ae0, --tpu is local; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
    check(
        &described,
        Some(""),
        expect![[r#"
            Source                    Found                       Meaning
            TPU_NAME                  from-environment            names a TPU
            /sys/bus/pci/devices      no device of vendor 0x1ae0  no TPU on the bus
            /dev/accel*, /dev/vfio/*  absent                      no TPU by its device nodes
            libtpu                    not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia       absent                      no NVIDIA driver, so no CUDA device
            CPU                       unknown model (1 core)      always there
            cpu: the TPU from-environment (by TPU_NAME) is not used: it is named but not attached to this machine, and only attached TPUs can be driven; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}

#[test]
fn libtpu_is_looked_for_in_its_order() {
    let venv = "home/me/venv/lib/python3.11/site-packages/libtpu/libtpu.so";
    let files = [("opt/libtpu.so", ""), (venv, ""), (COLAB_LIBTPU, ""), (KAGGLE_LIBTPU, "")];
    let found = |variables: &[(&str, &str)]| {
        let described = Described::new(&files, variables).with_pci("0x0063", "0x0000", 1);
        let path = described.report().libtpu.expect("libtpu is there");
        path.strip_prefix(described.folder.path()).expect("below the root").display().to_string()
    };
    assert_eq!(found(&[("TPU_LIBRARY_PATH", "/opt/libtpu.so"), ("VIRTUAL_ENV", "/home/me/venv")]), "opt/libtpu.so");
    assert_eq!(found(&[("TPU_LIBRARY_PATH", "/nowhere.so"), ("VIRTUAL_ENV", "/home/me/venv")]), venv);
    assert_eq!(found(&[("CONDA_PREFIX", "/home/me/venv")]), venv);
    assert_eq!(found(&[]), COLAB_LIBTPU, "the newest Python");
}

#[test]
fn a_library_path_to_nothing_is_said() {
    check(
        &Described::new(&[], &[("TPU_LIBRARY_PATH", "/nowhere.so")]),
        None,
        expect![[r#"
            Source                                                 Found                       Meaning
            TPU_NAME, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_CONFIG  not set                     no TPU is named
            /sys/bus/pci/devices                                   no device of vendor 0x1ae0  no TPU on the bus
            /dev/accel*, /dev/vfio/*                               absent                      no TPU by its device nodes
            TPU_LIBRARY_PATH                                       /nowhere.so                 not a file; the Python package is looked for
            libtpu                                                 not found                   needed to drive a TPU; pip install libtpu
            /proc/driver/nvidia                                    absent                      no NVIDIA driver, so no CUDA device
            CPU                                                    unknown model (1 core)      always there
            cpu: no TPU: no PCI device of vendor 0x1ae0, no TPU_NAME; no CUDA: no NVIDIA driver; using the CPU (1 core)
        "#]],
    );
}
