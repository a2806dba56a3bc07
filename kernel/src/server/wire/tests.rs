//! Tests of reading, refusing and writing messages, without sockets.

use serde_json::{Value, json};

use super::{Codec, Notebook, Parent, Request, WireError};

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
fn metadata_of_a_request_names_its_cell_and_deleted_ones_where_the_front_end_does() {
    let notebook = |metadata: &str| {
        let Notebook { cell_id, deleted_cells } = decode("key", &[HEADER, "{}", metadata, "{}"]).unwrap().notebook;
        (cell_id.unwrap_or_default(), deleted_cells.join(" "))
    };
    let said = |id: &str, deleted: &str| (id.to_owned(), deleted.to_owned());
    assert_eq!(notebook(r#"{"cellId":"a","deletedCells":["b","c"],"n":1e999999}"#), said("a", "b c"));
    assert_eq!(notebook(r#"{"cellId":null}"#), said("", ""));
    assert_eq!(notebook(r#"{"deletedCells":1}"#), said("", ""));
    assert_eq!(notebook("[]"), said("", ""));
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

/// A small random number generator (SplitMix64) with a fixed seed, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }

    /// Changes, cuts, doubles or drops a frame, or some of its bytes.
    fn damage(&mut self, frames: &mut Vec<Vec<u8>>) {
        let Some(at) = frames.len().checked_sub(1).map(|last| self.below(last + 1)) else { return };
        let length = frames[at].len();
        match self.below(6) {
            0 => drop(frames.remove(at)),
            1 => frames.insert(at, frames[at].clone()),
            2 => frames[at].truncate(self.below(length + 1)),
            3 if length > 0 => frames[at][self.below(length)] = self.below(256) as u8,
            4 => frames[at].insert(self.below(length + 1), b"{}[]\"\\\xff0"[self.below(8)]),
            _ => {
                let other = self.below(frames.len());
                frames.swap(at, other);
            }
        }
    }
}

#[test]
fn damaged_messages_are_errors_and_never_panics() {
    let mut random = Random(13);
    let (signed_codec, open_codec) = (Codec::new("key"), Codec::new(""));
    let whole =
        signed("key", &[HEADER, "{}", "{}", r#"{"code":"1 + 1 \u00e9","nested":{"a":[1,2.5e3,null]}}"#, "buffer"]);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let mut frames = whole.clone();
        for _ in 0..=random.below(4) {
            random.damage(&mut frames);
        }
        let signed_part = |frames: &[Vec<u8>]| {
            frames.iter().skip_while(|frame| *frame != b"<IDS|MSG>").take(6).cloned().collect::<Vec<_>>()
        };
        // Only the unsigned frames of a signed message may differ.
        if signed_codec.decode(&frames).is_ok() {
            assert!(signed_part(&frames)[2..] == signed_part(&whole)[2..], "{frames:?}");
        }
        match open_codec.decode(&frames) {
            Ok(request) => {
                read += 1;
                assert!(frames.iter().any(|frame| String::from_utf8_lossy(frame).contains("msg_type")), "{request:?}");
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
    // Otherwise the damage is too small or too large to say anything.
    assert!(read > 10_000 && refused > 10_000, "{read} read, {refused} refused");
}
