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
