//! The methods of `pelton.v1.Blob`.

use super::{harmless, may_repeat};
use crate::blob::{
    DeleteBlobRequest, DeleteBlobResponse, DiscardUploadsRequest, DiscardUploadsResponse,
    DownloadRequest, DownloadResponse, ListRequest, ListResponse, ListUploadsRequest,
    ListUploadsResponse, StatRequest, StatResponse, UploadRequest, UploadResponse,
};

super::rpcs! {
    Upload<'a> crate::blob::UPLOAD: UploadRequest<'a> => UploadResponse<'a>, may_repeat;
    Download<'a> crate::blob::DOWNLOAD: DownloadRequest<'a> => DownloadResponse<'a>, harmless;
    Stat<'a> crate::blob::STAT: StatRequest<'a> => StatResponse<'a>, harmless;
    List<'a> crate::blob::LIST: ListRequest<'a> => ListResponse<'a>, harmless;
    Delete<'a> crate::blob::DELETE: DeleteBlobRequest<'a> => DeleteBlobResponse, may_repeat;
    ListUploads<'a> crate::blob::LIST_UPLOADS:
        ListUploadsRequest<'a> => ListUploadsResponse<'a>, harmless;
    DiscardUploads<'a> crate::blob::DISCARD_UPLOADS:
        DiscardUploadsRequest<'a> => DiscardUploadsResponse, may_repeat;
}
