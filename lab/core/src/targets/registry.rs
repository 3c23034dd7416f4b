//! The `registry` macro. A registry is a table of backends, from which the macro makes the names, their descriptions
//! and the dispatch.

/// Makes an enum of names for the command line and the records, with descriptions.
#[macro_export]
macro_rules! names {
    (
        $(#[$name_doc:meta])*
        enum $Name:ident;
        unknown $kind:literal;
        $($(#[$cfg:meta])* $Variant:ident = $name:literal, $about:literal;)+
    ) => {
        $(#[$name_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $Name {
            $($(#[$cfg])* #[doc = $about] $Variant,)+
        }

        #[allow(dead_code)] // not all names are listed and described
        impl $Name {
            /// All names, in the order in which they are shown.
            pub const ALL: &[Self] = &[$($(#[$cfg])* Self::$Variant,)+];

            /// Returns the name on the command line and in the records.
            pub const fn name(self) -> &'static str {
                match self { $($(#[$cfg])* Self::$Variant => $name,)+ }
            }

            /// Returns a description in one line.
            pub const fn about(self) -> &'static str {
                match self { $($(#[$cfg])* Self::$Variant => $about,)+ }
            }
        }

        impl ::std::fmt::Display for $Name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
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
    };
}

/// Makes an enum of names, and the function that runs a job, which is generic over the backend, on the backend of a
/// name. So every benchmark is written once and compiled for each backend. Registries of one kind of backends can share
/// the trait of their jobs: `jobs Job;`.
#[macro_export]
macro_rules! registry {
    (
        $(#[$name_doc:meta])*
        enum $Name:ident;
        $(#[$job_doc:meta])*
        trait $Job:ident over $Backend:path;
        $($rest:tt)+
    ) => {
        $(#[$job_doc])*
        pub trait $Job {
            /// The result of the job.
            type Out;

            /// Does the job on a backend.
            fn run<B: $Backend + 'static>(self) -> Self::Out;
        }

        $crate::registry! {
            $(#[$name_doc])*
            enum $Name;
            jobs $Job;
            $($rest)+
        }
    };
    (
        $(#[$name_doc:meta])*
        enum $Name:ident;
        jobs $Job:path;
        fn $with:ident;
        unknown $kind:literal;
        $($(#[$cfg:meta])* $Variant:ident = $name:literal: $Type:ty, $about:literal;)+
    ) => {
        $crate::names! {
            $(#[$name_doc])*
            enum $Name;
            unknown $kind;
            $($(#[$cfg])* $Variant = $name, $about;)+
        }

        /// Runs a job on the backend of a name.
        pub fn $with<J: $Job>(name: $Name, job: J) -> J::Out {
            match name { $($(#[$cfg])* $Name::$Variant => job.run::<$Type>(),)+ }
        }
    };
}

pub use {names, registry};
