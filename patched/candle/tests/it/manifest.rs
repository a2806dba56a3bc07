//! Compares the manifests of our packages with those of crates.io.

use crate::folder::cargo;
use ferrotune_candle::{CANDLE, EVCXR};
use std::fs;
use std::path::Path;
use toml_edit::{DocumentMut, TableLike};

/// The optional dependency of our candle-core, and the feature that enables it.
const OPTIONAL: (&str, &str) = ("tokenizer", "tokenizers");

/// Dependencies that only our candle-core has. They enable a feature: real products use the instructions of AVX-512 where the processor has
/// them. The feature of the same name of `gemm` would compile all complex products for them, too.
const ADDED: [&str; 3] = ["gemm-f16", "gemm-f32", "gemm-f64"];

#[test]
fn the_manifests_have_the_dependencies_and_features_of_crates_io() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let upstreams = [&CANDLE, &EVCXR].into_iter();
    let packages = upstreams.flat_map(|upstream| {
        let originals = ferrotune_candle::locate(upstream, cargo()).unwrap();
        upstream.packages.iter().zip(originals).map(move |(package, original)| (upstream, package.name, original))
    });
    for (upstream, package, original) in packages {
        let [mut ours, theirs] = [repository.join(upstream.folder()).join(package), original]
            .map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse::<DocumentMut>().unwrap());
        if package == "candle-core" {
            make_required(&mut ours);
            remove_added(&mut ours);
        }
        for table in ["features", "dependencies", "build-dependencies", "target"] {
            let [ours, theirs] = [&ours, &theirs].map(|manifest| manifest.get(table).map(ToString::to_string));
            assert_eq!(ours, theirs, "{package}: {table}");
        }
        // The build script of our candle only reports that its sources are not made yet.
        let build = ours["package"]["build"].as_str();
        assert_eq!(build, Some("build.rs"), "{package}");
        assert_eq!(theirs["package"]["build"].as_str(), build.filter(|_| upstream == &EVCXR), "{package}");
        for key in ["authors", "edition", "license"] {
            let [ours, theirs] =
                [&ours, &theirs].map(|manifest| manifest["package"].get(key).map(|v| v.to_string().trim().to_owned()));
            assert_eq!(ours, theirs, "{package}: {key}");
        }
    }
}

/// Removes the feature from our manifest, and makes its dependency a required one, as in the manifest of crates.io.
fn make_required(manifest: &mut DocumentMut) {
    let (feature, dependency) = OPTIONAL;
    let table = |item: &mut toml_edit::Item, key: &str| -> Option<toml_edit::Item> {
        item.as_table_like_mut().and_then(|table: &mut dyn TableLike| table.remove(key))
    };
    assert!(table(&mut manifest["features"], feature).is_some(), "there is no feature {feature}");
    let targets = manifest["target"].as_table_like_mut().unwrap();
    let optional =
        targets.iter_mut().find_map(|(_, target)| table(&mut target["dependencies"][dependency], "optional"));
    assert!(optional.is_some(), "{dependency} is not optional");
}

/// Removes the dependencies that only our manifest has.
fn remove_added(manifest: &mut DocumentMut) {
    let dependencies = manifest["dependencies"].as_table_mut().unwrap();
    for name in ADDED {
        assert!(dependencies.remove(name).is_some(), "{name}");
    }
}
