//! Tests of folders of images and tables, and of the orientation of images.

use crate::answers::{open, text_of};
use ferrotune_reader::{Format, Group, Kind, Reply, Request, Server, Source, VERSION};
use std::fs;

/// The orientations of EXIF 2.32, 4.6.4.A, in the order of their numbers: the positions in which the pixels of a row of two are shown.
#[test]
fn a_photograph_is_turned_as_its_exif_data_say() {
    let folder = tempfile::tempdir().unwrap();
    let mut pixels = image::GrayImage::new(16, 8);
    pixels
        .enumerate_pixels_mut()
        .for_each(|(x, y, pixel)| *pixel = image::Luma([if x < 8 { 0 } else { 200 } + y as u8]));
    let file = folder.path().join("whole.png");
    pixels.save(&file).unwrap();
    let whole = fs::read(&file).unwrap();
    for (orientation, dims, corners) in [
        (1, [8, 16], [0, 200, 7, 207]),
        (2, [8, 16], [200, 0, 207, 7]),
        (3, [8, 16], [207, 7, 200, 0]),
        (4, [8, 16], [7, 207, 0, 200]),
        (5, [16, 8], [0, 7, 200, 207]),
        (6, [16, 8], [7, 0, 207, 200]),
        (7, [16, 8], [207, 200, 7, 0]),
        (8, [16, 8], [200, 207, 0, 7]),
    ] {
        fs::write(&file, with_orientation(&whole, orientation)).unwrap();
        let [height, width] = dims;
        let mut server = open(Source::Images { channels: 1, height, width });
        let Reply::Block(block) = server.answer(Request::Image(file.clone())).unwrap() else { panic!("no image") };
        let at = |y: usize, x: usize| block[0].bytes[y * width + x];
        let found = [at(0, 0), at(0, width - 1), at(height - 1, 0), at(height - 1, width - 1)];
        assert_eq!(found, corners, "orientation {orientation}");
    }
}

/// A PNG file with this orientation in a chunk of EXIF data after its header.
fn with_orientation(png: &[u8], orientation: u8) -> Vec<u8> {
    let (header, rest) = png.split_at(33);
    let exif =
        [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".as_slice(), &[orientation, 0, 0, 0, 0, 0, 0, 0]].concat();
    let chunk = [b"eXIf".as_slice(), &exif].concat();
    let mut crc = flate2::Crc::new();
    crc.update(&chunk);
    let length = (exif.len() as u32).to_be_bytes();
    [header, &length, &chunk, &crc.sum().to_be_bytes(), rest].concat()
}

#[test]
fn hidden_files_and_those_of_macos_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "a/1.png",
        "a/._1.png",
        "a/.thumbs/2.png",
        "b/1.png",
        "__MACOSX/a/._1.png",
        "__MACOSX/1.png",
        ".git/1.png",
        "t/x.csv",
        "t/._x.csv",
        "t/__MACOSX/y.csv",
        "t/1.png",
    ];
    for name in names {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x\n1\n").unwrap();
    }
    let contents = |source| {
        let request = Request::Open { version: VERSION.to_owned(), source };
        match Server::default().answer(request).unwrap() {
            Reply::Opened(contents) => contents,
            other => panic!("{other:?}"),
        }
    };
    let found = contents(Source::Folder { folder: text_of(folder.path()) });
    assert_eq!(found.classes, ["a", "b", "t"]);
    let files = ["a/1.png", "b/1.png", "t/1.png"].map(|name| folder.path().join(name));
    assert_eq!(found.files, files.into_iter().zip(0..).collect::<Vec<_>>());
    let rows = |pattern: &str| {
        let files = text_of(&folder.path().join(pattern));
        let groups = vec![Group { columns: None, kind: Kind::Matrix }];
        let source = Source::Table { format: Format::Csv { delimiter: b',' }, files, groups, missing: None };
        let mut server = open(source);
        (0..).take_while(|block| server.answer(Request::Block(*block)).unwrap() != Reply::End).count()
    };
    assert_eq!(["t/*.csv", "t/**/*.csv", "t/._*.csv", "t/__MACOSX/*.csv"].map(rows), [1; 4]);
}
