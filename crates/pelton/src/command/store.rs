//! `pelton store init`

use store::remote::{RemoteOrder, RemotePromise, RemoteShape};

use crate::arguments::{InitStoreArguments, OrderArgument, OutputFormat, PromiseArgument};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::storage_engine::{self, EngineAccess, EngineInit};

/// Makes a keyspace of a storage engine ready.
pub fn init_store(arguments: &InitStoreArguments) -> Result<Exit, Failure> {
    let wanted = EngineInit {
        replicas: arguments.replicas,
        shape: shape(arguments)?,
    };
    let access = EngineAccess::from(&arguments.access);
    let is_new = storage_engine::init(&access, wanted)?;
    let keyspace = &access.keyspace;
    let contacts = access.contacts.join(",");
    let mut output = Output::new(OutputFormat::Text);
    output.line(&match is_new {
        true => format!("the keyspace {keyspace} is ready, with an empty default database"),
        false => format!("the keyspace {keyspace} was ready already, and stays as it is"),
    })?;
    output.line(&format!(
        "start servers with: pelton serve --store cassandra --contact {contacts} --keyspace \
         {keyspace}"
    ))?;
    output.end()?;
    Ok(Exit::Done)
}

fn shape(arguments: &InitStoreArguments) -> Result<RemoteShape, Failure> {
    let promise = match arguments.promise {
        PromiseArgument::Linearizable => RemotePromise::Linearizable,
        PromiseArgument::Quorum => RemotePromise::Quorum,
    };
    let order = match arguments.order {
        OrderArgument::Hash => RemoteOrder::Hash,
        OrderArgument::Merged => RemoteOrder::Merged,
    };
    let mut shape = RemoteShape::new(promise, order);
    if let Some(buckets) = arguments.buckets {
        shape.buckets = buckets;
    }
    shape
        .check()
        .map_err(|error| Failure::Usage(format!("--buckets: {error}")))?;
    Ok(shape)
}
