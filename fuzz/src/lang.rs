//! Which language a file is in, and what a run is told.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hotcell_sandbox::Command;
use hotcell_sandbox::lang::{self, Language};
use hotcell_types::{Cpus, Template};

use crate::outcome;

/// A name, a NUL, and the beginning of a file.
pub fn language(data: &[u8]) -> u64 {
    let (name, head) = halves(data);
    let path = Path::new(OsStr::from_bytes(name));
    let found = Language::detect(path, head);
    // The extension decides; the content counts only where it says nothing.
    if let Some(language) = Language::detect(path, b"") {
        assert_eq!(found, Some(language));
    }
    // What follows the first line does not matter.
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
    assert_eq!(found, Language::detect(path, line));
    outcome(&[
        found.is_some(),
        found == Some(Language::Python),
        found == Some(Language::Shell),
        head.starts_with(b"#!"),
    ])
}

fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&b| b == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (b"", data),
    }
}

pub(crate) fn language_seeds() -> Vec<Vec<u8>> {
    let words = [
        "a.py\0",
        "A.MJS\0#!/bin/sh\n",
        ".sh\0",
        "dir/a\0#!/usr/bin/env -S A=1 python3.11 -u\nprint()",
        "\0#! /bin/bash -e\r\n",
        "\0#!/usr/bin/env\n",
        "\0#!",
        "\0#!/usr/bin/env -S",
        "\0#!/usr/local/bin/node",
        "/\0#!/bin/sh",
        "..\0#!/",
        "\0#!env sh",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

/// Limits of any size, and a program at any path.
pub fn run_env(data: &[u8]) -> u64 {
    let (numbers, path) = data.split_at(data.len().min(12));
    let mut padded = [0; 12];
    padded[..numbers.len()].copy_from_slice(numbers);
    let memory = u64::from_le_bytes(padded[..8].try_into().unwrap());
    let cpu = u32::from_le_bytes(padded[8..].try_into().unwrap());
    let mut limits = Template::DEFAULT.limits;
    limits.memory = memory.to_string().parse().unwrap_or(limits.memory);
    limits.cpu = Cpus::thousandths(cpu);
    let env = lang::runtime_env(&limits);
    for (name, value) in &env {
        assert!(!value.is_empty() && !name.as_bytes().contains(&b'='), "{name:?}");
    }
    // Programs are absolute.
    let program = Path::new("/").join(OsStr::from_bytes(path));
    let command = Command {
        program: program.clone(),
        args: vec![program.into()],
        read_only: vec![],
        tree: None,
        note: None,
        forks: false,
    };
    let search = lang::search_path(&command);
    let dirs: Vec<_> = std::env::split_paths(&search).collect();
    assert!(dirs.iter().all(|dir| dir.is_absolute()), "{search:?}");
    assert!(search.as_bytes().ends_with(b"/usr/local/bin:/usr/bin:/bin"), "{search:?}");
    outcome(&[dirs.len() == 3, memory > u64::MAX / 2, cpu == 0])
}

pub(crate) fn env_seeds() -> Vec<Vec<u8>> {
    let numbers = [0_u64, 1, 1 << 30, u64::MAX].map(u64::to_le_bytes);
    let paths =
        ["/usr/bin/python3", "/opt/py/bin/python3", "relative/x", "", "/a:b/x", "//x", "/opt/../x"];
    let seed = |number: &[u8; 8], path: &&str| {
        [number, &1000_u32.to_le_bytes()[..], path.as_bytes()].concat()
    };
    numbers.iter().flat_map(|number| paths.iter().map(move |path| seed(number, path))).collect()
}
