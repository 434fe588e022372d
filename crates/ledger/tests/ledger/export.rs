//! What is exported, and that a name never leads out of the directory.

use std::fs;

use hotcell_ledger::{By, Error, Filter, MANIFEST, NewArtifact, export};
use hotcell_types::Name;
use serde_json::Value;

use crate::home::{Home, by, files_below, from, large, new};

fn manifest(dir: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(MANIFEST)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn names_are_data_and_never_lead_out_of_the_directory() {
    let mut home = Home::new();
    let hostile = [
        "../escaped",
        "../../../tmp/escaped",
        "/escaped",
        "a/b",
        "a_b",
        "A_B",
        "..",
        ".",
        "CON",
        "nul.txt",
        "-rf",
        "~",
        "$(touch escaped)",
        "manifest.jsonl",
        "\u{202e}gpj.exe",
        &"x".repeat(255),
        &"ü/".repeat(300),
    ];
    for (number, name) in hostile.iter().enumerate() {
        home.add(name, format!("content {number}").as_bytes());
    }
    let target = home.dir.path().join("below").join("out");
    fs::create_dir(target.parent().unwrap()).unwrap();
    let before = files_below(home.dir.path());
    let exported = export(&home.conn, &home.store, &Filter::of(Name::LOCAL), &target).unwrap();
    assert_eq!((exported.files, exported.refused), (hostile.len() as u64, 0));

    let new: Vec<_> = files_below(home.dir.path())
        .into_iter()
        .filter(|file| !before.contains(file) && !file.starts_with("hotcell.db"))
        .collect();
    assert!(new.iter().all(|file| file.starts_with("below/out/")), "{new:?}");
    assert_eq!(new.len(), hostile.len() + 1);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    assert!(new.iter().all(|file| file.chars().all(is_plain) && file.len() < 128), "{new:?}");
    // The manifest has the real names, the newest first.
    let lines = manifest(&target);
    assert_eq!(lines.len(), hostile.len());
    for (number, line) in lines.iter().rev().enumerate() {
        assert_eq!(line["name"], hostile[number]);
        let file = target.join(line["file"].as_str().unwrap());
        assert_eq!(fs::read_to_string(file).unwrap(), format!("content {number}"));
    }
}

#[test]
fn the_manifest_has_everything_that_is_known() {
    let mut home = Home::new();
    let first = home.add("a\"b", b"abc");
    let second = home.add_from("b", b"x", vec![from(first.id)]);
    let target = home.dir.path().join("out");
    export(&home.conn, &home.store, &Filter::of(Name::LOCAL), &target).unwrap();
    let lines = manifest(&target);
    assert_eq!(
        lines[1],
        serde_json::json!({
            "file": "00002-a_b",
            "refused": null,
            "seq": 1,
            "id": first.id.to_string(),
            "tenant": "local",
            "subject": "alice",
            "name": "a\"b",
            "version": 1,
            "digest": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "size": 3,
            "is_kept": true,
            "media": "text/plain",
            "type": "data",
            "role": "file",
            "created": 1_700_000_000_000_000_000_i64,
            "call": first.call.to_string(),
            "tool": "sort@1",
            "edges": [{"relation": "input", "to": "unknown"}],
            "tags": [],
            "verdicts": [],
            "statement": home.chain.0[&hotcell_ledger::RowId::Artifact(first.id)].to_string(),
        })
    );
    let to_first = serde_json::json!({"artifact": first.id.to_string()});
    assert_eq!(lines[0]["edges"][0]["to"], to_first);
    assert_eq!(lines[0]["id"], second.id.to_string());
}

#[test]
fn a_changed_content_is_refused_and_named_and_the_rest_is_there() {
    let mut home = Home::new();
    let good = home.add("good", b"1");
    let (bad, gone) = (home.add("bad", &large(b"2")), home.add("gone", &large(b"3")));
    let file = home.file_of(&bad.blob.digest);
    fs::remove_file(&file).unwrap();
    fs::write(&file, "X").unwrap();
    fs::remove_file(home.file_of(&gone.blob.digest)).unwrap();
    let target = home.dir.path().join("out");
    let exported = export(&home.conn, &home.store, &Filter::of(Name::LOCAL), &target).unwrap();
    assert_eq!((exported.files, exported.bytes, exported.refused), (1, good.blob.size, 2));
    let lines = manifest(&target);
    assert!(lines[0]["refused"].as_str().unwrap().contains("missing"));
    assert!(lines[1]["refused"].as_str().unwrap().contains("not what was stored"));
    assert_eq!(lines[1]["file"], Value::Null);
    assert_eq!(files_below(&target), ["00003-good", MANIFEST]);
}

#[test]
fn nothing_is_written_over_and_nothing_of_others_is_written() {
    let mut home = Home::new();
    home.add("mine", b"1");
    let by = By { tenant: "other".parse().unwrap(), ..by("mallory", 1) };
    home.add_with(b"2", NewArtifact { by, ..new("theirs") });
    let target = home.dir.path().join("out");
    let all = Filter::of(Name::LOCAL);
    assert_eq!(export(&home.conn, &home.store, &all, &target).unwrap().files, 1);
    let again = export(&home.conn, &home.store, &all, &target);
    assert!(matches!(again, Err(Error::Export(_))));
    assert_eq!(manifest(&target).len(), 1);
    std::os::unix::fs::symlink(home.dir.path(), home.dir.path().join("link")).unwrap();
    assert!(export(&home.conn, &home.store, &all, &home.dir.path().join("link")).is_err());
}
