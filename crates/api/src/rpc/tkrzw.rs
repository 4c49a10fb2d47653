//! Methods of `tkrzw_rpc.DBMService` that a client of this program calls.

use super::{harmless, may_repeat};
use crate::tkrzw::{
    CountRequest, CountResponse, IterateRequest, IterateResponse, ReplicateRequest,
    ReplicateResponse,
};

super::rpcs! {
    TkrzwCount<'a> crate::tkrzw::COUNT: CountRequest => CountResponse<'a>, harmless;
    TkrzwIterate<'a> crate::tkrzw::ITERATE: IterateRequest<'a> => IterateResponse<'a>, may_repeat;
    TkrzwReplicate<'a> crate::tkrzw::REPLICATE: ReplicateRequest => ReplicateResponse<'a>, harmless;
}
