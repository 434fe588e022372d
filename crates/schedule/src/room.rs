//! What there is room for: places, templates, tenants and memory, and who has how much of them.

use std::collections::BTreeMap;

use hotcell_types::{Count, Name};

use crate::job::{Job, Standing};
use crate::limits::Limits;

/// From this part of the admission memory on, whoever has to make room is ended and not paused.
const TIGHT_PERCENT: u128 = 80;

#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) limits: Limits,
    /// Places that are taken.
    held: u64,
    /// Bytes that are admitted.
    admitted: u64,
    /// Places taken, for the templates that have a limit.
    templates: BTreeMap<Name, u64>,
    /// Those that have anything.
    tenants: BTreeMap<Name, Tenant>,
}

/// What one tenant has, or one party of a tenant.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Has {
    pub(crate) waiting: u64,
    /// Places that are taken.
    pub(crate) held: u64,
    /// Jobs that are admitted, with a place or paused.
    admitted: u64,
    /// When it last took or gave back a place, or else when it came: a number that grows.
    last: u64,
}

impl Has {
    pub(crate) fn standing(self) -> Standing {
        Standing { held: self.held, last: self.last }
    }

    fn is_nothing(self) -> bool {
        self.waiting == 0 && self.admitted == 0
    }
}

#[derive(Debug)]
struct Tenant {
    all: Has,
    /// Those that have anything of it.
    parties: BTreeMap<Name, Has>,
}

/// What keeps a job from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) global: bool,
    pub(crate) template: bool,
    pub(crate) share: bool,
    /// Bytes that are not free.
    pub(crate) memory: u64,
}

impl Lack {
    pub(crate) fn is_nothing(self) -> bool {
        !self.is_place() && self.memory == 0
    }

    pub(crate) fn is_place(self) -> bool {
        self.global || self.template || self.share
    }

    pub(crate) fn is_memory_alone(self) -> bool {
        !self.is_place() && self.memory > 0
    }
}

impl Room {
    pub(crate) fn new(limits: Limits) -> Room {
        let templates = limits.per_template.keys().map(|name| (name.clone(), 0)).collect();
        Room { limits, held: 0, admitted: 0, templates, tenants: BTreeMap::new() }
    }

    pub(crate) fn lacks(&self, job: &Job) -> Lack {
        let template = self.limits.per_template.get(&job.template);
        let in_template = self.templates.get(&job.template).copied().unwrap_or_default();
        Lack {
            global: self.is_full(),
            template: template.is_some_and(|most| in_template >= most.get()),
            share: self.tenant(&job.tenant).held >= self.limits.share.running.get(),
            memory: self
                .admitted
                .saturating_add(job.memory.get())
                .saturating_sub(self.limits.memory.get()),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.held >= self.limits.global.get()
    }

    pub(crate) fn is_tight(&self) -> bool {
        u128::from(self.admitted) * 100 > u128::from(self.limits.memory.get()) * TIGHT_PERCENT
    }

    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.admitted
    }

    pub(crate) fn tenant(&self, name: &Name) -> Has {
        self.tenants.get(name).map(|tenant| tenant.all).unwrap_or_default()
    }

    pub(crate) fn party(&self, tenant: &Name, name: &Name) -> Has {
        let party = self.tenants.get(tenant).and_then(|tenant| tenant.parties.get(name));
        party.copied().unwrap_or_default()
    }

    /// Tenants that somebody waits for.
    pub(crate) fn tenants_waiting(&self) -> usize {
        self.tenants.values().filter(|tenant| tenant.all.waiting > 0).count()
    }

    /// Parties that somebody waits for, of all tenants.
    pub(crate) fn parties_waiting(&self) -> usize {
        let parties = self.tenants.values().flat_map(|tenant| tenant.parties.values());
        parties.filter(|party| party.waiting > 0).count()
    }

    /// A job begins to wait, at this number.
    pub(crate) fn queue(&mut self, job: &Job, number: u64) {
        let new = Has { last: number, ..Has::default() };
        let tenant = self.tenants.entry(job.tenant.clone());
        let tenant = tenant.or_insert_with(|| Tenant { all: new, parties: BTreeMap::new() });
        let party = tenant.parties.entry(job.party.clone()).or_insert(new);
        for has in [&mut tenant.all, party] {
            has.waiting = has.waiting.saturating_add(1);
        }
    }

    pub(crate) fn unqueue(&mut self, job: &Job) {
        self.change(job, |has| has.waiting = has.waiting.saturating_sub(1));
    }

    pub(crate) fn admit(&mut self, job: &Job) {
        self.admitted = self.admitted.saturating_add(job.memory.get());
        self.change(job, |has| has.admitted = has.admitted.saturating_add(1));
    }

    pub(crate) fn dismiss(&mut self, job: &Job) {
        self.admitted = self.admitted.saturating_sub(job.memory.get());
        self.change(job, |has| has.admitted = has.admitted.saturating_sub(1));
    }

    pub(crate) fn take_place(&mut self, job: &Job, number: u64) {
        self.place(job, number, |held| held.saturating_add(1));
    }

    pub(crate) fn give_place(&mut self, job: &Job, number: u64) {
        self.place(job, number, |held| held.saturating_sub(1));
    }

    fn place(&mut self, job: &Job, number: u64, step: fn(u64) -> u64) {
        self.held = step(self.held);
        if let Some(held) = self.templates.get_mut(&job.template) {
            *held = step(*held);
        }
        self.change(job, |has| {
            has.held = step(has.held);
            has.last = number;
        });
    }

    /// For the job's tenant and party alike. Who has nothing left is forgotten.
    fn change(&mut self, job: &Job, change: impl Fn(&mut Has)) {
        let Some(tenant) = self.tenants.get_mut(&job.tenant) else { return };
        change(&mut tenant.all);
        if let Some(party) = tenant.parties.get_mut(&job.party) {
            change(party);
            if party.is_nothing() {
                tenant.parties.remove(&job.party);
            }
        }
        if tenant.all.is_nothing() {
            self.tenants.remove(&job.tenant);
        }
    }

    /// Places taken of each limited template, with its limit.
    pub(crate) fn templates(&self) -> impl Iterator<Item = (&Name, u64, Count)> {
        self.limits.per_template.iter().map(|(name, most)| {
            (name, self.templates.get(name).copied().unwrap_or_default(), *most)
        })
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let unused = self.templates.values().all(|held| *held == 0);
        self.held == 0 && self.admitted == 0 && unused && self.tenants.is_empty()
    }
}
