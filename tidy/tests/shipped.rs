//! The binary that users get has no way to leave a layer out.
//!
//! Tests prove each wall from both sides with a second launcher that can leave layers out (feature
//! `holes`, turned on by tests/ alone). Here: that launcher is not in the product, and nothing
//! outside decides about layers.

use std::fs;
use std::path::PathBuf;

use hotcell_tidy::{build_messages, built};
use serde_json::Value;

/// The variables that the product reads. None of them can lower a level or leave a layer out.
const VARIABLES: [&str; 3] = ["HOTCELL_HOME", "HOTCELL_MIN_LEVEL", "HOTCELL_TEMPLATE"];

/// What runs are told by variables; the product reads none of it.
const TOLD: [&str; 2] = ["HOTCELL_PROXY", "HOTCELL_PROXY_USER"];

const ELF: &[u8] = b"\x7fELF\x02\x01\x01";

/// Crates that have the feature.
const HAVE_HOLES: [&str; 2] = ["hotcell_sandbox", "hotcell_jail"];

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|w| w == part)
}

/// The bytes of the product. `HOTCELL_BIN` must be what the sources give.
fn product(messages: &[Value]) -> Vec<u8> {
    let bytes = fs::read(built(messages)).unwrap();
    if let Some(path) = std::env::var_os("HOTCELL_BIN") {
        assert!(fs::read(&path).unwrap() == bytes, "{path:?} is not what these sources build");
    }
    bytes
}

/// The files that the build script of a crate made, by their variables, and where it made them.
fn made_by(messages: &[Value], name: &str) -> (Vec<(String, PathBuf)>, PathBuf) {
    let scripts = messages.iter().filter(|m| m["reason"] == "build-script-executed");
    let mut ours = scripts.filter(|m| m["package_id"].as_str().unwrap().contains(name));
    let script = ours.next().expect("the crate has a build script");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let made = script["env"].as_array().unwrap().iter();
    let made = made.map(|pair| (text(&pair[0]), text(&pair[1]).into())).collect();
    (made, text(&script["out_dir"]).into())
}

#[test]
fn no_crate_of_the_product_was_built_with_holes() {
    let messages = build_messages();
    for name in HAVE_HOLES {
        let mut found = messages.iter().filter(|m| m["target"]["name"] == name).peekable();
        assert!(found.peek().is_some(), "`{name}` is not part of the build");
        for message in found {
            let features = message["features"].as_array().unwrap();
            assert!(!features.iter().any(|f| f == "holes"), "{name}: {features:?}");
        }
    }
}

#[test]
fn the_one_launcher_inside_is_the_one_without_holes() {
    let messages = build_messages();
    let (made, out) = made_by(&messages, "crates/sandbox");
    let [(launcher, image), (zygote, library)] = &made[..] else { panic!("it made {made:?}") };
    assert_eq!([&launcher[..], zygote], ["HOTCELL_LAUNCHER", "HOTCELL_ZYGOTE"]);
    assert!(image.starts_with(out.join("launcher")), "{image:?}");
    assert!(library.starts_with(out.join("library")), "{library:?}");

    let (product, launcher) = (product(&messages), fs::read(image).unwrap());
    assert!(launcher.starts_with(ELF) && launcher.len() < 1 << 20, "{} bytes", launcher.len());
    let [evaluator, airlock] = ["crates/extension", "crates/egress"].map(|name| {
        let (made, _) = made_by(&messages, name);
        let [(_, program)] = &made[..] else { panic!("{name} made {made:?}") };
        program.clone()
    });
    let programs = product.windows(ELF.len()).filter(|w| *w == ELF).count();
    assert_eq!(
        programs, 5,
        "itself, one launcher, its library for zygotes, an evaluator, an airlock"
    );
    assert!(contains(&product, &launcher), "the launcher inside is another one");
    for file in [library, &evaluator, &airlock] {
        assert!(contains(&product, &fs::read(file).unwrap()), "{file:?} inside is another one");
    }
}

#[test]
fn no_variable_but_the_documented_ones_is_read() {
    let product = product(&build_messages());
    let start = b"HOTCELL_";
    let mut found: Vec<String> = Vec::new();
    for at in (0..product.len() - start.len()).filter(|&at| product[at..].starts_with(start)) {
        let name = product[at..].iter().take_while(|b| b.is_ascii_uppercase() || **b == b'_');
        found.push(name.map(|&b| char::from(b)).collect());
    }
    found.sort();
    found.dedup();
    // Strings lie side by side in a binary, so that one may be followed by another's first letters; and
    // a comparison may be compiled to its first letters, eight of them in one instruction, which the first
    // byte of the next one follows: a prefix from 0x40 to 0x4f, which is a letter up to `O`.
    let known = |name: &String| {
        let is = |v: &&str| name.starts_with(*v) || (v.starts_with(name) && name != "HOTCELL_");
        let is_code =
            matches!(name.strip_prefix("HOTCELL_").map(str::as_bytes), Some([b'A'..=b'O']));
        is_code || VARIABLES.iter().chain(&TOLD).any(is)
    };
    assert!(!found.is_empty() && found.iter().all(known), "{found:?}");
}
