//! A scheduler of one's own: goroutines on the calling thread, which need not be `Send`, and goroutine-local values.
//!
//! `cargo run --example own_scheduler`

use std::cell::Cell;
use std::rc::Rc;

use sudog::runtime::gosched;
use sudog::{go, goroutine_local, run_local};

goroutine_local! {
    static STEPS: Cell<u32> = Cell::new(0);
}

fn main() {
    let order = Rc::new(Cell::new(String::new()));
    let log = |order: &Rc<Cell<String>>, text: &str| order.set(order.take() + text + " ");
    let main_order = order.clone();
    // `run_local` returns when all goroutines of the scheduler have ended.
    run_local(move || {
        go(|| {
            STEPS.with(|steps| steps.set(steps.get() + 1));
            gosched();
            STEPS.with(|steps| assert_eq!(steps.get(), 1, "no other goroutine has this value"));
        });
        log(&main_order, "main");
        gosched();
        log(&main_order, "again");
    });
    println!("{}", order.take());
}
