//! The library under a program: the pthread functions as POSIX and glibc have them, over each lock.
//!
//! The program is this test itself, as a child process under `LD_PRELOAD`; it prints the name of each case. A case that
//! hangs is ended by SIGALRM. The cases run once without the library, too: they are true of glibc.
//!
//! `cargo test -p sudog-preload --test preload [LOCK...]`. Without names the cases run over a lock of each kind; over all
//! locks if `SUDOG_PRELOAD_ALL` is set, as `.ci/nightly` does.
#![cfg_attr(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")), allow(unused))]

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64", not(sudog_loom), not(sudog_sim)))]
mod cases;

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64", not(sudog_loom), not(sudog_sim)))]
fn main() {
    use std::env;
    use std::process::Command;

    use sudog_lab_core::targets::locks::LockName;

    const CHILD: &str = "SUDOG_PRELOAD_CHILD";
    if env::var_os(CHILD).is_some() {
        return cases::run();
    }
    let me = env::current_exe().unwrap();
    let library = me.with_file_name("libsudog_preload.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    let child = |lock: Option<&str>| {
        let mut child = Command::new(&me);
        child.env(CHILD, "1").env_remove("SUDOG_LOCK").env_remove("LD_PRELOAD");
        if let Some(lock) = lock {
            child.env("LD_PRELOAD", &library).env("SUDOG_LOCK", lock);
        }
        child.output().unwrap()
    };

    // An unknown lock ends the process before `main`, with the names of all locks.
    let output = child(Some("nonsense"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("'nonsense'") && LockName::ALL.iter().all(|lock| message.contains(lock.name())),
        "{message}"
    );
    assert!(output.stdout.is_empty(), "main has run");

    const EACH_KIND: [&str; 9] =
        ["none", "pthread", "sudog", "sudog/go-1.14", "std", "parking_lot_0_12", "mcs", "ticket", "tts-yield"];
    let mut wanted: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if wanted.is_empty() && env::var_os("SUDOG_PRELOAD_ALL").is_none() {
        wanted.extend(EACH_KIND.map(str::to_owned));
    }
    let all = LockName::ALL.iter().filter(|lock| !lock.is_model()).map(|lock| Some(lock.name()));
    let locks: Vec<_> = std::iter::once(None)
        .chain(all)
        .filter(|lock| wanted.is_empty() || wanted.iter().any(|wanted| wanted == lock.unwrap_or("none")))
        .collect();
    let mut failed = 0;
    for &lock in &locks {
        let begun = std::time::Instant::now();
        let output = child(lock);
        let name = lock.unwrap_or("no library");
        if output.status.success() {
            println!("{name} ... ok ({:.1} s)", begun.elapsed().as_secs_f64());
        } else {
            failed += 1;
            println!("{name} ... FAILED, {}", output.status);
            println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        }
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed",
        if failed == 0 { "ok" } else { "FAILED" },
        locks.len() - failed
    );
    std::process::exit(i32::from(failed > 0));
}

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    not(sudog_loom),
    not(sudog_sim)
)))]
fn main() {}
