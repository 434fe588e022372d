//! Many files in one: the plainest kind of tar (ustar, regular files only), which any `tar` lists. Who
//! reads one trusts nothing in it: names are data, and what is not a regular file is refused.

use std::io::{self, Read, Write};

/// Everything in it comes in blocks of this size.
const BLOCK: usize = 512;
/// Longest name. Ours are below 80 bytes.
const MOST_NAME: usize = 100;
/// Bytes copied at once.
const CHUNK: usize = 128 * 1024;

/// Places in a header: where each begins, and how long it is.
const NAME: (usize, usize) = (0, MOST_NAME);
const MODE: (usize, usize) = (100, 8);
const SIZE: (usize, usize) = (124, 12);
const TIME: (usize, usize) = (136, 12);
const SUM: (usize, usize) = (148, 8);
const TYPE: (usize, usize) = (156, 1);
const MAGIC: (usize, usize) = (257, 8);

/// What stands in the place of octal digits if a size needs more of them than there is room for.
const BINARY: u8 = 0x80;

pub(crate) struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Writer<W> {
        Writer { out }
    }

    /// Exactly so many bytes, or an error.
    pub(crate) fn file(&mut self, name: &str, size: u64, content: impl Read) -> io::Result<()> {
        self.out.write_all(&header(name, size)?)?;
        let copied = io::copy(&mut content.take(size), &mut self.out)?;
        if copied != size {
            return Err(io::Error::other(format!("`{name}` became shorter while it was read")));
        }
        self.out.write_all(ZEROS.get(..padding(size)).unwrap_or_default())
    }

    /// Without its end, an archive is not whole.
    pub(crate) fn end(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

const ZEROS: [u8; BLOCK] = [0; BLOCK];

fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

fn header(name: &str, size: u64) -> io::Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    if name.len() >= MOST_NAME {
        return Err(io::Error::other("a name is too long"));
    }
    put(&mut header, NAME, name.as_bytes());
    put(&mut header, MODE, b"0000600");
    // Whose it is and when it was made is nobody's business.
    for place in [(108, 8), (116, 8)] {
        put(&mut header, place, b"0000000");
    }
    put(&mut header, TIME, b"00000000000");
    let octal = format!("{size:011o}");
    if octal.len() == 11 {
        put(&mut header, SIZE, octal.as_bytes());
    } else {
        put(&mut header, SIZE, &[&[BINARY, 0, 0, 0], &size.to_be_bytes()[..]].concat());
    }
    put(&mut header, TYPE, b"0");
    put(&mut header, MAGIC, b"ustar\x0000");
    put(&mut header, SUM, b"        ");
    let sum = format!("{:06o}\0 ", sum(&header));
    put(&mut header, SUM, sum.as_bytes());
    Ok(header)
}

fn put(header: &mut [u8; BLOCK], (at, length): (usize, usize), bytes: &[u8]) {
    for (place, byte) in header.iter_mut().skip(at).take(length).zip(bytes) {
        *place = *byte;
    }
}

fn sum(header: &[u8; BLOCK]) -> u32 {
    header.iter().map(|byte| u32::from(*byte)).sum()
}

pub(crate) struct Reader<R> {
    source: R,
}

/// A file of an archive. Its content comes next, and has to be taken before the next one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) size: u64,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(source: R) -> Reader<R> {
        Reader { source }
    }

    /// `None` at the end. An archive that breaks off is an error.
    pub(crate) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut header = [0; BLOCK];
        self.source.read_exact(&mut header)?;
        if header == ZEROS {
            self.source.read_exact(&mut header)?;
            return if header == ZEROS { Ok(None) } else { Err(bad("it ends in its middle")) };
        }
        let said = number(field(&header, SUM));
        let mut plain = header;
        put(&mut plain, SUM, b"        ");
        if said != Some(u64::from(sum(&plain))) || !field(&header, MAGIC).starts_with(b"ustar") {
            return Err(bad("it is not an archive, or it is damaged"));
        }
        if !matches!(field(&header, TYPE), [b'0' | 0]) {
            return Err(bad("it has something in it that is not a file"));
        }
        let name = field(&header, NAME).split(|byte| *byte == 0).next().unwrap_or_default();
        let name = str::from_utf8(name).map_err(|_| bad("a name in it is not text"))?;
        let size = number(field(&header, SIZE)).ok_or_else(|| bad("a size in it is no number"))?;
        Ok(Some(Entry { name: name.to_owned(), size }))
    }

    pub(crate) fn content(&mut self, entry: &Entry, out: &mut dyn Write) -> io::Result<()> {
        let mut left = entry.size;
        let mut chunk = vec![0; CHUNK];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let Some(some) = chunk.get_mut(..most) else { break };
            self.source.read_exact(some)?;
            out.write_all(some)?;
            left -= most as u64;
        }
        let mut rest = [0; BLOCK];
        let padding = padding(entry.size);
        rest.get_mut(..padding).map_or(Ok(()), |rest| self.source.read_exact(rest))
    }
}

fn field(header: &[u8; BLOCK], (at, length): (usize, usize)) -> &[u8] {
    header.get(at..at + length).unwrap_or_default()
}

fn number(field: &[u8]) -> Option<u64> {
    if let Some((&BINARY, rest)) = field.split_first() {
        let (zeros, number) = rest.split_last_chunk::<8>()?;
        let fits = zeros.iter().all(|byte| *byte == 0);
        return fits.then(|| u64::from_be_bytes(*number));
    }
    let text = str::from_utf8(field).ok()?;
    u64::from_str_radix(text.trim_matches(['\0', ' ']), 8).ok()
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for (name, content) in files {
            writer.file(name, content.len() as u64, *content).unwrap();
        }
        writer.end().unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut reader = Reader::new(bytes);
        let mut files = Vec::new();
        while let Some(entry) = reader.next()? {
            let mut content = Vec::new();
            reader.content(&entry, &mut content)?;
            files.push((entry.name, content));
        }
        Ok(files)
    }

    #[test]
    fn what_goes_in_comes_out_and_tar_can_list_it() {
        let long = vec![b'x'; 100_000];
        let files: [(&str, &[u8]); 4] =
            [("a", b""), ("b/c", b"hello"), ("d", &[7; BLOCK]), ("e", &long)];
        let bytes = archive(&files);
        let read = read(&bytes).unwrap();
        let expected: Vec<_> = files.map(|(name, c)| (name.to_owned(), c.to_vec())).into();
        assert_eq!(read, expected);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let Ok(tar) = std::process::Command::new("tar").arg("tf").arg(file.path()).output() else {
            return eprintln!("SKIPPED what tar says of it: there is none here");
        };
        assert_eq!(String::from_utf8(tar.stdout).unwrap(), "a\nb/c\nd\ne\n");
    }

    #[test]
    fn what_breaks_off_anywhere_is_refused() {
        let bytes = archive(&[("a", b"hello"), ("b", &[1; 600])]);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn sizes_have_room_up_to_the_largest() {
        for size in [0, 1, (1 << 33) - 1, 1 << 33, u64::MAX] {
            let header = header("a", size).unwrap();
            let entry = Reader::new(&header[..]).next().unwrap().unwrap();
            assert_eq!(entry, Entry { name: "a".into(), size });
        }
    }

    #[test]
    fn only_files_are_taken() {
        for kind in [b"1", b"2", b"3", b"5", b"6", b"L", b"x"] {
            let mut header = header("a", 0).unwrap();
            put(&mut header, TYPE, kind);
            put(&mut header, SUM, b"        ");
            let sum = format!("{:06o}\0 ", sum(&header));
            put(&mut header, SUM, sum.as_bytes());
            assert!(Reader::new(&header[..]).next().is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_much_for_the_reader(bytes: Vec<u8>) {
            read(&bytes).ok();
        }
    }
}
