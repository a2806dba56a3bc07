//! The manifests of our packages against those of crates.io.

use crate::folder::cargo;
use ferrotune_candle::{CANDLE, EVCXR};
use std::fs;
use std::path::Path;
use toml_edit::DocumentMut;

#[test]
fn the_manifests_have_the_dependencies_and_features_of_crates_io() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for package in [&CANDLE, &EVCXR] {
        let original = ferrotune_candle::locate(package, cargo()).unwrap();
        let [ours, theirs] = [repository.join(package.folder).join(package.name), original]
            .map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse::<DocumentMut>().unwrap());
        for table in ["features", "dependencies", "build-dependencies", "target"] {
            let [ours, theirs] = [&ours, &theirs].map(|manifest| manifest.get(table).map(ToString::to_string));
            assert_eq!(ours, theirs, "{package}: {table}");
        }
        for key in ["authors", "build", "edition", "license"] {
            let [ours, theirs] =
                [&ours, &theirs].map(|manifest| manifest["package"].get(key).map(|v| v.to_string().trim().to_owned()));
            assert_eq!(ours, theirs, "{package}: {key}");
        }
    }
}
