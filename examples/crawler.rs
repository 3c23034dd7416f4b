//! A Tour of Go, "Exercise: Web Crawler": pages are fetched in parallel, each page once, and the first error ends the
//! crawl. With an `ErrGroup` that runs at most four fetches at a time.
//!
//! `cargo run --example crawler`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sudog::prelude::*;
use sudog::x::ErrGroup;

/// A page: its body, and the pages that the body links to.
type Page = (&'static str, &'static [&'static str]);

const PAGES: &[(&str, Page)] = &[
    ("/", ("The Go Programming Language", &["/pkg/", "/cmd/"])),
    ("/pkg/", ("Packages", &["/", "/cmd/", "/pkg/fmt/", "/pkg/os/"])),
    ("/pkg/fmt/", ("Package fmt", &["/", "/pkg/"])),
    ("/pkg/os/", ("Package os", &["/", "/pkg/"])),
];

fn fetch(ctx: &Context, url: &str) -> Result<Option<Page>, context::Error> {
    ctx.sleep(Duration::from_millis(1))?; // the network
    Ok(PAGES.iter().find(|(known, _)| *known == url).map(|(_, page)| *page))
}

struct Crawler {
    ctx: Context,
    group: ErrGroup,
    found: Mutex<BTreeMap<&'static str, Option<&'static str>>>,
}

impl Crawler {
    fn crawl(self: Arc<Self>, url: &'static str, depth: u32) {
        let mut found = self.found.lock();
        if depth == 0 || found.contains_key(url) {
            return;
        }
        found.insert(url, None);
        drop(found);
        let crawler = self.clone();
        self.group.go(move || {
            if let Some((body, links)) = fetch(&crawler.ctx, url)? {
                crawler.found.lock().insert(url, Some(body));
                links.iter().for_each(|link| crawler.clone().crawl(link, depth - 1));
            }
            Ok::<_, context::Error>(())
        });
    }
}

fn main() {
    sudog::run(|| {
        let (group, ctx) = ErrGroup::with_context(&context::background());
        let crawler = Arc::new(Crawler { ctx, group, found: Mutex::default() });
        crawler.clone().crawl("/", 4);
        crawler.group.wait().expect("no error");
        let found = crawler.found.lock();
        for (url, body) in &*found {
            println!("{url:<10} {}", body.unwrap_or("not found"));
        }
        assert_eq!(found.len(), 5);
        assert_eq!((found["/cmd/"], found["/pkg/"]), (None, Some("Packages")));
    });
}
