//! The capacitor protocols as finite models, and the checker that explores the models.

pub mod bounded;
pub mod checker;
pub mod crowd;
pub mod gate;
pub mod multilane;
pub mod parking;
pub mod plain;
pub mod platoon;
pub mod sliding;
pub mod window;
