//! Profiles as files of `pprof`: a gzipped protocol buffer.
//!
//! | message | fields written |
//! |---|---|
//! | Profile | 1 sample types, 2 samples, 4 locations, 5 functions, 6 strings, 9 time, 11 period type, 12 period |
//! | ValueType | 1 type, 2 unit: strings |
//! | Sample | 1 locations, innermost first; 2 values: contentions (or goroutines), nanoseconds |
//! | Location | 1 id, 4 line |
//! | Line | 1 function, 2 line |
//! | Function | 1 id, 2 name, 4 file: strings. Not 3, the mangled name: if the two were equal, pprof would leave out of a name what stands in angle brackets |
//!
//! Source: `proto/profile.proto` of github.com/google/pprof; the values and their names are those of Go's profiles.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};
use std::time::SystemTime;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Frame, Profile};

impl Profile {
    /// Writes a file for `go tool pprof`, and for other programs that read this format. The values are those of Go's
    /// profiles: contentions, and delays in nanoseconds. The values of a dump are goroutines, and their waits.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::fs::File;
    /// use sudog::runtime::profile;
    ///
    /// profile::mutex().write_pprof(File::create("mutex.pb.gz")?)?;
    /// // go tool pprof -http : mutex.pb.gz
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_pprof(&self, out: impl Write) -> io::Result<()> {
        let mut gzip = GzEncoder::new(out, Compression::default());
        gzip.write_all(&self.encode().0)?;
        gzip.finish()?.flush()
    }

    fn encode(&self) -> Message {
        let mut strings = Numbered::default();
        strings.number(String::new()); // the first must be empty
        let mut value_type = |kind: &str, unit: &str| {
            let mut message = Message::default();
            message.integer(1, strings.number(kind.to_owned()));
            message.integer(2, strings.number(unit.to_owned()));
            message
        };
        let (counted, measured) =
            if self.name == "goroutine" { ("goroutine", "waited") } else { ("contentions", "delay") };
        let contentions = value_type(counted, "count");
        let delay = value_type(measured, "nanoseconds");
        let mut profile = Message::default();
        profile.message(1, &contentions);
        profile.message(1, &delay);

        let mut locations = Numbered::<Frame>::default();
        for record in &self.records {
            let mut sample = Message::default();
            sample.integers(1, record.frames.iter().map(|frame| locations.number(frame.clone()) + 1));
            sample.integers(2, [record.count(), u64::try_from(record.delay.as_nanos()).unwrap_or(u64::MAX)]);
            profile.message(2, &sample);
        }
        let mut functions = Numbered::<(u64, u64)>::default();
        for (id, frame) in (1..).zip(locations.all) {
            let names = (strings.number(frame.function), strings.number(frame.file));
            let mut line = Message::default();
            line.integer(1, functions.number(names) + 1);
            line.integer(2, u64::from(frame.line));
            let mut location = Message::default();
            location.integer(1, id);
            location.message(4, &line);
            profile.message(4, &location);
        }
        for (id, (name, file)) in (1..).zip(functions.all) {
            let mut function = Message::default();
            function.integer(1, id);
            function.integer(2, name);
            function.integer(4, file);
            profile.message(5, &function);
        }
        for string in &strings.all {
            profile.bytes(6, string.as_bytes());
        }
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        profile.integer(9, u64::try_from(since_1970.as_nanos()).unwrap_or(0));
        profile.message(11, &contentions);
        profile.integer(12, 1);
        profile
    }
}

/// A message of a protocol buffer.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn integer(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn integers(&mut self, field: u64, values: impl IntoIterator<Item = u64>) {
        let mut packed = Self::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, &packed);
    }
}

/// Values in the order of their first use, each with its number.
struct Numbered<T> {
    all: Vec<T>,
    numbers: HashMap<T, u64>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn number(&mut self, value: T) -> u64 {
        *self.numbers.entry(value).or_insert_with_key(|value| {
            self.all.push(value.clone());
            self.all.len() as u64 - 1
        })
    }
}
