//! The `registry` macro. A registry is a table of backends, from which the macro makes the names, their descriptions
//! and the dispatch.

/// Makes an enum of names, and the function that runs a job, which is generic over the backend, on the backend of a
/// name. So every benchmark is written once and compiled for each backend.
#[macro_export]
macro_rules! registry {
    (
        $(#[$name_doc:meta])*
        enum $Name:ident;
        $(#[$job_doc:meta])*
        trait $Job:ident over $Backend:path;
        fn $with:ident;
        unknown $kind:literal;
        $($(#[$cfg:meta])* $Variant:ident = $name:literal: $Type:ty, $about:literal;)+
    ) => {
        $(#[$name_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $Name {
            $($(#[$cfg])* #[doc = $about] $Variant,)+
        }

        impl $Name {
            /// All names, in the order in which they are shown.
            pub const ALL: &[Self] = &[$($(#[$cfg])* Self::$Variant,)+];

            /// The name on the command line and in the records.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($(#[$cfg])* Self::$Variant => $name,)+ }
            }

            /// Returns a description of the backend in one line.
            #[allow(dead_code)] // not shown for every registry
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $($(#[$cfg])* Self::$Variant => $about,)+ }
            }
        }

        impl ::serde::Serialize for $Name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl ::std::str::FromStr for $Name {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|known| known.name() == name).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|known| known.name()).collect();
                    format!("unknown {} '{name}'; known: {}", $kind, known.join(", "))
                })
            }
        }

        $(#[$job_doc])*
        pub trait $Job {
            /// The result of the job.
            type Out;

            /// Does the job on a backend.
            fn run<B: $Backend + 'static>(self) -> Self::Out;
        }

        /// Runs a job on the backend of a name.
        pub fn $with<J: $Job>(name: $Name, job: J) -> J::Out {
            match name { $($(#[$cfg])* $Name::$Variant => job.run::<$Type>(),)+ }
        }
    };
}

pub use registry;
