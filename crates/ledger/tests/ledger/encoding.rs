//! Two different rows never have the same bytes: what was written can be read back from them.

use hotcell_ledger::{
    Artifact, ArtifactId, Aspect, Edge, Filter, Media, NewArtifact, Page, Relation, Role, Ruling,
    Statement, Target, Type, add, get, judge, list, tag,
};
use hotcell_types::{CallId, Name};
use proptest::prelude::*;

use crate::home::{Home, by, call, new};

/// The fields of a statement, as FORMAT.md describes them.
fn fields(bytes: &[u8]) -> (String, Vec<Option<Vec<u8>>>) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
    let title = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let (mut rest, mut fields) = (&bytes[end + 1..], Vec::new());
    while let Some((&tag, after)) = rest.split_first() {
        rest = after;
        if tag == 0 {
            fields.push(None);
            continue;
        }
        assert_eq!(tag, 1);
        let (length, after) = rest.split_first_chunk::<8>().unwrap();
        let (field, after) = after.split_at(u64::from_le_bytes(*length) as usize);
        fields.push(Some(field.to_vec()));
        rest = after;
    }
    (title, fields)
}

fn bytes(text: impl ToString) -> Option<Vec<u8>> {
    Some(text.to_string().into_bytes())
}

fn id(id: ArtifactId) -> Option<Vec<u8>> {
    let id: CallId = id.to_string().parse().unwrap();
    Some(id.to_bytes().to_vec())
}

fn number(number: u64) -> Option<Vec<u8>> {
    Some(number.to_le_bytes().to_vec())
}

/// What the fields of an artifact must be.
fn expected(artifact: &Artifact, edges: &[Edge]) -> Vec<Option<Vec<u8>>> {
    let mut fields = vec![
        number(artifact.seq),
        id(artifact.id),
        bytes(&artifact.tenant),
        bytes(&artifact.subject),
        bytes(&artifact.name),
        number(artifact.version),
        Some(artifact.blob.digest.to_bytes().to_vec()),
        number(artifact.blob.size),
        bytes(artifact.media),
        bytes(artifact.kind),
        bytes(artifact.role),
        Some(artifact.created.to_le_bytes().to_vec()),
        Some(artifact.call.to_bytes().to_vec()),
        artifact.tool.as_ref().and_then(bytes),
        number(edges.len() as u64),
    ];
    for edge in edges {
        fields.push(bytes(edge.relation));
        fields.extend(match &edge.to {
            Target::Artifact(to) => [bytes("artifact"), id(*to)],
            Target::Call(to) => [bytes("call"), Some(to.to_bytes().to_vec())],
            Target::Text(text) => [bytes("text"), bytes(text)],
            Target::Unknown => [bytes("unknown"), None],
        });
    }
    fields
}

fn line() -> impl Strategy<Value = String> {
    "[a-c/ü.]{1,6}"
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(Target::Unknown),
        any::<u64>().prop_map(|millis| Target::Call(call(millis))),
        line().prop_map(|text| Target::Text(text.parse().unwrap())),
    ]
}

fn edges() -> impl Strategy<Value = Vec<Edge>> {
    let relation = prop::sample::select(Relation::ALL);
    prop::collection::vec((relation, target()).prop_map(|(r, to)| Edge::new(r, to)), 0..4)
}

fn artifact() -> impl Strategy<Value = NewArtifact> {
    let kinds = (prop::sample::select(Type::ALL), prop::sample::select(Role::ALL));
    let texts = (line(), prop::option::of(line()), "[a-c]{1,3}");
    (texts, kinds, edges(), any::<i64>(), any::<u64>()).prop_map(
        |((name, tool, subject), (kind, role), edges, time, millis)| NewArtifact {
            by: by(&subject, time),
            call: call(millis),
            tool: tool.map(|tool| tool.parse().unwrap()),
            name: name.parse().unwrap(),
            kind,
            role,
            edges,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whoever can read every field back from the bytes cannot find two rows that share them.
    #[test]
    fn every_field_of_an_artifact_can_be_read_back(news in prop::collection::vec(artifact(), 2..5)) {
        let mut home = Home::new();
        let mut seen = Vec::new();
        for new in news {
            let stored = home.put(b"x");
            let edges = new.edges.clone();
            let (artifact, statement) = home.write(|tx| add(tx, &stored, new).unwrap());
            let (title, read) = fields(statement.bytes());
            prop_assert_eq!(title, "hotcell artifact 1");
            prop_assert_eq!(read, expected(&artifact, &edges));
            // As it comes back from the database.
            let details = get(&home.conn, &artifact.tenant, artifact.id).unwrap().unwrap();
            prop_assert_eq!(&details.artifact, &artifact);
            prop_assert_eq!(&details.edges, &edges);
            prop_assert_eq!(details.statement(), statement.clone());
            prop_assert!(!seen.contains(&statement.digest()));
            seen.push(statement.digest());
        }
    }
}

#[test]
fn text_that_moves_to_the_next_field_changes_the_bytes() {
    let mut home = Home::new();
    let tool = |text: &str| Some(text.parse().unwrap());
    let one = home.add_with(b"x", NewArtifact { tool: tool("bc"), ..new("a") });
    let mut other = one.clone();
    other.name = "ab".parse().unwrap();
    other.tool = tool("c");
    let statement = |artifact: &Artifact, edges: &[Edge]| Statement::of_artifact(artifact, edges);
    assert_ne!(statement(&one, &[]).bytes(), statement(&other, &[]).bytes());
    // Nor is an absent field the same as a present one, nor an edge the same as two.
    other.tool = None;
    assert_ne!(statement(&one, &[]).bytes(), statement(&other, &[]).bytes());
    let twice = [Edge::unknown_input(), Edge::unknown_input()];
    assert_ne!(statement(&one, &twice).bytes(), statement(&one, &twice[..1]).bytes());
}

#[test]
fn rows_of_the_other_tables_have_all_their_fields_too() {
    let mut home = Home::new();
    let artifact = home.add("a", b"x").id;
    let bob = by("bob", -2);
    let time = Some((-2_i64).to_le_bytes().to_vec());
    let tagged = home.write(|tx| tag(tx, &bob, artifact, "t".parse().unwrap())).unwrap();
    let (title, read) = fields(tagged.unwrap().1.bytes());
    assert_eq!(title, "hotcell artifact tag 1");
    assert_eq!(read, [number(1), id(artifact), bytes("t"), number(1), bytes("bob"), time.clone()]);
    for (seq, note) in [(1, None), (2, Some("n"))] {
        let note_line = note.map(|note| note.parse().unwrap());
        let judged = home
            .write(|tx| judge(tx, &bob, artifact, Aspect::Test, Ruling::Accept, note_line))
            .unwrap();
        let (title, read) = fields(judged.1.bytes());
        assert_eq!(title, "hotcell artifact verdict 1");
        let (aspect, ruling) = (bytes("test"), bytes("accept"));
        let note = note.and_then(bytes);
        assert_eq!(
            read,
            [number(seq), id(artifact), aspect, ruling, bytes("bob"), note, time.clone()]
        );
    }
}

/// The published format. If this fails, old chains no longer fit: add a version, do not change this.
#[test]
fn the_bytes_of_known_rows_stay_what_they_are() {
    let home = Home::new();
    let fixed = "
        INSERT INTO artifact VALUES (1, x'00000000000000000000000000000001', 'local', 'alice', 'a.txt',
            1, x'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', 3, 'text/plain',
            'data', 'file', -1, x'00000000000000000000000000000002', NULL, 1);
        INSERT INTO artifact_edge VALUES
            (x'00000000000000000000000000000001', 0, 'input', NULL, NULL, NULL);";
    home.conn.execute_batch(fixed).unwrap();
    let artifact = list(&home.conn, &Filter::of(Name::LOCAL), Page::first(1)).unwrap().remove(0);
    let details = get(&home.conn, &artifact.tenant, artifact.id).unwrap().unwrap();
    assert_eq!(
        details.statement().digest().to_string(),
        "445f5b8a5f59463ca07f774ee60fd72ea209934455a99b38458d2d491c4ace3f"
    );
    assert_eq!(artifact.media, Media::Text);
}
