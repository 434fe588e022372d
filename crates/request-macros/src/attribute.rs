//! What is written in `#[tool(...)]`.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitInt, LitStr, Token, parenthesized};

/// The words, each at most once. What is not given is not there.
pub(crate) struct Attribute {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitStr>,
    pub(crate) effects: Option<Vec<Ident>>,
    pub(crate) title: Option<LitStr>,
    pub(crate) category: Option<LitStr>,
    pub(crate) operation: Option<LitStr>,
    pub(crate) template: Option<LitStr>,
    pub(crate) timeout: Option<LitStr>,
    pub(crate) memory: Option<LitStr>,
    pub(crate) retry: Option<Retry>,
    pub(crate) tags: Vec<LitStr>,
    pub(crate) hosts: Vec<LitStr>,
    pub(crate) paths: Vec<LitStr>,
    pub(crate) varies: Vec<LitStr>,
}

const WORDS: &str = "name, version, effects, title, category, operation, template, timeout, memory, retry, \
                     tags, hosts, paths, varies";
const RETRY: &str = "write it as `retry(attempts = 3, wait = \"100ms\")`";
const EFFECTS: [&str; 5] = ["pure", "read", "write", "execute", "network"];

/// What is written in `retry(...)`.
pub(crate) struct Retry {
    pub(crate) attempts: LitInt,
    pub(crate) wait: LitStr,
}

/// One word with what it says.
enum Word {
    Text(LitStr),
    Retry(Retry),
    Texts(Vec<LitStr>),
    Names(Vec<Ident>),
}

impl Parse for Attribute {
    fn parse(input: ParseStream<'_>) -> syn::Result<Attribute> {
        let mut words: Vec<(Ident, Word)> = Vec::new();
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            if words.iter().any(|(other, _)| *other == name) {
                return Err(Error::new(name.span(), format!("`{name}` is there twice")));
            }
            let word = word(&name, input)?;
            words.push((name, word));
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let mut words = Words(words);
        Ok(Attribute {
            name: words.text("name"),
            version: words.text("version"),
            effects: words.names("effects"),
            title: words.text("title"),
            category: words.text("category"),
            operation: words.text("operation"),
            template: words.text("template"),
            timeout: words.text("timeout"),
            memory: words.text("memory"),
            retry: words.retry("retry"),
            tags: words.texts("tags"),
            hosts: words.texts("hosts"),
            paths: words.texts("paths"),
            varies: words.texts("varies"),
        })
    }
}

fn word(name: &Ident, input: ParseStream<'_>) -> syn::Result<Word> {
    match name.to_string().as_str() {
        "name" | "version" | "title" | "category" | "operation" | "template" | "timeout"
        | "memory" => {
            input.parse::<Token![=]>()?;
            input.parse().map(Word::Text)
        }
        "retry" => retry(name, input).map(Word::Retry),
        "tags" | "hosts" | "paths" | "varies" => list(input).map(Word::Texts),
        "effects" => {
            let names: Vec<Ident> = list(input)?;
            match names.iter().find(|name| !EFFECTS.iter().any(|known| *name == known)) {
                None if names.is_empty() => {
                    Err(Error::new(name.span(), "a tool without effects is `effects(pure)`"))
                }
                None => Ok(Word::Names(names)),
                Some(other) => Err(Error::new(
                    other.span(),
                    format!("`{other}` is not an effect: they are {}", EFFECTS.join(", ")),
                )),
            }
        }
        _ => Err(Error::new(name.span(), format!("`{name}` is not known: the words are {WORDS}"))),
    }
}

fn retry(name: &Ident, input: ParseStream<'_>) -> syn::Result<Retry> {
    let inside;
    parenthesized!(inside in input);
    let (mut attempts, mut wait) = (None, None);
    while !inside.is_empty() {
        let word: Ident = inside.parse()?;
        inside.parse::<Token![=]>()?;
        match word.to_string().as_str() {
            "attempts" if attempts.is_none() => attempts = Some(inside.parse()?),
            "wait" if wait.is_none() => wait = Some(inside.parse()?),
            _ => return Err(Error::new(word.span(), RETRY)),
        }
        if !inside.is_empty() {
            inside.parse::<Token![,]>()?;
        }
    }
    match (attempts, wait) {
        (Some(attempts), Some(wait)) => Ok(Retry { attempts, wait }),
        _ => Err(Error::new(name.span(), RETRY)),
    }
}

fn list<T: Parse>(input: ParseStream<'_>) -> syn::Result<Vec<T>> {
    let inside;
    parenthesized!(inside in input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&inside)?.into_iter().collect())
}

struct Words(Vec<(Ident, Word)>);

impl Words {
    fn take(&mut self, name: &str) -> Option<Word> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn text(&mut self, name: &str) -> Option<LitStr> {
        match self.take(name)? {
            Word::Text(text) => Some(text),
            _ => None,
        }
    }

    fn retry(&mut self, name: &str) -> Option<Retry> {
        match self.take(name)? {
            Word::Retry(retry) => Some(retry),
            _ => None,
        }
    }

    fn texts(&mut self, name: &str) -> Vec<LitStr> {
        match self.take(name) {
            Some(Word::Texts(texts)) => texts,
            _ => Vec::new(),
        }
    }

    fn names(&mut self, name: &str) -> Option<Vec<Ident>> {
        match self.take(name)? {
            Word::Names(names) => Some(names),
            _ => None,
        }
    }
}
