//! How runs are made: the contenders, and the loops that they execute.

pub mod contenders;
pub mod driver;
pub mod pinned;
pub mod rounds;
pub mod sections;
