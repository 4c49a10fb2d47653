//! The methods of `pelton.v1.Replication`.

use super::harmless;
use crate::replication::{
    CopyRequest, CopyResponse, FollowRequest, FollowResponse, ReadContentRequest,
    ReadContentResponse,
};

super::rpcs! {
    Copy<'a> crate::replication::COPY: CopyRequest => CopyResponse<'a>, harmless;
    Follow<'a> crate::replication::FOLLOW:
        FollowRequest<'a> => FollowResponse<'a>, harmless;
    ReadContent<'a> crate::replication::READ_CONTENT:
        ReadContentRequest => ReadContentResponse<'a>, harmless;
}
