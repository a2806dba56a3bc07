//! The devices of a plugin that compute one program together: as replicas, each with its own values, or as a mesh with one value of
//! each array, which each core has as a whole or in part.
//!
//! The terms mesh and axis are [JAX's](https://docs.jax.dev/en/latest/sharded-computation.html).

use candle_core::{Result, bail};
use ferrotune_devices::pjrt::CompileOptions;

/// The arrangement in which several devices compute a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    Replicas(usize),
    Mesh(Mesh),
}

impl Cores {
    /// # Errors
    /// If both replicas and a mesh are requested, or an axis has no name, no cores, or the name of another axis.
    pub(crate) fn new(replicas: usize, mesh: &[(&str, usize)]) -> Result<Cores> {
        match mesh {
            [] => Ok(Cores::Replicas(replicas)),
            _ if replicas > 1 => bail!(
                "a device has {replicas} replicas and a mesh; take one of them, since a mesh with the axis \
                 (\"data\", {replicas}) shares a batch as replicas do"
            ),
            axes => Mesh::new(axes).map(Cores::Mesh),
        }
    }

    /// The number of devices.
    pub(crate) fn count(&self) -> usize {
        self.replicas() * self.partitions()
    }

    pub(crate) fn replicas(&self) -> usize {
        match self {
            Cores::Replicas(replicas) => *replicas,
            Cores::Mesh(_) => 1,
        }
    }

    pub(crate) fn partitions(&self) -> usize {
        match self {
            Cores::Replicas(_) => 1,
            Cores::Mesh(mesh) => mesh.cores(),
        }
    }

    pub(crate) fn mesh(&self) -> Option<&Mesh> {
        match self {
            Cores::Replicas(_) => None,
            Cores::Mesh(mesh) => Some(mesh),
        }
    }

    /// The options with which a program is compiled for these devices.
    pub(crate) fn options(&self) -> CompileOptions {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        match self {
            Cores::Replicas(replicas) => CompileOptions::replicated(number(*replicas)),
            Cores::Mesh(mesh) => CompileOptions::partitioned(number(mesh.cores())),
        }
    }
}

/// A grid of cores, in which each direction is a named axis. Neighbours along the last axis have successive numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mesh {
    axes: Vec<(String, usize)>,
}

impl Mesh {
    fn new(axes: &[(&str, usize)]) -> Result<Mesh> {
        for (place, (name, cores)) in axes.iter().enumerate() {
            if name.is_empty() || *cores == 0 {
                bail!("the axis ({name:?}, {cores}) of a mesh needs a name and at least one core");
            }
            if axes[..place].iter().any(|(other, _)| other == name) {
                bail!("the mesh {axes:?} has two axes {name:?}; give each its own name");
            }
        }
        Ok(Mesh { axes: axes.iter().map(|(name, cores)| ((*name).to_owned(), *cores)).collect() })
    }

    pub(crate) fn cores(&self) -> usize {
        self.axes.iter().map(|(_, cores)| cores).product()
    }

    /// The sharding of an array of this shape along named axes, one for each dimension.
    pub(crate) fn sharding(&self, dims: &[usize], axes: &[Option<&str>]) -> Result<Sharding> {
        if axes.len() != dims.len() {
            bail!("a tensor of shape {dims:?} needs an axis or None for each dimension, and not {axes:?}");
        }
        let mut split = Vec::new();
        for (axis, size) in axes.iter().zip(dims) {
            let Some(name) = axis else {
                split.push(None);
                continue;
            };
            let Some(number) = self.axes.iter().position(|(other, _)| other == name) else {
                let names: Vec<&str> = self.axes.iter().map(|(name, _)| name.as_str()).collect();
                bail!("the mesh has no axis {name:?}; its axes are {}", names.join(", "));
            };
            let cores = self.axes[number].1;
            if split.contains(&Some(number)) {
                bail!("the axis {name:?} is named for two dimensions of a tensor; a dimension takes one of its own");
            }
            if size % cores != 0 {
                bail!(
                    "the {cores} cores of axis {name:?} cannot share a dimension of {size} in shape {dims:?}; make it a \
                     multiple of {cores}"
                );
            }
            split.push(Some(number));
        }
        Ok(Sharding(split))
    }

    /// The sharding in XLA's notation: the number of parts along each dimension, and the cores that have them. Cores along axes that split
    /// nothing have the same part.
    pub(crate) fn attribute(&self, sharding: Option<&Sharding>) -> String {
        let Some(Sharding(split)) = sharding.filter(|sharding| sharding.is_split()) else {
            return "{replicated}".to_owned();
        };
        let cores = |axis: &usize| self.axes[*axis].1;
        let mut parts: Vec<usize> = split.iter().map(|axis| axis.as_ref().map_or(1, cores)).collect();
        let used: Vec<usize> = split.iter().flatten().copied().collect();
        let unused: Vec<usize> = (0..self.axes.len()).filter(|axis| !used.contains(axis)).collect();
        let copies: usize = unused.iter().map(cores).product();
        let order = [used, unused].concat();
        let rest = if copies > 1 { " last_tile_dim_replicate" } else { "" };
        parts.extend((copies > 1).then_some(copies));
        let sizes: Vec<usize> = self.axes.iter().map(|(_, cores)| *cores).collect();
        // XLA accepts several sizes only together with their order.
        let devices = match order.is_sorted() {
            true => format!("[{}]", self.cores()),
            false => format!("[{}]T({})", list(&sizes), list(&order)),
        };
        format!("{{devices=[{}]<={devices}{rest}}}", list(&parts))
    }
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The sharding of an array over a mesh: for each dimension the index of the axis along which it is split, if any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sharding(Vec<Option<usize>>);

impl Sharding {
    /// The sharding in which each core has the whole array, for so many dimensions.
    pub(crate) fn whole(rank: usize) -> Sharding {
        Sharding(vec![None; rank])
    }

    pub(crate) fn is_split(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// The sharding as numbers for candle's attributes: the axis of each dimension, from 1, and 0 for none.
    pub(crate) fn to_numbers(&self) -> Vec<f64> {
        self.0.iter().map(|axis| axis.map_or(0.0, |axis| (axis + 1) as f64)).collect()
    }

    pub(crate) fn of_numbers(numbers: &[f64]) -> Sharding {
        Sharding(numbers.iter().map(|number| (*number as usize).checked_sub(1)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sharding_is_written_as_xla_reads_it() -> Result<()> {
        let mesh = Mesh::new(&[("data", 2), ("model", 4)])?;
        let written = |dims: &[usize], axes: &[Option<&str>]| -> Result<String> {
            Ok(mesh.attribute(Some(&mesh.sharding(dims, axes)?)))
        };
        assert_eq!(written(&[8, 3], &[None, None])?, "{replicated}");
        assert_eq!(written(&[8, 4], &[Some("data"), Some("model")])?, "{devices=[2,4]<=[8]}");
        assert_eq!(written(&[8, 4], &[Some("model"), Some("data")])?, "{devices=[4,2]<=[2,4]T(1,0)}");
        assert_eq!(written(&[8, 3], &[Some("data"), None])?, "{devices=[2,1,4]<=[8] last_tile_dim_replicate}");
        assert_eq!(written(&[3, 8], &[None, Some("model")])?, "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}");
        assert_eq!(mesh.attribute(None), "{replicated}");
        Ok(())
    }

    #[test]
    fn what_a_mesh_does_not_have_is_an_error() -> Result<()> {
        let refused = |axes: &[(&str, usize)]| Mesh::new(axes).err().map_or(String::new(), |error| error.to_string());
        assert!(refused(&[("a", 2), ("a", 2)]).contains("two axes"), "{}", refused(&[("a", 2), ("a", 2)]));
        assert!(refused(&[("a", 0)]).contains("at least one core"));
        assert!(Cores::new(2, &[("a", 2)]).is_err_and(|error| error.to_string().contains("replicas and a mesh")));
        let mesh = Mesh::new(&[("data", 2)])?;
        let refused = |dims: &[usize], axes: &[Option<&str>]| {
            mesh.sharding(dims, axes).err().map_or(String::new(), |error| error.to_string())
        };
        assert!(refused(&[3, 4], &[Some("data"), None]).contains("multiple of 2"));
        assert!(refused(&[4, 4], &[Some("data"), Some("data")]).contains("two dimensions"));
        assert!(refused(&[4, 4], &[Some("rows"), None]).contains("its axes are data"));
        assert!(refused(&[4, 4], &[Some("data")]).contains("for each dimension"));
        Ok(())
    }
}
