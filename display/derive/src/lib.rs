//! The macro `#[derive(Show)]`, which the prelude re-exports as `ferrotune::display::Show`. The generated code names the prelude, so
//! it works in cells and not in the crates of which the prelude consists.

use proc_macro::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Index, Member, Result, parse_macro_input, parse_quote};

const NO_STRUCT: &str = "`Show` is derived for structs only; derive `Debug` to show this type as its text, or implement \
                         `ferrotune::display::Show` for it";
const NO_OPTION: &str = "the only option of a field is `#[show(skip)]`";

/// Shows a struct as a table of its fields, and a vector of such structs as a table with a column for each field.
///
/// The fields and the struct's type parameters must be `Debug`. `#[show(skip)]` above a field leaves it out; such a field
/// need not be `Debug`. A struct without shown fields is shown as its name.
///
/// ```ignore
/// use ferrotune::display::Show;
///
/// #[derive(Show)]
/// struct Run {
///     id: u32,
///     loss: f64,
///     #[show(skip)]
///     weights: Vec<f32>,
/// }
/// vec![Run { id: 7, loss: 0.5, weights: Vec::new() }]
/// ```
#[proc_macro_derive(Show, attributes(show))]
pub fn show(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    match implementation(input) {
        Ok(implementation) => implementation.into_token_stream().into(),
        Err(error) => error.into_compile_error().into(),
    }
}

fn implementation(mut input: DeriveInput) -> Result<impl ToTokens> {
    let Data::Struct(data) = input.data else { return Err(Error::new_spanned(&input.ident, NO_STRUCT)) };
    let (mut names, mut texts) = (Vec::new(), Vec::new());
    for (at, field) in data.fields.iter().enumerate() {
        if is_left_out(field)? {
            continue;
        }
        let member = field.ident.clone().map_or_else(|| Member::Unnamed(Index::from(at)), Member::Named);
        names.push(member.to_token_stream().to_string().trim_start_matches("r#").to_owned());
        // Errors about the type of a field then point at the field.
        texts.push(quote_spanned! {field.ty.span()=> ::ferrotune::display::field_text(&self.#member)});
    }
    for parameter in input.generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::std::fmt::Debug));
    }
    let name = &input.ident;
    let (parameters, arguments, bounds) = input.generics.split_for_impl();
    let title = name.to_string();
    Ok(quote! {
        impl #parameters ::ferrotune::display::Show for #name #arguments #bounds {
            fn bundle(&self) -> ::ferrotune::display::Bundle {
                ::ferrotune::display::of_fields(#title, &::ferrotune::display::Show::columns(self).unwrap_or_default())
            }

            fn columns(&self) -> ::std::option::Option<::std::vec::Vec<(::std::string::String, ::std::string::String)>> {
                ::std::option::Option::Some(::std::vec![#((::std::convert::From::from(#names), #texts)),*])
            }
        }
    })
}

/// Whether a field has `#[show(skip)]`.
fn is_left_out(field: &Field) -> Result<bool> {
    let mut is_left_out = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("show")) {
        attribute.parse_nested_meta(|option| {
            is_left_out = option.path.is_ident("skip");
            if is_left_out { Ok(()) } else { Err(option.error(NO_OPTION)) }
        })?;
    }
    Ok(is_left_out)
}
