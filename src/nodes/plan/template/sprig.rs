//! Equivalents of sprig and Go text/template functions in the template language, for errors.

use super::go::Expr;

/// Binding strength of an expression. If two kinds are combined, the weaker gets parentheses, even where they are
/// optional.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Logic,
    Compare,
    Join,
    Add,
    Multiply,
    Filter,
    Atom,
}

/// Expression in the template language.
struct Shown {
    text: String,
    binding: Binding,
}

/// Functions with one argument, and the filter that replaces them.
const FILTERS: [(&str, &str); 12] = [
    ("upper", "upper"),
    ("lower", "lower"),
    ("trim", "trim"),
    ("title", "title"),
    ("first", "first"),
    ("last", "last"),
    ("reverse", "reverse"),
    ("len", "length"),
    ("int", "int"),
    ("int64", "int"),
    ("atoi", "int"),
    ("toString", "string"),
];

/// Functions whose last argument becomes the input of a filter and whose other arguments become the filter's arguments.
const WITH_ARGUMENTS: [(&str, usize, &str); 6] = [
    ("trimPrefix", 1, "trim_prefix"),
    ("trimSuffix", 1, "trim_suffix"),
    ("replace", 2, "replace"),
    ("default", 1, "default"),
    ("join", 1, "join"),
    ("splitList", 1, "split"),
];

const NUMBERS: [(&str, &str, Binding); 5] = [
    ("add", " + ", Binding::Add),
    ("sub", " - ", Binding::Add),
    ("mul", " * ", Binding::Multiply),
    ("div", " // ", Binding::Multiply),
    ("mod", " % ", Binding::Multiply),
];

const COMPARISONS: [(&str, &str); 6] =
    [("eq", " == "), ("ne", " != "), ("lt", " < "), ("le", " <= "), ("gt", " > "), ("ge", " >= ")];

const OTHERS: [&str; 22] = [
    "split",
    "index",
    "printf",
    "print",
    "cat",
    "substr",
    "trunc",
    "nospace",
    "quote",
    "squote",
    "contains",
    "hasPrefix",
    "hasSuffix",
    "and",
    "or",
    "not",
    "ternary",
    "add1",
    "trimAll",
    "b64enc",
    "regexReplaceAll",
    "regexFind",
];

/// Whether this is a common function of Go or sprig that is not an operator of the template language.
pub fn is_function(name: &str) -> bool {
    if name == "not" {
        return false;
    }
    FILTERS.iter().any(|(one, _)| *one == name)
        || WITH_ARGUMENTS.iter().any(|(one, _, _)| *one == name)
        || NUMBERS.iter().any(|(one, _, _)| *one == name)
        || COMPARISONS.iter().any(|(one, _)| *one == name)
        || OTHERS.contains(&name)
}

/// Translates an expression; None if it has no equivalent.
pub fn equivalent(expr: &Expr) -> Option<String> {
    show(expr).map(|shown| shown.text)
}

fn show(expr: &Expr) -> Option<Shown> {
    match expr {
        Expr::Field(name) => Some(atom(*name)),
        Expr::Text(text) => Some(atom(quoted(text))),
        Expr::Number(number) => Some(atom(number.clone())),
        Expr::Call(name, arguments) => call(name, arguments),
        Expr::Member(of, member) => {
            let index = member.strip_prefix('_').filter(|digits| digits.parse::<u8>().is_ok())?;
            match &**of {
                Expr::Call(name, arguments) if name == "split" => {
                    let [separator, value] = arguments.as_slice() else { return None };
                    indexed(filter("split", value, std::slice::from_ref(separator))?, index)
                }
                Expr::Call(..) | Expr::Field(_) | Expr::Text(_) | Expr::Number(_) | Expr::Member(..) => None,
            }
        }
    }
}

fn call(name: &str, arguments: &[Expr]) -> Option<Shown> {
    if let (Some((_, filter_name)), [value]) = (FILTERS.iter().find(|(one, _)| *one == name), arguments) {
        return filter(filter_name, value, &[]);
    }
    if let Some((_, count, filter_name)) = WITH_ARGUMENTS.iter().find(|(one, _, _)| *one == name) {
        let (value, others) = arguments.split_last()?;
        return (others.len() == *count).then(|| filter(filter_name, value, others)).flatten();
    }
    if let Some((_, sign, binding)) = NUMBERS.iter().find(|(one, _, _)| *one == name) {
        return numbers(arguments, sign, *binding);
    }
    if let (Some((_, sign)), [one, other]) = (COMPARISONS.iter().find(|(one, _)| *one == name), arguments) {
        return Some(between(&show(one)?, sign, &show(other)?, Binding::Compare));
    }
    other_call(name, arguments)
}

fn other_call(name: &str, arguments: &[Expr]) -> Option<Shown> {
    match (name, arguments) {
        ("true" | "false" | "hostname", []) => Some(atom(name)),
        ("split", [separator, value]) => {
            let parts = filter("split", value, std::slice::from_ref(separator))?;
            indexed(parts, "0")
        }
        ("index", [value, Expr::Number(index)]) => indexed(show(value)?, index),
        ("printf", [Expr::Text(format), values @ ..]) => printf(format, values),
        ("print" | "cat", values) => joined(values),
        ("quote" | "squote", [value]) => show(value),
        ("nospace", [value]) => filter("replace", value, &[Expr::Text(" ".into()), Expr::Text(String::new())]),
        ("add1", [value]) => numbers(&[value.clone(), Expr::Number("1".into())], " + ", Binding::Add),
        ("substr", [Expr::Number(from), Expr::Number(to), value]) => sliced(show(value)?, from, to),
        ("trunc", [Expr::Number(to), value]) => sliced(show(value)?, "", to),
        ("contains", [part, value]) => Some(between(&show(part)?, " in ", &show(value)?, Binding::Compare)),
        ("hasPrefix", [part, value]) => tested(value, "startingwith", part),
        ("hasSuffix", [part, value]) => tested(value, "endingwith", part),
        ("and" | "or", [one, other]) => Some(between(&show(one)?, &format!(" {name} "), &show(other)?, Binding::Logic)),
        ("not", [value]) => {
            Some(Shown { text: format!("not {}", within(&show(value)?, Binding::Filter)), binding: Binding::Logic })
        }
        ("ternary", [yes, no, test]) => {
            let (yes, no, test) = (show(yes)?, show(no)?, show(test)?);
            Some(atom(format!("({} if {} else {})", yes.text, within(&test, Binding::Filter), no.text)))
        }
        _ => None,
    }
}

fn atom(text: impl Into<String>) -> Shown {
    Shown { text: text.into(), binding: Binding::Atom }
}

/// Adds parentheses if the expression binds weaker than `least`.
fn within(shown: &Shown, least: Binding) -> String {
    if shown.binding < least { format!("({})", shown.text) } else { shown.text.clone() }
}

/// `a + b`. Operators of one kind are left-associative.
fn between(left: &Shown, sign: &str, right: &Shown, binding: Binding) -> Shown {
    let chains = left.binding == binding && binding != Binding::Compare;
    let left = if chains { left.text.clone() } else { within(left, Binding::Filter) };
    Shown { text: format!("{left}{sign}{}", within(right, Binding::Filter)), binding }
}

fn filter(name: &str, value: &Expr, arguments: &[Expr]) -> Option<Shown> {
    let value = within(&show(value)?, Binding::Filter);
    let arguments: Option<Vec<String>> = arguments.iter().map(|one| Some(show(one)?.text)).collect();
    let arguments = arguments?;
    let list = if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    Some(Shown { text: format!("{value} | {name}{list}"), binding: Binding::Filter })
}

/// Adds the filter `int`: sprig accepts texts as numbers.
fn numbers(arguments: &[Expr], sign: &str, binding: Binding) -> Option<Shown> {
    let number = |expr: &Expr| match expr {
        Expr::Number(number) => Some(atom(number.clone())),
        Expr::Call(name, _) if NUMBERS.iter().any(|(one, _, _)| one == name) => show(expr),
        Expr::Call(..) | Expr::Field(_) | Expr::Text(_) | Expr::Member(..) => filter("int", expr, &[]),
    };
    let (first, others) = arguments.split_first().filter(|(_, others)| !others.is_empty())?;
    others.iter().try_fold(number(first)?, |sum, one| Some(between(&sum, sign, &number(one)?, binding)))
}

fn indexed(shown: Shown, index: &str) -> Option<Shown> {
    Some(atom(format!("{}[{index}]", within(&shown, Binding::Atom))))
}

fn sliced(shown: Shown, from: &str, to: &str) -> Option<Shown> {
    Some(atom(format!("{}[{from}:{to}]", within(&shown, Binding::Atom))))
}

fn tested(value: &Expr, test: &str, part: &Expr) -> Option<Shown> {
    let text = format!("{} is {test}({})", within(&show(value)?, Binding::Filter), show(part)?.text);
    Some(Shown { text, binding: Binding::Compare })
}

fn joined(values: &[Expr]) -> Option<Shown> {
    let (first, others) = values.split_first()?;
    others.iter().try_fold(show(first)?, |sum, one| Some(between(&sum, " ~ ", &show(one)?, Binding::Join)))
}

/// The filter `format` does not support `%v`.
fn printf(format: &str, values: &[Expr]) -> Option<Shown> {
    let values: Option<Vec<String>> = values.iter().map(|one| Some(show(one)?.text)).collect();
    let text = format!("{} | format({})", quoted(&format.replace("%v", "%s")), values?.join(", "));
    Some(Shown { text, binding: Binding::Filter })
}

fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            '\n' => vec!['\\', 'n'],
            '\t' => vec!['\\', 't'],
            c => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}
