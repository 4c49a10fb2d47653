//! The methods of `pelton.v1.Replication`.

use super::harmless;
use crate::replication::{
    AcknowledgeRequest, AcknowledgeResponse, CopyRequest, CopyResponse, FollowRequest,
    FollowResponse, ReadContentRequest, ReadContentResponse,
};

super::rpcs! {
    Copy<'a> crate::replication::COPY: CopyRequest => CopyResponse<'a>, harmless;
    Follow<'a> crate::replication::FOLLOW:
        FollowRequest<'a> => FollowResponse<'a>, harmless;
    Acknowledge<'a> crate::replication::ACKNOWLEDGE:
        AcknowledgeRequest<'a> => AcknowledgeResponse, harmless;
    ReadContent<'a> crate::replication::READ_CONTENT:
        ReadContentRequest => ReadContentResponse<'a>, harmless;
}
