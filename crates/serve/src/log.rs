//! What the server says while it serves: one line for each request, on stderr. A thread of its own writes,
//! so that nobody waits for whoever reads it; what does not fit is counted, and told when there is room.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread;
use std::time::Duration;

use hotcell_record::{Redactor, now};
use hotcell_types::Utc;
use serde_json::{Map, Value, json};

/// Lines that wait to be written.
const MOST_WAITING: usize = 4096;
/// Lines of so long are written with one call: to be woken for each would take longer than to write it.
const TOGETHER: Duration = Duration::from_millis(2);
/// How long the last lines may take.
const LAST: Duration = Duration::from_secs(1);

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
    /// For people.
    Text,
    /// One JSON object on each line.
    Json,
}

#[derive(Debug, Clone)]
pub(crate) struct Log {
    form: LogForm,
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Line {
    Said(String),
    /// Is told when everything before has been written.
    Last(std::sync::mpsc::Sender<()>),
}

impl Log {
    /// Without a thread nothing is written, and everything is counted.
    pub(crate) fn begin(form: LogForm, out: impl Write + Send + 'static) -> Log {
        let (lines, told) = sync_channel(MOST_WAITING);
        let dropped = Arc::<AtomicU64>::default();
        let log = Log { form, lines, dropped: Arc::clone(&dropped) };
        let write = move || write(&told, out, &dropped, form);
        thread::Builder::new().name("log".into()).spawn(write).ok();
        log
    }

    /// One event, with whatever is known of it.
    pub(crate) fn say(&self, event: &str, fields: Value) {
        let line = match self.form {
            LogForm::Text => text(event, &fields),
            LogForm::Json => {
                let mut line = json!({ "time": moment(now()), "event": event });
                if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
                    line.extend(fields);
                }
                line.to_string()
            }
        };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.lines.try_send(Line::Said(line))
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that nobody will ever read.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, if that does not take long.
    pub(crate) fn finish(&self) {
        let (done, wait) = channel();
        if self.lines.try_send(Line::Last(done)).is_ok() {
            wait.recv_timeout(LAST).ok();
        }
    }
}

fn write(told: &Receiver<Line>, mut out: impl Write, dropped: &AtomicU64, form: LogForm) {
    let redactor = Redactor::new(&[]);
    let mut known = 0;
    while let Ok(first) = told.recv() {
        thread::sleep(TOGETHER);
        let (mut all, mut lines, mut done) = (Vec::new(), 0, None);
        for line in std::iter::once(first).chain(told.try_iter().take(MOST_WAITING)) {
            match line {
                Line::Said(line) => {
                    all.extend_from_slice(&redactor.redact(line.as_bytes()));
                    all.push(b'\n');
                    lines += 1;
                }
                // There is one end.
                Line::Last(tell) => done = Some(tell),
            }
        }
        let lost = dropped.load(Ordering::Relaxed);
        if lost > known {
            known = lost;
            all.extend(lost_lines(form, lost).bytes());
        }
        // A disk that is full, or a reader that left, keeps nobody from being served.
        if out.write_all(&all).and_then(|()| out.flush()).is_err() {
            dropped.fetch_add(lines, Ordering::Relaxed);
        }
        if let Some(done) = done {
            // Who waited for it may have given up.
            done.send(()).ok();
        }
    }
}

fn lost_lines(form: LogForm, lost: u64) -> String {
    match form {
        LogForm::Text => format!("hotcell: {lost} lines of the log were lost so far\n"),
        LogForm::Json => format!("{}\n", json!({ "event": "lost", "lines": lost })),
    }
}

/// `hotcell: EVENT NAME=VALUE …`
fn text(event: &str, fields: &Value) -> String {
    let mut line = format!("hotcell: {event}");
    for (name, value) in fields.as_object().unwrap_or(&Map::new()) {
        match value {
            Value::Null => {}
            Value::String(text) if name == "text" => line.push_str(&format!(" {}", plain(text))),
            Value::String(text) => line.push_str(&format!(" {name}={}", plain(text))),
            other => line.push_str(&format!(" {name}={other}")),
        }
    }
    line
}

/// Nobody forges a line, or moves a cursor.
fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let odd = c.is_control();
            let escaped = odd.then(|| c.escape_default()).into_iter().flatten();
            escaped.chain((!odd).then_some(c))
        })
        .collect()
}

fn moment(nanos: i64) -> String {
    let Utc { year, month, day, hour, minute, second, .. } =
        Utc::at(nanos.div_euclid(1_000_000_000));
    let millis = nanos.rem_euclid(1_000_000_000) / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Stuck;

    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            thread::sleep(Duration::from_secs(3600));
            Ok(0)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn keys_and_forged_lines_do_not_get_into_the_log() {
        for form in [LogForm::Text, LogForm::Json] {
            let kept = Kept::default();
            let log = Log::begin(form, kept.clone());
            log.say(
                "request",
                json!({ "why": "a\nhotcell: forged hck_0123456789ABCDEF0123456789ABCDEF" }),
            );
            log.finish();
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.contains("[redacted:hotcell]"), "{text}");
        }
    }

    #[test]
    fn a_log_that_nobody_reads_holds_up_nobody() {
        let log = Log::begin(LogForm::Text, Stuck);
        let begun = Instant::now();
        for _ in 0..MOST_WAITING + 100 {
            log.say("request", json!({}));
        }
        assert!(log.dropped() >= 90);
        log.finish();
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
