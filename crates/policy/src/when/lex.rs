//! From characters to words.

use super::{Bad, TEXT_MOST};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Int(i64),
    Double(f64),
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// Longer ones first: they begin with shorter ones.
const SIGNS: [&str; 23] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")",
    "[", "]", ".", ",", "{",
];

/// The words of a text, each with the character that it begins at.
pub(crate) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Bad> {
    let chars: Vec<char> = text.chars().take(TEXT_MOST + 1).collect();
    if chars.len() > TEXT_MOST {
        return Err(Bad::new(
            0,
            "`when` is too long",
            format!("write at most {TEXT_MOST} characters"),
        ));
    }
    let mut lexer = Lexer { chars: &chars, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.take_while(char::is_whitespace);
        let at = lexer.at;
        let token = lexer.token()?;
        let is_end = token == Token::End;
        tokens.push((at, token));
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let taken: String = rest.iter().take_while(|c| wanted(**c)).collect();
        self.at += taken.chars().count();
        taken
    }

    fn token(&mut self) -> Result<Token, Bad> {
        let Some(first) = self.peek() else { return Ok(Token::End) };
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' || first == '\'' {
            self.at += 1;
            return self.text(first, false);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let start = self.at;
            let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return match (name.as_str(), self.peek()) {
                ("r" | "R", Some(quote @ ('"' | '\''))) => {
                    self.at += 1;
                    self.text(quote, true)
                }
                (_, Some('"' | '\'')) => {
                    Err(Bad::new(start, "bytes", "compare text: arguments have no bytes"))
                }
                _ => Ok(Token::Name(name)),
            };
        }
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let fits = |sign: &&&str| rest.iter().take(sign.len()).copied().eq(sign.chars());
        let Some(sign) = SIGNS.iter().find(fits) else {
            let what = format!("the character `{}`", first.escape_debug());
            return Err(Bad::new(self.at, what, "it has no meaning here: leave it out"));
        };
        if *sign == "{" {
            return Err(Bad::new(self.at, "a map", "compare its members one by one"));
        }
        self.at += sign.len();
        Ok(Token::Sign(sign))
    }

    fn number(&mut self) -> Result<Token, Bad> {
        let start = self.at;
        let mut text = self.take_while(|c| c.is_ascii_alphanumeric());
        let is_hex = text.starts_with("0x") || text.starts_with("0X");
        let follows = self.chars.get(self.at + 1).is_some_and(char::is_ascii_digit);
        let has_fraction = !is_hex && self.peek() == Some('.') && follows;
        if has_fraction {
            self.at += 1;
            text.push('.');
            text.push_str(&self.take_while(|c| c.is_ascii_alphanumeric()));
        }
        if text.ends_with(['e', 'E']) && !is_hex && matches!(self.peek(), Some('+' | '-')) {
            text.extend(self.peek());
            self.at += 1;
            text.push_str(&self.take_while(|c| c.is_ascii_digit()));
        }
        let bad = || {
            let what = format!("`{}` is not a number", crate::fault::shown(&text));
            Bad::new(start, what, "write a whole number below 2^63, such as 65536, or one like 0.5")
        };
        if is_hex {
            let digits = text.get(2..).unwrap_or_default();
            return i64::from_str_radix(digits, 16).map(Token::Int).map_err(|_| bad());
        }
        if has_fraction || text.contains(['e', 'E']) {
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            return number.map(Token::Double).ok_or_else(bad);
        }
        text.parse().map(Token::Int).map_err(|_| bad())
    }

    fn text(&mut self, quote: char, raw: bool) -> Result<Token, Bad> {
        let start = self.at - 1;
        let mut text = String::new();
        loop {
            let at = self.at;
            let c = self.peek().filter(|c| *c != '\n').ok_or_else(|| {
                Bad::new(
                    start,
                    "a text without an end",
                    "close it with the quote that it began with",
                )
            })?;
            self.at += 1;
            match c {
                c if c == quote => return Ok(Token::Text(text)),
                '\\' if !raw => text.push(self.escaped(at)?),
                c => text.push(c),
            }
        }
    }

    fn escaped(&mut self, at: usize) -> Result<char, Bad> {
        let bad =
            || Bad::new(at, "an escape that is not known", "write `\\\\` for the character itself");
        let c = self.peek().ok_or_else(bad)?;
        self.at += 1;
        let digits = match c {
            '\\' | '"' | '\'' | '`' | '?' => return Ok(c),
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' | 'X' => 2,
            'u' => 4,
            'U' => 8,
            _ => return Err(bad()),
        };
        let hex: String =
            self.chars.get(self.at..self.at + digits).ok_or_else(bad)?.iter().collect();
        self.at += digits;
        u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32).ok_or_else(bad)
    }
}
