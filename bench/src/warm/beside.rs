//! What a running hotcell needs for `/bin/true` and for Node, beside others who build sandboxes.

use hotcell_sandbox::lang::Language;

use crate::docker::Docker;
use crate::peers::{BARE, BWRAP, Failure, HOTCELL, HOTCELL_UNLIKE, Peers, Program, contestant};
use crate::report::Report;
use crate::rounds;
use crate::stats::millis;
use crate::{Options, say};

use super::sandlock::Sandlock;
use super::{SANDLOCK, packages_python};

/// The promises that are measured here.
const TRUE_OVER_BWRAP: f64 = 0.30;
const NODE_OVER_BARE: f64 = 0.25;

pub(super) fn measure(options: Options, report: &mut Report) -> Result<(), Failure> {
    let peers = Peers::find()?;
    nothing(options, &peers, report)?;
    node(options, &peers, report)
}

fn nothing(options: Options, peers: &Peers, report: &mut Report) -> Result<(), Failure> {
    say("`/bin/true` beside whoever is here");
    let program = Program::nothing();
    let docker = if options.docker { Ok(Docker::started()?) } else { Docker::found() };
    let sandlock = Sandlock::start(&packages_python(), "", &["/bin/true"]);
    let mut contestants = peers.resident(&program);
    contestants.retain(|one| one.name != HOTCELL_UNLIKE);
    match &docker {
        Ok(docker) => contestants.push(docker.contestant()),
        Err(why) => report.skip(&format!("`docker run`: {why}")),
    }
    match &sandlock {
        Ok(sandlock) => contestants.push(contestant(SANDLOCK, || sandlock.run().map(|()| None))),
        Err(why) => report.skip(&format!("sandlock: {why}")),
    }
    let samples = rounds::interleave(&contestants, options.rounds(100), 1)?;
    report.heading("`/bin/true`, from a running process of each");
    report.beside(&samples, BWRAP, "ms", millis);
    let what = "`/bin/true`, a running hotcell over bubblewrap";
    report.over(&samples, HOTCELL, BWRAP, TRUE_OVER_BWRAP, what);
    Ok(())
}

fn node(options: Options, peers: &Peers, report: &mut Report) -> Result<(), Failure> {
    let Some(program) = Program::hello(Language::JavaScript, &[]) else {
        report.skip("Node: it is not installed");
        return Ok(());
    };
    say("a Node program");
    let samples = rounds::interleave(&peers.resident(&program), options.rounds(100), 1)?;
    report.heading(&format!("`{}`", program.name));
    report.beside(&samples, BARE, "ms", millis);
    let what = "a Node program, a running hotcell over bare";
    report.over(&samples, HOTCELL, BARE, NODE_OVER_BARE, what);
    Ok(())
}
