//! The state that objectives and input pipelines have in common: variables of the notebook that trials use, values that a checkpoint
//! saves, the present seed, and the error of the user's functions.
//!
//! This crate opens no device, seeds no generator and knows no trial: `ferrotune-trial` does. So datasets need no device either.
//!
//! ```
//! use ferrotune_state::{Pack, Restore as _, Save as _, Shared};
//! # use std::os::fd::AsRawFd as _;
//! let mut pack = Pack::new();
//! (&0.5_f64).save("rate", &mut pack)?;
//! let file = std::fs::File::from(pack.into_memfd()?);
//! let saved = Shared::open(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref())?;
//! let mut rate = 0_f64;
//! (&mut rate).restore("rate", &saved)?;
//! assert_eq!(rate, 0.5);
//! # Ok::<(), ferrotune_state::ShareError>(())
//! ```

mod any_error;
mod save;
pub mod seed;
pub mod shared;

pub use any_error::{BoxError, Error, Result, located, place_in};
pub use save::{Restore, Save, variables};
pub use seed::{current_seed, derived_seed, given_seed};
pub use shared::{Pack, Share, ShareError, Shared, map_array};
