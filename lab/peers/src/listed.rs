//! Benchmarks by name: the values of the options that choose among the benchmarks of a list.

/// Makes the type of the names of the benchmarks in a static list. The last argument ends the message about an unknown name.
macro_rules! listed {
    ($(#[$doc:meta])* $Name:ident of $Bench:ty, in $ALL:ident; $known:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $Name(usize);

        impl $Name {
            /// Returns all benchmarks, in the order in which they are shown.
            pub fn all() -> impl Iterator<Item = Self> {
                (0..$ALL.len()).map(Self)
            }
        }

        impl std::ops::Deref for $Name {
            type Target = $Bench;

            fn deref(&self) -> &$Bench {
                &$ALL[self.0]
            }
        }

        impl std::str::FromStr for $Name {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let known = Self::all().find(|known| known.name == name);
                known.ok_or_else(|| format!("unknown benchmark '{name}'; {}", $known))
            }
        }

        impl std::fmt::Debug for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name)
            }
        }

        impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name)
            }
        }
    };
}

pub(crate) use listed;
