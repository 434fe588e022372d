//! `#[tool]` makes a tool of hotcell from a typed Rust function. It is used through `hotcell_request::tool`,
//! where it is documented.

mod attribute;
mod expand;

use proc_macro::TokenStream;
use quote::quote;

#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, function: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(function.clone());
    let expanded = syn::parse(attribute).and_then(|attribute: attribute::Attribute| {
        let function: syn::ItemFn = syn::parse(function)?;
        expand::expand(&attribute, &function)
    });
    let tokens = expanded.unwrap_or_else(|error| {
        // With the function, so that what uses it is not blamed as well.
        let error = error.to_compile_error();
        quote!(#original #error)
    });
    tokens.into()
}
