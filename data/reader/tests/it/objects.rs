//! Tests of objects in folders.

use anyhow::Result;
use ferrotune_reader::{get_object, put_object, takes_objects};
use std::fs::{self, File};

#[test]
fn an_object_of_a_folder_is_whole_or_not_there() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let address = format!("file://{}/a%20store/sha256/abc", folder.path().display());
    let path = folder.path().join("a store/sha256/abc");
    let source = folder.path().join("source");
    fs::write(&source, "content and more")?;
    let got = |most_bytes| -> Result<(bool, Vec<u8>)> {
        let mut bytes = Vec::new();
        Ok((get_object(&address, most_bytes, &mut bytes)?, bytes))
    };
    assert_eq!(got(9)?, (false, Vec::new()));
    put_object(&address, &File::open(&source)?, 7)?;
    assert_eq!(got(9)?, (true, b"content".to_vec()));
    assert_eq!(got(3)?, (true, b"con".to_vec()));
    fs::write(&path, "another")?;
    put_object(&address, &File::open(&source)?, 7)?;
    assert_eq!(fs::read(&path)?, b"another", "one of that length is not sent again");
    fs::write(&path, "short")?;
    put_object(&address, &File::open(&source)?, 7)?;
    assert_eq!(fs::read(&path)?, b"content");
    assert_eq!(fs::read_dir(path.parent().expect("a folder"))?.count(), 1, "nothing else is left there");
    fs::remove_dir_all(folder.path().join("a store"))?;
    fs::write(folder.path().join("a store"), "a file")?;
    let error = put_object(&address, &File::open(&source)?, 7).expect_err("a file is in the way");
    assert!(format!("{error:#}").starts_with(&format!("cannot write {address}")), "{error:#}");
    Ok(())
}

#[test]
fn objects_are_put_into_stores_and_folders_alone() {
    for address in ["s3://b/p", "s3a://b", "gs://b/p", "az://c/p", "abfss://c@a.dfs.core.windows.net/p", "file:///p"] {
        assert!(takes_objects(address), "{address}");
    }
    for address in ["https://h/p", "http://h/p", "/p", "p", "file://h/p", "ftp://h/p", ""] {
        assert!(!takes_objects(address), "{address}");
    }
}
