//! A page: a title, an introduction, and sections; and the elements of sections.

use std::fmt::{self, Display, Write};

use crate::output::table::Table;

const STYLE: &str = include_str!("style.css");

/// An HTML page in the making, which needs no other file.
#[derive(Debug)]
pub struct Page {
    title: String,
    intro: String,
    body: String,
}

impl Page {
    /// Creates a page without sections. Title and introduction are text, not HTML.
    pub fn new(title: impl Into<String>, intro: impl Into<String>) -> Self {
        Self { title: title.into(), intro: intro.into(), body: String::new() }
    }

    /// Begins a section. The title is text, the content HTML.
    pub fn section(&mut self, title: &str, html: impl Display) {
        let _ = write!(self.body, "<h2>{}</h2>\n{html}", Escaped(title));
    }

    /// Adds HTML to the section.
    pub fn html(&mut self, html: impl Display) {
        let _ = write!(self.body, "{html}");
    }

    /// Adds text to the section.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", Escaped(text));
    }

    /// Returns the whole page.
    pub fn render(&self) -> String {
        let Self { title, intro, body } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>sudog-lab</title>\n\
             <style>\n{STYLE}</style>\n<h1>{}</h1>\n<p>{}</p>\n{body}</html>\n",
            Escaped(title),
            Escaped(intro)
        )
    }
}

/// Returns plots side by side, each with a title, as HTML.
pub fn figures<T: AsRef<str>>(figures: impl IntoIterator<Item = (T, String)>) -> String {
    let mut html = String::from("<div class=\"plots\">\n");
    for (title, svg) in figures {
        let _ = writeln!(html, "<figure><figcaption>{}</figcaption>{svg}</figure>", Escaped(title.as_ref()));
    }
    html + "</div>\n"
}

/// Returns terms with their meanings, as HTML.
pub fn definitions<T: AsRef<str>>(pairs: impl IntoIterator<Item = (&'static str, T)>) -> String {
    let mut html = String::from("<dl>\n");
    for (term, text) in pairs {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", Escaped(term), Escaped(text.as_ref()));
    }
    html + "</dl>\n"
}

/// Returns a table as HTML.
pub fn table(table: &Table) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n");
    for (n, row) in table.rows().enumerate() {
        let (open, tag, close) = if n == 0 { ("<thead>", "th", "</thead>\n<tbody>") } else { ("", "td", "") };
        html.push_str(open);
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = if table.is_words(column) { " class=\"word\"" } else { "" };
            let _ = write!(html, "<{tag}{class}>{}</{tag}>", Escaped(cell));
        }
        let _ = writeln!(html, "</tr>{close}");
    }
    html + "</tbody></table></div>\n"
}

/// Text in which HTML's special characters are escaped.
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_through() {
        assert_eq!(Escaped("<a href=\"x\">&").to_string(), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }

    #[test]
    fn a_page_is_whole() {
        let mut page = Page::new("A < B", "Why.");
        page.section("One", "<b>html</b>\n");
        page.paragraph("text & more");
        let html = page.render();
        assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
        assert!(html.contains("<h1>A &lt; B</h1>\n<p>Why.</p>\n<h2>One</h2>\n<b>html</b>\n<p>text &amp; more</p>\n"));
    }
}
