//! Where the rules of one file are evaluated: an engine of their own, used for one evaluation. Nothing is
//! in it but the language, and of that nothing that differs from one evaluation to the next.

use std::cell::Cell;
use std::rc::Rc;

use rquickjs::context::intrinsic::{Eval, Json, MapSet, Promise, RegExp, RegExpCompiler};
use rquickjs::{
    CatchResultExt, CaughtError, Context, Ctx, Function, Module, Object, Persistent, Runtime, Value,
};

use crate::wire::{Failure, MOST_NAME, MOST_REASON, Place, Said, Verb};

/// Most memory of one file's rules.
const MEMORY: usize = 16 * 1024 * 1024;
/// Most stack of the engine.
const STACK: usize = 512 * 1024;
/// How often the engine may ask whether it is to go on: each time after ten thousand jumps and calls.
/// Steps and not time, so that the same rule ends in the same way everywhere.
const MOST_STEPS: u32 = 50;

/// `Eval` and `Promise` are what modules need. There is no `Date`, no `WeakRef`, no `Proxy`.
type Language = (Eval, RegExpCompiler, RegExp, Json, MapSet, Promise);

/// Takes away what makes code of text, and what is different each time.
const LOCK: &str = "'use strict';
for (const kind of [function () {}, function* () {}, async function () {}, async function* () {}]) {
    delete Object.getPrototypeOf(kind).constructor;
}
for (const name of ['eval', 'Function', 'Promise', 'queueMicrotask', 'navigator']) {
    delete globalThis[name];
}
delete Math.random;";

pub(crate) struct Room {
    /// Gone before the engine is.
    rules: Vec<Rule>,
    context: Context,
    steps: Rc<Cell<u32>>,
}

struct Rule {
    name: String,
    function: Persistent<Function<'static>>,
}

/// Why a rule did not come to a decision.
pub(crate) struct Failed {
    pub(crate) kind: Failure,
    pub(crate) rule: String,
    pub(crate) why: String,
}

impl Room {
    /// Loads a module: its exports are the rules.
    pub(crate) fn open(file: &str, source: &str) -> Result<Room, Place> {
        let fault = |why: String| fault(file, &why);
        let engine = |error: rquickjs::Error| fault(error.to_string());
        let runtime = Runtime::new().map_err(engine)?;
        runtime.set_memory_limit(MEMORY);
        runtime.set_max_stack_size(STACK);
        let steps = Rc::new(Cell::new(MOST_STEPS));
        let left = Rc::clone(&steps);
        runtime.set_interrupt_handler(Some(Box::new(move || {
            left.set(left.get().saturating_sub(1));
            left.get() == 0
        })));
        let context = Context::custom::<Language>(&runtime).map_err(engine)?;
        let rules = context.with(|ctx| {
            ctx.eval::<(), _>(LOCK).map_err(engine)?;
            rules(&ctx, file, source).catch(&ctx).map_err(|error| fault(told(&error)))?
        })?;
        Ok(Room { rules, context, steps })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.rules.iter().map(|rule| rule.name.clone())
    }

    /// What each rule says that does not pass.
    pub(crate) fn evaluate(&self, call: &str, facts: &str) -> Result<Vec<Said>, Failed> {
        let said = self.rules.iter().map(|rule| {
            self.steps.set(MOST_STEPS);
            let said = self.context.with(|ctx| ask(&ctx, rule, call, facts));
            said.map_err(|why| match self.steps.get() {
                0 => failed(rule, Failure::Late, "it takes too many steps".into()),
                _ => failed(rule, Failure::Broken, why),
            })
        });
        said.filter_map(Result::transpose).collect()
    }
}

fn failed(rule: &Rule, kind: Failure, why: String) -> Failed {
    Failed { kind, rule: rule.name.clone(), why }
}

fn rules<'js>(
    ctx: &Ctx<'js>,
    file: &str,
    source: &str,
) -> rquickjs::Result<Result<Vec<Rule>, Place>> {
    let (module, done) = Module::declare(ctx.clone(), file, source)?.eval()?;
    match done.result::<Value<'js>>() {
        Some(result) => drop(result?),
        None => {
            return Ok(Err(fault(file, "it waits for something, and there is nothing to come")));
        }
    }
    let mut rules = Vec::new();
    for export in module.namespace()?.props::<String, Value<'js>>() {
        let (export, value) = export?;
        let Some(function) = value.into_function() else {
            let why = format!("its export `{export}` is not a function");
            return Ok(Err(fault(file, &why)));
        };
        let name = if export == "default" { file.to_owned() } else { format!("{file}:{export}") };
        if name.len() > MOST_NAME {
            let why = format!("the name `{name}` is longer than {MOST_NAME} bytes");
            return Ok(Err(fault(file, &why)));
        }
        rules.push(Rule { name, function: Persistent::save(ctx, function) });
    }
    Ok(Ok(rules))
}

/// One rule's answer; nothing if it passes.
fn ask(ctx: &Ctx<'_>, rule: &Rule, call: &str, facts: &str) -> Result<Option<Said>, String> {
    let function = rule.function.clone().restore(ctx).map_err(|error| error.to_string())?;
    // Parsed for each, so that no rule sees what another made of it.
    let arguments = ctx.json_parse(call).and_then(|call| Ok((call, ctx.json_parse(facts)?)));
    let arguments = arguments.catch(ctx).map_err(|error| told(&error))?;
    let answer: Value<'_> = function.call(arguments).catch(ctx).map_err(|error| told(&error))?;
    let kind = answer.type_name();
    let Some(answer) = answer.into_object() else {
        return Err(format!("it returned {kind}, and not `{{ decision, reason }}`"));
    };
    let verb = match text(ctx, &answer, "decision")?.as_deref() {
        Some("pass") => return Ok(None),
        Some("allow") => Verb::Allow,
        Some("deny") => Verb::Deny,
        Some("require_review") => Verb::RequireReview,
        Some(other) => return Err(format!("it returned the decision `{other}`, which is none")),
        None => return Err("it returned an object without a decision".into()),
    };
    let reason = text(ctx, &answer, "reason")?.ok_or("it returned a decision without a reason")?;
    if reason.len() > MOST_REASON {
        return Err(format!("its reason is longer than {MOST_REASON} bytes"));
    }
    Ok(Some(Said { rule: rule.name.clone(), verb, reason }))
}

fn text(ctx: &Ctx<'_>, object: &Object<'_>, key: &str) -> Result<Option<String>, String> {
    let text = object.get::<_, Option<rquickjs::String<'_>>>(key);
    let text = text.and_then(|text| text.map(|text| text.to_string()).transpose());
    text.catch(ctx).map_err(|error| format!("its `{key}`: {}", told(&error)))
}

/// What was thrown, with the place.
fn told(error: &CaughtError<'_>) -> String {
    match error {
        CaughtError::Exception(exception) => {
            let message = exception.message().unwrap_or_default();
            let stack = exception.stack().unwrap_or_default();
            let place = stack.lines().map(str::trim).find(|line| !line.is_empty());
            [message.as_str(), place.unwrap_or_default()].join(" ").trim().to_owned()
        }
        CaughtError::Value(value) => match value.as_string().and_then(|text| text.to_string().ok())
        {
            Some(text) => format!("it threw `{text}`"),
            None => format!("it threw {}", value.type_name()),
        },
        CaughtError::Error(error) => error.to_string(),
    }
}

fn fault(file: &str, why: &str) -> Place {
    let (line, column) = position(file, why).unwrap_or_default();
    Place {
        file: file.to_owned(),
        line,
        column,
        what: "the rules cannot be loaded".into(),
        why: why.to_owned(),
        fix:
            "correct the file; each of its exports is a function, and it imports nothing but types"
                .into(),
    }
}

/// The line and column in a place as the engine writes it.
fn position(file: &str, text: &str) -> Option<(u32, u32)> {
    let (_, after) = text.split_once(&format!("{file}:"))?;
    let mut numbers = after.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
