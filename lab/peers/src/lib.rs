//! The commands that measure other libraries, Go, or goroutines: the laboratory's feature `peers`, which `cargo lab-peers`
//! has and `cargo lab` has not. So `cargo lab` is built without these commands and without the libraries.

#![cfg(not(sudog_sim))]
#![allow(missing_docs)] // published nowhere; used by the laboratory only

pub mod chanbench;
#[cfg(all(unix, feature = "observe"))]
pub mod cost;
#[cfg(unix)]
pub mod goroutines;
pub mod listed;
#[cfg(target_os = "linux")]
pub mod netbench;
pub mod rounds;
pub mod syncbench;
#[cfg(target_os = "linux")]
pub mod tail;
#[cfg(unix)]
pub mod versus_go;

use clap::Subcommand;
use sudog_lab_core::{measure, options, output, run, targets};

use crate::output::Output;
use crate::output::failure::Failure;
use crate::run::noise::Measured;

/// A command of the feature `peers`.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Go's benchmarks of sync beside the best Rust peers: nanoseconds an operation
    Syncbench(syncbench::SyncbenchArgs),
    /// Channels beside crossbeam, flume, kanal, std, tokio and async-channel: throughput and fairness
    Chanbench(chanbench::ChanbenchArgs),
    /// Goroutines: spawn, switch, ping-pong, daisy chain, fork-join, a million of them
    #[cfg(unix)]
    Goroutines(goroutines::GoroutinesArgs),
    /// Go's own benchmarks on Go and here, alternately. Needs Go
    #[cfg(unix)]
    VersusGo(versus_go::VersusGoArgs),
    /// A benchmark of versus-go in this process, which that command starts
    #[cfg(unix)]
    #[command(hide = true)]
    VersusGoChild(versus_go::ChildArgs),
    /// Servers of TCP echoes: sudog, tokio, Go. Round trips, processor time, memory
    #[cfg(target_os = "linux")]
    Netbench(netbench::NetbenchArgs),
    /// A server of netbench, which that command starts
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    NetbenchChild(netbench::ChildArgs),
    /// Lateness of sleepers, and times of light requests, beside goroutines that compute: sudog, tokio, Go
    #[cfg(target_os = "linux")]
    Tail(tail::TailArgs),
    /// A side of tail, which that command starts
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    TailChild(tail::ChildArgs),
    /// The cost of the tools for slow programs, beside the goals ('cargo lab-cost')
    #[cfg(all(unix, feature = "observe"))]
    Cost(cost::CostArgs),
    /// A measurement of cost in this process, which that command starts
    #[cfg(all(unix, feature = "observe"))]
    #[command(hide = true)]
    CostChild(cost::ChildArgs),
}

impl Command {
    /// Returns where the measured threads are.
    pub fn measured(&self) -> Measured {
        match self {
            Self::Syncbench(_) | Self::Chanbench(_) => Measured::Here,
            #[cfg(unix)]
            Self::Goroutines(_) | Self::VersusGo(_) => Measured::InChildren,
            #[cfg(unix)]
            Self::VersusGoChild(_) => Measured::IsChild,
            #[cfg(target_os = "linux")]
            Self::Netbench(_) | Self::Tail(_) => Measured::InChildren,
            #[cfg(target_os = "linux")]
            Self::NetbenchChild(_) | Self::TailChild(_) => Measured::IsChild,
            #[cfg(all(unix, feature = "observe"))]
            Self::Cost(_) => Measured::InChildren,
            #[cfg(all(unix, feature = "observe"))]
            Self::CostChild(_) => Measured::IsChild,
        }
    }

    /// Runs the command.
    pub fn run(&self, output: Output) -> Result<(), Failure> {
        match self {
            Self::Syncbench(args) => syncbench::run(args, output),
            Self::Chanbench(args) => chanbench::run(args, output),
            #[cfg(unix)]
            Self::Goroutines(args) => goroutines::run(args, output),
            #[cfg(unix)]
            Self::VersusGo(args) => versus_go::run(args, output),
            #[cfg(unix)]
            Self::VersusGoChild(args) => versus_go::child::be(args),
            #[cfg(target_os = "linux")]
            Self::Netbench(args) => netbench::run(args, output),
            #[cfg(target_os = "linux")]
            Self::NetbenchChild(args) => netbench::serve(args),
            #[cfg(target_os = "linux")]
            Self::Tail(args) => tail::run(args, output),
            #[cfg(target_os = "linux")]
            Self::TailChild(args) => tail::be(args),
            #[cfg(all(unix, feature = "observe"))]
            Self::Cost(args) => cost::run(args, output),
            #[cfg(all(unix, feature = "observe"))]
            Self::CostChild(args) => cost::be(args),
        }
    }
}
