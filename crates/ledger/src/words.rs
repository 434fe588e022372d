//! The closed lists of words in which the ledger speaks. A word is never taken out of a list or given
//! another meaning: rows and their statements have them for ever.

/// A text that is none of the words it should be one of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {list} `{word}`: write {known}")]
pub struct UnknownWord {
    list: &'static str,
    word: String,
    known: String,
}

/// Longest part of an unknown word that is shown.
const SHOWN: usize = 64;

impl UnknownWord {
    fn new(list: &'static str, word: &str, known: &[&str]) -> UnknownWord {
        let word: String = word.chars().take(SHOWN).collect();
        UnknownWord { list, word: word.escape_debug().to_string(), known: known.join(", ") }
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $list:literal $name:ident {
        $($(#[$about:meta])* $word:ident = $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$about])* $word,)+ }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$word,)+];

            pub fn name(self) -> &'static str {
                match self { $($name::$word => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<$name, UnknownWord> {
                let known = $name::ALL.iter().copied().find(|word| word.name() == text);
                known.ok_or_else(|| UnknownWord::new($list, text, &[$($text,)+]))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl rusqlite::types::ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
                Ok(self.name().into())
            }
        }

        impl rusqlite::types::FromSql for $name {
            fn column_result(
                value: rusqlite::types::ValueRef<'_>,
            ) -> rusqlite::types::FromSqlResult<$name> {
                let text = value.as_str()?;
                text.parse().map_err(|e| rusqlite::types::FromSqlError::Other(Box::new(e)))
            }
        }
    };
}

words! {
    /// What an artifact is.
    "type" Type {
        Code = "code",
        Document = "document",
        Design = "design",
        Analysis = "analysis",
        Config = "config",
        Data = "data",
        Image = "image",
    }
}

words! {
    /// What an artifact was in the run that it comes from.
    "role" Role {
        /// The program that was run.
        Script = "script",
        /// What it was given.
        Input = "input",
        /// The value that it answered.
        Output = "output",
        /// What it left in its working directory.
        File = "file",
        Stdout = "stdout",
        Stderr = "stderr",
    }
}

words! {
    /// How an artifact came from something else.
    "relation" Relation {
        DerivedFrom = "derived_from",
        Run = "run",
        Step = "step",
        Tool = "tool",
        Code = "code",
        Input = "input",
    }
}

words! {
    /// What a verdict is about.
    "aspect" Aspect {
        Confidence = "confidence",
        Review = "review",
        Test = "test",
        Security = "security",
        Compliance = "compliance",
    }
}

words! {
    /// What a verdict says.
    "ruling" Ruling {
        Accept = "accept",
        Reject = "reject",
        Escalate = "escalate",
        RevisionNeeded = "revision-needed",
    }
}

words! {
    /// What a content seems to be. A guess from its first bytes, for people to read: nothing may be
    /// parsed, shown as a page or executed because of it.
    "media type" Media {
        Unknown = "application/octet-stream",
        Text = "text/plain",
        Png = "image/png",
        Jpeg = "image/jpeg",
        Gif = "image/gif",
        Webp = "image/webp",
        Bmp = "image/bmp",
        Tiff = "image/tiff",
        Pdf = "application/pdf",
        Zip = "application/zip",
        Gzip = "application/gzip",
        Bzip2 = "application/x-bzip2",
        Xz = "application/x-xz",
        Zstd = "application/zstd",
        Tar = "application/x-tar",
        Sqlite = "application/vnd.sqlite3",
        Parquet = "application/vnd.apache.parquet",
        Elf = "application/x-elf",
        Wasm = "application/wasm",
        Wave = "audio/wav",
        Mp4 = "video/mp4",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_as_it_is_written_and_no_other() {
        for &word in Type::ALL {
            assert_eq!(word.name().parse(), Ok(word));
        }
        for &word in Media::ALL {
            assert_eq!(word.name().parse(), Ok(word));
        }
        let error = "accep\u{1b}".parse::<Ruling>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no ruling `accep\\u{1b}`: write accept, reject, escalate, revision-needed"
        );
    }
}
