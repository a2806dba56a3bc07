//! Tests of the metadata server with right and wrong answers and without a server, over real sockets.

use crate::Described;
use ferrotune_devices::{Generation, Report};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const GCE: (&str, &str) = ("sys/class/dmi/id/product_name", "Google Compute Engine\n");
const GOOGLE: &str = "HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\n\r\n";

/// The report with a server that gives this answer once, and the request that the server received.
fn answered(answer: &str) -> (Report, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = listener.local_addr().expect("an address").to_string();
    let answer = answer.to_owned();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("a request") == 1 {
            request.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).expect("the client listens");
        String::from_utf8(request).expect("text")
    });
    let report = Described::new(&[GCE], &[]).with_metadata(host).report();
    (report, server.join().expect("the server"))
}

#[test]
fn the_accelerator_type_of_a_container_without_devices_is_a_tpu_that_is_not_visible() {
    let (report, request) = answered(&format!("{GOOGLE}v5litepod-8\n"));
    assert!(request.contains("\r\nMetadata-Flavor: Google\r\n"), "{request}");
    let tpu = report.tpu.expect("the server says so");
    assert_eq!((tpu.generation, tpu.chips, &*tpu.source), (Some(Generation::V5e), None, "metadata server"));
}

#[test]
fn answers_that_tell_nothing_are_reasons() {
    for (answer, expected) in [
        ("HTTP/1.0 404 Not Found\r\nMetadata-Flavor: Google\r\n\r\n", "the metadata server knows of no accelerator"),
        ("HTTP/1.0 200 OK\r\n\r\nv4-8", "what answered is not Google's metadata server"),
        ("HTTP/1.0 503 Busy\r\nMetadata-Flavor: Google\r\n\r\n", "the metadata server answered with status 503"),
        ("\u{0}garbage", "the metadata server's answer is not HTTP"),
    ] {
        let (report, _) = answered(answer);
        assert_eq!(report.tpu, None);
        assert_eq!(report.no_tpu, format!("no PCI device of vendor 0x1ae0, no TPU_NAME, {expected}"));
    }
}

#[test]
fn a_server_that_never_answers_costs_one_second() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = listener.local_addr().expect("an address").to_string();
    let start = Instant::now();
    let report = Described::new(&[GCE], &[]).with_metadata(host).report();
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    assert!(report.no_tpu.ends_with("the metadata server did not answer within 1 s"), "{}", report.no_tpu);
    drop(listener);
}

#[test]
fn a_server_that_trickles_costs_one_second() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = listener.local_addr().expect("an address").to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        // With these pauses each read succeeds in time, although the answer never ends.
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let start = Instant::now();
    let report = Described::new(&[GCE], &[]).with_metadata(host).report();
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    assert!(report.no_tpu.ends_with("the metadata server did not answer within 1 s"), "{}", report.no_tpu);
    server.join().expect("the server");
}

#[test]
fn the_server_is_asked_only_where_it_makes_sense() {
    // A request to this host fails at once and adds a reason, so a missing reason shows that the server was not asked.
    let reason = |files: &[(&str, &str)], variables: &[(&str, &str)], host: &str| {
        Described::new(files, variables).with_metadata(host.into()).report().no_tpu
    };
    let plain = "no PCI device of vendor 0x1ae0, no TPU_NAME";
    assert_eq!(reason(&[], &[], "nowhere"), plain, "no sign of Google Cloud");
    assert_eq!(reason(&[GCE], &[("TPU_SKIP_MDS_QUERY", "1")], "nowhere"), plain);
    let asked = format!("{plain}, the metadata server's address nowhere is no IP address");
    assert_eq!(reason(&[GCE], &[], "nowhere"), asked);
    assert_eq!(reason(&[GCE], &[("TPU_SKIP_MDS_QUERY", "")], "nowhere"), asked);
    assert_eq!(reason(&[], &[("GCE_METADATA_HOST", "nowhere")], "nowhere"), asked);

    let described = Described::new(&[GCE], &[]).with_pci("0x0063", "0x0000", 1).with_metadata("nowhere".into());
    let report = described.report();
    assert!(report.findings.iter().all(|finding| finding.source != "metadata server"), "the chip is known already");
}
