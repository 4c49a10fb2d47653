//! The methods of `pelton.v1.Echo`.

use super::harmless;
use crate::echo::{EchoRequest, EchoResponse};

super::rpcs! {
    Unary<'a> crate::echo::UNARY: EchoRequest<'a> => EchoResponse<'a>, harmless;
    Stream<'a> crate::echo::STREAM: EchoRequest<'a> => EchoResponse<'a>, harmless;
}
