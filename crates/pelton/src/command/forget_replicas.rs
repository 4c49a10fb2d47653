//! `pelton forget-replicas`

use api::admin::ForgetReplicasRequest;
use api::rpc::admin::ForgetReplicas;
use serde_json::Value;

use super::Caller;
use crate::arguments::ForgetReplicasArguments;
use crate::encoding::encode_hex;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// Has a leader count replicas no more that are lost for good.
pub fn forget_replicas(arguments: &ForgetReplicasArguments) -> Result<Exit, Failure> {
    let mut caller = Caller::connect(&arguments.connection)?;
    let ids: Vec<&[u8]> = arguments.replicas.iter().map(|id| &id[..]).collect();
    let request = ForgetReplicasRequest {
        replica_ids: (&ids[..]).into(),
    };
    let reply = caller.call::<ForgetReplicas>(&request).map_err(|failure| {
        let why = "until enough replicas hold that, nothing is forgotten: `pelton status` says how \
                   many must";
        match failure.is_unknown() {
            true => failure.with(why),
            false => failure,
        }
    })?;
    let message = reply.message();
    let forgotten = message
        .replica_ids
        .iter()
        .map_while(Result::ok)
        .map(encode_hex);
    let forgotten: Vec<String> = forgotten.collect();
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        let names = forgotten.into_iter().map(Value::from).collect();
        output.object(object([
            ("forgotten", Value::Array(names)),
            ("left", message.left.into()),
        ]))?;
    } else {
        for id in &forgotten {
            output.line(&format!("replica {id} does not count any more"))?;
        }
        if forgotten.is_empty() {
            output.line("all replicas that count are connected: none was forgotten")?;
        }
        output.line(&format!("replicas that count: {}", message.left))?;
    }
    output.end()?;
    Ok(Exit::Done)
}
