//! The function as it was, and beside it a value that is the tool.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, Expr, ExprLit, FnArg, Ident, ItemFn, Lit, LitStr, Meta, ReturnType, Type};

use crate::attribute::{Attribute, Retry};

pub(crate) fn expand(attribute: &Attribute, function: &ItemFn) -> syn::Result<TokenStream> {
    let description = description(function)?;
    let input = input(function)?;
    if let ReturnType::Default = function.sig.output {
        return Err(Error::new_spanned(
            &function.sig,
            "a tool answers: let it return `Result<…, ToolError>`",
        ));
    }
    let (name, visibility) = (&function.sig.ident, &function.vis);
    let value = format_ident!("{}Tool", camel_case(name));
    let doc = format!("The tool that [`{name}`] is.");
    let spec = spec(attribute, function, &description)?;
    Ok(quote! {
        #function

        #[doc = #doc]
        #[derive(Debug, Clone, Copy, Default)]
        #visibility struct #value;

        impl ::hotcell_request::TypedTool for #value {
            fn spec(&self) -> ::hotcell_request::Spec {
                #spec
            }

            fn tool(&self) -> ::std::result::Result<::hotcell_request::Tool, ::hotcell_request::Fault> {
                ::hotcell_request::TypedTool::spec(self).tool_of(#name as fn(#input) -> _)
            }

            fn call(
                &self,
                arguments: ::hotcell_request::Value,
            ) -> ::std::result::Result<::hotcell_request::Value, ::hotcell_request::ToolError> {
                ::hotcell_request::typed_call(#name as fn(#input) -> _, arguments)
            }
        }
    })
}

fn spec(attribute: &Attribute, function: &ItemFn, description: &str) -> syn::Result<TokenStream> {
    let missing = |what: &str| {
        Error::new_spanned(
            &function.sig,
            format!("a tool says what it is: add `{what}` to `#[tool(…)]`"),
        )
    };
    let name = attribute.name.as_ref().ok_or_else(|| missing("name = \"math.add\""))?;
    let version = attribute.version.as_ref().ok_or_else(|| missing("version = \"1.0.0\""))?;
    let effects = attribute.effects.as_ref().ok_or_else(|| {
        missing("effects(pure)`, or those it has of `effects(read, write, execute, network)")
    })?;
    let effects = effects.iter().map(|effect| format_ident!("{}", camel_case(effect)));
    let Attribute { tags, hosts, paths, varies, .. } = attribute;
    let option = |text: &Option<LitStr>| match text {
        Some(text) => quote!(::std::option::Option::Some(#text)),
        None => quote!(::std::option::Option::None),
    };
    let (title, category) = (option(&attribute.title), option(&attribute.category));
    let (operation, template) = (option(&attribute.operation), option(&attribute.template));
    let (timeout, memory) = (option(&attribute.timeout), option(&attribute.memory));
    let retry = match &attribute.retry {
        Some(Retry { attempts, wait }) => quote!(::std::option::Option::Some((#attempts, #wait))),
        None => quote!(::std::option::Option::None),
    };
    Ok(quote! {
        ::hotcell_request::Spec {
            name: #name,
            version: #version,
            description: #description,
            effects: &[#(::hotcell_request::Effect::#effects),*],
            title: #title,
            category: #category,
            operation: #operation,
            template: #template,
            timeout: #timeout,
            memory: #memory,
            retry: #retry,
            tags: &[#(#tags),*],
            hosts: &[#(#hosts),*],
            paths: &[#(#paths),*],
            varies: &[#(#varies),*],
        }
    })
}

/// The doc comment, which is what whoever decides to use the tool reads.
fn description(function: &ItemFn) -> syn::Result<String> {
    let mut lines = Vec::new();
    for attribute in function.attrs.iter().filter(|a| a.path().is_ident("doc")) {
        if let Meta::NameValue(meta) = &attribute.meta
            && let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &meta.value
        {
            let text = text.value();
            lines.push(text.strip_prefix(' ').unwrap_or(&text).trim_end().to_owned());
        }
    }
    let text = lines.join("\n").trim().to_owned();
    if text.is_empty() {
        return Err(Error::new_spanned(
            &function.sig,
            "a tool says what it does: write a doc comment above it, for whoever decides to use it",
        ));
    }
    Ok(text)
}

/// The type of the one argument.
fn input(function: &ItemFn) -> syn::Result<&Type> {
    let sig = &function.sig;
    if let Some(asynchronous) = &sig.asyncness {
        return Err(Error::new_spanned(
            asynchronous,
            "a tool is a plain function, not an async one",
        ));
    }
    if !sig.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &sig.generics,
            "a tool takes one type: it cannot be generic",
        ));
    }
    let mut inputs = sig.inputs.iter();
    match (inputs.next(), inputs.next()) {
        (Some(FnArg::Typed(input)), None) => Ok(&input.ty),
        _ => Err(Error::new_spanned(
            sig,
            "a tool takes one argument: a struct whose fields are the tool's arguments",
        )),
    }
}

/// `count_words` becomes `CountWords`.
fn camel_case(name: &Ident) -> String {
    let mut out = String::new();
    for word in name.to_string().trim_start_matches("r#").split('_') {
        let mut letters = word.chars();
        out.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        out.push_str(letters.as_str());
    }
    out
}
