//! A call about tokens or roles.
//!
//! A change looks at all identities, decides, and commits what it has decided on the condition that
//! nobody has changed one since. If somebody has, it looks again.

use store::remote::Lack;
use store::{CommitOutcome, DatabaseId, ReadView};

use super::identity_change::{Committed, MadeIdentity, check_caller, commit_change, committed};
use super::role_request::RoleRequest;
use super::token_request::TokenRequest;
use super::{roles, tokens};
use crate::actions::{Administration, CallClock, DatabaseAccess, Permissions, Responses, SendRoom};
use crate::call::Shared;
use crate::identities::record::StoredIdentities;
use crate::keyvalue::refuse::lack;
use crate::method::Method;
use crate::status::Status;

/// A call about tokens or roles, from its request to its response.
pub(super) struct IdentityCall {
    wanted: IdentityRequest,
    /// How often a change was decided.
    tries: u32,
    /// What the commit under way makes.
    made: MadeIdentity,
    /// A list that waits until it can be sent.
    waits: bool,
}

/// What is asked for.
enum IdentityRequest {
    Token(TokenRequest),
    Role(RoleRequest),
}

impl IdentityCall {
    /// Takes the request up, and asks for all identities.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Administration),
    ) -> Result<IdentityCall, Status> {
        let wanted = match method {
            Method::AdminSetRole | Method::AdminListRoles | Method::AdminDropRole => {
                IdentityRequest::Role(RoleRequest::read(method, bytes, actions)?)
            }
            _ => IdentityRequest::Token(TokenRequest::read(method, bytes, shared, actions)?),
        };
        if shared.store.is_remote() && !wanted.is_list() {
            return Err(lack(Lack::Identities));
        }
        actions.read_long(DatabaseId::IDENTITIES);
        Ok(IdentityCall {
            wanted,
            tries: 0,
            made: MadeIdentity::Nothing,
            waits: false,
        })
    }

    /// Decides, with all identities at hand.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + Responses + SendRoom + CallClock),
    ) -> Result<(), Status> {
        let read = shared.identities.read(view);
        let stored = read.stored();
        let now_ms = actions.now_ms();
        check_caller(stored, now_ms, actions)?;
        if self.wanted.is_list() {
            self.waits = !actions.can_send();
            if !self.waits {
                self.wanted.list(stored, shared, now_ms, actions);
            }
            return Ok(());
        }
        let decided = match &self.wanted {
            IdentityRequest::Token(request) => {
                tokens::decide(request, stored, shared, (now_ms, actions.proof()))?
            }
            IdentityRequest::Role(request) => roles::decide(request, stored, shared, now_ms)?,
        };
        self.tries += 1;
        commit_change(&decided, (stored.changes_version, shared), actions);
        self.made = decided.made;
        Ok(())
    }

    /// Goes on with a list that has waited.
    pub(super) fn writable(&mut self, actions: &mut (impl DatabaseAccess + SendRoom)) {
        if self.waits && actions.can_send() {
            self.waits = false;
            actions.read_long(DatabaseId::IDENTITIES);
        }
    }

    /// The change was made, or has to be decided anew.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + CallClock),
    ) -> Result<(), Status> {
        match (committed(outcome, self.tries)?, &self.wanted) {
            (Committed::Again, _) => actions.read_long(DatabaseId::IDENTITIES),
            (Committed::Done, IdentityRequest::Token(request)) => {
                tokens::respond(request, &self.made, shared, actions);
            }
            (Committed::Done, IdentityRequest::Role(_)) => roles::respond(&self.made, actions),
        }
        Ok(())
    }
}

impl IdentityRequest {
    fn is_list(&self) -> bool {
        matches!(
            self,
            IdentityRequest::Token(TokenRequest::List) | IdentityRequest::Role(RoleRequest::List)
        )
    }

    fn list(
        &self,
        stored: &StoredIdentities,
        shared: &Shared,
        now_ms: u64,
        actions: &mut impl Responses,
    ) {
        match self {
            IdentityRequest::Token(_) => tokens::list(stored, shared, now_ms, actions),
            IdentityRequest::Role(_) => roles::list(stored, actions),
        }
    }
}
