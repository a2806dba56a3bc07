//! The trait of variables that a cell can share with a trial. [`share_fields!`] implements it for the user's own types.
//!
//! [`share_fields!`]: crate::share_fields

use super::{Pack, ShareError, Shared};
use candle_core::{Device, Tensor};
#[cfg(feature = "strategies")]
use ferrotune_devices::Strategy;
use std::any::type_name;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::str::FromStr;

/// A variable of a cell that an objective may use: it can be sent to the process of a trial.
#[diagnostic::on_unimplemented(
    message = "the variable of type `{Self}` cannot travel to a trial",
    label = "captured by the objective, but a trial runs in another process",
    note = "tensors, numbers, bools, strings, and tuples, arrays, `Vec`s, `Option`s and maps of them can travel",
    note = "for a struct of your own: `ferrotune::share_fields!({Self} {{ field, other_field }});`, in its own cell or in a later one",
    note = "or make the value inside the objective, where each trial builds its own"
)]
pub trait Share: Sized {
    /// Adds this variable to `pack` under `name`.
    fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError>;

    /// The variable that was packed under `name`.
    fn unpack(name: &str, shared: &Shared) -> Result<Self, ShareError>;

    /// Adds a list of such variables to `pack` under `name`.
    #[doc(hidden)]
    fn pack_list(list: &[Self], name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        list.len().pack(&format!("{name}.len"), pack)?;
        list.iter().enumerate().try_for_each(|(index, item)| item.pack(&format!("{name}.{index}"), pack))
    }

    /// The list that was packed under `name`.
    #[doc(hidden)]
    fn unpack_list(name: &str, shared: &Shared) -> Result<Vec<Self>, ShareError> {
        let length = usize::unpack(&format!("{name}.len"), shared)?;
        (0..length).map(|index| Self::unpack(&format!("{name}.{index}"), shared)).collect()
    }
}

impl Pack {
    /// Adds a variable; [`Share::pack`] with another order of arguments.
    pub fn add<T: Share>(&mut self, name: &str, variable: &T) -> Result<(), ShareError> {
        variable.pack(name, self)
    }
}

/// Implements `Share` for a struct whose fields implement it. In a notebook, write it on its own line, in the cell of
/// the struct or in a later one.
///
/// ```
/// # use candle_core::Tensor;
/// # use ferrotune_state::share_fields;
/// struct Digits { images: Tensor, labels: Tensor }
/// share_fields!(Digits { images, labels });
/// ```
#[macro_export]
macro_rules! share_fields {
    ($kind:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::Share for $kind {
            fn pack(&self, name: &str, pack: &mut $crate::Pack) -> ::std::result::Result<(), $crate::ShareError> {
                $($crate::Share::pack(&self.$field, &format!("{name}.{}", stringify!($field)), pack)?;)+
                Ok(())
            }

            fn unpack(name: &str, shared: &$crate::Shared) -> ::std::result::Result<Self, $crate::ShareError> {
                Ok(Self { $($field: $crate::Share::unpack(&format!("{name}.{}", stringify!($field)), shared)?),+ })
            }
        }
    };
}

impl Share for Tensor {
    fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        pack.tensor(name, self)
    }

    fn unpack(name: &str, shared: &Shared) -> Result<Tensor, ShareError> {
        shared.tensor(name)
    }
}

/// A strategy describes devices, and the trial opens them itself.
#[cfg(feature = "strategies")]
impl Share for Strategy {
    fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        let text = serde_json::to_string(self).map_err(|error| kind::<Self>(name, error.to_string()))?;
        pack.text(name, text);
        Ok(())
    }

    fn unpack(name: &str, shared: &Shared) -> Result<Strategy, ShareError> {
        let text = shared.text(name)?;
        serde_json::from_str(text).map_err(|error| kind::<Self>(name, format!("the text '{text}' ({error})")))
    }
}

impl<T: Share> Share for Vec<T> {
    fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        T::pack_list(self, name, pack)
    }

    fn unpack(name: &str, shared: &Shared) -> Result<Vec<T>, ShareError> {
        T::unpack_list(name, shared)
    }
}

impl<T: Share, const N: usize> Share for [T; N] {
    fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        T::pack_list(self, name, pack)
    }

    fn unpack(name: &str, shared: &Shared) -> Result<[T; N], ShareError> {
        let list = T::unpack_list(name, shared)?;
        list.try_into().map_err(|list: Vec<T>| kind::<Self>(name, format!("a list of {}", list.len())))
    }
}

impl<T: Share> Share for Option<T> {
    fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        self.is_some().pack(&format!("{name}.some"), pack)?;
        self.iter().try_for_each(|value| value.pack(name, pack))
    }

    fn unpack(name: &str, shared: &Shared) -> Result<Option<T>, ShareError> {
        match bool::unpack(&format!("{name}.some"), shared)? {
            true => T::unpack(name, shared).map(Some),
            false => Ok(None),
        }
    }
}

macro_rules! maps {
    ($($map:ident: $($bound:ident)+;)*) => {$(
        impl<K: Share + Clone $(+ $bound)+, V: Share> Share for $map<K, V> {
            fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
                let keys: Vec<K> = self.keys().cloned().collect();
                keys.pack(&format!("{name}.keys"), pack)?;
                self.values().enumerate().try_for_each(|(index, value)| value.pack(&format!("{name}.{index}"), pack))
            }

            fn unpack(name: &str, shared: &Shared) -> Result<$map<K, V>, ShareError> {
                let keys = Vec::<K>::unpack(&format!("{name}.keys"), shared)?;
                let value = |index| V::unpack(&format!("{name}.{index}"), shared);
                keys.into_iter().enumerate().map(|(index, key)| Ok((key, value(index)?))).collect()
            }
        }
    )*};
}

maps! {
    HashMap: Eq Hash;
    BTreeMap: Ord;
}

/// Calls a macro with the tuples of one to six elements: the name of each element's type, and its index.
macro_rules! for_tuples {
    ($implement:ident) => {
        $implement! {
            (A 0)
            (A 0, B 1)
            (A 0, B 1, C 2)
            (A 0, B 1, C 2, D 3)
            (A 0, B 1, C 2, D 3, E 4)
            (A 0, B 1, C 2, D 3, E 4, F 5)
        }
    };
}
pub(crate) use for_tuples;

macro_rules! tuples {
    ($(($($kind:ident $index:tt),+))*) => {$(
        impl<$($kind: Share),+> Share for ($($kind,)+) {
            fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
                $(self.$index.pack(&format!("{name}.{}", $index), pack)?;)+
                Ok(())
            }

            fn unpack(name: &str, shared: &Shared) -> Result<Self, ShareError> {
                Ok(($($kind::unpack(&format!("{name}.{}", $index), shared)?,)+))
            }
        }
    )*};
}

for_tuples!(tuples);

/// Implements `Share` for values that are stored as text. Rust writes these types without loss, also floats.
macro_rules! texts {
    ($($kind:ty $({ $($list:item)* })?),* $(,)?) => {$(
        impl Share for $kind {
            fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
                pack.text(name, self.to_string());
                Ok(())
            }

            fn unpack(name: &str, shared: &Shared) -> Result<$kind, ShareError> {
                parse(name, shared.text(name)?)
            }

            $($($list)*)?
        }
    )*};
}

/// Implements `Share` for numbers whose lists are tensors.
macro_rules! tensor_elements {
    ($($kind:ty),*) => { texts! { $($kind {
        fn pack_list(list: &[$kind], name: &str, pack: &mut Pack) -> Result<(), ShareError> {
            let tensor = Tensor::from_slice(list, list.len(), &Device::Cpu);
            pack.tensor(name, &tensor.map_err(|source| ShareError::Tensor { name: name.to_owned(), source })?)
        }

        fn unpack_list(name: &str, shared: &Shared) -> Result<Vec<$kind>, ShareError> {
            let list = shared.tensor(name)?.to_vec1();
            list.map_err(|source| ShareError::Tensor { name: name.to_owned(), source })
        }
    }),* } };
}

/// Implements `Share` for numbers and bools that tensors cannot hold. A list of them is one line of text.
macro_rules! words {
    ($($kind:ty),*) => { texts! { $($kind {
        fn pack_list(list: &[$kind], name: &str, pack: &mut Pack) -> Result<(), ShareError> {
            let words: Vec<String> = list.iter().map(<$kind>::to_string).collect();
            pack.text(name, words.join(" "));
            Ok(())
        }

        fn unpack_list(name: &str, shared: &Shared) -> Result<Vec<$kind>, ShareError> {
            shared.text(name)?.split_whitespace().map(|word| parse(name, word)).collect()
        }
    }),* } };
}

texts! { String, char }
tensor_elements! { u8, u32, i16, i32, i64, f32, f64 }
words! { bool, i8, i128, isize, u16, u64, u128, usize }

fn parse<T: FromStr>(name: &str, text: &str) -> Result<T, ShareError> {
    text.parse().map_err(|_| kind::<T>(name, format!("the text '{text}'")))
}

fn kind<T>(name: &str, found: String) -> ShareError {
    ShareError::Kind { name: name.to_owned(), found, wanted: type_name::<T>() }
}
