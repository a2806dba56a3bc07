//! Tests of detection on machines with NVIDIA's driver.

use crate::Described;
use ferrotune_devices::CudaDevice;

const VERSION: (&str, &str) = (
    "proc/driver/nvidia/version",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root@host)\n\
     GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
);
const FIRST: (&str, &str) = (
    "proc/driver/nvidia/gpus/0000:01:00.0/information",
    "Model: \t\t NVIDIA L4\nIRQ:   \t\t 100\nGPU UUID: \t GPU-1\nBus Location: \t 0000:01:00.0\nDevice Minor: \t 1\n",
);
const SECOND: (&str, &str) =
    ("proc/driver/nvidia/gpus/0000:02:00.0/information", "Model: \t\t NVIDIA H200\nDevice Minor: \t 0\n");

fn names(files: &[(&str, &str)], nodes: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let nodes = nodes.iter().map(|node| (*node, ""));
    let files: Vec<(&str, &str)> = files.iter().copied().chain(nodes).collect();
    let report = Described::new(&files, variables).report();
    assert_eq!(report.cuda.is_empty(), !report.no_cuda.is_empty(), "{report:?}");
    report.cuda.into_iter().map(|device| device.name).collect()
}

#[test]
fn devices_come_in_the_order_of_the_bus() {
    let nodes = [("dev/nvidia0", ""), ("dev/nvidia1", ""), ("dev/nvidiactl", ""), ("dev/nvidia-uvm", "")];
    let files: Vec<(&str, &str)> = [VERSION, FIRST, SECOND].into_iter().chain(nodes).collect();
    let device = |index, name: &str, address: &str| CudaDevice {
        index,
        name: name.into(),
        address: Some(address.into()),
        memory_bytes: None,
        driver: Some("570.124.06".into()),
    };
    let expected = vec![device(0, "NVIDIA L4", "0000:01:00.0"), device(1, "NVIDIA H200", "0000:02:00.0")];
    assert_eq!(Described::new(&files, &[]).report().cuda, expected);
}

#[test]
fn a_device_without_its_node_cannot_be_used() {
    assert_eq!(names(&[VERSION, FIRST, SECOND], &["dev/nvidia0"], &[]), ["NVIDIA H200"]);
    assert!(names(&[VERSION, FIRST], &[], &[]).is_empty());
    assert!(names(&[VERSION], &["dev/nvidiactl"], &[]).is_empty());
    assert!(names(&[], &[], &[]).is_empty());
}

#[test]
fn nodes_without_the_drivers_list_are_devices_without_a_name() {
    assert_eq!(names(&[], &["dev/nvidia0", "dev/nvidia1"], &[]), ["NVIDIA GPU", "NVIDIA GPU"]);
}

#[test]
fn cuda_visible_devices_hides_and_orders() {
    let both = |value: &str| {
        names(&[VERSION, FIRST, SECOND], &["dev/nvidia0", "dev/nvidia1"], &[("CUDA_VISIBLE_DEVICES", value)])
    };
    assert_eq!(both("1,0"), ["NVIDIA H200", "NVIDIA L4"]);
    assert_eq!(both("1"), ["NVIDIA H200"]);
    assert_eq!(both("0,-1,1"), ["NVIDIA L4"]);
    assert_eq!(both("GPU-1").len(), 2);
    assert!(both("").is_empty());
    assert!(both("-1").is_empty());
}
