//! Quantities in documents: written as people write them (`30s`, `64MiB`), never as bare numbers.

use std::fmt::Display;
use std::str::FromStr;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(value)
}

pub(crate) fn deserialize<'de, T, D>(d: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
}

/// For fields that can be left out.
pub(crate) mod option {
    use super::*;

    pub(crate) fn serialize<T, S>(value: &Option<T>, s: S) -> Result<S::Ok, S::Error>
    where
        T: Display,
        S: Serializer,
    {
        match value {
            Some(value) => s.collect_str(value),
            None => s.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(d: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        super::deserialize(d).map(Some)
    }
}

pub(crate) fn bytes_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-9]{1,20}(KiB|MiB|GiB|KB|MB|GB)?$" })
}

pub(crate) fn span_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-9]{1,20}(ms|s|m|h)$" })
}
