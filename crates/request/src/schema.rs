//! What a tool takes and gives back, as a JSON Schema: compiled once, never fetched, and refused when it
//! is larger, deeper or more intricate than checking arguments is worth.

mod shape;
mod surely;
mod walk;
mod words;

use std::sync::OnceLock;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use crate::canonical;
use crate::fault::Fault;
use crate::json::{self, Bounds};
use crate::text::shown;

pub use walk::Mark;
pub(crate) use words::SECRET;

/// A JSON Schema of draft 7, 2019-09 or 2020-12 that refers only to itself.
#[derive(Debug)]
pub struct Schema {
    source: Value,
    /// Made when it is needed, of a schema that is known to be good: see [`Schema::later`].
    validator: OnceLock<Result<Validator, Fault>>,
}

/// Most bytes of a schema in canonical form.
const BYTES_MOST: usize = 256 << 10;
const BOUNDS: Bounds = Bounds { bytes: BYTES_MOST, ..Bounds::TOOL };
/// Most patterns in a schema, and most bytes that one of them becomes when it is compiled.
const PATTERNS_MOST: usize = 256;
const PATTERN_BYTES_MOST: usize = 256 << 10;
/// What a search with one may remember of where it can be. Without room for that, it looks at each byte as often
/// as the pattern is large: a minute for 1 MB, where a hundredth of a second is enough.
const PATTERN_STATES_MOST: usize = 8 << 20;
/// Most faults that are told at a time.
pub(crate) const FAULTS_MOST: usize = 20;
/// Above so many steps only the first fault is looked for: the library collects all before it gives one.
const STEPS_FOR_ALL_FAULTS: usize = 100_000;

/// The drafts there are, by what `$schema` says.
const DRAFTS: [(&str, Draft); 3] = [
    ("json-schema.org/draft/2020-12/schema", Draft::Draft202012),
    ("json-schema.org/draft/2019-09/schema", Draft::Draft201909),
    ("json-schema.org/draft-07/schema", Draft::Draft7),
];

impl Schema {
    /// Compiles a schema. What it refuses is named by its place in the schema.
    pub fn new(source: &Value) -> Result<Schema, Fault> {
        let schema = Schema::later(json::adopt(source.clone(), &BOUNDS)?);
        schema.validator()?;
        Ok(schema)
    }

    /// A schema that `json` has adopted, and that is compiled with the first value that does not surely
    /// fit it. It is checked only then: whoever has it knows that it is good, or looks.
    pub(crate) fn later(mut source: Value) -> Schema {
        // The name of a schema is for those who refer to it from elsewhere, which nobody can.
        if let Some(members) = source.as_object_mut() {
            members.remove("$id");
        }
        Schema { source, validator: OnceLock::new() }
    }

    pub(crate) fn validator(&self) -> Result<&Validator, Fault> {
        self.validator.get_or_init(|| compile(&self.source)).as_ref().map_err(Fault::clone)
    }

    /// Compiles the schema of arguments: an object without any member that the schema does not name,
    /// unless it says itself what becomes of those.
    pub fn of_arguments(source: &Value) -> Result<Schema, Fault> {
        check_arguments(source)?;
        Schema::new(&closed(source.clone()))
    }

    /// Checks a value that [`json`](crate::json) has read or adopted. At most 20 faults, each with the
    /// place of its field; none shows a secret.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<Fault>> {
        let walked = walk::walk(&self.source, value).map_err(|fault| vec![fault])?;
        if self.surely_fits(value) {
            return Ok(());
        }
        let validator = self.validator().map_err(|fault| vec![fault])?;
        if validator.is_valid(value) {
            return Ok(());
        }
        let errors: Vec<_> = match walked.steps > STEPS_FOR_ALL_FAULTS {
            true => validator.validate(value).err().into_iter().collect(),
            false => validator.iter_errors(value).take(FAULTS_MOST).collect(),
        };
        let mut faults: Vec<Fault> =
            errors.iter().flat_map(|error| words::faults(error, &walked.marks)).collect();
        faults.truncate(FAULTS_MOST);
        Err(faults)
    }

    /// Only as long as there is no validator: it does not have to be made for a value that is plain.
    fn surely_fits(&self, value: &Value) -> bool {
        self.validator.get().is_none()
            && matches!(draft(&self.source), Ok(Draft::Draft202012))
            && surely::fits(&self.source, &self.source, value)
    }

    /// The places in a value that a policy asks for, in order.
    pub fn marks(&self, value: &Value) -> Result<Vec<(String, Mark)>, Fault> {
        walk::walk(&self.source, value).map(|walked| walked.marks)
    }

    /// Whether the argument of this name is a path, or has paths in it.
    pub(crate) fn takes_path(&self, name: &str) -> bool {
        let argument = self.source.get("properties").and_then(|all| all.get(name));
        argument.is_some_and(|argument| shape::takes_path(&self.source, argument))
    }

    /// Puts in the defaults of what is left out. A second time changes nothing.
    pub fn fill(&self, value: &mut Value) -> Result<(), Fault> {
        walk::fill(&self.source, value)
    }
}

/// Refuses a schema of arguments that is not one of an object.
pub(crate) fn check_arguments(source: &Value) -> Result<(), Fault> {
    if source.get("type") == Some(&"object".into()) {
        return Ok(());
    }
    Err(Fault::new(
        "/type",
        "the schema of arguments is not one of an object",
        "arguments have names",
        "write `\"type\": \"object\"` and name them in `properties`",
    ))
}

/// The schema of arguments, which refuses what it does not name unless it says itself what becomes of it.
pub(crate) fn closed(mut source: Value) -> Value {
    let is_old = matches!(draft(&source), Ok(Draft::Draft7));
    let Some(members) = source.as_object_mut() else { return source };
    let decides = ["additionalProperties", "unevaluatedProperties"];
    if !decides.iter().any(|key| members.contains_key(*key)) {
        // Draft 7 has no better word, and what it refuses too much shows in the tool's examples.
        let combined = ["allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas"];
        let is_combined = combined.iter().any(|key| members.contains_key(*key));
        let key = if is_combined && !is_old { decides[1] } else { decides[0] };
        members.insert(key.into(), false.into());
        // With it, the validator names what it does not know.
        members.entry("properties").or_insert_with(|| Map::new().into());
    }
    source
}

/// Everything that makes a schema good, at last by the library.
fn compile(source: &Value) -> Result<Validator, Fault> {
    let size = canonical::bytes(source).len();
    if size > BYTES_MOST {
        return Err(Fault::new(
            "",
            format!("the schema has {size} bytes"),
            format!("the most is {BYTES_MOST} bytes"),
            "describe the arguments more coarsely",
        ));
    }
    let draft = draft(source)?;
    shape::check(source, draft)?;
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .with_pattern_options(
            PatternOptions::regex()
                .size_limit(PATTERN_BYTES_MOST)
                .dfa_size_limit(PATTERN_STATES_MOST),
        )
        .build(source)
        .map_err(|error| {
            Fault::new(
                error.instance_path().as_str(),
                "the schema cannot be compiled",
                shown(&error.to_string(), 300),
                "see json-schema.org; patterns have no look-around and no back-references",
            )
        })
}

fn draft(source: &Value) -> Result<Draft, Fault> {
    let Some(named) = source.get("$schema") else { return Ok(Draft::Draft202012) };
    let name = named.as_str().unwrap_or_default();
    let plain = name.strip_prefix("https://").or(name.strip_prefix("http://")).unwrap_or_default();
    let plain = plain.strip_suffix('#').unwrap_or(plain);
    DRAFTS.iter().find(|(known, _)| *known == plain).map(|(_, draft)| *draft).ok_or_else(|| {
        Fault::new(
            "/$schema",
            format!("`{}` is not a draft of JSON Schema that is known here", shown(name, 80)),
            "what its words mean cannot be known",
            "use https://json-schema.org/draft/2020-12/schema, 2019-09 or draft 7",
        )
    })
}
