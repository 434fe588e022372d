#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    hotcell_fuzz::egress_body(data);
});
