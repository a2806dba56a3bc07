//! The text that describes a dataset.

/// Describes a dataset of elements of type `T` by their number, if it is known, and their type.
pub(crate) fn description<T>(len: Option<u64>) -> String {
    let element = short(std::any::type_name::<T>());
    match len {
        Some(len) => format!("Dataset of {len} elements of type {element}"),
        None => format!("Dataset of elements of type {element}"),
    }
}

/// The name of a type as users write it, without the paths of its parts.
fn short(type_name: &str) -> String {
    let pieces = type_name.split_inclusive(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
    pieces.map(|piece| piece.rsplit("::").next().unwrap_or(piece)).collect()
}
