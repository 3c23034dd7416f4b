//! The commands of the laboratory.

pub mod chanbench;
pub mod compare;
#[cfg(unix)]
pub mod goroutines;
pub mod list;
pub mod logged;
pub mod mutexbench;
#[cfg(all(target_os = "linux", not(sudog_sim)))]
pub mod netbench;
pub mod page;
pub mod plan;
pub mod rwbench;
pub mod semabench;
pub mod semtable;
pub mod summary;
pub mod syncbench;
#[cfg(all(target_os = "linux", not(sudog_sim)))]
pub mod tail;
pub mod uncontended;
#[cfg(unix)]
pub mod versus_go;
