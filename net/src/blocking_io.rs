//! `BlockingIo`: readers and writers that no poller can watch, such as files, standard input and pipes.

use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};

use sudog_runtime::goroutine::blocking;

/// A reader or a writer whose methods make [`blocking`] calls. So a goroutine may use a file, or standard input, and
/// only that goroutine waits. Go's runtime does the same for files.
///
/// A call takes some microseconds longer, so wrap the value in a `BufReader` or a `BufWriter`.
///
/// A goroutine that reads standard input, while no input comes, does not keep the program from ending.
///
/// # Examples
///
/// ```
/// use std::fs::File;
/// use std::io::Read;
/// use sudog::net::BlockingIo;
/// use sudog::run;
///
/// let text = run(|| {
///     let mut text = String::new();
///     BlockingIo::new(File::open("Cargo.toml")?).read_to_string(&mut text)?;
///     Ok::<_, std::io::Error>(text)
/// })?;
/// assert!(text.contains("[package]"));
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct BlockingIo<T>(T);

impl<T> BlockingIo<T> {
    /// Wraps a file, or another reader or writer.
    #[must_use]
    pub const fn new(inner: T) -> Self {
        Self(inner)
    }

    /// Returns the wrapped value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: Read + Send> Read for BlockingIo<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        blocking(|| self.0.read(buf))
    }
}

impl<T: Write + Send> Write for BlockingIo<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        blocking(|| self.0.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        blocking(|| self.0.flush())
    }
}

impl<T: BufRead + Send> BufRead for BlockingIo<T> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if blocking(|| self.0.fill_buf().map(<[u8]>::is_empty))? {
            return Ok(&[]); // the end: a second call would read again, on the worker, and a terminal may wait for more
        }
        self.0.fill_buf() // does not read: the buffer has bytes
    }

    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

impl<T: Seek + Send> Seek for BlockingIo<T> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        blocking(|| self.0.seek(to))
    }
}
