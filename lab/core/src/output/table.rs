//! Tables of text.

use std::fmt;

/// A table: a header, rows, and columns as wide as they must be. The first column is flush left, numbers flush right.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// The number of columns, from the left, that contain words.
    words: usize,
}

impl Table {
    /// Creates a table with these columns, the first `words` of which are flush left.
    pub fn new(words: usize, header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut table = Self { rows: Vec::new(), words };
        table.row(header);
        table
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns the header, then the other rows.
    pub fn rows(&self) -> impl Iterator<Item = &[String]> {
        self.rows.iter().map(Vec::as_slice)
    }

    /// Returns whether a column is flush left.
    pub fn is_words(&self, column: usize) -> bool {
        column < self.words
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        for (n, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = width(column).unwrap_or(0);
                let gap = if column == 0 { "" } else { "  " };
                line += &match self.is_words(column) {
                    true => format!("{gap}{cell:<width$}"),
                    false => format!("{gap}{cell:>width$}"),
                };
            }
            let end = if n == 0 { "" } else { "\n" };
            write!(f, "{end}{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(1, ["lock", "µs"]);
        table.row(["a", "10.5"]);
        table.row(["longer", "1"]);
        assert_eq!(table.to_string(), "lock      µs\na       10.5\nlonger     1");
    }
}
