//! Evaluates a formula on ranges. A number is a range of one value.

use super::{FormulaComparison, FormulaNumber, FormulaOperator, FormulaProblem, FormulaTerm, FormulaTest};

/// One evaluation, with the operands that it has used so far.
pub struct FormulaEvaluation<'a> {
    pub values: &'a [Option<FormulaNumber>],
    pub used: Vec<usize>,
    pub defaulted: Vec<usize>,
}

type Evaluated = Result<FormulaNumber, FormulaProblem>;

impl FormulaEvaluation<'_> {
    pub fn number(&mut self, term: &FormulaTerm) -> Evaluated {
        match term {
            FormulaTerm::Number(number) => finite((*number).into()),
            FormulaTerm::Operand(operand) => {
                let value = self.values.get(*operand).copied().flatten();
                self.used.push(*operand);
                let value = value.filter(|number| number.value.is_finite());
                value.ok_or(FormulaProblem::Unknown(*operand)).and_then(finite)
            }
            FormulaTerm::Negate(value) => {
                let FormulaNumber { value, least, most } = self.number(value)?;
                Ok(FormulaNumber { value: -value, least: -most, most: -least })
            }
            FormulaTerm::Operator(operator, operands) => {
                let [left, right] = self.both(operands)?;
                match operator {
                    FormulaOperator::Add => add(left, right),
                    FormulaOperator::Subtract => {
                        add(left, FormulaNumber { value: -right.value, least: -right.most, most: -right.least })
                    }
                    FormulaOperator::Multiply => multiply(left, right),
                    FormulaOperator::Divide => divide(left, right),
                }
            }
            FormulaTerm::Max(terms) => self.extreme(terms, f64::max),
            FormulaTerm::Min(terms) => self.extreme(terms, f64::min),
            FormulaTerm::Coalesce(terms) => self.coalesce(terms),
            FormulaTerm::Conditional(test, branches) => {
                let test = self.condition(test)?;
                let [yes, no] = branches.as_ref();
                let (yes, no) = (self.number(yes), self.number(no));
                let (taken, other) = if test { (yes, no) } else { (no, yes) };
                // A condition may guard a division by zero, but not an unknown operand.
                if let Err(unknown @ FormulaProblem::Unknown(_)) = other {
                    return Err(unknown);
                }
                taken
            }
        }
    }

    /// Evaluates both, so that an unknown operand in the second one is found even if the first one has a problem.
    fn both(&mut self, terms: &[FormulaTerm; 2]) -> Result<[FormulaNumber; 2], FormulaProblem> {
        let [left, right] = terms;
        match (self.number(left), self.number(right)) {
            (Ok(left), Ok(right)) => Ok([left, right]),
            (Err(unknown @ FormulaProblem::Unknown(_)), _) | (_, Err(unknown @ FormulaProblem::Unknown(_))) => {
                Err(unknown)
            }
            (Err(problem), _) | (_, Err(problem)) => Err(problem),
        }
    }

    fn extreme(&mut self, terms: &[FormulaTerm], choose: fn(f64, f64) -> f64) -> Evaluated {
        let mut found: Option<FormulaNumber> = None;
        for term in terms {
            let next = self.number(term)?;
            found = Some(found.map_or(next, |found| FormulaNumber {
                value: choose(found.value, next.value),
                least: choose(found.least, next.least),
                most: choose(found.most, next.most),
            }));
        }
        found.ok_or(FormulaProblem::NotFinite)
    }

    fn coalesce(&mut self, terms: &[FormulaTerm]) -> Evaluated {
        let mut first_problem = None;
        let mut skipped = Vec::new();
        for term in terms {
            let (used, defaulted) = (self.used.len(), self.defaulted.len());
            match self.number(term) {
                Ok(number) => {
                    if self.used.len() == used {
                        self.defaulted.append(&mut skipped);
                    }
                    return Ok(number);
                }
                Err(problem) => {
                    first_problem.get_or_insert(problem);
                    if let FormulaProblem::Unknown(operand) = problem {
                        self.used.truncate(used);
                        self.defaulted.truncate(defaulted);
                        skipped.push(operand);
                    }
                }
            }
        }
        Err(first_problem.unwrap_or(FormulaProblem::NotFinite))
    }

    fn condition(&mut self, condition: &FormulaTest) -> Result<bool, FormulaProblem> {
        match condition {
            FormulaTest::Always(value) => Ok(*value),
            FormulaTest::Not(inner) => self.condition(inner).map(|value| !value),
            FormulaTest::And(conditions) => self.conditions(conditions).map(|[left, right]| left && right),
            FormulaTest::Or(conditions) => self.conditions(conditions).map(|[left, right]| left || right),
            FormulaTest::Compare(comparison, operands) => {
                let [left, right] = self.both(operands)?;
                compare(*comparison, left, right).ok_or(FormulaProblem::Undecided)
            }
        }
    }

    fn conditions(&mut self, conditions: &[FormulaTest; 2]) -> Result<[bool; 2], FormulaProblem> {
        let [left, right] = conditions;
        match (self.condition(left), self.condition(right)) {
            (Ok(left), Ok(right)) => Ok([left, right]),
            (Err(unknown @ FormulaProblem::Unknown(_)), _) | (_, Err(unknown @ FormulaProblem::Unknown(_))) => {
                Err(unknown)
            }
            (Err(problem), _) | (_, Err(problem)) => Err(problem),
        }
    }
}

/// Checks that the value is finite. Rounding must not put it outside its range.
fn finite(number: FormulaNumber) -> Evaluated {
    let FormulaNumber { value, least, most } = number;
    if !value.is_finite() || least.is_nan() || most.is_nan() {
        return Err(FormulaProblem::NotFinite);
    }
    Ok(FormulaNumber { value, least: least.min(value), most: most.max(value) })
}

fn add(left: FormulaNumber, right: FormulaNumber) -> Evaluated {
    finite(FormulaNumber {
        value: left.value + right.value,
        least: left.least + right.least,
        most: left.most + right.most,
    })
}

fn multiply(left: FormulaNumber, right: FormulaNumber) -> Evaluated {
    let value = left.value * right.value;
    if left.is_exact() && right.is_exact() {
        return finite(value.into());
    }
    let (least, most) = products(left, right);
    finite(FormulaNumber { value, least, most })
}

fn divide(left: FormulaNumber, right: FormulaNumber) -> Evaluated {
    let value = left.value / right.value;
    if !value.is_finite() || (left.is_exact() && right.is_exact()) {
        return finite(value.into());
    }
    let reciprocal = if right.least > 0.0 || right.most < 0.0 {
        (1.0 / right.most, 1.0 / right.least)
    } else if right.least >= 0.0 {
        (1.0 / right.most, f64::INFINITY)
    } else if right.most <= 0.0 {
        (f64::NEG_INFINITY, 1.0 / right.least)
    } else {
        return Err(FormulaProblem::Undecided);
    };
    let reciprocal = FormulaNumber { value: 1.0 / right.value, least: reciprocal.0, most: reciprocal.1 };
    let (least, most) = products(left, reciprocal);
    finite(FormulaNumber { value, least, most })
}

/// Returns the smallest and the largest product of two numbers of these ranges.
fn products(left: FormulaNumber, right: FormulaNumber) -> (f64, f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for one in [left.least, left.most] {
        for other in [right.least, right.most] {
            // The other number may be as large as it wants: zero times it is zero.
            let product = if one == 0.0 || other == 0.0 { 0.0 } else { one * other };
            (least, most) = (least.min(product), most.max(product));
        }
    }
    (least, most)
}

/// Compares two ranges; None if the result depends on where in the ranges the numbers are.
fn compare(comparison: FormulaComparison, left: FormulaNumber, right: FormulaNumber) -> Option<bool> {
    match comparison {
        FormulaComparison::Less if left.most < right.least => Some(true),
        FormulaComparison::Less if left.least >= right.most => Some(false),
        FormulaComparison::LessOrEqual if left.most <= right.least => Some(true),
        FormulaComparison::LessOrEqual if left.least > right.most => Some(false),
        FormulaComparison::Equal if left.most < right.least || right.most < left.least => Some(false),
        FormulaComparison::Equal if left.is_exact() && right.is_exact() => Some(true),
        FormulaComparison::Less | FormulaComparison::LessOrEqual | FormulaComparison::Equal => None,
    }
}
