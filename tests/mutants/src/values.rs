//! Values that a function may return in place of what it works out: a few for each type. A value
//! that does not compile for its type is dropped when the crate is built.

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypePath};

/// The most values for one function; products of tuples would be many.
const MAX_VALUES: usize = 6;

/// Returns the expressions that a function of this type may return, none for a type that has no
/// value known without its body.
pub fn of_return(output: &ReturnType) -> Vec<String> {
    let mut values = match output {
        ReturnType::Default => vec!["()".to_owned()],
        ReturnType::Type(_, ty) => of_type(ty),
    };
    values.truncate(MAX_VALUES);
    values
}

fn of_type(ty: &Type) -> Vec<String> {
    match ty {
        Type::Paren(inner) => of_type(&inner.elem),
        Type::Group(inner) => of_type(&inner.elem),
        Type::Path(path) => of_path(path),
        Type::Tuple(tuple) => of_tuple(tuple.elems.iter()),
        Type::Array(_) => strings(&["Default::default()"]),
        Type::Reference(reference) => match (&*reference.elem, reference.mutability) {
            (Type::Path(path), None) if path.path.is_ident("str") => {
                strings(&["\"\"", "\"xyzzy\""])
            }
            (Type::Slice(_), _) => strings(&["Vec::leak(Vec::new())"]),
            (Type::TraitObject(_), _) => Vec::new(),
            (elem, _) => of_type(elem)
                .iter()
                .map(|value| format!("Box::leak(Box::new({value}))"))
                .collect(),
        },
        _ => Vec::new(),
    }
}

fn of_path(path: &TypePath) -> Vec<String> {
    let Some(last) = path.path.segments.last() else {
        return Vec::new();
    };
    let arguments = type_arguments(&last.arguments);
    let wrapped = |constructor: &str| -> Vec<String> {
        let inner = arguments.first().map(|ty| of_type(ty)).unwrap_or_default();
        inner
            .iter()
            .map(|value| format!("{constructor}({value})"))
            .collect()
    };
    match (last.ident.to_string().as_str(), arguments.len()) {
        ("bool", _) => strings(&["true", "false"]),
        ("u8" | "u16" | "u32" | "u64" | "u128" | "usize", _) => strings(&["0", "1"]),
        ("i8" | "i16" | "i32" | "i64" | "i128" | "isize", _) => strings(&["0", "1", "-1"]),
        ("f32" | "f64", _) => strings(&["0.0", "1.0", "-1.0"]),
        ("String", _) => strings(&["String::new()", "\"xyzzy\".to_owned()"]),
        ("Option", 1) => {
            let mut values = strings(&["None"]);
            values.extend(wrapped("Some"));
            values
        }
        ("Result", 0) => strings(&["Ok(())"]),
        ("Result", _) => wrapped("Ok"),
        ("Vec", _) => {
            let mut values = strings(&["Vec::new()"]);
            let inner = arguments.first().map(|ty| of_type(ty)).unwrap_or_default();
            values.extend(inner.iter().map(|value| format!("vec![{value}]")));
            values
        }
        ("Box", 1) => wrapped("Box::new"),
        ("Arc", 1) => wrapped("std::sync::Arc::new"),
        _ => strings(&["Default::default()"]),
    }
}

fn of_tuple<'a>(types: impl Iterator<Item = &'a Type>) -> Vec<String> {
    let mut products = vec![Vec::new()];
    for ty in types {
        let values = of_type(ty);
        let longer = products.iter().flat_map(|product: &Vec<String>| {
            values.iter().map(|value| {
                let mut longer = product.clone();
                longer.push(value.clone());
                longer
            })
        });
        products = longer.take(MAX_VALUES).collect();
    }
    let tuple = |product: &Vec<String>| match product.len() {
        1 => format!("({},)", product[0]),
        _ => format!("({})", product.join(", ")),
    };
    products.iter().map(tuple).collect()
}

fn type_arguments(arguments: &PathArguments) -> Vec<&Type> {
    let PathArguments::AngleBracketed(arguments) = arguments else {
        return Vec::new();
    };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(ty: &str) -> Vec<String> {
        of_return(&syn::parse_str(ty).unwrap())
    }

    #[test]
    fn each_type_has_its_simple_values() {
        assert_eq!(values(""), ["()"]);
        assert_eq!(values("-> bool"), ["true", "false"]);
        assert_eq!(values("-> Option<u8>"), ["None", "Some(0)", "Some(1)"]);
        assert_eq!(values("-> io::Result<()>"), ["Ok(())"]);
        assert_eq!(values("-> Result<bool, Error>"), ["Ok(true)", "Ok(false)"]);
        assert_eq!(
            values("-> Vec<bool>"),
            ["Vec::new()", "vec![true]", "vec![false]"]
        );
        assert_eq!(
            values("-> (u8, bool)"),
            ["(0, true)", "(0, false)", "(1, true)", "(1, false)"]
        );
        assert_eq!(values("-> &[u8]"), ["Vec::leak(Vec::new())"]);
        assert_eq!(values("-> Self"), ["Default::default()"]);
    }

    #[test]
    fn a_type_without_a_known_value_has_none() {
        assert!(values("-> !").is_empty());
        assert!(values("-> impl Iterator<Item = u8>").is_empty());
        assert!(values("-> &dyn Fn()").is_empty());
    }
}
