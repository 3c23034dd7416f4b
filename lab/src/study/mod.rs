//! The studies that use the benches: commands that each answer a single question. The other studies are the crate
//! `sudog-lab-study`.

pub mod capacitor;
#[cfg(all(unix, feature = "observe", feature = "peers", not(sudog_sim)))]
pub mod cost;
#[cfg(unix)]
pub mod csp;
#[cfg(all(unix, not(sudog_sim)))]
pub mod csp_stages;
pub mod figures;
#[cfg(all(unix, feature = "observe", not(sudog_sim)))]
pub mod profile;
pub mod stages;
