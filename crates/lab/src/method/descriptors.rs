//! Descriptors of others, checked for what the library that reads them takes for granted: it ends
//! the process where it is not so.

use prost_reflect::{DescriptorPool, EnumDescriptor, Kind, MessageDescriptor};

use super::MethodError;

/// Numbers of the fields of the entry of a map (Protocol Buffers, "Maps: Backwards compatibility").
const MAP_KEY: u32 = 1;
const MAP_VALUE: u32 = 2;

/// Reads a `FileDescriptorSet`.
///
/// # Errors
/// If it is none, or contradicts itself.
pub(super) fn read_descriptors(descriptor_set: &[u8]) -> Result<DescriptorPool, MethodError> {
    let pool = DescriptorPool::decode(descriptor_set)
        .map_err(|error| MethodError::BadDescriptors(error.to_string()))?;
    let is_broken = |one: &MessageDescriptor| one.is_map_entry() && !is_map_entry_whole(one);
    let broken = pool.all_messages().find(is_broken);
    if let Some(entry) = broken {
        let name = entry.full_name();
        let error = format!("`{name}` is to be the entry of a map, and has no key or no value");
        return Err(MethodError::BadDescriptors(error));
    }
    let empty = pool.all_enums().find(is_enum_empty);
    if let Some(empty) = empty {
        let error = format!("the enum `{}` has no value", empty.full_name());
        return Err(MethodError::BadDescriptors(error));
    }
    Ok(pool)
}

fn is_map_entry_whole(entry: &MessageDescriptor) -> bool {
    let fields = (entry.get_field(MAP_KEY), entry.get_field(MAP_VALUE));
    let (Some(key), Some(value)) = fields else {
        return false;
    };
    let is_key = !matches!(
        key.kind(),
        Kind::Double | Kind::Float | Kind::Bytes | Kind::Message(_) | Kind::Enum(_)
    );
    is_key && !key.is_list() && !value.is_list() && !value.is_map()
}

fn is_enum_empty(one: &EnumDescriptor) -> bool {
    one.values().len() == 0
}

#[cfg(test)]
mod tests {
    use prost_reflect::prost::Message;
    use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
    use prost_reflect::prost_types::{
        DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
        FileDescriptorSet, MessageOptions,
    };

    use super::*;

    fn field(name: &str, number: i32, kind: Type, label: Label) -> FieldDescriptorProto {
        FieldDescriptorProto {
            name: Some(name.into()),
            number: Some(number),
            r#type: Some(kind.into()),
            label: Some(label.into()),
            ..FieldDescriptorProto::default()
        }
    }

    /// A message with a map of which the entry has these fields, and enums with so many values.
    fn descriptors(
        of_entry: Vec<FieldDescriptorProto>,
        enums: Vec<EnumDescriptorProto>,
    ) -> Vec<u8> {
        let entry = DescriptorProto {
            name: Some("AEntry".into()),
            field: of_entry,
            options: Some(MessageOptions {
                map_entry: Some(true),
                ..MessageOptions::default()
            }),
            ..DescriptorProto::default()
        };
        let map = FieldDescriptorProto {
            type_name: Some(".t.M.AEntry".into()),
            ..field("a", 1, Type::Message, Label::Repeated)
        };
        let message = DescriptorProto {
            name: Some("M".into()),
            field: vec![map],
            nested_type: vec![entry],
            ..DescriptorProto::default()
        };
        let file = FileDescriptorProto {
            name: Some("t.proto".into()),
            package: Some("t".into()),
            message_type: vec![message],
            enum_type: enums,
            syntax: Some("proto3".into()),
            ..FileDescriptorProto::default()
        };
        FileDescriptorSet { file: vec![file] }.encode_to_vec()
    }

    #[test]
    fn the_entry_of_a_map_has_a_key_and_a_value() {
        let key = |kind| field("key", 1, kind, Label::Optional);
        let value = || field("value", 2, Type::Bytes, Label::Optional);
        let read = |fields| read_descriptors(&descriptors(fields, Vec::new()));
        for kind in [Type::String, Type::Int64, Type::Bool, Type::Fixed32] {
            read(vec![key(kind), value()]).expect("it is a map");
        }
        for fields in [
            vec![],
            vec![value()],
            vec![key(Type::String)],
            vec![key(Type::Double), value()],
            vec![key(Type::Bytes), value()],
            vec![field("key", 1, Type::String, Label::Repeated), value()],
            vec![
                key(Type::String),
                field("value", 2, Type::Bytes, Label::Repeated),
            ],
        ] {
            let error = read(fields).expect_err("it is none").to_string();
            assert!(error.contains("`t.M.AEntry`"), "{error}");
        }
    }

    #[test]
    fn an_enum_has_a_value() {
        let empty = EnumDescriptorProto {
            name: Some("E".into()),
            ..EnumDescriptorProto::default()
        };
        let fields = || {
            vec![
                field("key", 1, Type::String, Label::Optional),
                field("value", 2, Type::Bytes, Label::Optional),
            ]
        };
        read_descriptors(&descriptors(fields(), Vec::new())).expect("there is no enum");
        let error = read_descriptors(&descriptors(fields(), vec![empty]));
        assert!(matches!(error, Err(MethodError::BadDescriptors(_))));
    }
}
