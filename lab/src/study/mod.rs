//! The studies: commands that each answer a single question.

pub mod bypass;
#[cfg(any(target_os = "linux", sudog_sim))]
pub mod calibrate;
pub mod capacitor;
#[cfg(sudog_sim)]
pub mod collapse;
pub mod collide;
pub mod collisions;
#[cfg(all(unix, feature = "observe", feature = "peers", not(sudog_sim)))]
pub mod cost;
#[cfg(unix)]
pub mod csp;
#[cfg(all(unix, not(sudog_sim)))]
pub mod csp_stages;
#[cfg(sudog_sim)]
pub mod explore;
pub mod figures;
pub mod gates;
pub mod history;
#[cfg(all(unix, feature = "observe", not(sudog_sim)))]
pub mod profile;
pub mod stages;
pub mod starvation;
pub mod trust;
