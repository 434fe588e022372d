//! Guesses what a content is, from its first bytes and its name. Nothing is parsed.

use crate::line::ArtifactName;
use crate::words::{Media, Role, Type};

/// How many of the first bytes are looked at.
pub(crate) const HEAD: usize = 512;

/// What must stand where.
const MAGIC: &[(usize, &[u8], Media)] = &[
    (0, b"\x89PNG\r\n\x1a\n", Media::Png),
    (0, b"\xff\xd8\xff", Media::Jpeg),
    (0, b"GIF87a", Media::Gif),
    (0, b"GIF89a", Media::Gif),
    (8, b"WEBP", Media::Webp),
    (8, b"WAVE", Media::Wave),
    (0, b"II*\0", Media::Tiff),
    (0, b"MM\0*", Media::Tiff),
    (0, b"%PDF-", Media::Pdf),
    (0, b"PK\x03\x04", Media::Zip),
    (0, b"PK\x05\x06", Media::Zip),
    (0, b"\x1f\x8b", Media::Gzip),
    (0, b"BZh", Media::Bzip2),
    (0, b"\xfd7zXZ\0", Media::Xz),
    (0, b"\x28\xb5\x2f\xfd", Media::Zstd),
    (257, b"ustar", Media::Tar),
    (0, b"SQLite format 3\0", Media::Sqlite),
    (0, b"PAR1", Media::Parquet),
    (0, b"\x7fELF", Media::Elf),
    (0, b"\0asm", Media::Wasm),
    (4, b"ftyp", Media::Mp4),
    (0, b"BM", Media::Bmp),
];

/// What names of files end with. Everything else is data.
const ENDINGS: &[(&str, Type)] = &[
    (
        "c cc cpp go h hpp html css java js jsx lua mjs php pl py r rb rs sh sql swift ts tsx wasm ipynb",
        Type::Code,
    ),
    ("doc docx htm md odt pdf rst tex txt", Type::Document),
    ("cfg conf env ini toml yaml yml", Type::Config),
    ("avif bmp gif ico jpeg jpg png svg tif tiff webp", Type::Image),
];

impl Media {
    pub fn guess(head: &[u8]) -> Media {
        let is_there =
            |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
        let is_text = || is_text(head);
        match MAGIC.iter().find(|(at, magic, _)| is_there(*at, magic)) {
            // Two or three letters are also the beginning of words.
            Some((_, magic, media)) if magic.len() > 3 || !is_text() => *media,
            _ if is_text() => Media::Text,
            _ => Media::Unknown,
        }
    }
}

/// Whether this is the beginning of a text in UTF-8, cut anywhere.
fn is_text(head: &[u8]) -> bool {
    let head = head.get(..HEAD).unwrap_or(head);
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_some() => return false,
        Err(error) => {
            let whole = head.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
    };
    !text.is_empty() && !text.chars().any(|c| c.is_control() && !"\t\n\r\u{c}\u{1b}".contains(c))
}

impl Type {
    /// For what nobody has said it of.
    pub fn guess(role: Role, name: &ArtifactName, media: Media) -> Type {
        if role == Role::Script {
            return Type::Code;
        }
        if media.name().starts_with("image/") {
            return Type::Image;
        }
        let ending = name.as_str().rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        let of_ending = |endings: &str| endings.split(' ').any(|e| ending.as_deref() == Some(e));
        let known = ENDINGS.iter().find(|(endings, _)| of_ending(endings));
        known.map_or(Type::Data, |&(_, kind)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_guessed_from_its_first_bytes() {
        let mut tar = vec![0; 257];
        tar.extend(b"ustar\0");
        let cut = "ü".repeat(HEAD);
        let table: &[(&[u8], Media)] = &[
            (b"", Media::Unknown),
            (b"\x89PNG\r\n\x1a\n....", Media::Png),
            (b"RIFF....WEBP", Media::Webp),
            (b"\0\0\0\x20ftypisom", Media::Mp4),
            (b"BM\x36\x00", Media::Bmp),
            (b"BMW is a car", Media::Text),
            (b"%PDF-1.7", Media::Pdf),
            (b"<script>alert(1)</script>", Media::Text),
            (b"a\0b", Media::Unknown),
            (b"\xff\xfe", Media::Unknown),
            (b"{\"a\": 1}\n", Media::Text),
            (&tar, Media::Tar),
            (&cut.as_bytes()[..HEAD - 1], Media::Text),
        ];
        for (head, media) in table {
            assert_eq!(Media::guess(head), *media, "{:?}", head.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_type_is_guessed_from_role_content_and_name() {
        for (role, name, media, kind) in [
            (Role::Script, "data.csv", Media::Text, Type::Code),
            (Role::File, "plot", Media::Png, Type::Image),
            (Role::File, "src/MAIN.RS", Media::Text, Type::Code),
            (Role::File, "README.md", Media::Text, Type::Document),
            (Role::File, "a.toml", Media::Text, Type::Config),
            (Role::File, "a.csv", Media::Text, Type::Data),
            (Role::Stdout, "stdout", Media::Text, Type::Data),
        ] {
            assert_eq!(Type::guess(role, &name.parse().unwrap(), media), kind, "{name}");
        }
    }
}
