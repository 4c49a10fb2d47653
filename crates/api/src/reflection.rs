//! `grpc.reflection.v1.ServerReflection`: `proto/grpc/reflection/v1/reflection.proto`. The
//! messages of `v1alpha` are the same but for the name of the package.

crate::method::methods! {
    /// One answer to each question, in order. What cannot be answered gets an error_response; the
    /// call goes on.
    SERVER_REFLECTION_INFO Bidirectional "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    /// Reflection under its earlier name, whose messages are the same.
    SERVER_REFLECTION_INFO_V1ALPHA Bidirectional "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
}

protobuf::oneof! {
    /// One of the fields of `message_request`.
    pub enum ReflectionQuery<'a> {
        /// The file of this name, such as pelton/v1/kv.proto.
        3 FileByFilename(file_by_filename): string,
        /// The file that declares this symbol: the full name of a service, method, message, field,
        /// enum or enum value.
        4 FileContainingSymbol(file_containing_symbol): string,
        /// The file that declares this extension of a message.
        5 FileContainingExtension(file_containing_extension): message ExtensionRequest<'a>,
        /// The numbers of all extensions of this message.
        6 AllExtensionNumbersOfType(all_extension_numbers_of_type): string,
        /// The full names of all services. The content of the field is not looked at.
        7 ListServices(list_services): string,
    }

    /// One of the fields of `message_response`.
    pub enum ReflectionAnswer<'a> {
        /// The field `file_descriptor_response`.
        4 FileDescriptorResponse(file_descriptor_response): message FileDescriptorResponse<'a>,
        /// The field `all_extension_numbers_response`.
        5 AllExtensionNumbersResponse(all_extension_numbers_response): message ExtensionNumberResponse<'a>,
        /// The field `list_services_response`.
        6 ListServicesResponse(list_services_response): message ListServiceResponse<'a>,
        /// The field `error_response`.
        7 ErrorResponse(error_response): message ErrorResponse<'a>,
    }
}

protobuf::message! {
    /// The message `ServerReflectionRequest`.
    pub struct ServerReflectionRequest<'a> = "grpc.reflection.v1.ServerReflectionRequest" {
        /// Not looked at; comes back in valid_host.
        1 host: string,
    } oneofs {
        /// The oneof `message_request`.
        message_request: ReflectionQuery<'a>,
    }

    /// The message `ExtensionRequest`.
    pub struct ExtensionRequest<'a> = "grpc.reflection.v1.ExtensionRequest" {
        /// Full name of the message that is extended.
        1 containing_type: string,
        /// Field number of the extension.
        2 extension_number: int32,
    }

    /// The message `ServerReflectionResponse`.
    pub struct ServerReflectionResponse<'a> = "grpc.reflection.v1.ServerReflectionResponse" {
        /// The field `valid_host`.
        1 valid_host: string,
        /// The question.
        2 original_request: message ServerReflectionRequest<'a>,
    } oneofs {
        /// The oneof `message_response`.
        message_response: ReflectionAnswer<'a>,
    }

    /// The message `FileDescriptorResponse`.
    pub struct FileDescriptorResponse<'a> = "grpc.reflection.v1.FileDescriptorResponse" {
        /// The file that was asked for, then all files that it needs, each a serialized
        /// google.protobuf.FileDescriptorProto.
        1 file_descriptor_proto: repeated bytes,
    }

    /// The message `ExtensionNumberResponse`.
    pub struct ExtensionNumberResponse<'a> = "grpc.reflection.v1.ExtensionNumberResponse" {
        /// Full name of the message.
        1 base_type_name: string,
        /// The field `extension_number`.
        2 extension_number: repeated int32,
    }

    /// The message `ListServiceResponse`.
    pub struct ListServiceResponse<'a> = "grpc.reflection.v1.ListServiceResponse" {
        /// The field `service`.
        1 service: repeated message ServiceResponse<'a>,
    }

    /// The message `ServiceResponse`.
    pub struct ServiceResponse<'a> = "grpc.reflection.v1.ServiceResponse" {
        /// Full name of a service.
        1 name: string,
    }

    /// The message `ErrorResponse`.
    pub struct ErrorResponse<'a> = "grpc.reflection.v1.ErrorResponse" {
        /// A gRPC status code: 5 (NOT_FOUND), 3 (INVALID_ARGUMENT).
        1 error_code: int32,
        /// The field `error_message`.
        2 error_message: string,
    }
}
