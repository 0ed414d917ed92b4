//! Tests of formulas: text and values in, number or problem out.

use crate::expression::{Formula, FormulaNumber, FormulaOutcome, FormulaProblem};
use proptest::prelude::*;
use rstest::rstest;

/// Evaluates with operands of these names; all others have no value.
fn evaluate(text: &str, values: &[(&str, FormulaNumber)]) -> (Formula, FormulaOutcome) {
    let formula = Formula::parse(text).unwrap();
    let value = |name: &String| values.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    let values: Vec<Option<FormulaNumber>> = formula.operands().iter().map(value).collect();
    let outcome = formula.evaluate(&values);
    (formula, outcome)
}

fn number(text: &str, values: &[(&str, f64)]) -> Result<f64, FormulaProblem> {
    let values: Vec<_> = values.iter().map(|(name, value)| (*name, (*value).into())).collect();
    evaluate(text, &values).1.result.map(|number| number.value)
}

/// Operand `c`, which lies in a range.
fn ranged(text: &str, least: f64, value: f64, most: f64) -> Result<(f64, f64, f64), FormulaProblem> {
    let (_, outcome) = evaluate(text, &[("c", FormulaNumber { value, least, most }), ("x", 10.0.into())]);
    outcome.result.map(|number| (number.least, number.value, number.most))
}

#[rstest]
#[case("a / b", 2.5)]
#[case("5 / 2", 2.5)]
#[case("a - 8", -3.0)]
#[case("-a + b * 2 - 1", -2.0)]
#[case("max(a, b)", 5.0)]
#[case("max(a, b, 7.5)", 7.5)]
#[case("min(a, b)", 2.0)]
#[case("a > 0 ? a : b", 5.0)]
#[case("a > b && !(b == 2) || a != 5 ? 1 : 0", 0.0)]
#[case("a >= 5 && b <= 2 ? 1 : 0", 1.0)]
#[case("true ? a : b", 5.0)]
#[case("0.1 + 0.2 < 0.4 ? 1e3 : 0", 1000.0)]
#[case("b > 2 ? a / (b - 2) : 0", 0.0)]
fn numbers_are_doubles(#[case] text: &str, #[case] expected: f64) {
    assert_eq!(number(text, &[("a", 5.0), ("b", 2.0)]), Ok(expected));
}

#[rstest]
#[case("a / b", FormulaProblem::NotFinite)]
#[case("b / b", FormulaProblem::NotFinite)]
#[case("1e308 * 10 * a", FormulaProblem::NotFinite)]
#[case("a / b > 3 ? 1 : 2", FormulaProblem::NotFinite)]
#[case("max(a / b, a)", FormulaProblem::NotFinite)]
#[case("gone + a", FormulaProblem::Unknown(0))]
#[case("a > 0 ? a : gone", FormulaProblem::Unknown(1))]
#[case("a > 0 || gone > 0 ? 1 : 0", FormulaProblem::Unknown(1))]
#[case("a / b + gone", FormulaProblem::Unknown(2))]
#[case("max(gone, a)", FormulaProblem::Unknown(0))]
#[case("0 * gone", FormulaProblem::Unknown(0))]
#[case("coalesce(gone, away)", FormulaProblem::Unknown(0))]
fn what_is_no_number_is_unknown(#[case] text: &str, #[case] problem: FormulaProblem) {
    assert_eq!(number(text, &[("a", 5.0), ("b", 0.0)]), Err(problem));
}

#[rstest]
#[case("coalesce(a, b, 8)", &[("a", 1.0), ("b", 2.0)], 1.0, &["a"], &[])]
#[case("coalesce(a, b, 8)", &[("b", 2.0)], 2.0, &["b"], &[])]
#[case("coalesce(a, b, 8)", &[], 8.0, &[], &["a", "b"])]
#[case("coalesce(a / b, 8)", &[("a", 0.0), ("b", 0.0)], 8.0, &["a", "b"], &[])]
#[case("b + coalesce(a, 8)", &[("b", 2.0)], 10.0, &["b"], &["a"])]
#[case("max(coalesce(a, 1), coalesce(b, 3))", &[("a", 2.0)], 3.0, &["a"], &["b"])]
fn a_default_is_given_by_coalesce(
    #[case] text: &str,
    #[case] values: &[(&str, f64)],
    #[case] expected: f64,
    #[case] used: &[&str],
    #[case] defaulted: &[&str],
) {
    let values: Vec<_> = values.iter().map(|(name, value)| (*name, (*value).into())).collect();
    let (formula, outcome) = evaluate(text, &values);
    let names = |list: &[usize]| list.iter().map(|at| formula.operands()[*at].clone()).collect::<Vec<_>>();
    assert_eq!(outcome.result.map(|number| number.value), Ok(expected));
    assert_eq!((names(&outcome.used), names(&outcome.defaulted)), (names_of(used), names_of(defaulted)));
}

fn names_of(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_range_stays_a_range() {
    let whole = f64::INFINITY;
    assert_eq!(ranged("c", 2.0, 4.0, 6.0), Ok((2.0, 4.0, 6.0)));
    assert_eq!(ranged("x - c", 2.0, 4.0, 6.0), Ok((4.0, 6.0, 8.0)));
    assert_eq!(ranged("x - c", 2.0, 4.0, whole), Ok((-whole, 6.0, 8.0)));
    assert_eq!(ranged("c * 2 + 1", 2.0, 4.0, whole), Ok((5.0, 9.0, whole)));
    assert_eq!(ranged("x / c", 2.0, 4.0, 5.0), Ok((2.0, 2.5, 5.0)));
    assert_eq!(ranged("x / c", 0.0, 4.0, 5.0), Ok((2.0, 2.5, whole)));
    assert_eq!(ranged("x / (c - 3)", 2.0, 4.0, 5.0), Err(FormulaProblem::Undecided));
    assert_eq!(ranged("max(c, 3)", 2.0, 4.0, 6.0), Ok((3.0, 4.0, 6.0)));
    assert_eq!(ranged("min(c, 3)", 2.0, 4.0, 6.0), Ok((2.0, 3.0, 3.0)));
    assert_eq!(ranged("0 * c", 2.0, 4.0, whole), Ok((0.0, 0.0, 0.0)));
    assert_eq!(ranged("c > 1 ? 1 : 0", 2.0, 4.0, 6.0), Ok((1.0, 1.0, 1.0)));
    assert_eq!(ranged("c > 3 ? 1 : 0", 2.0, 4.0, 6.0), Err(FormulaProblem::Undecided));
    assert_eq!(ranged("c == 4 ? 1 : 0", 2.0, 4.0, 6.0), Err(FormulaProblem::Undecided));
}

#[rstest]
#[case("", "an empty formula")]
#[case("a >", "syntax error")]
#[case("a > 1", "write condition ? 1 : 0")]
#[case("a ? 1 : 0", "compare it")]
#[case("a % 2", "formulas have + - * / ?:")]
#[case("avg(a)", "unknown function \"avg\": formulas have + - * / ?: and max(a, b)")]
#[case("max()", "unknown function")]
#[case("a.b", "cannot be used")]
#[case("'5'", "cannot be used")]
#[case("[1, 2].map(x, x)", "cannot be used")]
#[case("3u", "write 3")]
#[case("a.max(b)", "cannot be used")]
fn what_it_cannot_compute_is_refused(#[case] text: &str, #[case] words: &str) {
    let error = Formula::parse(text).unwrap_err().to_string();
    assert!(error.contains(words), "{text}: {error}");
}

/// Number at this share of a range.
fn within(number: FormulaNumber, share: f64) -> f64 {
    number.least + (number.most - number.least) * share
}

fn formula() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(vec!["a", "b", "c", "2", "0.5", "0", "-3"]).prop_map(str::to_owned);
    atom.prop_recursive(4, 24, 3, |inner| {
        let two = || (inner.clone(), inner.clone());
        prop_oneof![
            (two(), prop::sample::select(vec!["+", "-", "*", "/"])).prop_map(|((a, b), op)| format!("({a} {op} {b})")),
            (two(), prop::sample::select(vec!["max", "min", "coalesce"]))
                .prop_map(|((a, b), f)| format!("{f}({a}, {b})")),
            (two(), two(), prop::sample::select(vec!["<", "<=", "==", "!="]))
                .prop_map(|((a, b), (c, d), op)| format!("({a} {op} {b} ? {c} : {d})")),
        ]
    })
}

fn range() -> impl Strategy<Value = FormulaNumber> {
    (-20..20_i32, 0..5_i32, 0..5_i32).prop_map(|(value, below, above)| FormulaNumber {
        value: value.into(),
        least: (value - below).into(),
        most: (value + above).into(),
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in r"[abc0-9 ()<>=!&|?:+*/.,%\[\]{}'x-]{0,60}") {
        if let Ok(formula) = Formula::parse(&text) {
            formula.evaluate(&[]);
            formula.evaluate(&vec![Some(f64::NAN.into()); formula.operands().len()]);
        }
    }

    #[test]
    fn without_coalesce_an_unknown_operand_never_gives_a_number(text in formula(), missing in 0..3_usize) {
        let formula = Formula::parse(&text.replace("coalesce", "max")).unwrap();
        let name = ["a", "b", "c"][missing];
        let values: Vec<_> = formula.operands().iter().map(|one| (one != name).then(|| 3.0.into())).collect();
        let is_read = formula.operands().iter().any(|one| one == name);
        prop_assert!(!is_read || formula.evaluate(&values).result.is_err(), "{text}");
    }

    #[test]
    fn the_range_contains_every_result(
        text in formula(),
        ranges in (range(), range(), range()),
        shares in (0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64),
    ) {
        let formula = Formula::parse(&text).unwrap();
        let of = |name: &String| match name.as_str() {
            "a" => (ranges.0, shares.0),
            "b" => (ranges.1, shares.1),
            _ => (ranges.2, shares.2),
        };
        let all: Vec<_> = formula.operands().iter().map(|name| Some(of(name).0)).collect();
        let some: Vec<_> = formula.operands().iter().map(|name| Some(within(of(name).0, of(name).1).into())).collect();
        let (found, exact) = (formula.evaluate(&all).result, formula.evaluate(&some).result);
        if let Ok(found) = found {
            prop_assert!(found.value.is_finite() && found.least <= found.value && found.value <= found.most);
            if let (Ok(exact), false) = (exact, text.contains("coalesce")) {
                let slack = 1e-9 * (1.0 + exact.value.abs());
                prop_assert!(found.least - slack <= exact.value && exact.value <= found.most + slack, "{text}: {found:?} {exact:?}");
            }
        }
    }
}
