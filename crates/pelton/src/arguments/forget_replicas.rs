//! `pelton forget-replicas`

use clap::Args;

use super::ConnectionArguments;

/// Bytes of the id of a replica.
const ID_BYTES: usize = 16;

/// `pelton forget-replicas`
#[derive(Args, Debug)]
pub struct ForgetReplicasArguments {
    /// Which, by their ids as `pelton status` has them; without any: all that count and are not
    /// connected now
    #[arg(value_name = "ID", value_parser = replica_id)]
    pub replicas: Vec<[u8; ID_BYTES]>,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

fn replica_id(text: &str) -> Result<[u8; ID_BYTES], String> {
    let is_hex = text.len() == 2 * ID_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    let id = number.map(u128::to_be_bytes);
    id.ok_or_else(|| "it must have 32 hexadecimal digits, as in `pelton status`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_thirty_two_digits() {
        let id = replica_id("000102030405060708090a0b0c0d0e0f").expect("it is one");
        assert_eq!(id, std::array::from_fn(|at| at as u8));
        for wrong in ["", "1", "+00102030405060708090a0b0c0d0e0f", &"0".repeat(33)] {
            assert!(replica_id(wrong).is_err(), "{wrong:?}");
        }
    }
}
