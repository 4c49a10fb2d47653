//! Operations on keys and values: the contract, the committer and the indexes.
