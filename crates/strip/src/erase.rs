//! Walks the syntax tree and blanks what is a type.

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::precedence::{GetPrecedence, Precedence};

use crate::blank::{Blanks, ends_line};
use crate::fault::{Fault, Kept};
use crate::scan;

/// Words before the name of a class member that only the type checker reads.
const MODIFIERS: [&str; 7] =
    ["public", "private", "protected", "readonly", "override", "abstract", "declare"];

const ENUM: Kept = Kept {
    what: "`enum` makes a value",
    fix: "write `const Name = { A: \"a\" } as const` and `type Name = typeof Name[keyof typeof Name]`",
};
const NAMESPACE: Kept = Kept {
    what: "a namespace with values in it makes a value",
    fix: "export the values from the module, or write an object",
};
const PARAMETER_PROPERTY: Kept = Kept {
    what: "a parameter with a modifier makes a property",
    fix: "declare the property and assign it in the constructor",
};
const DECORATOR: Kept = Kept {
    what: "a decorator is called",
    fix: "call the function yourself, after the declaration",
};
const IMPORT_EQUALS: Kept = Kept {
    what: "`import … =` makes a value",
    fix: "write `import … from \"…\"`, or `const` for a shorter name",
};
const EXPORT_EQUALS: Kept =
    Kept { what: "`export =` is not JavaScript", fix: "write `export default …`" };
const EXPORT_NAMESPACE: Kept = Kept {
    what: "`export as namespace` is for declaration files",
    fix: "remove it, or write `export`",
};
const ASSERTION: Kept = Kept {
    what: "a type in angle brackets before a value cannot be blanked everywhere",
    fix: "write `value as Type`",
};
const GROUPING: Kept = Kept {
    what: "without its type this would be grouped in another way",
    fix: "put what stands before `as` or `satisfies` into parentheses",
};

pub(crate) fn erase(program: &Program<'_>, source: &str) -> Result<String, Fault> {
    let mut eraser = Eraser { source, blanks: Blanks::default(), fault: None };
    eraser.visit_program(program);
    match eraser.fault {
        Some((offset, kept)) => Err(Fault::kept(source, offset, kept)),
        None => Ok(eraser.blanks.apply(source)),
    }
}

struct Eraser<'s> {
    source: &'s str,
    blanks: Blanks,
    /// The first thing that cannot be erased.
    fault: Option<(u32, Kept)>,
}

impl Eraser<'_> {
    fn refuse(&mut self, span: Span, kept: Kept) {
        self.fault.get_or_insert((span.start, kept));
    }

    fn blank(&mut self, start: u32, end: u32) {
        self.blanks.blank(Span::new(start, end));
    }

    /// Blanks the next token, if it is one of these.
    fn blank_mark(&mut self, from: u32, marks: &[char]) -> Option<Span> {
        let mark = scan::mark(self.source, from, marks)?;
        self.blanks.blank(mark);
        Some(mark)
    }

    fn has_line_end(&self, start: u32, end: u32) -> bool {
        let text = self.source.get(start as usize..end as usize);
        text.is_some_and(|text| text.contains(ends_line))
    }

    /// The words before a member's name, and the mark behind it.
    fn member(&mut self, span: Span, key: Span, is_computed: bool) {
        for (word, text) in scan::words(self.source, Span::new(span.start, key.start)) {
            if MODIFIERS.contains(&text) {
                self.blanks.blank(word);
                if word.start == span.start {
                    // The word also kept the member before it from going on.
                    self.blanks.write(word.start, b';');
                }
            }
        }
        let end = match scan::mark(self.source, key.end, &[']']) {
            Some(bracket) if is_computed => bracket.end,
            _ => key.end,
        };
        self.blank_mark(end, &['?', '!']);
    }

    /// `value as Type`, `value satisfies Type`.
    fn assertion(&mut self, span: Span, expression: &Expression<'_>) {
        self.blank(expression.span().end, span.end);
        self.visit_expression(expression);
    }

    /// `a + b as T * c` is `(a + b) * c`: the type stands where a parenthesis would.
    fn check_grouping(&mut self, left: &Expression<'_>, outer: Precedence) {
        let mut inner = left;
        while let Expression::TSAsExpression(_) | Expression::TSSatisfiesExpression(_) = inner {
            inner = match inner {
                Expression::TSAsExpression(it) => &it.expression,
                Expression::TSSatisfiesExpression(it) => &it.expression,
                other => other,
            };
        }
        let binds = match inner {
            Expression::BinaryExpression(it) => it.precedence(),
            Expression::UnaryExpression(_) | Expression::AwaitExpression(_) => Precedence::Prefix,
            _ => return,
        };
        let is_asserted = inner.span() != left.span();
        if is_asserted && (outer > binds || outer == Precedence::Exponentiation) {
            self.refuse(left.span(), GROUPING);
        }
    }
}

impl<'a> Visit<'a> for Eraser<'_> {
    fn visit_statement(&mut self, it: &Statement<'a>) {
        if is_type(it) {
            return self.blanks.remove(it.span());
        }
        walk::walk_statement(self, it);
        self.blanks.end_statement(it.span().end);
    }

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        if is_type_member(it) {
            return self.blanks.remove(it.span());
        }
        walk::walk_class_element(self, it);
        self.blanks.end_statement(it.span().end);
    }

    // What is blanked as it stands.

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blanks.blank(it.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blanks.blank(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blanks.blank(it.span);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        self.blanks.blank(it.span);
        self.blank_mark(it.span.end, &[',']);
    }

    fn visit_import_specifier(&mut self, it: &ImportSpecifier<'a>) {
        if it.import_kind.is_type() {
            self.blanks.blank(it.span);
            self.blank_mark(it.span.end, &[',']);
        }
    }

    fn visit_export_specifier(&mut self, it: &ExportSpecifier<'a>) {
        if it.export_kind.is_type() {
            self.blanks.blank(it.span);
            self.blank_mark(it.span.end, &[',']);
        }
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.assertion(it.span, &it.expression);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.assertion(it.span, &it.expression);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.assertion(it.span, &it.expression);
    }

    // What has a type in it.

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            self.blank_mark(it.id.span().end, &['!']);
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.refuse(it.span, PARAMETER_PROPERTY);
        }
        if it.optional {
            self.blank_mark(it.pattern.span().end, &['?']);
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        walk::walk_arrow_function_expression(self, it);
        let params = it.params.span;
        // No line may end before the parenthesis, as after `async` or `return`, nor before the arrow.
        if let Some(types) = &it.type_parameters
            && self.has_line_end(types.span.start, params.start)
        {
            self.blank(params.start, params.start + 1);
            self.blanks.write(types.span.start, b'(');
        }
        if let Some(returned) = &it.return_type
            && self.has_line_end(params.end, returned.span.end)
        {
            self.blank(params.end - 1, returned.span.end);
            self.blanks.write(returned.span.end - 1, b')');
        }
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        let head = Span::new(it.span.start, it.body.span.start);
        if it.r#abstract {
            let words = scan::words(self.source, head);
            let keyword = words.into_iter().find(|(_, word)| *word == "abstract");
            self.blanks.blank(keyword.map(|(span, _)| span).unwrap_or_default());
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let before = [
                it.id.as_ref().map(|id| id.span.end),
                it.type_parameters.as_ref().map(|types| types.span.end),
                it.super_class.as_ref().map(|class| class.span().end),
                it.super_type_arguments.as_ref().map(|types| types.span.end),
            ];
            let from = before.into_iter().flatten().max().unwrap_or(it.span.start);
            let words = scan::words(self.source, Span::new(from, first.span.start));
            let keyword = words.into_iter().find(|(_, word)| *word == "implements");
            if let Some((keyword, _)) = keyword {
                self.blank(keyword.start, last.span.end);
            }
        }
        self.visit_decorators(&it.decorators);
        it.type_parameters.iter().for_each(|it| self.visit_ts_type_parameter_declaration(it));
        it.super_class.iter().for_each(|it| self.visit_expression(it));
        it.super_type_arguments
            .iter()
            .for_each(|it| self.visit_ts_type_parameter_instantiation(it));
        self.visit_class_body(&it.body);
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        self.member(it.span, it.key.span(), it.computed);
        walk::walk_method_definition(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        self.member(it.span, it.key.span(), it.computed);
        walk::walk_property_definition(self, it);
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        self.member(it.span, it.key.span(), it.computed);
        walk::walk_accessor_property(self, it);
    }

    fn visit_binary_expression(&mut self, it: &BinaryExpression<'a>) {
        self.check_grouping(&it.left, it.precedence());
        walk::walk_binary_expression(self, it);
    }

    // What cannot be erased.

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse(it.span, DECORATOR);
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        self.refuse(it.span, ENUM);
    }

    fn visit_ts_module_declaration(&mut self, it: &TSModuleDeclaration<'a>) {
        self.refuse(it.span, NAMESPACE);
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        self.refuse(it.span, IMPORT_EQUALS);
    }

    fn visit_ts_export_assignment(&mut self, it: &TSExportAssignment<'a>) {
        self.refuse(it.span, EXPORT_EQUALS);
    }

    fn visit_ts_namespace_export_declaration(&mut self, it: &TSNamespaceExportDeclaration<'a>) {
        self.refuse(it.span, EXPORT_NAMESPACE);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        self.refuse(it.span, ASSERTION);
    }
}

/// Whether nothing of a statement is left without its types.
fn is_type(statement: &Statement<'_>) -> bool {
    match statement {
        Statement::ImportDeclaration(it) => it.import_kind.is_type(),
        Statement::ExportAllDeclaration(it) => it.export_kind.is_type(),
        Statement::ExportNamedDeclaration(it) => {
            it.export_kind.is_type() || it.declaration.as_ref().is_some_and(is_type_declaration)
        }
        Statement::ExportDefaultDeclaration(it) => match &it.declaration {
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
            ExportDefaultDeclarationKind::FunctionDeclaration(it) => it.body.is_none(),
            _ => false,
        },
        _ => statement.as_declaration().is_some_and(is_type_declaration),
    }
}

fn is_type_declaration(declaration: &Declaration<'_>) -> bool {
    match declaration {
        Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => true,
        Declaration::VariableDeclaration(it) => it.declare,
        Declaration::FunctionDeclaration(it) => it.declare || it.body.is_none(),
        Declaration::ClassDeclaration(it) => it.declare,
        Declaration::TSEnumDeclaration(it) => it.declare,
        Declaration::TSModuleDeclaration(it) => it.declare || !has_values(it),
        Declaration::TSGlobalDeclaration(_) => true,
        Declaration::TSImportEqualsDeclaration(it) => it.import_kind.is_type(),
    }
}

fn has_values(namespace: &TSModuleDeclaration<'_>) -> bool {
    match &namespace.body {
        None => false,
        Some(TSModuleDeclarationBody::TSModuleDeclaration(inner)) => has_values(inner),
        Some(TSModuleDeclarationBody::TSModuleBlock(block)) => !block.body.iter().all(is_type),
    }
}

fn is_type_member(element: &ClassElement<'_>) -> bool {
    match element {
        ClassElement::TSIndexSignature(_) => true,
        // What is decorated is walked, and refused.
        ClassElement::MethodDefinition(it) => {
            it.decorators.is_empty() && (it.r#type.is_abstract() || it.value.body.is_none())
        }
        ClassElement::PropertyDefinition(it) => {
            it.decorators.is_empty() && (it.declare || it.r#type.is_abstract())
        }
        ClassElement::AccessorProperty(it) => it.decorators.is_empty() && it.r#type.is_abstract(),
        ClassElement::StaticBlock(_) => false,
    }
}
