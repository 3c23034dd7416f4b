//! The laboratory's parsers of text: its command line, and the lines that it reads. None may panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| sudog_lab::parse_anything(text));
