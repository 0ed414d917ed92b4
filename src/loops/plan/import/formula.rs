//! `scalingModifiers.formula` of a ScaledObject, an expression of expr-lang, in CEL over the names of our metrics.
//!
//! Both have the same operators; `and`, `or` and `not` are spelled otherwise, and `a ?? b` is `coalesce(a, b)`.
//! Functions are those that a formula of a loop has, and sums and means of lists.

use std::collections::BTreeMap;

/// Maximum length of a formula of a loop.
const LONGEST: usize = 512;

/// Maximum length of a formula that is translated.
const LONGEST_GIVEN: usize = 4_096;

/// Maximum depth of brackets and operators.
const DEEPEST: usize = 64;

/// Operators with two operands, the weakest first, each with its form in CEL.
const OPERATORS: [&[(&str, &str)]; 5] = [
    &[("||", "||"), ("or", "||")],
    &[("&&", "&&"), ("and", "&&")],
    &[("==", "=="), ("!=", "!="), ("<=", "<="), (">=", ">="), ("<", "<"), (">", ">")],
    &[("+", "+"), ("-", "-")],
    &[("*", "*"), ("/", "/")],
];

/// Translates a formula. `names`: names of triggers, with those of our metrics. The error says what cannot be
/// expressed.
pub fn translate(formula: &str, names: &BTreeMap<String, String>) -> Result<String, String> {
    if formula.len() > LONGEST_GIVEN {
        return Err(format!("it is longer than {LONGEST_GIVEN} characters"));
    }
    let tokens = tokens(formula)?;
    let mut parser = FormulaParser { tokens: &tokens, at: 0, names, depth: 0 };
    let text = parser.choice()?;
    match parser.peek() {
        Some(rest) => Err(format!("`{rest}` is not expected there")),
        None if text.len() > LONGEST => Err(format!("it is longer than {LONGEST} characters in CEL")),
        None => Ok(text),
    }
}

fn tokens(formula: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = formula.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let length = if first.is_ascii_digit() {
            rest.find(|char: char| !(char.is_ascii_digit() || char == '.')).unwrap_or(rest.len())
        } else if is_word(first) {
            rest.find(|char: char| !is_word(char)).unwrap_or(rest.len())
        } else if ["??", "||", "&&", "==", "!=", "<=", ">=", "**"].iter().any(|two| rest.starts_with(two)) {
            2
        } else if "+-*/()[],?:<>!".contains(first) {
            1
        } else {
            return Err(format!("`{first}` cannot be expressed"));
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct FormulaParser<'a> {
    tokens: &'a [String],
    at: usize,
    names: &'a BTreeMap<String, String>,
    depth: usize,
}

impl FormulaParser<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.peek() == Some(token);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        let found = self.peek().map_or_else(|| "its end".to_owned(), |found| format!("`{found}`"));
        if self.take(token) { Ok(()) } else { Err(format!("`{token}` is expected before {found}")) }
    }

    /// `condition ? one : other`, or anything stronger.
    fn choice(&mut self) -> Result<String, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("it has more than {DEEPEST} levels"));
        }
        let condition = self.binary(0)?;
        let text = if self.take("?") {
            let one = self.choice()?;
            self.expect(":")?;
            let other = self.choice()?;
            format!("{condition} ? {one} : {other}")
        } else {
            condition
        };
        self.depth -= 1;
        Ok(text)
    }

    fn binary(&mut self, level: usize) -> Result<String, String> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut text = self.binary(level + 1)?;
        while let Some((_, cel)) = operators.iter().find(|(token, _)| self.peek() == Some(*token)) {
            self.at += 1;
            let right = self.binary(level + 1)?;
            text = format!("{text} {cel} {right}");
        }
        Ok(text)
    }

    fn unary(&mut self) -> Result<String, String> {
        let mut text = String::new();
        while let Some(sign) = match self.peek() {
            Some("-") => Some('-'),
            Some("!" | "not") => Some('!'),
            _ => None,
        } {
            self.at += 1;
            text.push(sign);
        }
        let mut operands = vec![self.operand()?];
        while self.take("??") {
            operands.push(self.operand()?);
        }
        let is_one = operands.len() == 1;
        text += &if is_one { operands.concat() } else { format!("coalesce({})", operands.join(", ")) };
        Ok(text)
    }

    fn operand(&mut self) -> Result<String, String> {
        let Some(token) = self.peek().map(str::to_owned) else { return Err("an operand is missing at its end".into()) };
        self.at += 1;
        if token == "(" {
            let inner = self.choice()?;
            self.expect(")")?;
            return Ok(format!("({inner})"));
        }
        if token.starts_with(|char: char| char.is_ascii_digit()) {
            let is_number = token.parse::<f64>().is_ok() && !token.ends_with('.');
            return if is_number { Ok(token) } else { Err(format!("`{token}` is no number")) };
        }
        if self.take("(") {
            let arguments = self.arguments(")")?;
            return call(&token, &arguments);
        }
        self.names.get(&token).cloned().ok_or_else(|| format!("`{token}` is not the name of a trigger"))
    }

    /// The arguments of a function, or the items of its only argument, if that is a list.
    fn arguments(&mut self, end: &str) -> Result<Vec<String>, String> {
        if self.take("[") {
            let items = self.arguments("]")?;
            self.expect(end)?;
            return Ok(items);
        }
        let mut arguments = vec![self.choice()?];
        while self.take(",") {
            arguments.push(self.choice()?);
        }
        self.expect(end)?;
        Ok(arguments)
    }
}

fn call(function: &str, arguments: &[String]) -> Result<String, String> {
    let sum = || arguments.iter().map(|one| format!("({one})")).collect::<Vec<_>>().join(" + ");
    match (function, arguments) {
        ("max" | "min", [_, _, ..]) => Ok(format!("{function}({})", arguments.join(", "))),
        // All numbers of a formula are doubles.
        ("max" | "min" | "float", [one]) => Ok(format!("({one})")),
        ("sum", _) => Ok(format!("({})", sum())),
        ("mean" | "avg", _) => Ok(format!("(({}) / {})", sum(), arguments.len())),
        _ => Err(format!("the function `{function}` cannot be expressed")),
    }
}
