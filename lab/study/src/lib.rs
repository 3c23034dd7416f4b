//! The studies that need no other command of the laboratory: commands that each answer a single question. In a crate of
//! their own, they are compiled beside the rest of the laboratory.

#![allow(missing_docs)] // published nowhere; used by the laboratory only

pub mod bypass;
#[cfg(any(target_os = "linux", sudog_sim))]
pub mod calibrate;
pub mod capacitor_tax;
#[cfg(sudog_sim)]
pub mod collapse;
pub mod collide;
pub mod collisions;
pub mod counted_stages;
#[cfg(unix)]
pub mod csp;
#[cfg(all(unix, not(sudog_sim)))]
pub mod csp_stages;
#[cfg(sudog_sim)]
pub mod explore;
pub mod gates;
pub mod history;
pub mod semtable;
pub mod starvation;

use sudog_lab_core::{measure, options, output, run, targets};
