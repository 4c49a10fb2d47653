//! Finds the file that declares something, in a serialized `google.protobuf.FileDescriptorSet`.
//!
//! Field numbers are those of `google/protobuf/descriptor.proto`. Whatever is not needed for
//! finding is passed over. The messages are not described by `protobuf::message!`, since what is
//! done for each is the same: its name is field 1, and names stand in some of its fields.

use std::collections::BTreeMap;

use protobuf::{FieldFault, FieldValue, Reader};

/// The files of a descriptor set and what they declare.
#[derive(Default)]
pub(super) struct DescriptorIndex<'a> {
    files: Vec<File<'a>>,
    symbols: BTreeMap<String, Symbol>,
    /// File that declares an extension, by full name of the extended message and number.
    extensions: BTreeMap<(String, i32), usize>,
}

struct File<'a> {
    name: &'a str,
    /// The serialized `FileDescriptorProto`.
    bytes: &'a [u8],
    imports: Vec<&'a str>,
}

#[derive(Clone, Copy)]
struct Symbol {
    file: usize,
    is_message: bool,
}

impl<'a> DescriptorIndex<'a> {
    /// Reads the whole set once.
    pub(super) fn new(descriptor_set: &'a [u8]) -> Result<DescriptorIndex<'a>, FieldFault> {
        let mut index = DescriptorIndex::default();
        each_bytes(descriptor_set, |field, bytes| match field {
            1 => index.add_file(bytes),
            _ => Ok(()),
        })?;
        Ok(index)
    }

    /// Number of the file of this name.
    pub(super) fn file_by_name(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|file| file.name == name)
    }

    /// Number of the file that declares the symbol of this full name.
    pub(super) fn file_with_symbol(&self, name: &str) -> Option<usize> {
        self.symbols.get(name).map(|symbol| symbol.file)
    }

    /// Number of the file that declares extension `number` of `message`.
    pub(super) fn file_with_extension(&self, message: &str, number: i32) -> Option<usize> {
        self.extensions.get(&(message.to_owned(), number)).copied()
    }

    /// The numbers of all extensions of `message`, `None` if there is no such message.
    pub(super) fn extensions_of(&self, message: &str) -> Option<impl Iterator<Item = i32>> {
        if !self.symbols.get(message)?.is_message {
            return None;
        }
        let all = (message.to_owned(), i32::MIN)..=(message.to_owned(), i32::MAX);
        Some(self.extensions.range(all).map(|((_, number), _)| *number))
    }

    /// The serialized file, then all files that it needs, each once.
    pub(super) fn with_imports(&self, file: usize) -> Vec<&'a [u8]> {
        let mut needed = vec![file];
        let mut walked = 0;
        while let Some(&file) = needed.get(walked) {
            walked += 1;
            for import in &self.files[file].imports {
                if let Some(import) = self.file_by_name(import)
                    && !needed.contains(&import)
                {
                    needed.push(import);
                }
            }
        }
        needed
            .into_iter()
            .map(|file| self.files[file].bytes)
            .collect()
    }

    /// `FileDescriptorProto`
    fn add_file(&mut self, bytes: &'a [u8]) -> Result<(), FieldFault> {
        let (mut name, mut package, mut imports) = ("", "", Vec::new());
        each_bytes(bytes, |field, value| {
            match field {
                1 => name = string(value)?,
                2 => package = string(value)?,
                3 => imports.push(string(value)?),
                _ => {}
            }
            Ok(())
        })?;
        self.files.push(File {
            name,
            bytes,
            imports,
        });
        each_bytes(bytes, |field, value| match field {
            4 => self.add_message(package, value),
            5 => self.add_enum(package, value),
            6 => self.add_with_parts(package, value, &[2]).map(drop),
            7 => self.add_extension(package, value),
            _ => Ok(()),
        })
    }

    /// `DescriptorProto`
    fn add_message(&mut self, scope: &str, bytes: &'a [u8]) -> Result<(), FieldFault> {
        // Fields (2) and groups of them of which one is set (8).
        let name = self.add_with_parts(scope, bytes, &[2, 8])?;
        self.symbols
            .entry(name.clone())
            .and_modify(|symbol| symbol.is_message = true);
        each_bytes(bytes, |field, value| match field {
            3 => self.add_message(&name, value),
            4 => self.add_enum(&name, value),
            6 => self.add_extension(&name, value),
            _ => Ok(()),
        })
    }

    /// `EnumDescriptorProto`. The names of its values stand beside the name of the enum, not below
    /// it.
    fn add_enum(&mut self, scope: &str, bytes: &'a [u8]) -> Result<(), FieldFault> {
        self.add_with_parts(scope, bytes, &[])?;
        each_bytes(bytes, |field, value| match field {
            2 => self.add_with_parts(scope, value, &[]).map(drop),
            _ => Ok(()),
        })
    }

    /// `FieldDescriptorProto` of an extension.
    fn add_extension(&mut self, scope: &str, bytes: &'a [u8]) -> Result<(), FieldFault> {
        self.add_with_parts(scope, bytes, &[])?;
        let (mut extended, mut number) = ("", 0);
        each_field(bytes, |field, value| {
            match field {
                2 => extended = value.string()?,
                3 => number = value.int32()?,
                _ => {}
            }
            Ok(())
        })?;
        // Types are written with a leading dot in descriptors.
        let extended = extended.trim_start_matches('.').to_owned();
        self.extensions
            .insert((extended, number), self.files.len() - 1);
        Ok(())
    }

    /// Adds what `bytes` describes, and the names directly below it which stand in the fields
    /// `parts`. All descriptors have their name as field 1. Answers with the full name.
    fn add_with_parts(
        &mut self,
        scope: &str,
        bytes: &'a [u8],
        parts: &[u32],
    ) -> Result<String, FieldFault> {
        let name = full_name(scope, bytes)?;
        each_bytes(bytes, |field, value| {
            if parts.contains(&field) {
                self.add_symbol(full_name(&name, value)?);
            }
            Ok(())
        })?;
        self.add_symbol(name.clone());
        Ok(name)
    }

    fn add_symbol(&mut self, name: String) {
        let file = self.files.len() - 1;
        self.symbols.insert(
            name,
            Symbol {
                file,
                is_message: false,
            },
        );
    }
}

fn full_name(scope: &str, descriptor: &[u8]) -> Result<String, FieldFault> {
    let mut name = "";
    each_bytes(descriptor, |field, value| {
        if field == 1 {
            name = string(value)?;
        }
        Ok(())
    })?;
    Ok(match scope {
        "" => name.to_owned(),
        scope => format!("{scope}.{name}"),
    })
}

fn string(bytes: &[u8]) -> Result<&str, FieldFault> {
    FieldValue::Bytes(bytes).string()
}

/// Visits the fields that are bytes, strings or messages.
fn each_bytes<'b>(
    message: &'b [u8],
    mut visit: impl FnMut(u32, &'b [u8]) -> Result<(), FieldFault>,
) -> Result<(), FieldFault> {
    each_field(message, |field, value| match value {
        FieldValue::Bytes(bytes) => visit(field, bytes),
        _ => Ok(()),
    })
}

fn each_field<'b>(
    message: &'b [u8],
    visit: impl FnMut(u32, FieldValue<'b>) -> Result<(), FieldFault>,
) -> Result<(), FieldFault> {
    Reader::new(message)
        .for_each(visit)
        .map_err(|error| error.fault)
}
