//! Sandboxes that stay, as long as this process does. They are its own: whoever has no process that serves
//! the home has none.

mod life;
mod warden;

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use hotcell_ledger::{Blob, Role};
use hotcell_policy::{Constraints, Permit};
use hotcell_record::now;
use hotcell_request::Call;
use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Item, Keep, Kept, Network, Refusal, View, What, WorkingCopy, cause};
use hotcell_tools::Changes;
use hotcell_tools::run::LimitWords;
use hotcell_tools::stay::{self as tool, Create, Get, Put, State, Wanted};
use hotcell_types::{CallId, Door, Level, Limits, SomeLimits, Span, Template};
use hotcell_workspace::{Changeset, Relative};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::Serialize;

use crate::artifacts::{self, Product};
use crate::attached::{Attached, Attachment};
use crate::changes::{Copied, Spool};
use crate::engine::Engine;
use crate::path::Done;
use crate::prepare::{Ready, Work, below_policy, ceilings, host_of};
use crate::reply::{Problem, ProblemKind};
use crate::surroundings::Surroundings;
pub(crate) use life::Inside;
use life::{Design, Stay, Unfit};
pub use warden::StayBounds;
pub(crate) use warden::Stays;

/// How long a sandbox is kept that nobody uses, and how long at most, where nobody says otherwise.
const IDLE: Span = Span::seconds(30 * 60);
const LIFETIME: Span = Span::seconds(8 * 3600);
/// Languages that a sandbox is made for if they are there and nobody names any.
const USUAL_LANGUAGES: [Language; 2] = [Language::Python, Language::JavaScript];
/// Most bytes of a file that is taken out at one time. It is held in memory.
const GET_MOST: u64 = 256 << 20;
/// How long programs may take to be gone that were ended with their sandbox.
const LEFT_WITHIN: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    Create(Box<Design>),
    List,
    Show(CallId),
    Pause(CallId),
    Resume(CallId),
    Restart(CallId),
    Stop(CallId),
    Remove(CallId),
    Put(CallId, Brought),
    Get(CallId, Relative),
    Diff(CallId),
    Apply(CallId),
}

/// One that is being made. If that is given up half-way, it says so.
struct Making<'a>(&'a Stay);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.give_up("it could not be made".to_owned());
    }
}

/// Files by their paths in the working directory.
#[derive(Debug)]
pub(crate) struct Brought {
    directories: BTreeSet<String>,
    files: Vec<(Relative, Attachment)>,
}

impl Engine {
    pub(crate) fn for_a_stay<'e>(
        &'e self,
        call: &Call,
        constraints: &Constraints,
        wanted: Wanted,
        attached: &Attached<'_>,
    ) -> Result<Ready<'e>, Problem> {
        let task = match wanted {
            Wanted::Create(create) => {
                Task::Create(Box::new(self.design(call, constraints, *create, attached)?))
            }
            Wanted::List => Task::List,
            Wanted::Show(id) => Task::Show(id_of(&id)?),
            Wanted::Pause(id) => Task::Pause(id_of(&id)?),
            Wanted::Resume(id) => Task::Resume(id_of(&id)?),
            Wanted::Restart(id) => Task::Restart(id_of(&id)?),
            Wanted::Stop(id) => Task::Stop(id_of(&id)?),
            Wanted::Remove(id) => Task::Remove(id_of(&id)?),
            Wanted::Put(Put { sandbox, files }) => {
                Task::Put(id_of(&sandbox)?, brought(files, attached)?)
            }
            Wanted::Get(Get { sandbox, path }) => Task::Get(id_of(&sandbox)?, path_of(&path)?),
            Wanted::Diff(id) => Task::Diff(id_of(&id)?),
            Wanted::Apply(id) => Task::Apply(id_of(&id)?),
        };
        Ok(Ready::new(ceilings(constraints).cap(call.limits()), Work::Stay(task)))
    }

    fn design(
        &self,
        call: &Call,
        constraints: &Constraints,
        create: Create,
        attached: &Attached<'_>,
    ) -> Result<Design, Problem> {
        let asked = create.limits.read();
        let asked = asked.map_err(|error| Problem::from(error).of(ProblemKind::Invalid))?;
        let template = match (constraints.template(), &create.template) {
            (Some(wanted), _) => wanted,
            (None, Some(name)) => {
                name.parse().map_err(|error: hotcell_types::UnknownTemplate| {
                    let fix = "`hotcell template ls` lists them";
                    Problem::new("there is no such template", error.to_string(), fix)
                        .of(ProblemKind::Invalid)
                })?
            }
            (None, None) => Template::DEFAULT,
        };
        let from = attached.from.as_ref();
        let usual = template.limits;
        // What bounds the call that makes it says nothing about programs that run in it later.
        self.below_ceiling(&asked, from)?;
        below_policy(&asked, constraints)?;
        let most = ceilings(constraints);
        self.can_be_counted(from)?;
        let limits = asked.over(most.cap(self.ceiling_of(from).cap(usual)));
        let limits = Limits { file_size: constraints.max_file_size, cpu_time: None, ..limits };
        let (bounds, minimum) = (limits, self.minimum_of(from));
        let copy = match (create.workspace, self.workspace_of(from)) {
            (false, _) => None,
            (true, Some(root)) => {
                Some((Arc::new(Copied::new(root.clone(), self.copies.clone())), root.clone()))
            }
            (true, None) => return Err(crate::prepare::no_workspace()),
        };
        let limits = match &copy {
            Some((copied, _)) => copied.with_room(limits, self.machine().memory)?,
            None => limits,
        };
        // Only a person at a terminal chooses interpreters by what is on their path.
        let host = match call.caller().door {
            Door::Cli => host_of(attached),
            _ => Host::of_this_process(),
        };
        let (view, languages) = interpreters(&host, &create.languages)?;
        let keep = Keep { view, limits, profile: template.profile, network: Network::None };
        let idle = span("idle", &create.idle)?.unwrap_or(IDLE);
        let lifetime = span("lifetime", &create.lifetime)?.unwrap_or(LIFETIME);
        self.stays.may_last(lifetime)?;
        let template = template.name;
        Ok(Design { keep, minimum, bounds, template, languages, copy, idle, lifetime })
    }

    fn minimum_of(&self, from: Option<&Surroundings>) -> Level {
        let demanded = from.and_then(|from| from.bounds.minimum);
        demanded.unwrap_or(self.settings().minimum)
    }

    /// Processor time is counted for a sandbox as a whole, so that no program can be held to it.
    fn can_be_counted(&self, from: Option<&Surroundings>) -> Result<(), Problem> {
        let Some(most) = self.ceiling_of(from).cpu_time else { return Ok(()) };
        let what = "there can be no sandbox that stays";
        let why = format!(
            "the operator allows {most} of processor time, which is not counted for \
                           each program there"
        );
        let fix = "run programs one by one, or have the operator take `cpu_time` off the ceiling";
        Err(Problem::new(what, why, fix).of(ProblemKind::Blocked))
    }

    /// What a program in a sandbox is held to, and the sandbox, into which it has come.
    pub(crate) fn inside(
        &self,
        call: &Call,
        constraints: &Constraints,
        id: &str,
        from: Option<&Surroundings>,
    ) -> Result<(Inside, Limits), Problem> {
        self.can_be_counted(from)?;
        let stay = self.stay_of(call, id_of(id)?)?;
        let Design { keep, bounds, template, .. } = &stay.design;
        let blocked = |why: String| {
            let what = format!("`{}` cannot be carried out as the policy wants it", call.name());
            let fix = "make a sandbox that is as the rule says, or have the policy changed";
            Err(Problem::new(what, why, fix).of(ProblemKind::Blocked))
        };
        if let Some(wanted) = constraints.template()
            && wanted.name != *template
        {
            return blocked(format!(
                "it would have to run in `{}`, and not in `{template}`",
                wanted.name
            ));
        }
        let limits = keep.limits;
        if let Some(most) = constraints.max_file_size
            && limits.file_size.is_none_or(|own| own > most)
        {
            return blocked(format!("files may have {most} there, and more in this sandbox"));
        }
        let whole = SomeLimits {
            memory: Some(bounds.memory),
            cpu: Some(bounds.cpu),
            pids: Some(bounds.pids),
            disk: Some(bounds.disk),
            files: Some(bounds.files),
            open_files: Some(bounds.open_files),
            ..SomeLimits::default()
        };
        if let Some(above) = whole.above(&ceilings(constraints)) {
            return blocked(format!("the sandbox has more than that allows: {above}"));
        }
        if let Some(above) = whole.above(&self.ceiling_of(from)) {
            let what = "the sandbox has more than the operator allows this call";
            let fix = "make a smaller one, or have the operator raise the ceiling";
            return Err(Problem::new(what, above.to_string(), fix).of(ProblemKind::Blocked));
        }
        let inside = stay.enter(false).map_err(|unfit| unusable(&stay, unfit))?;
        let (given, minimum) = (inside.kept.level(), self.minimum_of(from));
        if given < minimum {
            let why = "the sandbox was made at that level".to_owned();
            let fix = "make one that is as strict as this call wants it".to_owned();
            return Err(Refusal::Level { given, minimum, why, fix }.into());
        }
        Ok((inside, limits))
    }

    /// Carries it out.
    pub(crate) fn about_stays(&self, permit: &Permit<'_>, task: Task) -> Done {
        let call = permit.call();
        let told = |stay: Result<Arc<Stay>, Problem>| answered(stay.map(|stay| tell(&stay)));
        match task {
            Task::Create(design) => told(self.create_stay(call, *design)),
            Task::List => {
                let own = |stay: &Arc<Stay>| stay.owner.tenant == call.caller().tenant;
                let all = self.stays.all().into_iter().filter(own);
                answered(Ok(tool::Listed { sandboxes: all.map(|stay| tell(&stay)).collect() }))
            }
            Task::Show(id) => told(self.stay_of(call, id)),
            Task::Pause(id) => told(self.turn_stay(call, id, Stay::pause)),
            Task::Resume(id) => told(self.turn_stay(call, id, Stay::resume)),
            Task::Restart(id) => told(self.restart_stay(call, id)),
            Task::Stop(id) => told(self.stop_stay(call, id)),
            Task::Remove(id) => told(self.stop_stay(call, id).inspect(|stay| {
                self.stays.forget(stay.id);
            })),
            Task::Put(id, files) => answered(self.put(call, id, &files)),
            Task::Get(id, path) => self.get(call, id, &path),
            Task::Diff(id) => answered(self.diff(call, id).map(|(set, _)| Changes::from(&set))),
            Task::Apply(id) => answered(self.apply_stay(permit, id)),
        }
    }

    /// Of the same tenant; others are not known to be there.
    fn stay_of(&self, call: &Call, id: CallId) -> Result<Arc<Stay>, Problem> {
        let found = self.stays.get(id).filter(|stay| stay.owner.tenant == call.caller().tenant);
        found.ok_or_else(|| {
            let why = "nobody made it, it was removed, or the hotcell that kept it has ended";
            let fix = "`hotcell sandbox ls` lists them; `hotcell sandbox create` makes one";
            Problem::new(format!("there is no sandbox `{id}`"), why, fix).of(ProblemKind::NotFound)
        })
    }

    fn create_stay(&self, call: &Call, design: Design) -> Result<Arc<Stay>, Problem> {
        let stay = Arc::new(Stay::new(call.id(), call.caller().clone(), design, now()));
        self.stays.add(&stay, self.machine().memory)?;
        self.make(&stay).inspect_err(|_| self.stays.forget(stay.id))?;
        self.stays.watch(self.recording()?);
        Ok(stay)
    }

    /// Makes what it is about, and fills it.
    fn make(&self, stay: &Stay) -> Result<(), Problem> {
        let _making = Making(stay);
        let Design { keep, minimum, .. } = &stay.design;
        let made = self.sandbox().and_then(|sandbox| sandbox.keep_at(*minimum, keep.clone()));
        let filled = made.and_then(|kept| {
            if let Some((copied, _)) = &stay.design.copy {
                kept.fill(&**copied)?;
            }
            Ok(kept)
        });
        match filled {
            Ok(kept) => {
                stay.begin(kept);
                Ok(())
            }
            Err(refusal) => {
                stay.give_up(refusal.to_string());
                Err(refusal.into())
            }
        }
    }

    fn turn_stay(
        &self,
        call: &Call,
        id: CallId,
        act: fn(&Stay) -> Result<Result<(), Refusal>, Unfit>,
    ) -> Result<Arc<Stay>, Problem> {
        let stay = self.stay_of(call, id)?;
        act(&stay).map_err(|unfit| unusable(&stay, unfit))??;
        self.stays.ring();
        Ok(stay)
    }

    fn stop_stay(&self, call: &Call, id: CallId) -> Result<Arc<Stay>, Problem> {
        let stay = self.stay_of(call, id)?;
        stay.wait_made(LEFT_WITHIN);
        stay.stop(None)?;
        stay.wait_settled(LEFT_WITHIN);
        Ok(stay)
    }

    fn restart_stay(&self, call: &Call, id: CallId) -> Result<Arc<Stay>, Problem> {
        let stay = self.stop_stay(call, id)?;
        if !self.stays.renew(&stay, self.machine().memory)? {
            return Err(unusable(&stay, Unfit::State(stay.state())));
        }
        self.make(&stay)?;
        self.stays.ring();
        Ok(stay)
    }

    fn put(&self, call: &Call, id: CallId, files: &Brought) -> Result<tool::Taken, Problem> {
        let stay = self.stay_of(call, id)?;
        let inside = stay.enter(false).map_err(|unfit| unusable(&stay, unfit))?;
        inside.kept.fill(files)?;
        let bytes = files.files.iter().map(|(_, file)| file.content().bytes).sum();
        Ok(tool::Taken { files: files.files.len() as u64, bytes })
    }

    fn get(&self, call: &Call, id: CallId, path: &Relative) -> Done {
        let taken = self.stay_of(call, id).and_then(|stay| {
            // A paused one can be looked into as well.
            let kept = stay.kept().ok_or_else(|| unusable(&stay, Unfit::State(stay.state())))?;
            self.taken_out(&kept, path, &stay.design.keep.limits)
        });
        match taken {
            Err(problem) => Done::failed(problem),
            Ok(product) => {
                let artifacts::Content::File { blob, .. } = &product.content else {
                    return Done::failed(unread(path.as_str(), &io::ErrorKind::Other.into()));
                };
                let (bytes, sha256) = (blob.size, blob.digest.to_string());
                let given = tool::Given { path: path.to_string(), bytes, sha256 };
                Done { files: vec![product], ..answered(Ok(given)) }
            }
        }
    }

    /// What was changed in it since its copy was made. Programs stand still meanwhile.
    fn diff(&self, call: &Call, id: CallId) -> Result<(Changeset, Spool), Problem> {
        let stay = self.stay_of(call, id)?;
        let copied = copy_of(&stay)?;
        let kept = stay.kept().ok_or_else(|| unusable(&stay, Unfit::State(stay.state())))?;
        let _still = kept.stand_still()?;
        self.compared_with_copy(&kept, copied, &stay.design.keep.limits)
    }

    fn compared_with_copy(
        &self,
        kept: &Kept,
        copied: &Copied,
        limits: &Limits,
    ) -> Result<(Changeset, Spool), Problem> {
        let left = kept.work_dir().map_err(|error| unread(".", &error))?;
        self.brought(copied, left.as_fd(), limits)
    }

    /// Takes over what was changed, while nothing runs in it. From then on that is what it began with.
    fn apply_stay(&self, permit: &Permit<'_>, id: CallId) -> Result<Changes, Problem> {
        let stay = self.stay_of(permit.call(), id)?;
        let copied = copy_of(&stay)?;
        let inside = stay.enter(true).map_err(|unfit| unusable(&stay, unfit))?;
        let (changes, spool) =
            self.compared_with_copy(&inside.kept, copied, &stay.design.keep.limits)?;
        let (_, root) = stay.design.copy.as_ref().ok_or_else(crate::prepare::no_workspace)?;
        self.apply(permit, root, &changes, &spool, &[])?;
        copied.advance(&changes);
        Ok(Changes::from(&changes))
    }

    /// How many sandboxes stay in this process.
    pub fn sandboxes(&self) -> usize {
        self.stays.live()
    }
}

fn copy_of(stay: &Stay) -> Result<&Copied, Problem> {
    let copied = stay.design.copy.as_ref().map(|(copied, _)| &**copied);
    copied.ok_or_else(|| {
        let what = format!("the sandbox `{}` has no copy of a workspace", stay.id);
        let fix = "make one with `--workspace DIR`, or take files out with `hotcell sandbox cp`";
        Problem::new(what, "it was made without one", fix).of(ProblemKind::Invalid)
    })
}

/// Everything that its programs see, and which interpreters that is.
fn interpreters(host: &Host, names: &[String]) -> Result<(View, Vec<String>), Problem> {
    let (mut view, mut languages) = (View::default(), Vec::new());
    let mut add = |language: Language, command: hotcell_sandbox::Command| {
        languages.push(format!("{}: {}", language.name(), command.program.display()));
        view = std::mem::take(&mut view).and(command.view());
    };
    for language in names {
        let language: Language = language.parse()?;
        add(language, lang::interpreter(host, language)?);
    }
    if names.is_empty() {
        // What is not there is not missed by who did not ask for it.
        for language in USUAL_LANGUAGES {
            if let Ok(command) = lang::interpreter(host, language) {
                add(language, command);
            }
        }
    }
    Ok((view, languages))
}

fn brought(
    files: Vec<hotcell_tools::run::File>,
    attached: &Attached<'_>,
) -> Result<Brought, Problem> {
    let (mut all, mut directories) = (Vec::new(), BTreeSet::new());
    for hotcell_tools::run::File { name, content } in files {
        let name = OsString::from(name);
        let found = attached.files.iter().find(|given| *given.name() == name);
        let found = found.filter(|given| *given.content() == content);
        let found = found.ok_or_else(|| crate::prepare::not_attached(&name))?;
        let path = path_of(&String::from_utf8_lossy(name.as_bytes()))?;
        directories.extend(path.ancestors().map(|above| above.to_string()));
        let file = found.try_clone().map_err(|error| unread(path.as_str(), &error))?;
        all.push((path, file));
    }
    directories.retain(|above| above != ".");
    Ok(Brought { directories, files: all })
}

impl WorkingCopy for Brought {
    fn items(&self) -> Box<dyn Iterator<Item = io::Result<Item>> + '_> {
        let item = |path: &str, what| Ok(Item { path: CString::new(path)?, what });
        let directories = self.directories.iter().map(move |path| item(path, What::Directory));
        let files = self.files.iter();
        let files = files.map(move |(path, file)| item(path.as_str(), What::File(file.open()?)));
        Box::new(directories.chain(files))
    }
}

impl Engine {
    /// A copy of one file, on the disk and not in memory, one at a time. Whoever named it may be the sandbox
    /// itself: nothing is followed, only what is a file is read, and no more than the sandbox could have written.
    fn taken_out(&self, kept: &Kept, path: &Relative, limits: &Limits) -> Result<Product, Problem> {
        let unread = |error: io::Error| unread(path.as_str(), &error);
        let work = kept.work_dir().map_err(unread)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let opened: OwnedFd =
            rustix::fs::openat2(&work, path.as_str(), flags, Mode::empty(), resolve)
                .map_err(|errno| unread(errno.into()))?;
        let file = std::fs::File::from(opened);
        let about = file.metadata().map_err(unread)?;
        if !about.is_file() {
            let what = format!("`{path}` cannot be taken out");
            let fix = "name a file; of a directory, make an archive first";
            return Err(
                Problem::new(what, "it is not a regular file", fix).of(ProblemKind::Invalid)
            );
        }
        let most = GET_MOST.min(limits.disk.get());
        let too_large = || unread(io::ErrorKind::FileTooLarge.into());
        if about.len() > most {
            return Err(too_large());
        }
        let _one = self.stays.taking();
        let mut spool = Spool::new(&self.spool_directory()).map_err(unread)?;
        let digest = spool.keep(&mut io::Read::take(&file, most + 1)).map_err(unread)?;
        let copy = spool.into_file();
        let size = copy.metadata().map_err(unread)?.len();
        if size > most {
            return Err(too_large());
        }
        let blob = Blob { digest: digest.to_string().parse().map_err(|_| too_large())?, size };
        let content = artifacts::Content::File { blob, file: copy };
        Ok(Product::new(Role::File, path.as_str(), content))
    }
}

fn tell(stay: &Stay) -> tool::Sandbox {
    let Design { keep, template, languages, copy, idle, lifetime, .. } = &stay.design;
    let kept = stay.kept();
    let usage = kept.as_ref().filter(|_| stay.state() != State::Destroyed).map(|kept| {
        let used = kept.usage();
        tool::Usage {
            cpu_ms: used.cpu.map(|cpu| u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX)),
            memory_bytes: used.memory_bytes,
            peak_memory_bytes: used.memory_peak_bytes,
            oom_kills: used.oom_kills,
            disk_bytes: used.disk_bytes,
            files: used.files,
        }
    });
    tool::Sandbox {
        id: stay.id.to_string(),
        state: stay.state(),
        why: stay.why(),
        created_ns: stay.created_ns,
        template: (*template).to_owned(),
        languages: languages.clone(),
        workspace: copy.is_some(),
        limits: words(&keep.limits),
        idle: idle.to_string(),
        lifetime: lifetime.to_string(),
        running: kept.map_or(0, |kept| kept.programs_running() as u64),
        programs: stay.programs(),
        usage,
    }
}

fn words(limits: &Limits) -> LimitWords {
    LimitWords::of(&SomeLimits {
        memory: Some(limits.memory),
        cpu: Some(limits.cpu),
        pids: Some(limits.pids),
        timeout: Some(limits.timeout),
        disk: Some(limits.disk),
        files: Some(limits.files),
        open_files: Some(limits.open_files),
        output: Some(limits.output),
        ..SomeLimits::default()
    })
}

fn answered(answer: Result<impl Serialize, Problem>) -> Done {
    let value = answer.and_then(|answer| {
        serde_json::to_value(answer).map_err(|error| {
            Problem::new("the answer cannot be written", error.to_string(), "report it")
        })
    });
    value.map_or_else(Done::failed, Done::value)
}

fn id_of(text: &str) -> Result<CallId, Problem> {
    text.parse().map_err(|_| {
        let why = "it is not an id as `sandbox.create` gives them";
        let what = format!("`{}` is no sandbox", text.escape_debug());
        Problem::new(what, why, "`hotcell sandbox ls` lists them").of(ProblemKind::Invalid)
    })
}

fn path_of(text: &str) -> Result<Relative, Problem> {
    Relative::parse(text).map_err(|bad| {
        let fix = "name files by plain paths, relative to the working directory";
        Problem::new(bad.to_string(), bad.why(), fix).of(ProblemKind::Invalid)
    })
}

fn span(field: &str, text: &Option<String>) -> Result<Option<Span>, Problem> {
    let read = text.as_ref().map(|text| text.parse()).transpose();
    read.map_err(|error: hotcell_types::UnitError| {
        let what = format!("`{field}` cannot be used");
        Problem::new(what, error.to_string(), "write it as it says").of(ProblemKind::Invalid)
    })
}

fn unusable(stay: &Stay, unfit: Unfit) -> Problem {
    let what = format!("the sandbox `{}` cannot be used now", stay.id);
    let why = match stay.why() {
        Some(why) => format!("{unfit}: {why}"),
        None => unfit.to_string(),
    };
    match unfit {
        Unfit::State(State::Paused) => {
            let fix = format!("let it go on: `hotcell sandbox resume {}`", stay.id);
            Problem::new(what, why, fix).of(ProblemKind::Conflict)
        }
        Unfit::State(State::Destroyed | State::Failed) => {
            let fix = format!("make it anew: `hotcell sandbox restart {}`", stay.id);
            Problem::new(what, why, fix).of(ProblemKind::Conflict)
        }
        _ => Problem::new(what, why, "try again in a moment").of(ProblemKind::Busy),
    }
}

fn unread(path: &str, error: &io::Error) -> Problem {
    let what = format!("`{path}` cannot be read or held");
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ProblemKind::NotFound,
        _ => ProblemKind::Failed,
    };
    let fix = "name a file that is there; links are not followed, and 256 MiB is the most";
    Problem::new(what, cause(error), fix).of(kind)
}
