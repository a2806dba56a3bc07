//! Tests of headers of NPY files.

use ferrotune_reader::{NpyHeader, Shape};

fn file(header: &str) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 8]].concat()
}

#[test]
fn headers_as_numpy_writes_them() {
    let read = |header| NpyHeader::read(&file(header)).unwrap();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n";
    let shape = Shape { dtype: "f32".to_owned(), dims: vec![3, 4] };
    assert_eq!(read(header), NpyHeader { shape, is_fortran: false, data: 10 + header.len() });
    let scalar = read("{'descr': '|b1', 'fortran_order': True, 'shape': ()}");
    assert_eq!((scalar.shape.dtype.as_str(), scalar.shape.dims.len(), scalar.is_fortran), ("u8", 0, true));
    let columns = read("{'descr': '<i8', 'fortran_order': True, 'shape': (7L, 2L)}");
    assert_eq!(columns.stored_dims(), [2, 7]);
}

#[test]
fn what_is_no_array_of_numbers_is_an_error() {
    for (bytes, reason) in [
        (file("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}"), "its type >f4 is none of candle's; save"),
        (file("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"), "its type |O is none of candle's; save"),
        (file("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}"), "its type <c8 is complex; save `array.re"),
        (file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), "its elements have several"),
        (file("{'fortran_order': False, 'shape': (1,)}"), "its header has no valid `descr`; save"),
        (file("{'descr': '<f4', 'shape': (1,)}"), "its header has no valid `fortran_order`; save"),
        (file("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}"), "its header has no valid `fortran_order`;"),
        (file("{'descr': '<f4', 'fortran_order': True, 'shape': (-1,)}"), "its header has no valid `shape`; save"),
        (b"PK\x03\x04".to_vec(), "it is an NPZ archive; save"),
        (b"no array".to_vec(), "it is no NPY file; write"),
        (Vec::new(), "it is no NPY file; write"),
        (b"\x93NUMPY".to_vec(), "it ends within its header; copy"),
        (b"\x93NUMPY\x01\x00\xff\x00{".to_vec(), "it ends within its header; copy"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), "its header is too long"),
        (b"\x93NUMPY\x07\x00\xff\x00{".to_vec(), "its format's version 7 is unknown; save"),
        (b"\x93NUMPY\x01\x00\x01\x00\xff".to_vec(), "its header is no text; copy"),
    ] {
        let error = NpyHeader::read(&bytes).unwrap_err();
        assert!(error.starts_with(reason), "{error}");
    }
}

#[test]
fn the_numbers_are_neither_fewer_nor_more_than_the_shape() {
    let header = |shape| {
        NpyHeader::read(&file(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"))).unwrap()
    };
    assert_eq!(header("(3, 4)").check(48), Ok(()));
    assert_eq!(header("()").check(4), Ok(()));
    assert_eq!(header("(0, 5)").check(0), Ok(()));
    let expected = "its shape [3, 4] of f32 does not match the 47 bytes behind its header; save it again";
    assert_eq!(header("(3, 4)").check(47).unwrap_err(), expected);
    assert!(header("(3, 4)").check(49).is_err());
    assert!(header("(4611686018427387905, 4)").check(16).is_err());
    assert!(header("(0, 4611686018427387905, 4)").check(0).is_err());
}
