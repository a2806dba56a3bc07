//! The removal of old preludes, except those that a process uses or builds now.

use super::holds::{DAY, USED, folder_of, lock_of, take};
use super::proof::version_of_prelude;
use super::{Item, Kind, survey};
use anyhow::{Context, Result};
use ferrotune_machine::format;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The time without use after which a prelude is removed.
const OLD: Duration = Duration::from_secs(30 * DAY.as_secs());

/// Removes the preludes that are of an older version or have not been used for long, and the leftovers of their builds. Returns a
/// line about the removal; none if nothing was removed. A prelude that cannot be removed stays, with a warning.
pub(crate) fn remove_old() -> Option<String> {
    let items = match survey() {
        Ok(inventory) => inventory.ours,
        Err(error) => {
            tracing::warn!("old preludes stay: {error:#}");
            return None;
        }
    };
    let of_preludes: Vec<Item> =
        items.into_iter().filter(|item| matches!(item.kind, Kind::Prelude | Kind::PreludeBuild)).collect();
    let (mut preludes, mut bytes) = (0, 0);
    // The list is sorted, and `X.lock` follows `X`.
    for items in of_preludes.chunk_by(|one, other| folder_of(&one.path) == folder_of(&other.path)) {
        match remove(items) {
            Ok(None) => {}
            Ok(Some(removed)) => (preludes, bytes) = (preludes + 1, bytes + removed),
            Err(error) => tracing::warn!("an old prelude stays: {error:#}"),
        }
    }
    let preludes = match preludes {
        0 => return None,
        1 => "1 old prelude".to_owned(),
        many => format!("{many} old preludes"),
    };
    let size = format::bytes(bytes);
    Some(format!("removed {preludes} ({size}) of an older version, or that no kernel has used for 30 days"))
}

/// Removes a prelude and the leftovers of its builds if the prelude is old and not in use. Returns the number of removed bytes; none if
/// the prelude stays.
fn remove(items: &[Item]) -> Result<Option<u64>> {
    let Some(folder) = items.first().map(|item| folder_of(&item.path)) else { return Ok(None) };
    if !is_old(&folder, SystemTime::now()) {
        return Ok(None);
    }
    let Some(_locks) = take(&folder)? else { return Ok(None) };
    for item in items {
        item.remove().with_context(|| format!("cannot remove {}", item.path.display()))?;
    }
    Ok(Some(items.iter().map(|item| item.bytes).sum()))
}

fn is_old(folder: &Path, now: SystemTime) -> bool {
    let version = folder.file_name().and_then(|name| name.to_str()).and_then(version_of_prelude);
    if version.is_some_and(|version| numbers(version) < numbers(env!("CARGO_PKG_VERSION"))) {
        return true;
    }
    // A killed build leaves no record of a use, so the times of its lock and of its folder count, too.
    let used = [folder.join(USED), lock_of(folder), folder.to_owned()]
        .iter()
        .filter_map(|path: &PathBuf| path.metadata().ok()?.modified().ok())
        .max();
    used.is_some_and(|used| now.duration_since(used).is_ok_and(|age| age > OLD))
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map_while(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("0.9.0") < numbers("0.10.0") && numbers("0.1.0") == numbers("0.1.0"));
    }
}
