//! The studies that use the benches: commands that each answer a single question. The other studies are the crate
//! `sudog-lab-study`.

pub mod capacitor;
pub mod figures;
#[cfg(all(unix, feature = "observe", not(sudog_sim)))]
pub mod profile;
pub mod stages;
