//! A list of squares in three ways (Skaller, chapter 5.2): by a callback, by an iterator, and by peers. Each way applies
//! the same three parts to nested lists: a walk over the list, the square, and sums of two squares that follow each
//! other.
//!
//! A part that calls is a master: its state is in its local variables, and in its place in its loops. A part that is
//! called is a slave, and must keep its state in a struct. Compare `callback::Pairs` and `iterator::Walk` with the
//! functions `walk` and `pairs` in `peers`, which are masters both.

/// A list whose elements are numbers or lists.
enum List {
    Number(u64),
    Lists(Vec<List>),
}

use List::{Lists, Number};

/// The walk is the master. The consumer is a callback, which has to remember whether it has seen a first square.
mod callback {
    use super::{List, Lists, Number};

    fn walk(list: &List, f: &mut impl FnMut(u64)) {
        match list {
            Number(n) => f(*n),
            Lists(lists) => lists.iter().for_each(|list| walk(list, f)),
        }
    }

    #[derive(Default)]
    struct Pairs {
        first: Option<u64>,
        sums: Vec<u64>,
    }

    impl Pairs {
        fn square(&mut self, square: u64) {
            match self.first.take() {
                None => self.first = Some(square),
                Some(first) => self.sums.push(first + square),
            }
        }
    }

    pub(super) fn sums(list: &List) -> Vec<u64> {
        let mut pairs = Pairs::default();
        walk(list, &mut |n| pairs.square(n * n));
        pairs.sums
    }
}

/// The consumer is the master. The walk is an iterator, which has to keep a stack of its places by hand.
mod iterator {
    use super::{List, Lists, Number};

    struct Walk<'a>(Vec<std::slice::Iter<'a, List>>);

    impl Iterator for Walk<'_> {
        type Item = u64;

        fn next(&mut self) -> Option<u64> {
            loop {
                match self.0.last_mut()?.next() {
                    Some(Number(n)) => return Some(*n),
                    Some(Lists(lists)) => self.0.push(lists.iter()),
                    None => _ = self.0.pop(),
                }
            }
        }
    }

    pub(super) fn sums(list: &List) -> Vec<u64> {
        let mut squares = Walk(vec![std::slice::from_ref(list).iter()]).map(|n| n * n);
        let mut sums = Vec::new();
        while let (Some(first), Some(second)) = (squares.next(), squares.next()) {
            sums.push(first + second);
        }
        sums
    }
}

/// All parts are masters, which meet on channels. None of them is told when to stop.
#[cfg(unix)]
mod peers {
    use std::sync::Arc;

    use sudog::csp::{self, End, Reclaimed, make_channel, spawn_fibre};

    use super::{List, Lists, Number};

    fn walk(list: &List, to: &mut End<u64>) -> Result<(), Reclaimed> {
        match list {
            Number(n) => Ok(to.write(*n)?),
            Lists(lists) => lists.iter().try_for_each(|list| walk(list, to)),
        }
    }

    fn square(mut from: End<u64>, mut to: End<u64>) -> Result<(), Reclaimed> {
        loop {
            let n = from.read()?;
            to.write(n * n)?;
        }
    }

    fn pairs(mut from: End<u64>, sums: &mut Vec<u64>) -> Result<(), Reclaimed> {
        loop {
            let first = from.read()?;
            let second = from.read()?;
            sums.push(first + second);
        }
    }

    pub(super) fn sums(list: &Arc<List>) -> Vec<u64> {
        let list = list.clone();
        csp::run(move || {
            let [mut numbers, input] = make_channel();
            let [output, squares] = make_channel();
            spawn_fibre(move || walk(&list, &mut numbers));
            spawn_fibre(move || square(input, output));
            let mut sums = Vec::new();
            _ = pairs(squares, &mut sums); // until no square can come
            sums
        })
    }
}

fn main() {
    let list = Lists(vec![Number(1), Lists(vec![Number(2), Lists(vec![Number(3)]), Number(4)]), Number(5), Number(6)]);
    let expected = [1 + 4, 9 + 16, 25 + 36];
    let list = std::sync::Arc::new(list);
    assert_eq!(callback::sums(&list), expected);
    assert_eq!(iterator::sums(&list), expected);
    #[cfg(unix)]
    assert_eq!(peers::sums(&list), expected);
    println!("sums of pairs of squares: {expected:?}");
}
