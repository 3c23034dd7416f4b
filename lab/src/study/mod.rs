//! The commands that study one question each.

pub mod bypass;
pub mod capacitor;
pub mod collide;
pub mod collisions;
#[cfg(sudog_sim)]
pub mod explore;
pub mod figures;
pub mod gates;
pub mod history;
pub mod stages;
pub mod starvation;
