//! Guarded values as JSON: the feature `serde`, which is lock_api's.

use sudog::sync::{Mutex, RwMutex};

#[test]
fn a_guarded_value_is_written_and_read_as_the_value() {
    assert_eq!(serde_json::to_string(&Mutex::new([1, 2])).unwrap(), "[1,2]");
    assert_eq!(serde_json::to_string(&RwMutex::new("a")).unwrap(), "\"a\"");
    let mutex: Mutex<Vec<u32>> = serde_json::from_str("[3]").unwrap();
    assert_eq!(*mutex.lock(), [3]);
    let rw: RwMutex<Option<u32>> = serde_json::from_str("null").unwrap();
    assert_eq!(*rw.read(), None);
    assert!(serde_json::from_str::<Mutex<u32>>("-1").is_err());
}
