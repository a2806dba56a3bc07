//! The data sets in this crate. `ready/README.md` has their origins and licences.

use crate::{DataError, Dataset, Result};
use candle_core::{Device, Tensor};

/// Handwritten digits: 1,797 images of 8×8 pixels, as rows of 64 values of f32 between 0 (paper) and 1 (ink), and the
/// digit of each image as u32.
///
/// The test set of Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998;
/// CC BY 4.0.
///
/// ```
/// let [train, valid] = ferrotune_data::digits()?.split([0.8, 0.2], 7)?;
/// assert_eq!((train.len(), valid.len()), (Some(1438), Some(359)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn digits() -> Result<Dataset<(Tensor, Tensor)>> {
    labelled("digits", include_str!("ready/digits.csv"), 16.)
}

/// Iris plants: 150 rows of sepal length, sepal width, petal length and petal width in cm, as f32, and the kind as u32:
/// setosa, versicolor, virginica.
///
/// Fisher, The use of multiple measurements in taxonomic problems, 1936; UCI Machine Learning Repository, CC BY 4.0.
pub fn iris() -> Result<Dataset<(Tensor, Tensor)>> {
    labelled("iris", include_str!("ready/iris.csv"), 1.)
}

/// Wines of three growers: 178 rows of 13 figures of a chemical analysis, as f32, and the grower as u32. The figures
/// have very different sizes: see [`StandardScaler`](crate::StandardScaler).
///
/// Aeberhard and Forina, Wine, UCI Machine Learning Repository, 1992; CC BY 4.0.
pub fn wine() -> Result<Dataset<(Tensor, Tensor)>> {
    labelled("wine", include_str!("ready/wine.csv"), 1.)
}

/// A dataset from lines of features and a class. The features are divided by `scale`.
fn labelled(name: &'static str, text: &str, scale: f32) -> Result<Dataset<(Tensor, Tensor)>> {
    let (mut features, mut classes) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (values, class) = line.rsplit_once(',').ok_or_else(|| damaged(name, line))?;
        for value in values.split(',') {
            features.push(value.parse::<f32>().map_err(|_| damaged(name, line))? / scale);
        }
        classes.push(class.parse::<u32>().map_err(|_| damaged(name, line))?);
    }
    let (rows, device) = (classes.len(), &Device::Cpu);
    let columns = features.len() / rows.max(1);
    let features = Tensor::from_vec(features, (rows, columns), device);
    let tensors = features.and_then(|features| Ok((features, Tensor::from_vec(classes, rows, device)?)));
    Dataset::from_tensors(tensors.map_err(|source| DataError::argument(name, source.to_string()))?)
}

fn damaged(name: &'static str, line: &str) -> DataError {
    DataError::argument(name, format!("the line `{line}` of the data set is damaged; build Ferrotune anew"))
}
