//! The manifest of our candle-core against that of crates.io.

use crate::folder::cargo;
use std::fs;
use std::path::Path;
use toml_edit::DocumentMut;

#[test]
fn the_manifest_has_the_dependencies_and_features_of_crates_io() {
    let original = ferrotune_candle::locate(cargo()).unwrap();
    let [ours, theirs] = [Path::new(env!("CARGO_MANIFEST_DIR")).join("candle-core"), original]
        .map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse::<DocumentMut>().unwrap());
    for table in ["package", "lib", "features", "dependencies", "target"] {
        assert_eq!(ours[table].to_string(), theirs[table].to_string(), "{table}");
    }
}
