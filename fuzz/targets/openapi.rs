#![allow(missing_docs)]
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vance_fuzz::openapi(bytes));
