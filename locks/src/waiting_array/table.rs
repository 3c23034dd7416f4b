//! The waiting arrays: each process has a table for each protocol. In a model, each execution has new tables.

/// Declares a table, to be indexed by the result of a `TicketHash`.
macro_rules! table {
    ($NAME:ident: [$Bucket:ty; $n:expr]) => {
        #[cfg(not(sudog_loom))]
        static $NAME: crate::waiting_array::table::Pages<[$Bucket; $n]> =
            crate::waiting_array::table::Pages([const { <$Bucket>::new() }; $n]);

        #[cfg(sudog_loom)]
        loom::lazy_static! {
            static ref $NAME: Vec<$Bucket> = (0..$n).map(|_| <$Bucket>::new()).collect();
        }
    };
}
pub(super) use table;

/// A table that is aligned to a page, so that it touches fewer pages.
#[cfg(not(sudog_loom))]
#[repr(align(4096))]
pub(super) struct Pages<T>(pub(super) T);

#[cfg(not(sudog_loom))]
impl<T> std::ops::Deref for Pages<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::Pages;

    const PAGE: usize = 4096;

    #[test]
    fn a_table_touches_no_more_pages_than_its_size_asks_for() {
        static TABLE: Pages<[u64; 2048]> = Pages([0; 2048]);
        let begin = (&raw const TABLE).addr();
        let pages = (begin + size_of_val(&TABLE) - 1) / PAGE - begin / PAGE + 1;
        assert_eq!(pages, size_of::<[u64; 2048]>() / PAGE);
    }
}
