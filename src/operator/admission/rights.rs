//! Rights that a policy asks of the author of a write, as CEL expressions.
//!
//! Knows no kind: `table` has the rights of each.

/// Part of a right: fixed, or an expression that the API server evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CelText {
    Fixed(&'static str),
    Cel(&'static str),
}

impl CelText {
    /// The text as an operand of an expression.
    fn cel(self) -> String {
        match self {
            Self::Fixed(text) => format!("'{text}'"),
            Self::Cel(text) => text.to_owned(),
        }
    }
}

/// Where the author must have a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightScope {
    /// In the namespace of the written object.
    Same,
    /// In the namespace that this expression names.
    Other(&'static str),
    /// In all namespaces, or on a cluster-scoped resource.
    Cluster,
}

/// One right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedRight {
    pub verb: &'static str,
    pub group: CelText,
    pub resource: CelText,
    pub subresource: &'static str,
    /// Expression for the name of the only object; None for all objects.
    pub name: Option<&'static str>,
    pub place: RightScope,
}

impl AskedRight {
    /// The right to use this verb on all objects of a resource in the namespace of the written object.
    pub const fn to(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        let (group, resource) = (CelText::Fixed(group), CelText::Fixed(resource));
        Self { verb, group, resource, subresource: "", name: None, place: RightScope::Same }
    }

    /// The right to change the replicas of workloads of this group and resource.
    pub const fn scale(group: CelText, resource: CelText) -> Self {
        Self { group, resource, subresource: "scale", ..Self::to("patch", "", "") }
    }

    /// The same right on a subresource.
    pub const fn sub(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    /// The same right on the object with the name that this expression yields.
    pub const fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// The same right on the resource that this text names.
    pub const fn on(self, resource: CelText) -> Self {
        Self { resource, ..self }
    }

    /// The same right elsewhere.
    pub const fn at(self, place: RightScope) -> Self {
        Self { place, ..self }
    }

    /// Expression: the author has the right.
    pub fn check(&self) -> String {
        let mut chain = format!("authorizer.group({}).resource({})", self.group.cel(), self.resource.cel());
        if !self.subresource.is_empty() {
            chain += &format!(".subresource('{}')", self.subresource);
        }
        match self.place {
            RightScope::Same => chain += ".namespace(variables.within)",
            RightScope::Other(namespace) => chain += &format!(".namespace({namespace})"),
            RightScope::Cluster => {}
        }
        if let Some(name) = self.name {
            chain += &format!(".name({name})");
        }
        format!("{chain}.check('{}').allowed()", self.verb)
    }

    /// The resource with its subresource, in quotation marks, as parts of an expression for a message.
    fn resource_text(&self) -> String {
        let end = if self.subresource.is_empty() { "\"".to_owned() } else { format!("/{}\"", self.subresource) };
        match self.resource {
            CelText::Fixed(resource) => format!("\"{resource}{end}"),
            CelText::Cel(resource) => format!("\"' + {resource} + '{end}"),
        }
    }

    fn group_text(&self) -> String {
        match self.group {
            CelText::Fixed(group) => format!("\"{group}\""),
            CelText::Cel(group) => format!("\"' + {group} + '\""),
        }
    }
}

/// Number of the rights of a rule that the author must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    All,
    Any,
}

/// Rights that a policy asks for together, with the reason. An expression can check at most two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsRule {
    /// Expression: the rule applies. None: it always does.
    pub when: Option<String>,
    pub rights: Vec<AskedRight>,
    pub quantity: Needed,
    /// Expression for the reason, which follows "this right is needed because ".
    pub because: String,
    /// Whether `when` has found out already that the right is missing.
    pub known_missing: bool,
}

impl RightsRule {
    /// Asks for these rights.
    pub fn ask(rights: impl Into<Vec<AskedRight>>, because: &str) -> Self {
        let rights = rights.into();
        let because = format!("'{because}'");
        Self { when: None, rights, quantity: Needed::All, because, known_missing: false }
    }

    /// The same rule, if this expression is true.
    pub fn when(self, when: impl Into<String>) -> Self {
        Self { when: Some(when.into()), ..self }
    }

    /// The same rule: one of the rights is sufficient.
    pub fn any(self) -> Self {
        Self { quantity: Needed::Any, ..self }
    }

    /// The same rule with a reason that ends with the value of this expression.
    pub fn about(self, value: &str) -> Self {
        Self { because: format!("{} + {value}", self.because), ..self }
    }

    /// The same rule, whose condition contains the check.
    pub fn known_missing(self) -> Self {
        Self { known_missing: true, ..self }
    }

    /// Expression: the write is allowed.
    pub fn expression(&self) -> String {
        let joined = match self.quantity {
            Needed::All => " && ",
            Needed::Any => " || ",
        };
        let checks: Vec<String> = self.rights.iter().map(AskedRight::check).collect();
        let checks = checks.join(joined);
        match (&self.when, self.known_missing) {
            (None, _) => checks,
            (Some(when), true) => format!("!({when})"),
            (Some(when), false) if self.rights.len() > 1 => format!("!({when}) || ({checks})"),
            (Some(when), false) => format!("!({when}) || {checks}"),
        }
    }

    /// Expression for the message of a refusal, in the form of the API server's own refusals.
    pub fn message(&self) -> String {
        let word = match self.quantity {
            Needed::All => " and ",
            Needed::Any => " or ",
        };
        let mut verbs: Vec<&str> = self.rights.iter().map(|right| right.verb).collect();
        verbs.dedup();
        let mut resources: Vec<String> = self.rights.iter().map(AskedRight::resource_text).collect();
        resources.dedup();
        let mut groups: Vec<String> = self.rights.iter().map(AskedRight::group_text).collect();
        groups.dedup();
        let group = match &groups[..] {
            [only] => format!(" in API group {only}"),
            _ => String::new(),
        };
        let place = match self.rights.first().map(|right| right.place) {
            Some(RightScope::Cluster) => "at the cluster scope: ".to_owned(),
            Some(RightScope::Other(namespace)) => format!("in the namespace \"' + {namespace} + '\": "),
            Some(RightScope::Same) | None => "' + variables.where + '".to_owned(),
        };
        let asked = if verbs.len() > 1 && resources.len() > 1 {
            let each = self.rights.iter().map(|right| format!("{} resource {}", right.verb, right.resource_text()));
            each.collect::<Vec<_>>().join(word)
        } else {
            format!("{} resource {}", verbs.join(word), resources.join(word))
        };
        format!("variables.who + '{asked}{group} {place}this right is needed because ' + {}", self.because)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_checked_where_it_is_used() {
        let scale = AskedRight::scale(CelText::Fixed("apps"), CelText::Cel("variables.plural")).named("variables.name");
        assert_eq!(
            scale.check(),
            "authorizer.group('apps').resource(variables.plural).subresource('scale').namespace(variables.within)\
             .name(variables.name).check('patch').allowed()"
        );
        let nodes = AskedRight::to("patch", "", "nodes").at(RightScope::Cluster);
        assert_eq!(nodes.check(), "authorizer.group('').resource('nodes').check('patch').allowed()");
    }

    #[test]
    fn a_rule_names_all_that_it_asks_for() {
        let pods = [AskedRight::to("create", "", "pods"), AskedRight::to("delete", "", "pods")];
        let rule = RightsRule::ask(pods, "it acts").when("variables.acts");
        assert!(rule.expression().starts_with("!(variables.acts) || (authorizer.group('').resource('pods')"));
        assert_eq!(
            rule.message(),
            "variables.who + 'create and delete resource \"pods\" in API group \"\" ' + variables.where + 'this right is \
             needed because ' + 'it acts'"
        );
        let both = [AskedRight::to("patch", "", "pods"), AskedRight::to("patch", "apps", "deployments")];
        let rule = RightsRule::ask(both, "it acts on ").about("object.spec.name");
        assert_eq!(
            rule.message(),
            "variables.who + 'patch resource \"pods\" and \"deployments\" ' + variables.where + 'this right is needed \
             because ' + 'it acts on ' + object.spec.name"
        );
        let two = [AskedRight::to("create", "", "pods").sub("eviction"), AskedRight::to("patch", "", "pods")];
        let message = RightsRule::ask(two, "it acts").message();
        let words = "create resource \"pods/eviction\" and patch resource \"pods\" in API group \"\" ";
        assert!(message.contains(words), "{message}");
    }
}
