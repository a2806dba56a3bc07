//! Tests of damaged files: the reader replies with an error or with the right numbers, and never panics.

use anyhow::{Result, bail};
use ferrotune_reader::{
    Array, Block, Format, Framing, Group, Kind, Layout, Reply, Request, Server, Shape, Source, VERSION, read_reply,
    read_request, write_reply, write_request,
};
use std::fs;
use std::io::BufReader;
use std::path::Path;

pub(crate) fn open(source: Source) -> Server {
    let mut server = Server::default();
    server.answer(Request::Open { version: VERSION.to_owned(), source }).unwrap();
    server
}

pub(crate) fn text_of(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn requests_and_replies_come_back_as_they_were() {
    let source = Source::Array { file: "x.idx".to_owned(), layout: Layout::Idx };
    let request = Request::Open { version: VERSION.to_owned(), source };
    let mut line = Vec::new();
    write_request(&mut line, &request).unwrap();
    let mut lines = BufReader::new(line.as_slice());
    assert_eq!(read_request(&mut lines).unwrap(), Some(request));
    assert_eq!(read_request(&mut lines).unwrap(), None);
    let shape = Shape { dtype: "i64".to_owned(), dims: vec![2] };
    let reply = Reply::Block(vec![Array { shape, bytes: (0..16).collect() }]);
    let mut frame = Vec::new();
    write_reply(&mut frame, reply.clone()).unwrap();
    assert_eq!(read_reply(&mut frame.as_slice()).unwrap(), reply);
    for length in 0..frame.len() {
        assert_eq!(read_reply(&mut &frame[..length]).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_block_is_the_same_however_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.csv");
    let rows: Vec<String> = (0..50_000).map(|number| number.to_string()).collect();
    fs::write(&path, format!("x\n{}\n", rows.join("\n"))).unwrap();
    let groups = vec![Group { columns: Some(vec!["x".to_owned()]), kind: Kind::Numbers }];
    let format = Format::Csv { delimiter: b',' };
    let source = Source::Table { format, files: text_of(&path), groups, missing: None };
    let mut server = open(source);
    let mut block = |number| server.answer(Request::Block(number)).unwrap();
    let blocks = [0, 1, 2, 3].map(&mut block);
    assert_ne!(blocks[0], blocks[1]);
    assert_eq!(block(4), Reply::End);
    assert_eq!([1, 0, 3, 2].map(block), [1, 0, 3, 2].map(|number: usize| blocks[number].clone()));
}

#[test]
fn every_cut_and_every_changed_bit_of_a_tf_record_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    let mut whole = Vec::new();
    for record in [b"first".as_slice(), b"", b"third one"] {
        let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
        let length = (record.len() as u64).to_le_bytes();
        whole.extend([length.as_slice(), &masked(&length), record, &masked(record)].concat());
    }
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let source = Source::Records { framing: Framing::TfRecord, files: text_of(&path) };
        open(source).answer(Request::Block(0))
    };
    let right = read(&whole).unwrap();
    assert!(matches!(&right, Reply::Block(block) if block[0].bytes == b"firstthird one"));
    let ends = [0, 21, 37];
    for length in (1..whole.len()).filter(|length| !ends.contains(length)) {
        let error = format!("{:#}", read(&whole[..length]).unwrap_err());
        assert!(error.contains("x.tfrecord"), "{error}");
    }
    for bit in 0..whole.len() * 8 {
        let mut changed = whole.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let error = format!("{:#}", read(&changed).unwrap_err());
        assert!(error.contains("x.tfrecord"), "{error}");
    }
}

#[test]
fn a_damaged_image_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut pixels = image::RgbImage::new(9, 7);
    pixels.enumerate_pixels_mut().for_each(|(x, y, pixel)| *pixel = image::Rgb([x as u8 * 20, y as u8 * 30, 77]));
    for ending in ["bmp", "gif", "jpg", "png", "pnm", "webp"] {
        let path = folder.path().join(format!("whole.{ending}"));
        pixels.save(&path).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut server = open(Source::Images { channels: 3, height: 7, width: 9 });
        let right = server.answer(Request::Image(path)).unwrap();
        assert!(matches!(&right, Reply::Block(block) if block[0].shape.dims == [3, 7, 9]));
        let damaged = folder.path().join("damaged");
        let cuts = if ending == "jpg" { whole.len() } else { whole.len() / 2 };
        for length in 0..cuts {
            fs::write(&damaged, &whole[..length]).unwrap();
            let error = server.answer(Request::Image(damaged.clone())).unwrap_err();
            assert!(format!("{error:#}").contains("damaged"), "{error:#}");
        }
    }
}

#[test]
fn another_version_is_refused() {
    let source = Source::Folder { folder: "x".to_owned() };
    let error = Server::default().answer(Request::Open { version: "0.0.1".to_owned(), source }).unwrap_err();
    assert!(error.to_string().contains("and the dataset has 0.0.1; install the same one"), "{error}");
}

/// The arrays of a file with these bytes, as the source's only block.
fn arrays(name: &str, layout: Layout, bytes: &[u8]) -> Result<(Vec<String>, Block)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join(name);
    std::fs::write(&file, bytes)?;
    let file = file.display().to_string();
    let mut server = Server::default();
    let opened =
        server.answer(Request::Open { version: VERSION.to_owned(), source: Source::Array { file, layout } })?;
    match (opened, server.answer(Request::Block(0))?) {
        (Reply::Opened(contents), Reply::Block(block)) => Ok((contents.columns, block)),
        other => bail!("{other:?}"),
    }
}

fn failed(name: &str, layout: Layout, bytes: &[u8]) -> String {
    let error = format!("{:#}", arrays(name, layout, bytes).unwrap_err());
    assert!(error.starts_with("cannot read ") && error.contains(name), "{error}");
    error
}

/// An NPY file of version 1.0.
fn npy(header: &str, numbers: &[u8]) -> Vec<u8> {
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), numbers].concat()
}

#[test]
fn arrays_in_fortrans_order_are_turned() {
    let numbers: Vec<u8> = (0..12).collect();
    let bytes = npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2), }", &numbers);
    let (_, block) = arrays("x.npy", Layout::Npy, &bytes).unwrap();
    assert_eq!(block[0].shape.dims, [2, 3, 2]);
    // `numpy.arange(12).reshape((2, 3, 2), order="F").flatten()`
    assert_eq!(block[0].bytes, [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]);
    let wide = npy("{'descr': '<i2', 'fortran_order': True, 'shape': (3, 2), }", &numbers);
    let (_, block) = arrays("x.npy", Layout::Npy, &wide).unwrap();
    assert_eq!(block[0].bytes, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
    let empty = npy("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 2), }", &[]);
    let (_, block) = arrays("x.npy", Layout::Npy, &empty).unwrap();
    assert_eq!((block[0].shape.dims.as_slice(), block[0].bytes.len()), (&[0, 2][..], 0));
}

#[test]
fn damaged_arrays_are_errors() {
    let bytes = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }", &[0; 6]);
    for cut in 0..bytes.len() {
        failed("x.npy", Layout::Npy, &bytes[..cut]);
    }
    let error = failed("x.npy", Layout::Npy, &[&bytes[..], &[0]].concat());
    assert!(
        error.ends_with("shape [2, 3] of u8 does not match the 7 bytes behind its header; save it again"),
        "{error}"
    );
    let huge = npy("{'descr': '<f8', 'fortran_order': True, 'shape': (4611686018427387905, 4), }", &[0; 32]);
    assert!(failed("x.npy", Layout::Npy, &huge).contains("does not match the 32 bytes"));
    let header = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &1.5f32.to_le_bytes()].concat();
    for cut in 0..bytes.len() {
        failed("x.safetensors", Layout::Safetensors, &bytes[..cut]);
    }
    failed("x.safetensors", Layout::Safetensors, &[&bytes[..], &[0]].concat());
    failed("x.safetensors", Layout::Safetensors, &[&u64::MAX.to_le_bytes(), header.as_bytes()].concat());
    let bytes = [&bytes[..8], header.replace("F32", "C64").replace("4]", "8]").as_bytes(), &[0; 8]].concat();
    let error = failed("x.safetensors", Layout::Safetensors, &bytes);
    assert!(error.ends_with("`a` is of type C64, which candle does not have; save it as F32 or I64"), "{error}");
}

#[test]
fn tensors_of_safetensors_have_names() {
    let header = r#"{"b":{"dtype":"BOOL","shape":[2],"data_offsets":[4,6]},"__metadata__":{"x":"y"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &1.5f32.to_le_bytes(), &[1, 0]].concat();
    let (names, block) = arrays("x.safetensors", Layout::Safetensors, &bytes).unwrap();
    assert_eq!(names, ["a", "b"]);
    assert_eq!((block[0].shape.dtype.as_str(), block[0].bytes.as_slice()), ("f32", &1.5f32.to_le_bytes()[..]));
    assert_eq!((block[1].shape.dtype.as_str(), block[1].bytes.as_slice()), ("u8", &[1, 0][..]));
    assert_eq!((block[0].shape.dims.as_slice(), block[1].shape.dims.as_slice()), (&[][..], &[2][..]));
}
