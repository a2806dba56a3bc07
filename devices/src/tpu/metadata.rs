//! Asks Google Cloud's metadata server for the accelerator type, with a deadline of one second.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The deadline for the connection, the request and the answer together.
const TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_ANSWER_BYTES: usize = 16 * 1024;

/// The accelerator type with which the machine was created, such as `v5litepod-8`, or the reason why it is unknown.
pub(super) fn accelerator_type(host: &str) -> Result<String, String> {
    // The address is not looked up by name, which may take any time.
    let address = address(host).ok_or_else(|| format!("the metadata server's address {host} is no IP address"))?;
    let answer = ask(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            "the metadata server did not answer within 1 s".to_owned()
        }
        _ => format!("the metadata server cannot be asked: {error}"),
    })?;
    read_answer(&answer)
}

fn address(host: &str) -> Option<SocketAddr> {
    match (host.parse::<SocketAddr>(), host.parse::<IpAddr>()) {
        (Ok(address), _) => Some(address),
        (_, Ok(address)) => Some(SocketAddr::new(address, 80)),
        _ => None,
    }
}

fn ask(address: SocketAddr) -> std::io::Result<Vec<u8>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_write_timeout(Some(remaining(deadline)?))?;
    stream.write_all(
        b"GET /computeMetadata/v1/instance/attributes/accelerator-type HTTP/1.0\r\n\
          Host: metadata.google.internal\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n",
    )?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        // The timeout is set before each read: the deadline also holds for a server that sends single bytes.
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        let count = stream.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..count]);
        if count == 0 || answer.len() > LONGEST_ANSWER_BYTES {
            return Ok(answer);
        }
    }
}

fn remaining(deadline: Instant) -> std::io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
}

/// Parses an answer, and accepts it only with Google's header, because a proxy answers every question.
fn read_answer(answer: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("the metadata server's answer is not HTTP")?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default();
    if !lines.any(|line| line.eq_ignore_ascii_case("metadata-flavor: google")) {
        return Err("what answered is not Google's metadata server".into());
    }
    let body = body.trim();
    let is_type = !body.is_empty() && body.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    match status {
        "200" if is_type => Ok(body.to_owned()),
        "404" => Err("the metadata server knows of no accelerator".into()),
        _ => Err(format!("the metadata server answered with status {status}")),
    }
}
