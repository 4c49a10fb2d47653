//! Which way bytes go.

/// Which way bytes go through the tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TapDirection {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: responses.
    ToClient,
}

impl TapDirection {
    /// Both, requests first.
    pub const BOTH: [TapDirection; 2] = [TapDirection::ToServer, TapDirection::ToClient];

    /// The other one.
    pub fn opposite(self) -> TapDirection {
        match self {
            TapDirection::ToServer => TapDirection::ToClient,
            TapDirection::ToClient => TapDirection::ToServer,
        }
    }
}

/// One value for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BothWays<T> {
    pub(crate) to_server: T,
    pub(crate) to_client: T,
}

impl<T> BothWays<T> {
    pub(crate) fn get(&self, direction: TapDirection) -> &T {
        match direction {
            TapDirection::ToServer => &self.to_server,
            TapDirection::ToClient => &self.to_client,
        }
    }

    pub(crate) fn get_mut(&mut self, direction: TapDirection) -> &mut T {
        match direction {
            TapDirection::ToServer => &mut self.to_server,
            TapDirection::ToClient => &mut self.to_client,
        }
    }
}
