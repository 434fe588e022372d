//! `hotcell init`: a policy of its own for a home, and somebody who may change it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hotcell_approver::{Public, SignedPolicy};
use hotcell_engine::Engine;
use hotcell_engine::policy::{DEFAULT, PolicyAnswer, PolicyAsk, Rules, Statement};
use hotcell_types::{Name, hex};
use serde_json::json;

use crate::config::Config;
use crate::policy::Effect;
use crate::print;
use crate::problem::{self, Problem};
use crate::{home, key, policy};

/// Gives this home a policy of its own, and an approver
///
/// Makes the approver's key unless it is there, with a passphrase that is typed twice at the terminal, and
/// signs the policy with it. From then on only that person can change the policy, or agree to what waits.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the policy allows to begin with
    #[arg(long, value_enum)]
    profile: Profile,
    /// The name of the approver [default: who is logged in]
    #[arg(long, conflicts_with = "approver")]
    name: Option<Name>,
    /// The public line of somebody who has a key already; says what they have to sign, and changes nothing
    #[arg(long, value_name = "FILE")]
    approver: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Profile {
    /// Nothing but tools that only compute
    Strict,
    /// Reads the workspace, runs code in a sandbox that reaches no host, and asks before it writes
    Dev,
}

impl Profile {
    fn text(self) -> &'static str {
        match self {
            Profile::Strict => include_str!("../profiles/strict.yaml"),
            Profile::Dev => include_str!("../profiles/dev.yaml"),
        }
    }

    /// The policy, with whoever may change it.
    fn policy(self, approver: &Public) -> Rules {
        let text = format!(
            "{}\n# Who may agree to what waits, and sign the next version.\napprovers:\n  - {approver}\n",
            self.text()
        );
        Rules { text, ..Rules::default() }
    }
}

/// Beside the policy, until somebody has signed it.
const UNSIGNED: &str = "policy.unsigned.yaml";

pub(crate) fn main(args: Args) -> u8 {
    let json = args.json;
    init(args).unwrap_or_else(|problem| problem::report(&problem, json))
}

fn init(args: Args) -> Result<u8, Problem> {
    let config = Config::load()?;
    let home = config.settings().home;
    let engine = home::engine(home::options(&config, None))?;
    has_none(&engine)?;
    let code = match &args.approver {
        Some(file) => for_another(&engine, &home, &args, &public(file)?)?,
        None => {
            let mut terminal = key::terminal()?;
            let approver = match key::path(&home).symlink_metadata() {
                Ok(_) => key::open(&home, &mut terminal, "to sign the policy")?,
                Err(_) => key::make(&home, args.name.unwrap_or_else(own_name), &mut terminal)?,
            };
            let rules = args.profile.policy(&approver.public());
            // What a home has done so far may be more than that allows.
            let old = Rules { text: DEFAULT.to_owned(), ..Rules::default() };
            let Effect { text, phrase } = policy::effect(&engine, &old, &rules)?;
            if phrase.is_some() {
                print::to_people(&text);
            }
            let accepted = policy::accepted_at(&mut terminal, phrase)?;
            let signed = SignedPolicy::sign(&approver, policy::prepared(&engine, &rules)?);
            let public = approver.public();
            let fingerprint = public.fingerprint().to_string();
            print::to_people(&format!("approver {} ({fingerprint})\n", public.name()));
            let number = policy::install(&engine, rules, signed, accepted)?;
            print::data(&match args.json {
                true => print::document(&json!({
                    "version": 1, "number": number, "approver": public.name(),
                    "fingerprint": fingerprint,
                })),
                false => policy::holds(number),
            })
        }
    };
    Ok(home::close(engine, code))
}

fn has_none(engine: &Engine) -> Result<(), Problem> {
    match policy::ask(engine, PolicyAsk::Show)? {
        PolicyAnswer::Shown(shown) if shown.number == 0 => match shown.trouble {
            None => Ok(()),
            Some(trouble) => Err(trouble.into()),
        },
        _ => Err(Problem::blocked("this home has a policy already")
            .fix("`hotcell policy update FILE` changes it; `hotcell policy show` prints it")),
    }
}

/// Another person signs, perhaps on another machine, and has to know what.
fn for_another(
    engine: &Engine,
    home: &Path,
    args: &Args,
    approver: &Public,
) -> Result<u8, Problem> {
    let rules = args.profile.policy(approver);
    let Statement { home: id, sequence, .. } = policy::prepared(engine, &rules)?;
    let file = home.join(UNSIGNED);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&file)
        .and_then(|mut file| file.write_all(rules.text.as_bytes()));
    written.map_err(|error| {
        Problem::error(format!("`{}` cannot be written", file.display())).why(error.to_string())
    })?;
    let (id, file) = (hex::text(&id), file.display());
    if args.json {
        return Ok(print::data(&print::document(&json!({
            "version": 1, "policy": file.to_string(), "home_id": id, "number": sequence,
            "approver": approver.name(),
        }))));
    }
    Ok(print::data(&format!(
        "{file} is the policy. {name} signs it with\n  \
         hotcell policy sign {file} --home-id {id} --number {sequence} > policy.signature\n\
         and then it is installed with\n  \
         hotcell policy update {file} --signature policy.signature\n",
        name = approver.name(),
    )))
}

fn public(file: &Path) -> Result<Public, Problem> {
    let text = policy::text(file)?;
    text.trim_end_matches('\n').parse().map_err(|error| {
        Problem::invalid(format!("`{}` names no approver", file.display()))
            .why(format!("{error}"))
            .fix("write the line that `hotcell approver show` prints, and nothing else")
    })
}

/// Whoever is logged in, as far as that is a name.
fn own_name() -> Name {
    let named = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    named.unwrap_or_else(|| "approver".parse().unwrap_or(Name::LOCAL))
}

#[cfg(test)]
mod tests {
    use hotcell_engine::{Engine, Options};

    use super::*;

    #[test]
    fn the_profiles_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::new(Options::at(dir.path())).unwrap();
        let approver = hotcell_approver::Approver::make("alice".parse().unwrap()).unwrap().public();
        for profile in [Profile::Strict, Profile::Dev] {
            let rules = profile.policy(&approver);
            match policy::ask(&engine, PolicyAsk::Check(rules)).unwrap() {
                PolicyAnswer::Checked(checked) => {
                    assert_eq!((checked.warnings.len(), checked.approvers), (0, 1), "{profile:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
