//! Parses actions of Go's text/template with sprig functions, as in WAO's templates, so that plain fields can be
//! translated and an error can show the equivalent of everything else.
//!
//! Evaluates nothing.

/// WAO's fields and their names in the template language of this operator.
const FIELDS: [(&str, &str); 6] = [
    ("Hostname", "hostname"),
    ("IPv4.Address", "ipv4.address"),
    ("IPv4.Octet1", "ipv4.octet1"),
    ("IPv4.Octet2", "ipv4.octet2"),
    ("IPv4.Octet3", "ipv4.octet3"),
    ("IPv4.Octet4", "ipv4.octet4"),
];

/// Keywords that begin a Go action.
const KEYWORDS: [&str; 10] = ["if", "else", "end", "range", "with", "define", "template", "block", "break", "continue"];

/// Maximum nesting of parentheses.
const MAX_DEPTH: usize = 16;

/// Token of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// `.IPv4.Address`, without the first dot; empty for a lone dot.
    Field(String),
    /// Name, such as a function.
    Word(String),
    /// Value of a quoted literal.
    Text(String),
    Number(String),
    /// Any other character.
    Symbol(char),
}

impl Token {
    /// Name in the template language, if the token is one of WAO's fields.
    pub fn field(&self) -> Option<&'static str> {
        let Self::Field(name) = self else { return None };
        FIELDS.iter().find(|(go, _)| go == name).map(|(_, ours)| *ours)
    }

    /// Name of the field, if it is not one of WAO's.
    pub fn unknown_field(&self) -> Option<&str> {
        match self {
            Self::Field(name) if self.field().is_none() => Some(name),
            Self::Field(_) | Self::Word(_) | Self::Text(_) | Self::Number(_) | Self::Symbol(_) => None,
        }
    }
}

/// Splits the content of an action, without trim markers, into tokens.
pub fn tokens(inside: &str) -> Vec<Token> {
    let mut rest = inside.trim_start();
    // Whether the previous token ends directly before `rest`: a dot after a name or a closing bracket does not begin a
    // field.
    let mut attached = false;
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '"' | '\'' | '`' => text(rest, first),
            '0'..='9' => number(rest),
            '.' if !attached => field(rest),
            _ if is_word(first) => word(rest),
            _ => (Token::Symbol(first), first.len_utf8()),
        };
        attached = matches!(token, Token::Word(_) | Token::Text(_) | Token::Number(_) | Token::Symbol(')' | ']'));
        found.push(token);
        let after = rest.get(length..).unwrap_or_default();
        rest = after.trim_start();
        attached &= rest.len() == after.len();
    }
    found
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word(rest: &str) -> (Token, usize) {
    let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    (Token::Word(rest[..length].to_owned()), length)
}

fn number(rest: &str) -> (Token, usize) {
    let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
    (Token::Number(rest[..length].to_owned()), length)
}

fn field(rest: &str) -> (Token, usize) {
    let length = rest.find(|c| !is_word(c) && c != '.').unwrap_or(rest.len());
    (Token::Field(rest[..length].trim_matches('.').to_owned()), length)
}

/// Reads a literal; an unclosed literal extends to the end.
fn text(rest: &str, quote: char) -> (Token, usize) {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => {
                value.push(match character {
                    'n' => '\n',
                    't' => '\t',
                    other => other,
                });
                escaped = false;
            }
            '\\' if quote != '`' => escaped = true,
            _ if character == quote => return (Token::Text(value), at + quote.len_utf8()),
            _ => value.push(character),
        }
    }
    (Token::Text(value), rest.len())
}

/// Whether the tokens form a Go action: a field, a variable, a keyword, or a function followed by its arguments.
pub fn is_go(tokens: &[Token]) -> bool {
    let has_field = tokens.iter().any(|token| matches!(token, Token::Field(_) | Token::Symbol('$')));
    let begins = |token: &Token| matches!(token, Token::Text(_) | Token::Number(_) | Token::Word(_));
    has_field
        || match tokens {
            [Token::Word(word)] => KEYWORDS.contains(&word.as_str()),
            [Token::Word(word), next, ..] if begins(next) => {
                KEYWORDS.contains(&word.as_str()) || super::sprig::is_function(word)
            }
            _ => false,
        }
}

/// Parsed action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Field, by its name in the template language.
    Field(&'static str),
    Text(String),
    Number(String),
    /// Function and its arguments. The input of a pipe is the last argument.
    Call(String, Vec<Expr>),
    /// Member of a value, such as `._0`.
    Member(Box<Expr>, String),
}

/// Parses a pipeline. None if the tokens are not a pipeline or contain an unknown field.
pub fn parse(tokens: &[Token]) -> Option<Expr> {
    let mut reader = Reader { rest: tokens, depth: 0 };
    let expr = reader.pipeline()?;
    reader.rest.is_empty().then_some(expr)
}

struct Reader<'a> {
    rest: &'a [Token],
    depth: usize,
}

impl Reader<'_> {
    fn next_if(&mut self, symbol: char) -> bool {
        let is_it = self.rest.first() == Some(&Token::Symbol(symbol));
        if is_it {
            self.rest = &self.rest[1..];
        }
        is_it
    }

    fn pipeline(&mut self) -> Option<Expr> {
        let mut value = self.command()?;
        while self.next_if('|') {
            value = match self.command()? {
                Expr::Call(name, mut arguments) => {
                    arguments.push(value);
                    Expr::Call(name, arguments)
                }
                Expr::Field(_) | Expr::Text(_) | Expr::Number(_) | Expr::Member(..) => return None,
            };
        }
        Some(value)
    }

    fn command(&mut self) -> Option<Expr> {
        let Some(Token::Word(name)) = self.rest.first() else { return self.operand() };
        self.rest = &self.rest[1..];
        let mut arguments = Vec::new();
        while !matches!(self.rest.first(), None | Some(Token::Symbol('|' | ')'))) {
            arguments.push(self.operand()?);
        }
        Some(Expr::Call(name.clone(), arguments))
    }

    fn operand(&mut self) -> Option<Expr> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        match first {
            Token::Field(_) => first.field().map(Expr::Field),
            Token::Text(text) => Some(Expr::Text(text.clone())),
            Token::Number(number) => Some(Expr::Number(number.clone())),
            Token::Word(word) => Some(Expr::Call(word.clone(), Vec::new())),
            Token::Symbol('(') => self.group(),
            Token::Symbol(_) => None,
        }
    }

    fn group(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut value = self.pipeline()?;
        if !self.next_if(')') {
            return None;
        }
        self.depth -= 1;
        while self.next_if('.') {
            let Some(Token::Word(member)) = self.rest.first() else { return None };
            self.rest = &self.rest[1..];
            value = Expr::Member(Box::new(value), member.clone());
        }
        Some(value)
    }
}
