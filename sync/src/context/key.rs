//! Keys of a context's values. A key knows the type of its values.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::AtomicU8;

/// A key for values of type `T` in a [`Context`](super::Context): a `static`, whose identity is its address. The name
/// is for messages only; two keys with the same name are different keys.
///
/// In Go a key is any comparable value, and a package defines its own type for the key. A `static` that is private to
/// a module serves the same purpose.
///
/// # Examples
///
/// ```
/// use sudog::context;
/// use sudog::context::Key;
///
/// static USER: Key<String> = Key::new("user");
///
/// let ctx = context::with_value(&context::background(), &USER, "gopher".to_owned());
/// assert_eq!(ctx.value(&USER).unwrap(), "gopher");
/// ```
///
/// A constant does not work, because a constant has no address of its own:
///
/// ```compile_fail
/// use sudog::context;
/// use sudog::context::Key;
///
/// const USER: Key<u32> = Key::new("user");
///
/// context::with_value(&context::background(), &USER, 1);
/// ```
pub struct Key<T> {
    name: &'static str,
    /// A writable field, which gives each key its own address: two writable statics have two addresses, and no constant
    /// with this field is promoted to a static.
    _own_address: AtomicU8,
    _values: PhantomData<fn(T) -> T>,
}

impl<T> Key<T> {
    /// Creates a key. The caller should store the key in a `static`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, _own_address: AtomicU8::new(0), _values: PhantomData }
    }

    /// Returns the name that messages use for the key.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    fn identity(&'static self) -> usize {
        ptr::from_ref(self).addr()
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.name).finish()
    }
}

/// A key and its value, with their type erased: only the key knows the type.
pub(super) struct Value {
    key: usize,
    key_name: &'static str,
    type_name: &'static str,
    value: Box<dyn Any + Send + Sync>,
}

impl Value {
    pub(super) fn new<T: Send + Sync + 'static>(key: &'static Key<T>, value: T) -> Self {
        let (key_name, type_name) = (key.name, std::any::type_name::<T>());
        Self { key: key.identity(), key_name, type_name, value: Box::new(value) }
    }

    #[inline]
    pub(super) fn get<T: 'static>(&self, key: &'static Key<T>) -> Option<&T> {
        if self.key == key.identity() { self.value.downcast_ref() } else { None }
    }
}

/// Formats the value as Go does: shows a text itself, and for any other value its type.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.value.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| self.value.downcast_ref::<&str>().copied());
        write!(f, "{}, {}", self.key_name, text.unwrap_or(self.type_name))
    }
}
