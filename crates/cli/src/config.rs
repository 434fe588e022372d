//! What is configured, and by whom.
//!
//! The lowest accepted level is the operator's to decide: `/etc/hotcell/config.toml` first, and the
//! user's own file where that is silent. A project's file and the environment, which whoever wrote
//! the code may control, can only raise it. There is no flag for it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hotcell_engine::run::LimitWords;
use hotcell_engine::{AtOnce, Globs, NetworkOptions, Patience, SnapshotBounds};
use hotcell_record::{RetentionPolicy, Sink};
use hotcell_sandbox::{Settings, cause};
use hotcell_serve::Endpoint;
use hotcell_types::{Bytes, Level, Network, SomeLimits, Template};
use rustix::fs::OFlags;
use serde::Deserialize;

use crate::print;
use crate::problem::{self, Problem};

mod network;
mod numbers;

use network::{NetworkSaid, NetworkWords};
use numbers::{BreakerWords, Numbers, RecordWords, ScheduleWords, Words};

/// Longest configuration file.
const MAX_BYTES: u64 = 64 * 1024;

/// What a home may have on the disk before it is warned and collected.
const DEFAULT_QUOTA: Bytes = Bytes::mib(10 * 1024);

const OPERATOR: &str = "/etc/hotcell/config.toml";
const HOME: &str = "HOTCELL_HOME";
const DATA_HOME: &str = "XDG_DATA_HOME";
const DEFAULT: &str = "default";

const ENDPOINT: &str = "traces.endpoint";
const FILES: &str = "workspace.files";
const BYTES: &str = "workspace.bytes";
const EXCEPT: &str = "workspace.except";
const MIN_LEVEL: &str = "HOTCELL_MIN_LEVEL";
const TEMPLATE: &str = "HOTCELL_TEMPLATE";

const RULES: &str = "Settings:
  min_level    the lowest level that is accepted: full, user, no-cgroup, no-proc, landlock-only
  template     what `hotcell run` starts from when --template is not given
  zygote       whether programs may be forked from an interpreter that had started, with which runs share
               some things (docs/warm.md) [true]
  quota        the most that the home may have on the disk, such as 2GiB: `hotcell gc` keeps to it
  [ceiling]    the most that any call may ask for, as texts: memory, cpu, pids, timeout, cpu_time,
               disk, files, open_files, output
  [traces]     endpoint is a collector of OpenTelemetry to which `hotcell serve` and `hotcell resident`
               send spans, such as http://127.0.0.1:4318/v1/traces [default: none]
  [network]    of runs and tools that have one: authorities is a file with certificates that are believed
               besides the system's, search the address of a server that web.search asks, such as
               http://127.0.0.1:8888; intercept is a list of hosts whose TLS hotcell ends itself, to
               see what is asked for (docs/network.md) [none]; recorded is the most events about what
               one run is allowed to reach [1000], requests the most that it makes [10000], up and
               down what it may send and receive [1GiB, 4GiB]
  [workspace]  copies that runs work on: files and bytes are the most of one [100000, 1GiB], except
               is a list of patterns, as in gitignore, of what is left out
  [schedule]   running is the most calls that go on at one time [twice the processors]; of those
               with a template as many as its name says in [schedule.templates]
  [breaker]    failures in a row after which a tool is left alone, and rest, for how long [5, 30s]
  [record]     anchor is where checkpoints of the record go: `home`, `syslog`, or a file by its path
               [home]; keep and most are for how long arguments and results stay in the record, and
               how many bytes of them, when `hotcell gc` removes something [90d, 1GiB]

Places:
  /etc/hotcell/config.toml    the operator's
  $HOTCELL_HOME/config.toml   the user's; without HOTCELL_HOME in the XDG data directory, hotcell/
  .hotcell/config.toml        the project's: the nearest, from the current directory upward
  HOTCELL_MIN_LEVEL, HOTCELL_TEMPLATE

min_level is what the operator's file says, otherwise what the user's says, otherwise `user`. The
other places can only raise it; a lower value there is an error. No option sets it. For template the
last place in this list wins, except that a project cannot name one that allows more. zygote is false
where any file says so. quota is what
the user's file says, otherwise what the operator's says, otherwise 10GiB.

Of each ceiling the lowest that any file says holds. A call that asks for more is refused; limits that
nobody asked for, those of templates and tools, are lowered to it. Of files and bytes of a copy of the
workspace the lowest holds as well, and what either file leaves out is left out; a project has no say
in that. A copy comes on top of the ceilings. Spans go where the operator's file says, otherwise where
the user's says; a project has no say in that either. For checkpoints that holds as well; keep and
most are what the user's file says, otherwise what the operator's says. Of [network] the operator's
word counts before the user's, hosts of both are looked into, and of requests, up and down the
lowest holds; a project has no say.

Of [schedule] and [breaker] what operator and user say stands in place of the default, the stricter
where both do: fewer, and a longer rest. A project's word counts where it is stricter still.";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Prints each setting with its value and where it comes from
    #[command(after_help = RULES)]
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// As a table: the file, the variable or the default that each value is from, and which others it
    /// overrides
    #[arg(long)]
    origin: bool,
    /// Print one JSON document, with all of that in it
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(command: Command) -> u8 {
    let Command::Show(args) = command;
    match Config::load() {
        Ok(config) if args.json => print::data(&config.document()),
        Ok(config) if args.origin => print::data(&config.table()),
        Ok(config) => print::data(&config.show()),
        Err(problem) => problem::report(&problem, args.json),
    }
}

/// Everything that is configured.
#[derive(Debug)]
pub(crate) struct Config {
    home: Setting<PathBuf>,
    min_level: Setting<Level>,
    template: Setting<Template>,
    zygote: Setting<bool>,
    quota: Setting<Bytes>,
    /// By file; the lowest of each limit holds.
    ceilings: Vec<Setting<SomeLimits>>,
    copies: SnapshotBounds,
    copies_said: Vec<Setting<Copies>>,
    traces: Option<Setting<Endpoint>>,
    /// By file, the operator's first.
    network: Vec<Setting<NetworkSaid>>,
    numbers: Numbers,
    /// Everything that anybody said, whether it holds or not; the defaults besides.
    said: Vec<Named>,
}

#[derive(Debug, Clone)]
struct Setting<T> {
    value: T,
    source: String,
}

impl<T> Setting<T> {
    fn named(&self, name: impl Into<String>, text: impl FnOnce(&T) -> String) -> Named {
        Named { name: name.into(), value: text(&self.value), origin: self.source.clone() }
    }
}

/// A setting as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    name: String,
    value: String,
    origin: String,
}

impl Named {
    fn new(name: &str, value: impl ToString, origin: &str) -> Named {
        Named { name: name.into(), value: value.to_string(), origin: origin.into() }
    }

    /// What kind of place it was set in.
    fn kind(&self) -> &'static str {
        match self.origin.as_str() {
            DEFAULT => "default",
            MIN_LEVEL | TEMPLATE | HOME | DATA_HOME => "variable",
            _ => "file",
        }
    }
}

impl Config {
    pub(crate) fn load() -> Result<Config, Problem> {
        Places::of_this_process()?.read()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings { minimum: self.min_level.value, home: self.home.value.clone() }
    }

    /// The lowest level that is accepted, and who says so.
    pub(crate) fn min_level(&self) -> (Level, &str) {
        (self.min_level.value, &self.min_level.source)
    }

    pub(crate) fn template(&self) -> &Template {
        &self.template.value
    }

    /// Whether runs may be forked from an interpreter that had started.
    pub(crate) fn zygotes(&self) -> bool {
        self.zygote.value
    }

    /// The most that the home may have on the disk.
    pub(crate) fn quota(&self) -> Bytes {
        self.quota.value
    }

    /// The most that a call may ask for.
    pub(crate) fn ceiling(&self) -> SomeLimits {
        let each = self.ceilings.iter().map(|said| said.value);
        each.fold(SomeLimits::default(), SomeLimits::and)
    }

    /// How much of a workspace a run can have a copy of.
    pub(crate) fn copies(&self) -> SnapshotBounds {
        self.copies.clone()
    }

    /// Where spans go.
    pub(crate) fn traces(&self) -> Option<Endpoint> {
        self.traces.as_ref().map(|traces| traces.value.clone())
    }

    /// How runs and tools reach a network.
    pub(crate) fn network(&self) -> NetworkOptions {
        network::options(&self.network)
    }

    /// How many calls go on at one time.
    pub(crate) fn at_once(&self) -> AtOnce {
        self.numbers.at_once()
    }

    /// When a tool is left alone.
    pub(crate) fn patience(&self) -> Patience {
        self.numbers.patience()
    }

    /// What is kept of the payloads in the record.
    pub(crate) fn retention(&self) -> RetentionPolicy {
        self.numbers.retention()
    }

    /// Where checkpoints of the record go.
    pub(crate) fn anchor(&self) -> Sink {
        self.numbers.anchor()
    }

    /// Each setting with the value that holds, in the order in which they are shown. A list of patterns
    /// stands once for each file that has one: all of them hold.
    fn holding(&self) -> Vec<Named> {
        let mut all = vec![
            self.min_level.named("min_level", |level| level.name().into()),
            self.template.named("template", |template| template.name.into()),
            self.zygote.named("zygote", bool::to_string),
            self.quota.named("quota", Bytes::to_string),
            self.home.named("home", |home| home.display().to_string()),
        ];
        for (limit, most) in self.ceiling().said() {
            let says_so = |said: &&Setting<SomeLimits>| {
                said.value.said().any(|one| one == (limit, most.clone()))
            };
            let source = self.ceilings.iter().find(says_so).map_or("", |said| &said.source);
            all.push(Named::new(&format!("ceiling.{limit}"), most, source));
        }
        all.extend(self.traces.iter().map(|traces| traces.named(ENDPOINT, Endpoint::to_string)));
        all.extend(network::holding(&self.network));
        let copies = || self.copies_said.iter();
        let files = copies().filter_map(|said| Some((said.value.files?, &said.source)));
        if let Some((files, source)) = files.min_by_key(|(files, _)| *files) {
            all.push(Named::new(FILES, files, source));
        }
        let bytes = copies().filter_map(|said| Some((said.value.bytes?, &said.source)));
        if let Some((bytes, source)) = bytes.min_by_key(|(bytes, _)| *bytes) {
            all.push(Named::new(BYTES, bytes, source));
        }
        all.extend(copies().filter_map(|said| said.value.patterns(&said.source)));
        all.extend(self.numbers.holding());
        all
    }

    /// What was said of a setting, and does not hold.
    fn overridden(&self, holds: &Named) -> Vec<Named> {
        let said = defaults().into_iter().chain(self.said.iter().cloned());
        let others = said.filter(|said| said.name == holds.name && holds.name != EXCEPT);
        others.filter(|said| said.origin != holds.origin).collect()
    }

    fn show(&self) -> String {
        let line = |Named { name, value, origin }: &Named| {
            format!("{name}: {} ({})\n", print::harmless(value), print::harmless(origin))
        };
        self.holding().iter().map(line).collect()
    }

    fn table(&self) -> String {
        let mut rows = vec![["SETTING", "VALUE", "ORIGIN", "OVERRIDES"].map(String::from)];
        for holds in self.holding() {
            let others = self.overridden(&holds).into_iter();
            let others: Vec<String> =
                others.map(|other| format!("{} ({})", other.value, other.origin)).collect();
            let others = if others.is_empty() { "-".into() } else { others.join(", ") };
            let Named { name, value, origin } = holds;
            rows.push([name, value, origin, others].map(|cell| print::harmless(&cell)));
        }
        print::table(&rows)
    }

    fn document(&self) -> String {
        let of = |named: &Named| {
            serde_json::json!({
                "value": named.value, "kind": named.kind(), "origin": named.origin,
            })
        };
        let settings: Vec<_> = self
            .holding()
            .iter()
            .map(|holds| {
                let overrides: Vec<_> = self.overridden(holds).iter().map(of).collect();
                let mut one = of(holds);
                if let Some(members) = one.as_object_mut() {
                    members.insert("name".into(), holds.name.as_str().into());
                    members.insert("overrides".into(), overrides.into());
                }
                one
            })
            .collect();
        print::document(&serde_json::json!({ "version": 1, "settings": settings }))
    }
}

/// One file. Unknown keys are errors: a setting with a typing error must not be taken for set.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    min_level: Option<String>,
    template: Option<String>,
    zygote: Option<bool>,
    quota: Option<String>,
    #[serde(default)]
    ceiling: LimitWords,
    workspace: Option<CopyWords>,
    traces: Option<TraceWords>,
    network: Option<NetworkWords>,
    #[serde(default)]
    schedule: ScheduleWords,
    #[serde(default)]
    breaker: BreakerWords,
    #[serde(default)]
    record: RecordWords,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceWords {
    endpoint: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CopyWords {
    files: Option<u32>,
    bytes: Option<String>,
    except: Vec<String>,
}

/// What one file says of copies of a workspace.
#[derive(Debug, Clone)]
struct Copies {
    files: Option<u32>,
    bytes: Option<Bytes>,
    except: Vec<String>,
}

impl Copies {
    fn patterns(&self, source: &str) -> Option<Named> {
        let except = self.except.join(" ");
        (!except.is_empty()).then(|| Named::new(EXCEPT, except, source))
    }
}

/// Where settings come from; a value, so that the rules can be tested without the machine's own.
#[derive(Debug)]
struct Places {
    operator: PathBuf,
    /// Who may own the operator's file: root.
    operator_uid: u32,
    /// The one that holds first.
    homes: Vec<Setting<PathBuf>>,
    directory: Option<PathBuf>,
    min_level: Option<OsString>,
    template: Option<OsString>,
}

/// A value that somebody set, and where.
type Said = Option<(String, String)>;

impl Places {
    fn of_this_process() -> Result<Places, Problem> {
        Ok(Places {
            operator: OPERATOR.into(),
            operator_uid: 0,
            homes: homes()?,
            directory: std::env::current_dir().ok(),
            min_level: std::env::var_os(MIN_LEVEL),
            template: std::env::var_os(TEMPLATE),
        })
    }

    fn read(self) -> Result<Config, Problem> {
        let own_uid = rustix::process::geteuid().as_raw();
        let home = self.homes.first().cloned().ok_or_else(no_home)?;
        let operator = Source::file(&self.operator, Some(self.operator_uid))?;
        let user = Source::file(&home.value.join("config.toml"), Some(own_uid))?;
        let project = self.project()?;
        let environment = Source {
            min_level: variable(MIN_LEVEL, self.min_level)?,
            template: variable(TEMPLATE, self.template)?,
            ..Source::default()
        };
        if let Some(Setting { source, .. }) = project.copies {
            return Err(Problem::invalid(format!("{source} cannot say anything of [workspace]"))
                .why("a copy takes memory of the machine, which is not the project's")
                .fix("remove it, and set it in the user's config.toml"));
        }
        if let Some((_, source)) = project.traces {
            return Err(Problem::invalid(format!("{source} cannot say anything of [traces]"))
                .why("where spans go is for whoever runs the server to say")
                .fix("remove it, and set it in the operator's or the user's config.toml"));
        }
        if let Some(Setting { source, .. }) = project.network {
            return Err(Problem::invalid(format!("{source} cannot say anything of [network]"))
                .why("what is believed and what is looked into is not for the project to say")
                .fix("remove it, and set it in the operator's or the user's config.toml"));
        }
        let mut said = Vec::new();
        let shown = |home: &PathBuf| home.display().to_string();
        said.extend(self.homes.iter().map(|home| home.named("home", shown)));
        [&operator, &user, &project, &environment].iter().for_each(|source| source.tell(&mut said));
        let copies_said: Vec<_> = [operator.copies, user.copies].into_iter().flatten().collect();
        let ceilings = [operator.ceiling, user.ceiling, project.ceiling];
        let levels = [operator.min_level, user.min_level, project.min_level, environment.min_level];
        let templates = [operator.template, user.template, project.template, environment.template];
        Ok(Config {
            home,
            min_level: min_level(levels)?,
            template: template(templates)?,
            zygote: zygote([operator.zygote, user.zygote, project.zygote])?,
            quota: quota(operator.quota, user.quota, project.quota)?,
            ceilings: ceilings.into_iter().flatten().collect(),
            copies: copies(&copies_said)?,
            copies_said,
            traces: operator.traces.or(user.traces).map(parse).transpose()?,
            network: [operator.network, user.network].into_iter().flatten().collect(),
            numbers: Numbers::of(operator.words, user.words, project.words)?,
            said,
        })
    }

    /// The nearest `.hotcell/config.toml`, from the current directory upward.
    fn project(&self) -> Result<Source, Problem> {
        let file = self.directory.iter().flat_map(|dir| dir.ancestors()).find_map(|dir| {
            let file = dir.join(".hotcell/config.toml");
            file.symlink_metadata().is_ok().then_some(file)
        });
        file.map_or_else(|| Ok(Source::default()), |file| Source::file(&file, None))
    }
}

/// Where the home is, before anything is read.
pub(crate) fn home_path() -> Result<PathBuf, Problem> {
    homes()?.into_iter().next().map(|home| home.value).ok_or_else(no_home)
}

/// `$HOTCELL_HOME`, else the XDG data directory: all that are named, the one that holds first.
fn homes() -> Result<Vec<Setting<PathBuf>>, Problem> {
    let own = std::env::var_os(HOME).filter(|home| !home.is_empty()).map(PathBuf::from);
    if own.as_ref().is_some_and(|home| !home.is_absolute()) {
        return Err(Problem::invalid("HOTCELL_HOME is not an absolute path")
            .fix("give it from the root, such as /var/lib/hotcell"));
    }
    let own = own.map(|value| Setting { value, source: HOME.into() });
    // A relative one is to be ignored, says the specification.
    let data = std::env::var_os(DATA_HOME).map(PathBuf::from).filter(|data| data.is_absolute());
    let data = data.map(|data| Setting { value: data.join("hotcell"), source: DATA_HOME.into() });
    let usual = std::env::home_dir().filter(|home| home.is_absolute());
    let usual = usual.map(|home| by_default(home.join(".local/share/hotcell")));
    Ok([own, data, usual].into_iter().flatten().collect())
}

fn no_home() -> Problem {
    Problem::invalid("there is no home directory").fix("set HOTCELL_HOME to a directory")
}

/// What holds where nobody says anything.
fn defaults() -> Vec<Named> {
    let copies = SnapshotBounds::default();
    let mut all = vec![
        Named::new("min_level", Level::DEFAULT_MINIMUM, DEFAULT),
        Named::new("template", Template::DEFAULT.name, DEFAULT),
        Named::new("zygote", true, DEFAULT),
        Named::new("quota", DEFAULT_QUOTA, DEFAULT),
        Named::new(FILES, copies.entries, DEFAULT),
        Named::new(
            BYTES,
            Bytes::kib(u32::try_from(copies.bytes / 1024).unwrap_or(u32::MAX)),
            DEFAULT,
        ),
    ];
    all.extend(numbers::defaults());
    all
}

fn by_default<T>(value: T) -> Setting<T> {
    Setting { value, source: DEFAULT.into() }
}

/// What one source says.
#[derive(Debug, Default)]
struct Source {
    min_level: Said,
    template: Said,
    zygote: Option<Setting<bool>>,
    quota: Said,
    traces: Said,
    network: Option<Setting<NetworkSaid>>,
    ceiling: Option<Setting<SomeLimits>>,
    copies: Option<Setting<Copies>>,
    words: Words,
}

impl Source {
    /// Everything that it says, as it is shown.
    fn tell(&self, all: &mut Vec<Named>) {
        let words = [
            ("min_level", &self.min_level),
            ("template", &self.template),
            ("quota", &self.quota),
            (ENDPOINT, &self.traces),
        ];
        for (name, said) in words {
            all.extend(said.iter().map(|(value, origin)| Named::new(name, value, origin)));
        }
        all.extend(self.network.iter().flat_map(network::told));
        let shown = |zygote: &bool| zygote.to_string();
        all.extend(self.zygote.iter().map(|zygote| zygote.named("zygote", shown)));
        if let Some(Setting { value, source }) = &self.ceiling {
            let each = value.said();
            all.extend(
                each.map(|(limit, most)| Named::new(&format!("ceiling.{limit}"), most, source)),
            );
        }
        if let Some(Setting { value, source }) = &self.copies {
            all.extend(value.files.map(|files| Named::new(FILES, files, source)));
            all.extend(value.bytes.map(|bytes| Named::new(BYTES, bytes, source)));
        }
        self.words.tell(all);
    }

    /// A file that may be missing. `owner` and root are whose it must be, if that matters.
    fn file(path: &Path, owner: Option<u32>) -> Result<Source, Problem> {
        let shown = path.display();
        let wrong = |why: String| Problem::invalid(format!("`{shown}` cannot be used")).why(why);
        let text = match read(path, owner) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(Source::default()),
            Err(e) => return Err(wrong(cause(&e))),
        };
        let content: Content = toml::from_str(&text).map_err(|e| {
            let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            Problem::invalid(format!("`{shown}` is wrong in line {line}")).why(e.message()).fix(
                "the settings are min_level, template, zygote, quota and the tables ceiling, traces, network, \
                 workspace, schedule, breaker and record",
            )
        })?;
        let ceiling = content.ceiling.read().map_err(|error| {
            Problem::invalid(format!("`{shown}` has a wrong ceiling")).why(error.why)
        })?;
        let copies = content.workspace.map(|CopyWords { files, bytes, except }| {
            let bytes = bytes.map(|text| parse((text, shown.to_string()))).transpose()?;
            let bytes = bytes.map(|setting| setting.value);
            let value = Copies { files, bytes, except };
            Ok::<_, Problem>(Setting { value, source: shown.to_string() })
        });
        let at = |value: Option<String>| value.map(|v| (v, shown.to_string()));
        Ok(Source {
            min_level: at(content.min_level),
            template: at(content.template),
            zygote: content.zygote.map(|value| Setting { value, source: shown.to_string() }),
            quota: at(content.quota),
            traces: at(content.traces.map(|traces| traces.endpoint)),
            network: content.network.map(|words| words.read(&shown.to_string())).transpose()?,
            ceiling: Some(Setting { value: ceiling, source: shown.to_string() }),
            copies: copies.transpose()?,
            words: Words::read(
                content.schedule,
                content.breaker,
                content.record,
                &shown.to_string(),
            )?,
        })
    }
}

/// `None` if there is no such file. Anything else that keeps it from being read is an error: a
/// setting that cannot be read is not a setting that is absent.
fn read(path: &Path, owner: Option<u32>) -> io::Result<Option<String>> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    let metadata = file.metadata()?;
    must_be_trusted(&metadata, owner).map_err(io::Error::other)?;
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}

fn must_be_trusted(metadata: &fs::Metadata, owner: Option<u32>) -> Result<(), String> {
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    if metadata.len() > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    let Some(owner) = owner else { return Ok(()) };
    if metadata.uid() != owner && metadata.uid() != 0 {
        return Err(format!("it belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & 0o002 != 0 {
        return Err("every user may write to it".into());
    }
    Ok(())
}

fn variable(name: &str, value: Option<OsString>) -> Result<Said, Problem> {
    let text = value.filter(|v| !v.is_empty()).map(OsString::into_string).transpose();
    text.map(|t| t.map(|t| (t, name.into())))
        .map_err(|_| Problem::invalid(format!("{name} is not valid UTF-8")))
}

fn parse<T: FromStr<Err: ToString>>(
    (text, source): (String, String),
) -> Result<Setting<T>, Problem> {
    match text.parse() {
        Ok(value) => Ok(Setting { value, source }),
        Err(e) => Err(Problem::invalid(format!("{source} has a wrong value")).why(e.to_string())),
    }
}

/// Operator, user, project, environment.
fn min_level([operator, user, project, environment]: [Said; 4]) -> Result<Setting<Level>, Problem> {
    let operator: Option<Setting<Level>> = operator.map(parse).transpose()?;
    let user: Option<Setting<Level>> = user.map(parse).transpose()?;
    // Where the operator has spoken, the user can be stricter and not laxer.
    let mut decided = match (operator, user) {
        (Some(operator), Some(user)) if user.value > operator.value => user,
        (Some(operator), _) => operator,
        (None, Some(user)) => user,
        (None, None) => by_default(Level::DEFAULT_MINIMUM),
    };
    for said in [project, environment].into_iter().flatten() {
        let wish: Setting<Level> = parse(said)?;
        if wish.value < decided.value {
            return Err(lowered(&wish, &decided));
        }
        if wish.value > decided.value {
            decided = wish;
        }
    }
    Ok(decided)
}

/// Operator, user, project, environment: the nearest to the call wins, as a template is chosen per
/// run anyway, except that a project cannot loosen what its user is used to.
fn template(
    [operator, user, project, environment]: [Said; 4],
) -> Result<Setting<Template>, Problem> {
    let own = user.or(operator).map(parse).transpose()?;
    let decided = own.unwrap_or_else(|| by_default(Template::DEFAULT));
    let decided = match project.map(parse::<Template>).transpose()? {
        Some(wish) if is_looser(&wish.value, &decided.value) => {
            return Err(Problem::invalid(format!(
                "{} cannot make `{}` the template",
                wish.source, wish.value.name
            ))
            .why(format!("it allows more than `{}` ({})", decided.value.name, decided.source))
            .fix("remove it, and give --template where it is needed"));
        }
        Some(wish) => wish,
        None => decided,
    };
    environment.map_or(Ok(decided), parse)
}

/// Operator, user, project: off where any of them says so. A project cannot switch on what is on anyway, or
/// what somebody else has switched off.
fn zygote([operator, user, project]: [Option<Setting<bool>>; 3]) -> Result<Setting<bool>, Problem> {
    let own = [&operator, &user].into_iter().flatten();
    let off = own.clone().find(|said| !said.value);
    let decided = off.or(own.last()).cloned().unwrap_or_else(|| by_default(true));
    match project {
        Some(wish) if wish.value && !decided.value => {
            Err(Problem::invalid(format!("{} cannot switch zygotes on", wish.source))
                .why(format!(
                    "they are off ({}); a project can only switch them off",
                    decided.source
                ))
                .fix("remove it"))
        }
        Some(wish) if !wish.value => Ok(wish),
        _ => Ok(decided),
    }
}

/// The user's before the operator's. A project has no say: what is beyond the quota is removed.
fn quota(operator: Said, user: Said, project: Said) -> Result<Setting<Bytes>, Problem> {
    if let Some((_, source)) = project {
        return Err(Problem::invalid(format!("{source} cannot set quota"))
            .why("what is beyond it is removed, and the home is not the project's")
            .fix("remove it, and set it in the user's config.toml"));
    }
    user.or(operator).map_or_else(|| Ok(by_default(DEFAULT_QUOTA)), parse)
}

/// The lowest of each bound, and what any of them leaves out.
fn copies(said: &[Setting<Copies>]) -> Result<SnapshotBounds, Problem> {
    let usual = SnapshotBounds::default();
    let said = || said.iter().map(|said| &said.value);
    let except: Vec<&String> = said().flat_map(|said| &said.except).collect();
    let except = Globs::new(except).map_err(|error| {
        Problem::invalid("`except` of [workspace] cannot be used").why(error.to_string())
    })?;
    let entries = said().filter_map(|said| said.files).min();
    let bytes = said().filter_map(|said| said.bytes).min();
    Ok(SnapshotBounds {
        entries: entries.map_or(usual.entries, |most| most as usize),
        bytes: bytes.map_or(usual.bytes, Bytes::get),
        except,
        ..usual
    })
}

/// Whether `wish` allows anything that `decided` does not.
fn is_looser(wish: &Template, decided: &Template) -> bool {
    let (a, b) = (&wish.limits, &decided.limits);
    wish.profile > decided.profile
        || (wish.network != Network::None && decided.network == Network::None)
        || a.memory > b.memory
        || a.cpu > b.cpu
        || a.pids > b.pids
        || a.timeout > b.timeout
        || a.disk > b.disk
        || a.files > b.files
        || a.open_files > b.open_files
        || a.output > b.output
}

/// An error and not a hint: whoever wrote the lower value believes that it counts.
fn lowered(wish: &Setting<Level>, decided: &Setting<Level>) -> Problem {
    Problem::invalid(format!("{} cannot lower min_level to `{}`", wish.source, wish.value))
        .why(format!(
            "it is `{}` ({}); a project and the environment can only raise it",
            decided.value, decided.source
        ))
        .fix(format!("remove it, or set min_level in {OPERATOR}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use hotcell_types::Count;

    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        variable: Option<OsString>,
    }

    impl Fixture {
        fn new() -> Fixture {
            Fixture { dir: tempfile::tempdir().unwrap(), variable: None }
        }

        fn file(&self, who: &str, text: &str) -> PathBuf {
            let path = self.dir.path().join(match who {
                "operator" => "etc/config.toml",
                "user" => "home/config.toml",
                _ => "project/.hotcell/config.toml",
            });
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            path
        }

        fn read(&self) -> Result<Config, Problem> {
            let deep = self.dir.path().join("project/a/b");
            fs::create_dir_all(&deep).unwrap();
            Places {
                operator: self.dir.path().join("etc/config.toml"),
                operator_uid: rustix::process::geteuid().as_raw(),
                homes: vec![by_default(self.dir.path().join("home"))],
                directory: Some(deep),
                min_level: self.variable.clone(),
                template: None,
            }
            .read()
        }

        fn error(&self) -> String {
            let root = self.dir.path().to_str().unwrap().to_owned();
            self.read().unwrap_err().text(false).replace(&root, "")
        }
    }

    #[test]
    fn the_operator_decides_and_others_only_raise() {
        // operator, user, project, environment: what holds, or nothing where it is an error
        for (operator, user, project, environment, expected) in [
            ("", "", "", "", Some("user")),
            ("no-proc", "", "", "", Some("no-proc")),
            ("", "no-cgroup", "", "", Some("no-cgroup")),
            ("user", "no-proc", "", "", Some("user")),
            ("user", "full", "", "", Some("full")),
            ("no-proc", "user", "", "", Some("user")),
            ("", "", "full", "", Some("full")),
            ("", "", "", "full", Some("full")),
            ("", "", "user", "user", Some("user")),
            ("", "", "no-proc", "", None),
            ("", "", "", "no-proc", None),
            ("no-proc", "", "no-cgroup", "user", Some("user")),
            ("no-proc", "", "user", "no-cgroup", None),
            ("full", "", "user", "", None),
            ("", "", "", "none", None),
            ("FULL", "", "", "", None),
        ] {
            let mut fixture = Fixture::new();
            for (who, level) in [("operator", operator), ("user", user), ("project", project)] {
                if !level.is_empty() {
                    fixture.file(who, &format!("min_level = \"{level}\"\n"));
                }
            }
            fixture.variable = Some(environment.into());
            let got = fixture.read().ok().map(|c| c.min_level.value.name());
            assert_eq!(got, expected, "{operator} {user} {project} {environment}");
        }
    }

    #[test]
    fn a_lower_value_in_a_project_says_who_decided() {
        let fixture = Fixture::new();
        fixture.file("user", "min_level = \"full\"");
        fixture.file("project", "min_level = \"no-proc\"");
        assert_eq!(
            fixture.error(),
            "error: /project/.hotcell/config.toml cannot lower min_level to `no-proc`\n  \
             why: it is `full` (/home/config.toml); a project and the environment can only raise it\n  \
             fix: remove it, or set min_level in /etc/hotcell/config.toml\n"
        );
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_errors_with_their_line() {
        for (text, expected) in [
            ("\nmin_levl = \"full\"\n", "in line 2\n  why: unknown field `min_levl`"),
            ("template = \"tool\"\nmin_level = 3\n", "in line 2"),
            ("min_level = \n", "in line 1"),
            ("[sandbox]\n", "in line 1"),
        ] {
            let fixture = Fixture::new();
            fixture.file("user", text);
            let error = fixture.error();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn of_each_ceiling_the_lowest_holds_whoever_says_it() {
        let fixture = Fixture::new();
        assert_eq!(fixture.read().unwrap().ceiling(), SomeLimits::default());
        fixture.file("operator", "[ceiling]\nmemory = \"1GiB\"\npids = \"50\"\n");
        fixture.file("user", "[ceiling]\nmemory = \"2GiB\"\ntimeout = \"1h\"\n");
        fixture.file("project", "[ceiling]\npids = \"40\"\n");
        let config = fixture.read().unwrap();
        let said: Vec<_> = config.ceiling().said().collect();
        let expected = [("memory", "1GiB"), ("pids", "40"), ("timeout", "1h")];
        assert_eq!(said, expected.map(|(limit, most)| (limit, most.to_owned())));
        let shown = config.show().replace(fixture.dir.path().to_str().unwrap(), "");
        assert!(shown.contains("\nceiling.memory: 1GiB (/etc/config.toml)\n"), "{shown}");
        for (text, expected) in [
            ("[ceiling]\nmemroy = \"1GiB\"", "unknown field `memroy`"),
            ("[ceiling]\nmemory = \"0\"", "`0` is zero"),
        ] {
            fixture.file("user", text);
            assert!(fixture.error().contains(expected), "{}", fixture.error());
        }
    }

    #[test]
    fn copies_have_the_lowest_bounds_and_no_project_has_a_say() {
        let fixture = Fixture::new();
        let usual = SnapshotBounds::default();
        let bounds = |fixture: &Fixture| fixture.read().unwrap().copies();
        assert_eq!(bounds(&fixture).entries, usual.entries);
        fixture.file("operator", "[workspace]\nfiles = 300000\nexcept = [\"target/\"]\n");
        fixture.file("user", "[workspace]\nfiles = 400000\nbytes = \"3GiB\"\nexcept = [\"*.o\"]\n");
        let copies = bounds(&fixture);
        assert_eq!((copies.entries, copies.bytes), (300_000, 3 << 30));
        assert!(!copies.except.is_empty());
        let shown = fixture.read().unwrap().show();
        assert!(
            shown.contains("workspace.files: 300000 (") && shown.contains("except: *.o ("),
            "{shown}"
        );
        fixture.file("project", "[workspace]\nfiles = 5\n");
        assert!(fixture.error().contains("cannot say anything of [workspace]"));
    }

    #[test]
    fn zygotes_are_off_where_any_file_says_so_and_no_project_switches_them_on() {
        // operator, user, project: what holds, or nothing where it is an error
        for (operator, user, project, expected) in [
            ("", "", "", Some(true)),
            ("", "", "true", Some(true)),
            ("", "", "false", Some(false)),
            ("false", "", "", Some(false)),
            ("false", "true", "", Some(false)),
            ("true", "false", "", Some(false)),
            ("false", "", "true", None),
            ("", "false", "true", None),
            ("true", "true", "false", Some(false)),
            ("", "\"no\"", "", None),
        ] {
            let fixture = Fixture::new();
            for (who, said) in [("operator", operator), ("user", user), ("project", project)] {
                if !said.is_empty() {
                    fixture.file(who, &format!("zygote = {said}\n"));
                }
            }
            let got = fixture.read().ok().map(|config| config.zygotes());
            assert_eq!(got, expected, "{operator} {user} {project}");
        }
        let fixture = Fixture::new();
        fixture.file("user", "zygote = false");
        let shown = fixture.read().unwrap().show();
        assert!(
            shown.contains("\nzygote: false (") && shown.contains("home/config.toml"),
            "{shown}"
        );
    }

    #[test]
    fn where_spans_go_is_for_the_operator_to_say_and_not_for_a_project() {
        let fixture = Fixture::new();
        assert_eq!(fixture.read().unwrap().traces(), None);
        fixture.file("user", "[traces]\nendpoint = \"http://127.0.0.1:1\"\n");
        let traces = |fixture: &Fixture| fixture.read().unwrap().traces().unwrap().to_string();
        assert_eq!(traces(&fixture), "http://127.0.0.1:1/v1/traces");
        fixture.file("operator", "[traces]\nendpoint = \"http://127.0.0.1:2\"\n");
        assert_eq!(traces(&fixture), "http://127.0.0.1:2/v1/traces");
        let shown = fixture.read().unwrap().show();
        assert!(shown.contains("traces.endpoint: http://127.0.0.1:2/v1/traces ("), "{shown}");
        fixture.file("operator", "[traces]\nendpoint = \"https://elsewhere\"\n");
        assert!(fixture.error().contains("over plain HTTP"), "{}", fixture.error());
        fixture.file("operator", "[traces]\nendpiont = \"x\"\n");
        assert!(fixture.error().contains("unknown field `endpiont`"), "{}", fixture.error());
        fixture.file("operator", "");
        fixture.file("project", "[traces]\nendpoint = \"http://127.0.0.1:3\"\n");
        assert!(fixture.error().contains("cannot say anything of [traces]"), "{}", fixture.error());
    }

    #[test]
    fn what_is_believed_of_a_network_is_for_the_operator_to_say_and_not_for_a_project() {
        let fixture = Fixture::new();
        assert_eq!(fixture.read().unwrap().network(), NetworkOptions::default());
        fixture.file(
            "user",
            "[network]\nintercept = [\"a.test\"]\nsearch = \"http://127.0.0.1:8888\"\n",
        );
        fixture.file(
            "operator",
            "[network]\nintercept = [\"*.b.test:8443\"]\nauthorities = \"/etc/ours.pem\"\n",
        );
        let network = fixture.read().unwrap().network();
        let hosts: Vec<&str> = network.intercept.iter().map(|host| host.as_str()).collect();
        assert_eq!(hosts, ["*.b.test:8443", "a.test"]);
        assert_eq!(network.search.as_deref(), Some("http://127.0.0.1:8888"));
        assert_eq!(network.authorities.as_deref(), Some(Path::new("/etc/ours.pem")));
        let shown = fixture.read().unwrap().show();
        assert!(shown.contains("network.intercept: *.b.test:8443 ("), "{shown}");
        fixture.file("user", "[network]\nrecorded = 50\nrequests = 7\nup = \"1GiB\"\n");
        fixture.file("operator", "[network]\nrecorded = 500\nrequests = 9\nup = \"2KiB\"\n");
        let network = fixture.read().unwrap().network();
        assert_eq!((network.recorded, network.requests), (Some(500), Some(7)));
        assert_eq!((network.up, network.down), (Some(Bytes::kib(2)), None));
        let shown = fixture.read().unwrap().show();
        for line in ["network.recorded: 500 (", "network.requests: 7 (", "network.up: 2KiB ("] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        for (words, why) in [
            ("intercept = [\"*\"]", "`*.` before a domain"),
            ("intercept = \"a.test\"", "expected a sequence"),
            ("authorities = \"ours.pem\"", "not an absolute path"),
            ("search = \"localhost\"", "not the address of a server"),
            ("serach = \"x\"", "unknown field `serach`"),
            ("recorded = 3", "a number of events"),
            ("up = \"much\"", "not a number of bytes"),
            ("requests = -1", "invalid value"),
        ] {
            fixture.file("operator", &format!("[network]\n{words}\n"));
            assert!(fixture.error().contains(why), "{words}: {}", fixture.error());
        }
        fixture.file("operator", "");
        fixture.file("project", "[network]\nsearch = \"http://127.0.0.1\"\n");
        assert!(
            fixture.error().contains("cannot say anything of [network]"),
            "{}",
            fixture.error()
        );
    }

    #[test]
    fn of_turns_and_breakers_a_project_can_only_say_less() {
        let fixture = Fixture::new();
        let count = Count::of;
        let usual = AtOnce::of_machine().running.unwrap();
        assert_eq!(fixture.read().unwrap().at_once(), AtOnce::default());
        // A project alone: beside what the machine suggests.
        fixture.file("project", "[schedule]\nrunning = 1000000\n");
        assert_eq!(fixture.read().unwrap().at_once().running, Some(usual));
        fixture.file("project", "[schedule]\nrunning = 1\n[schedule.templates]\ntool = 1\n");
        assert_eq!(fixture.read().unwrap().at_once().running, Some(count(1)));
        fixture
            .file("user", "[schedule]\nrunning = 1000\n[breaker]\nfailures = 9\nrest = \"1m\"\n");
        fixture.file("project", "");
        assert_eq!(fixture.read().unwrap().at_once().running, Some(count(1000)));
        fixture.file("operator", "[schedule]\nrunning = 500\n[schedule.templates]\ntool = 3\n");
        fixture.file(
            "project",
            "[schedule]\nrunning = 700\n[schedule.templates]\ntool = 2\n\
             [breaker]\nfailures = 20\nrest = \"2m\"\n",
        );
        let config = fixture.read().unwrap();
        let templates = [("tool".parse().unwrap(), count(2))];
        let expected = AtOnce { running: Some(count(500)), templates: templates.into() };
        assert_eq!(config.at_once(), expected);
        let patience = config.patience();
        assert_eq!((patience.failures, patience.rest.to_string()), (count(9), "2m".into()));
        let shown = config.show();
        for line in
            ["schedule.running: 500 (", "schedule.templates.tool: 2 (", "breaker.rest: 2m ("]
        {
            assert!(shown.contains(line), "{shown}");
        }
        for (text, why) in [
            ("[schedule]\nrunning = 0\n", "`0` is zero"),
            ("[schedule.templates]\ntolo = 1\n", "there is no template `tolo`"),
            ("[breaker]\nrest = \"soon\"\n", "`soon`"),
            ("[breaker]\nfailure = 1\n", "unknown field `failure`"),
        ] {
            fixture.file("user", text);
            assert!(fixture.error().contains(why), "{text}: {}", fixture.error());
        }
    }

    #[test]
    fn what_is_kept_of_the_record_and_what_proves_it_is_not_for_a_project_to_say() {
        let fixture = Fixture::new();
        let config = fixture.read().unwrap();
        assert_eq!((config.anchor(), config.retention()), (Sink::Home, RetentionPolicy::default()));
        for (text, name) in [
            ("record.anchor", "home"),
            ("record.keep", "90d"),
            ("record.most", "1GiB"),
            ("breaker.failures", "5"),
            ("breaker.rest", "30s"),
        ] {
            assert!(config.show().contains(&format!("{text}: {name} (default)\n")), "{text}");
        }
        fixture.file("user", "[record]\nanchor = \"syslog\"\nkeep = \"7d\"\nmost = \"1MiB\"\n");
        fixture.file("operator", "[record]\nanchor = \"/var/log/x\"\nkeep = \"365d\"\n");
        let config = fixture.read().unwrap();
        assert_eq!(config.anchor(), Sink::File("/var/log/x".into()));
        let RetentionPolicy { keep, most_bytes } = config.retention();
        assert_eq!((keep.as_secs(), most_bytes), (7 * 24 * 3600, 1 << 20));
        let table = config.table();
        let row = table.lines().find(|row| row.starts_with("record.anchor ")).unwrap();
        assert!(row.contains(" home (default), syslog ("), "{table}");
        for (text, why) in [
            ("[record]\nanchor = \"anchor.log\"\n", "by its path from the root"),
            ("[record]\nanchor = \"https://example.org\"\n", "cannot go to a URL yet"),
            ("[record]\nkeep = \"long\"\n", "`long` is not an age"),
        ] {
            fixture.file("user", text);
            assert!(fixture.error().contains(why), "{text}: {}", fixture.error());
        }
        fixture.file("user", "");
        for text in ["anchor = \"home\"", "keep = \"90d\"", "most = \"1GiB\""] {
            fixture.file("project", &format!("[record]\n{text}\n"));
            assert!(fixture.error().contains("cannot say anything of [record]"), "{text}");
        }
    }

    #[test]
    fn the_table_says_what_each_value_overrides() {
        let mut fixture = Fixture::new();
        fixture.file(
            "operator",
            "min_level = \"no-proc\"\nquota = \"1GiB\"\n[ceiling]\npids = \"50\"\n",
        );
        fixture.file("user", "quota = \"2GiB\"\n[workspace]\nfiles = 9\nexcept = [\"*.o\"]\n");
        fixture.file("project", "[ceiling]\npids = \"40\"\n");
        fixture.variable = Some("full".into());
        let table = fixture.read().unwrap().table();
        let table = table.replace(fixture.dir.path().to_str().unwrap(), "");
        let rows: Vec<String> =
            table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let etc = "(/etc/config.toml)";
        for row in [
            "SETTING VALUE ORIGIN OVERRIDES",
            &format!("min_level full HOTCELL_MIN_LEVEL user (default), no-proc {etc}"),
            "template code-executor default -",
            &format!("quota 2GiB /home/config.toml 10GiB (default), 1GiB {etc}"),
            &format!("ceiling.pids 40 /project/.hotcell/config.toml 50 {etc}"),
            "workspace.files 9 /home/config.toml 100000 (default)",
            "workspace.except *.o /home/config.toml -",
        ] {
            assert!(rows.iter().any(|have| have == row), "{row}\n{table}");
        }
    }

    #[test]
    fn a_file_that_anybody_may_write_is_refused() {
        let fixture = Fixture::new();
        let path = fixture.file("operator", "min_level = \"landlock-only\"");
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(fixture.error().contains("every user may write to it"), "{}", fixture.error());
    }

    #[test]
    fn what_is_no_file_or_too_long_is_refused() {
        let fixture = Fixture::new();
        fs::create_dir_all(fixture.dir.path().join("home/config.toml")).unwrap();
        assert!(fixture.error().contains("not a regular file"), "{}", fixture.error());
        let fixture = Fixture::new();
        fixture.file("project", &"#".repeat(70_000));
        assert!(fixture.error().contains("longer than"), "{}", fixture.error());
    }

    #[test]
    fn the_template_nearest_to_the_call_is_the_default_and_a_project_cannot_loosen_it() {
        let fixture = Fixture::new();
        fixture.file("operator", "template = \"tool\"");
        assert_eq!(fixture.read().unwrap().template().name, "tool");
        fixture.file("project", "template = \"policy-sandbox\"");
        assert_eq!(fixture.read().unwrap().template().name, "policy-sandbox");
        for looser in ["code-executor", "integration-test", "ai-provider"] {
            fixture.file("project", &format!("template = \"{looser}\""));
            assert!(fixture.error().contains("allows more than `tool`"), "{looser}");
        }
        fixture.file("project", "template = \"nothing\"");
        assert!(fixture.error().contains("there is no template `nothing`"));
    }
}
