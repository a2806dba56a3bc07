//! Reading, refusing and writing messages, without sockets.

use serde_json::{Value, json};

use super::{Codec, Parent, Request, WireError};

const HEADER: &str = r#"{"msg_id":"a","msg_type":"execute_request","shape":{"unknown":1e999999},"n":1.0}"#;

/// The frames of `parts`, signed by `key` as a client would.
fn signed(key: &str, parts: &[&str]) -> Vec<Vec<u8>> {
    let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
    let signature = Codec::new(key).sign(&parts[..parts.len().min(4)]);
    [b"peer".to_vec(), b"<IDS|MSG>".to_vec(), signature.into_bytes()].into_iter().chain(parts).collect()
}

fn decode(key: &str, parts: &[&str]) -> Result<Request, WireError> {
    Codec::new(key).decode(&signed(key, parts))
}

#[test]
fn signature_is_the_published_hmac_sha256() {
    // RFC 4231, test case 2, spread over the four signed parts.
    let parts = ["what do ya ", "want ", "for ", "nothing?"].map(|part| part.as_bytes().to_vec());
    assert_eq!(Codec::new("Jefe").sign(&parts), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

#[test]
fn signed_message_is_read() {
    let request = decode("key", &[HEADER, "{}", "{}", r#"{"code":"1"}"#]).unwrap();
    assert_eq!(request.identities, [b"peer".to_vec()]);
    assert_eq!(request.msg_type, "execute_request");
    assert_eq!(Value::Object(request.content.unwrap()), json!({"code": "1"}));
}

#[test]
fn buffers_are_not_signed() {
    decode("key", &[HEADER, "{}", "{}", "{}", "\u{0}buffer", "another"]).unwrap();
}

#[test]
fn empty_key_signs_and_checks_nothing() {
    let mut frames = signed("", &[HEADER, "{}", "{}", "{}"]);
    assert_eq!(frames[2], b"");
    frames[2] = b"anything".to_vec();
    Codec::new("").decode(&frames).unwrap();
}

#[test]
fn wrong_signature_is_refused() {
    for signature in [&b""[..], b"zz", b"0", b"00", "é".as_bytes(), &[b'0'; 64], &[b'0'; 66]] {
        let mut frames = signed("key", &[HEADER, "{}", "{}", "{}"]);
        frames[2] = signature.to_vec();
        assert_eq!(Codec::new("key").decode(&frames).unwrap_err(), WireError::WrongSignature);
    }
    for changed in 3..7 {
        let mut frames = signed("key", &[HEADER, "{}", "{}", "{}"]);
        frames[changed].push(b' ');
        assert_eq!(Codec::new("key").decode(&frames).unwrap_err(), WireError::WrongSignature, "frame {changed}");
    }
    let frames = signed("another key", &[HEADER, "{}", "{}", "{}"]);
    assert_eq!(Codec::new("key").decode(&frames).unwrap_err(), WireError::WrongSignature);
}

#[test]
fn frames_without_a_message_are_refused() {
    let codec = Codec::new("");
    let none: [&[u8]; 0] = [];
    assert_eq!(codec.decode(&none).unwrap_err(), WireError::NoDelimiter { frames: 0 });
    assert_eq!(codec.decode(&[b"a", b"b"]).unwrap_err(), WireError::NoDelimiter { frames: 2 });
    assert_eq!(codec.decode(&[b"<IDS|MSG>"]).unwrap_err(), WireError::Truncated { frames: 0 });
    assert_eq!(codec.decode(&[&b"<IDS|MSG>"[..], b""]).unwrap_err(), WireError::Truncated { frames: 1 });
    for header in ["", "{", "[]", "1", "{}", r#"{"msg_type":3}"#, "\u{0}"] {
        let error = decode("key", &[header, "{}", "{}", "{}"]).unwrap_err();
        assert!(matches!(error, WireError::Unreadable { part: "header", .. }), "{header}: {error}");
    }
    assert!(codec.decode(&[&b"<IDS|MSG>"[..], b"", &[0xff, 0xfe], b"{}", b"{}", b"{}"]).is_err());
}

#[test]
fn readable_header_is_enough_for_an_answer() {
    let table = [
        (&[HEADER][..], "Truncated { frames: 2 }"),
        (&[HEADER, "{}", "{}"], "Truncated { frames: 4 }"),
        (&[HEADER, "{}", "{}", "not json"], "part: \"content\""),
        (&[HEADER, "{}", "{}", "[]"], "part: \"content\""),
        (&[HEADER, "{}", "{}", ""], "part: \"content\""),
        (&[HEADER, "?", "{}", "{}"], "part: \"parent header\""),
        (&[HEADER, "{}", "?", "{}"], "part: \"metadata\""),
    ];
    for (parts, reason) in table {
        let request = decode("key", parts).unwrap();
        assert_eq!(request.msg_type, "execute_request");
        let error = format!("{:?}", request.content.unwrap_err());
        assert!(error.contains(reason), "{parts:?}: {error}");
    }
}

#[test]
fn deeply_nested_json_is_an_error_and_not_a_crash() {
    let content = format!("{{\"code\":{}", "[".repeat(200_000));
    assert!(decode("key", &[HEADER, "{}", "{}", &content]).unwrap().content.is_err());
}

#[test]
fn parent_header_is_echoed_byte_for_byte() {
    let request = decode("key", &[HEADER, "{}", "{}", "{}"]).unwrap();
    let codec = Codec::new("key");
    let message = codec.encode(&request.identities, "execute_reply", &request.parent, &json!({}), &json!({"a": 1}));
    let frames = message.into_vec();
    assert_eq!(&frames[0][..], b"peer");
    assert_eq!(&frames[4][..], HEADER.as_bytes());
    assert_eq!(&frames[6][..], br#"{"a":1}"#);
    let header: Value = serde_json::from_slice(&frames[3]).unwrap();
    assert_eq!(header["msg_type"], "execute_reply");
    assert_eq!(header["version"], "5.4");
    let answer = codec.decode(&frames).unwrap();
    assert_eq!(answer.msg_type, "execute_reply");
}

#[test]
fn every_message_has_its_own_id_and_a_date_in_microseconds() {
    let codec = Codec::new("");
    let mut headers = (0..2).map(|_| {
        let frames = codec.encode(&[], "status", &Parent::none(), &json!({}), &json!({})).into_vec();
        assert_eq!(&frames[0][..], b"<IDS|MSG>");
        serde_json::from_slice::<Value>(&frames[2]).unwrap()
    });
    let (first, second) = (headers.next().unwrap(), headers.next().unwrap());
    assert_ne!(first["msg_id"], second["msg_id"]);
    assert_eq!(first["session"], second["session"]);
    let date = first["date"].as_str().unwrap();
    assert!(date.ends_with('Z') && date.len() == "2026-01-01T00:00:00.000000Z".len(), "{date}");
}
