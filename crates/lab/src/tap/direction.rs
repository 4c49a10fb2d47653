//! Which way bytes go.

/// Which way bytes go through the tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: responses.
    ToClient,
}

impl Direction {
    /// Both, requests first.
    pub const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

    /// The other one.
    pub fn opposite(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
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
    pub(crate) fn get(&self, direction: Direction) -> &T {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    pub(crate) fn get_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }
}
