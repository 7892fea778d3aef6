//! # What can be changed in a file
//!
//! A walk over its syntax. Each finding is a [`Mutant`] and part of a [`Site`], the place that the weaver rewrites:
//!
//! | of | becomes |
//! |---|---|
//! | `a < b`, `a + b`, `a += b`, `a && b`, … | the same with another operator ([`swaps`]) |
//! | `!a`, `-a` | `a` |
//! | the condition of an `if`, an arm's guard | `true`, `false` |
//! | the condition of a `while` | `false` |
//! | an arm before `_` | left out |
//! | `call(…);` | left out |
//! | a body whose type has a plain value | that value at once ([`plain_values`]) |
//!
//! Left alone: what `--test` does not compile or only `--test` compiles, constants and what they need ([`Constants`]),
//! types, patterns, macros (assembly among them), and `verify`, which only tests call.

use std::collections::HashSet;
use std::ops::Range;

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A change of one place.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The file, from the checkout's root.
    pub path: String,
    pub line: usize,
    pub column: usize,
    /// The function that it is in, with its type.
    pub function: String,
    /// What stands there, and what then does: for eyes.
    pub original: String,
    pub changed: String,
    /// What the compiler is given instead; nothing if it is only left out.
    pub code: String,
}

/// How the places are rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// An expression: `(if on(1) {code} else {original})`.
    Instead,
    /// A statement: `if !on(1) {original}`.
    Unless,
    /// The begin of a body, which is left at once.
    Enter,
    /// The end of an arm's pattern: ` if !on(1)`.
    Arm,
    /// `const` of a function that no constant needs: blank.
    Blank,
}

/// A place with its mutants (places in their file's mutants).
#[derive(Debug)]
pub struct Site {
    pub form: Form,
    pub range: Range<usize>,
    pub mutants: Vec<usize>,
}

/// What was found in a file.
#[derive(Debug, Default)]
pub struct Found {
    pub mutants: Vec<Mutant>,
    pub sites: Vec<Site>,
    /// Changes that would be, were they not in a constant or in what one needs.
    pub constant: usize,
}

/// What constants of the crate may call, by name: such functions stay `const`, and without mutants.
#[derive(Debug, Default)]
pub struct Constants {
    names: HashSet<String>,
    /// Every `const fn` with the names in its body.
    functions: Vec<(String, HashSet<String>)>,
}

impl Constants {
    /// Takes a file in; one that stays as it is keeps its functions `const`.
    pub fn add(&mut self, file: &syn::File, stays: bool) {
        let before = self.functions.len();
        self.visit_file(file);
        if stays {
            self.names.extend(self.functions[before..].iter().flat_map(|(_, called)| called.iter().cloned()));
        }
    }

    /// Once all files are in: what is called by what is called.
    pub fn close(&mut self) {
        loop {
            let before = self.names.len();
            for (name, called) in &self.functions {
                if self.names.contains(name) {
                    self.names.extend(called.iter().cloned());
                }
            }
            if self.names.len() == before {
                return;
            }
        }
    }

    fn take(&mut self, part: &impl ToTokens) {
        names_of(part.to_token_stream(), &mut self.names);
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        if signature.constness.is_some() {
            let mut called = HashSet::new();
            names_of(body.to_token_stream(), &mut called);
            self.functions.push((signature.ident.to_string(), called));
        }
    }
}

impl<'ast> Visit<'ast> for Constants {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.take(&item.expr);
    }
    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.take(&item.expr);
    }
    fn visit_trait_item_const(&mut self, item: &'ast syn::TraitItemConst) {
        self.take(&item.default.as_ref().map(|(_, value)| value));
    }
    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.take(&item.expr);
    }
    fn visit_expr_const(&mut self, block: &'ast syn::ExprConst) {
        self.take(block);
    }
    fn visit_expr_repeat(&mut self, array: &'ast syn::ExprRepeat) {
        self.take(&array.len);
        visit::visit_expr_repeat(self, array);
    }
    fn visit_type_array(&mut self, array: &'ast syn::TypeArray) {
        self.take(&array.len);
    }
    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.take(variant);
    }
    fn visit_generic_argument(&mut self, argument: &'ast syn::GenericArgument) {
        self.take(argument);
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // A macro of ours may make a constant of what it is given.
        if call.path.is_ident("macro_rules") || call.path.is_ident("thread_local") {
            self.take(&call.tokens);
        }
    }
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}

fn names_of(tokens: proc_macro2::TokenStream, into: &mut HashSet<String>) {
    for token in tokens {
        match token {
            proc_macro2::TokenTree::Ident(name) => {
                into.insert(name.to_string());
            }
            proc_macro2::TokenTree::Group(group) => names_of(group.stream(), into),
            _ => {}
        }
    }
}

/// Whether something with these attributes is the engine's own in a build for tests, on this machine.
pub fn is_ours(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().all(|attribute| {
        let path = attribute.path();
        if path.is_ident("test") || path.is_ident("unsafe") && attribute.to_token_stream().to_string().contains("naked")
        {
            return false;
        }
        let syn::Meta::List(list) = &attribute.meta else { return true };
        !path.is_ident("cfg")
            || list.parse_args::<syn::Meta>().is_ok_and(|what| [true, false].iter().all(|test| holds(&what, *test)))
    })
}

/// Whether a condition of `cfg` holds, in tests and else.
fn holds(what: &syn::Meta, test: bool) -> bool {
    let parts = |list: &syn::MetaList| {
        let all = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
        list.parse_args_with(all).into_iter().flatten().collect::<Vec<_>>()
    };
    match what {
        syn::Meta::Path(name) => name.is_ident("test") && test || name.is_ident("debug_assertions"),
        syn::Meta::NameValue(pair) => {
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(value), .. }) = &pair.value else { return false };
            let name = pair.path.to_token_stream().to_string();
            let ours = match name.as_str() {
                "target_arch" => std::env::consts::ARCH,
                "target_os" => std::env::consts::OS,
                "target_pointer_width" => "64",
                _ => "",
            };
            value.value() == ours
        }
        syn::Meta::List(list) if list.path.is_ident("not") => !parts(list).iter().any(|part| holds(part, test)),
        syn::Meta::List(list) if list.path.is_ident("any") => parts(list).iter().any(|part| holds(part, test)),
        syn::Meta::List(list) => parts(list).iter().all(|part| holds(part, test)),
    }
}

/// What stands for an operator.
fn swaps(operator: &syn::BinOp) -> &'static [&'static str] {
    use syn::BinOp as Op;
    match operator {
        Op::Eq(_) => &["!="],
        Op::Ne(_) => &["=="],
        Op::Lt(_) => &["<=", ">="],
        Op::Le(_) => &["<", ">"],
        Op::Gt(_) => &[">=", "<="],
        Op::Ge(_) => &[">", "<"],
        Op::And(_) => &["||"],
        Op::Or(_) => &["&&"],
        Op::Add(_) => &["-"],
        Op::Sub(_) => &["+"],
        Op::Mul(_) => &["+"],
        Op::Div(_) => &["*"],
        Op::Rem(_) => &["/"],
        Op::Shl(_) => &[">>"],
        Op::Shr(_) => &["<<"],
        Op::BitAnd(_) => &["|"],
        Op::BitOr(_) => &["&"],
        Op::BitXor(_) => &["|"],
        Op::AddAssign(_) => &["-="],
        Op::SubAssign(_) => &["+="],
        Op::MulAssign(_) => &["+="],
        Op::DivAssign(_) => &["*="],
        Op::RemAssign(_) => &["/="],
        Op::ShlAssign(_) => &[">>="],
        Op::ShrAssign(_) => &["<<="],
        Op::BitAndAssign(_) => &["|="],
        Op::BitOrAssign(_) => &["&="],
        Op::BitXorAssign(_) => &["|="],
        _ => &[],
    }
}

/// What a function of this type may give at once.
fn plain_values(output: &syn::ReturnType) -> &'static [&'static str] {
    let syn::ReturnType::Type(_, kind) = output else { return &["()"] };
    match &**kind {
        syn::Type::Tuple(tuple) if tuple.elems.is_empty() => &["()"],
        syn::Type::Ptr(pointer) if pointer.mutability.is_some() => &["core::ptr::null_mut()"],
        syn::Type::Ptr(_) => &["core::ptr::null()"],
        syn::Type::Path(path) => match path.path.segments.last().map(|last| last.ident.to_string()).as_deref() {
            Some("bool") => &["true", "false"],
            Some("u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize") => &["0", "1"],
            Some("Option") => &["None"],
            Some("Result") => &["Ok(())"],
            _ => &[],
        },
        _ => &[],
    }
}

/// A walk over one file.
pub struct Finder<'a> {
    path: &'a str,
    text: &'a str,
    constants: &'a Constants,
    found: Found,
    /// The type and the functions around, the innermost last.
    around: Vec<String>,
    /// In a constant, or in a function that stays one.
    in_constant: bool,
}

impl<'a> Finder<'a> {
    /// Everything that can be changed in `text`.
    pub fn find(path: &'a str, text: &'a str, file: &syn::File, constants: &'a Constants) -> Found {
        let mut finder =
            Self { path, text, constants, found: Found::default(), around: Vec::new(), in_constant: false };
        finder.visit_file(file);
        finder.found
    }

    /// The text of something on one line, without comments.
    fn line(&self, part: &(impl Spanned + ToTokens)) -> String {
        let text = &self.text[part.span().byte_range()];
        if text.contains('\n') { part.to_token_stream().to_string() } else { text.to_owned() }
    }

    /// A change: what is for eyes before and after, what the compiler gets; `at` is where eyes find it.
    fn push(
        &mut self,
        form: Form,
        range: Range<usize>,
        at: proc_macro2::Span,
        eyes: (&str, &str),
        code: impl Into<String>,
    ) {
        if self.in_constant {
            self.found.constant += 1;
            return;
        }
        let start = at.start();
        self.found.mutants.push(Mutant {
            path: self.path.to_owned(),
            line: start.line,
            column: start.column + 1,
            function: self.around.join("::"),
            original: short(eyes.0),
            changed: short(eyes.1),
            code: code.into(),
        });
        let mutant = self.found.mutants.len() - 1;
        match self.found.sites.iter_mut().find(|site| site.form == form && site.range == range) {
            Some(site) => site.mutants.push(mutant),
            None => self.found.sites.push(Site { form, range, mutants: vec![mutant] }),
        }
    }

    /// A condition that could as well be constant.
    fn condition(&mut self, word: &str, condition: &syn::Expr, values: &[&str]) {
        let is_macro_of_cfg = matches!(condition, syn::Expr::Macro(call) if call.mac.path.is_ident("cfg"));
        if is_macro_of_cfg || has_let(condition) || matches!(condition, syn::Expr::Lit(_)) {
            return;
        }
        let original = format!("{word} {}", self.line(condition));
        for value in values {
            let eyes = (&*original, &*format!("{word} {value}"));
            self.push(Form::Instead, condition.span().byte_range(), condition.span(), eyes, *value);
        }
    }

    /// A function: its values, then what is in it.
    fn function(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, body: &syn::Block) {
        let name = signature.ident.to_string();
        if !is_ours(attributes) || name == "verify" {
            return;
        }
        let is_constant = self.in_constant;
        if let Some(word) = &signature.constness {
            if self.constants.names.contains(&name) {
                self.in_constant = true;
            } else {
                let range = word.span().byte_range();
                self.found.sites.push(Site { form: Form::Blank, range, mutants: Vec::new() });
            }
        }
        self.around.push(name);
        for value in plain_values(&signature.output) {
            let is_it_already = body.stmts.is_empty()
                || matches!(&*body.stmts, [syn::Stmt::Expr(only, None)] if self.line(only) == *value);
            if !is_it_already {
                let begin = body.brace_token.span.open().byte_range().end;
                let eyes = ("body", &*format!("{{ {value} }}"));
                self.push(Form::Enter, begin..begin, signature.ident.span(), eyes, format!("return {value};"));
            }
        }
        visit::visit_block(self, body);
        self.around.pop();
        self.in_constant = is_constant;
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.attrs, &item.sig, body);
        }
    }
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_ours(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_ours(&item.attrs) {
            return;
        }
        let of = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.around.push(of.unwrap_or_else(|| self.line(&item.self_ty)));
        visit::visit_item_impl(self, item);
        self.around.pop();
    }
    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.around.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.around.pop();
    }

    // Constants are counted; nothing else is an expression in types, patterns and attributes.
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        let before = std::mem::replace(&mut self.in_constant, true);
        visit::visit_item_const(self, item);
        self.in_constant = before;
    }
    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        let before = std::mem::replace(&mut self.in_constant, true);
        visit::visit_impl_item_const(self, item);
        self.in_constant = before;
    }
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast syn::AngleBracketedGenericArguments) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_expr_repeat(&mut self, array: &'ast syn::ExprRepeat) {
        self.visit_expr(&array.expr);
    }

    fn visit_expr_binary(&mut self, expression: &'ast syn::ExprBinary) {
        if !has_let(&expression.left) && !has_let(&expression.right) {
            let (left, right) = (self.line(&expression.left), self.line(&expression.right));
            let operator = self.line(&expression.op);
            let original = format!("{left} {operator} {right}");
            for swap in swaps(&expression.op) {
                let eyes = (&*original, &*format!("{left} {swap} {right}"));
                let code = format!("({left}) {swap} ({right})");
                self.push(Form::Instead, expression.span().byte_range(), expression.op.span(), eyes, code);
            }
        }
        visit::visit_expr_binary(self, expression);
    }
    fn visit_expr_unary(&mut self, expression: &'ast syn::ExprUnary) {
        if !matches!(expression.op, syn::UnOp::Deref(_)) {
            let (all, bare) = (self.line(expression), self.line(&expression.expr));
            self.push(Form::Instead, expression.span().byte_range(), expression.span(), (&all, &bare), &*bare);
        }
        visit::visit_expr_unary(self, expression);
    }
    fn visit_expr_if(&mut self, expression: &'ast syn::ExprIf) {
        self.condition("if", &expression.cond, &["true", "false"]);
        visit::visit_expr_if(self, expression);
    }
    fn visit_expr_while(&mut self, expression: &'ast syn::ExprWhile) {
        self.condition("while", &expression.cond, &["false"]);
        visit::visit_expr_while(self, expression);
    }
    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let has_rest = expression.arms.last().is_some_and(|arm| matches!(arm.pat, syn::Pat::Wild(_)));
        for (index, arm) in expression.arms.iter().enumerate() {
            match &arm.guard {
                Some((_, guard)) => self.condition("if", guard, &["true", "false"]),
                None if has_rest && index + 1 < expression.arms.len() => {
                    let end = arm.pat.span().byte_range().end;
                    let original = format!("{} =>", self.line(&arm.pat));
                    self.push(Form::Arm, end..end, arm.pat.span(), (&original, "no arm"), "");
                }
                None => {}
            }
        }
        visit::visit_expr_match(self, expression);
    }
    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(call @ (syn::Expr::Call(_) | syn::Expr::MethodCall(_)), Some(end)) = statement {
            let range = call.span().byte_range().start..end.span().byte_range().end;
            let text = format!("{};", self.line(call));
            self.push(Form::Unless, range, call.span(), (&text, "nothing"), "");
        }
        visit::visit_stmt(self, statement);
    }
}

/// Whether a condition binds something.
fn has_let(condition: &syn::Expr) -> bool {
    match condition {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}

/// One line, its middle left out if it is long.
fn short(text: &str) -> String {
    const LONG: usize = 70;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let letters: Vec<char> = words.chars().collect();
    if letters.len() <= LONG {
        return words;
    }
    let end = letters.len() - LONG / 2;
    format!("{} … {}", letters[..LONG / 2].iter().collect::<String>(), letters[end..].iter().collect::<String>())
}
