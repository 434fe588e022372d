//! Who may set the lowest level, seen from outside.

use crate::support::World;

fn show(world: &World) -> String {
    world.transcript(&["config", "show"])
}

#[test]
fn the_defaults_are_shown_with_their_source() {
    let text = show(&World::new());
    let text: Vec<_> = text.lines().filter(|line| !line.starts_with("schedule.")).collect();
    assert_eq!(
        text.join("\n"),
        "$ hotcell config show\nmin_level: user (default)\ntemplate: code-executor (default)\n\
         zygote: true (default)\nquota: 10GiB (default)\nhome: DIR/home (HOTCELL_HOME)\n\
         breaker.failures: 5 (default)\nbreaker.rest: 30s (default)\n\
         record.anchor: home (default)\nrecord.keep: 90d (default)\n\
         record.most: 1GiB (default)\n[0]\n"
    );
}

#[test]
fn the_origin_of_each_value_is_a_row_and_a_document() {
    let mut world = World::new();
    world.user_config("template = \"tool\"\n");
    world.env("HOTCELL_TEMPLATE", "policy-sandbox");
    world.env("XDG_DATA_HOME", "/elsewhere");
    let table = world.transcript(&["config", "show", "--origin"]);
    let row = |begin: &str| {
        let line = table.lines().find(|line| line.starts_with(begin)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(row("SETTING ").ends_with(" OVERRIDES"), "{table}");
    let template = row("template ");
    assert!(template.contains(" policy-sandbox HOTCELL_TEMPLATE "), "{table}");
    assert!(template.ends_with("code-executor (default), tool (DIR/home/config.toml)"), "{table}");
    assert!(row("home ").contains(" /elsewhere/hotcell (XDG_DATA_HOME)"), "{table}");

    let output = world.run(&["config", "show", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = document["settings"].as_array().unwrap();
    let template = settings.iter().find(|one| one["name"] == "template").unwrap();
    assert_eq!(
        (&template["value"], &template["kind"]),
        (&"policy-sandbox".into(), &"variable".into())
    );
    let kinds: Vec<_> =
        template["overrides"].as_array().unwrap().iter().map(|o| &o["kind"]).collect();
    assert_eq!(kinds, ["default", "file"]);
}

#[test]
fn the_user_sets_the_level_and_a_project_raises_it() {
    let world = World::new();
    world.user_config("min_level = \"no-cgroup\"\ntemplate = \"tool\"\n");
    let text = show(&world);
    assert!(text.contains("min_level: no-cgroup (DIR/home/config.toml)\n"), "{text}");
    assert!(text.contains("template: tool (DIR/home/config.toml)\n"), "{text}");
    world.file(".hotcell/config.toml", b"min_level = \"full\"\n");
    let text = show(&world);
    assert!(text.contains("min_level: full (DIR/here/.hotcell/config.toml)\n"), "{text}");
}

#[test]
fn neither_a_project_nor_the_environment_lowers_the_level() {
    let world = World::new();
    world.file(".hotcell/config.toml", b"min_level = \"landlock-only\"\n");
    let mut other = World::new();
    other.env("HOTCELL_MIN_LEVEL", "no-proc");
    for world in [world, other] {
        for words in [&["config", "show"][..], &["run", "--", "true"]] {
            let text = world.transcript(words);
            assert!(text.contains("cannot lower min_level") && text.contains("[121]"), "{text}");
        }
    }
}

#[test]
fn who_asks_for_more_than_the_ceiling_is_refused_with_both_values() {
    let world = World::new();
    world.user_config("min_level = \"landlock-only\"\n[ceiling]\nmemory = \"128MiB\"\n");
    let text = world.transcript(&["run", "--mem", "1GiB", "--", "true"]);
    assert!(
        text.contains("why: 1GiB of `memory` is above the most that is allowed, 128MiB\n"),
        "{text}"
    );
    assert!(text.ends_with("[119]\n\n"), "{text}");
    assert!(show(&world).contains("ceiling.memory: 128MiB (DIR/home/config.toml)\n"));
}

#[test]
fn no_flag_sets_the_level() {
    let world = World::new();
    for flag in ["--min-level", "--level", "--no-sandbox", "--unsafe", "--privileged"] {
        let text = world.transcript(&["run", flag, "user", "--", "true"]);
        assert!(text.contains("unexpected argument"), "{text}");
    }
}

#[test]
fn a_broken_file_stops_everything_with_file_and_line() {
    let world = World::new();
    world.user_config("template = \"tool\"\nmin-level = \"full\"\n");
    let text = world.transcript(&["run", "--", "true"]);
    assert!(text.contains("`DIR/home/config.toml` is wrong in line 2\n"), "{text}");
    assert!(text.contains("unknown field `min-level`") && text.contains("[121]"), "{text}");
}

#[test]
fn a_relative_home_is_refused() {
    let mut world = World::new();
    world.env("HOTCELL_HOME", "somewhere");
    assert!(show(&world).contains("HOTCELL_HOME is not an absolute path"));
}
