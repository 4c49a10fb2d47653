//! `pelton lab agent`

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lab::agent::limits::{AGENT_OWN_DESCRIPTORS, AGENT_SOCKETS};
use lab::agent::{AgentHandler, AgentSubject};
use lab::diagnose::SystemFolders;
use net::{Listen, LoopConfig, Loops, StopHandle};
use rustix::process::{Resource, getrlimit};
use service::identities::Token;

use super::listen_tls::listen_tls;
use super::this_machine::is_on_this_machine;
use crate::arguments::AgentArguments;
use crate::credentials::given_token;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::note;
use crate::secrets::{TokenFile, draw_token};
use crate::settings::TOKEN_VARIABLE;

/// How often it is looked whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long callers may take until they have been told that it ends.
const DRAIN_MS: u64 = 1_000;

/// Reports what a process of this machine does to whoever may ask, until a signal comes.
pub(super) fn agent(arguments: &AgentArguments) -> Result<Exit, Failure> {
    let subject = match (arguments.server_pid, arguments.server_port) {
        (Some(process), _) => AgentSubject::Process(process),
        (None, Some(port)) => AgentSubject::Port(port),
        (None, None) => return Err(Failure::Usage("name --server-port or --server-pid".into())),
    };
    let tls = listen_tls(
        arguments.listen_tls_cert.as_ref(),
        arguments.listen_tls_key.as_ref(),
    )?;
    check_listen(arguments, tls.is_some())?;
    let (token, has_tls) = (token(arguments)?, tls.is_some());
    let mut config = LoopConfig {
        listen: vec![Listen {
            address: arguments.listen.clone(),
            tls,
        }],
        threads: 1,
        max_connections: AGENT_SOCKETS,
        drain_ms: DRAIN_MS,
        handle_signals: false,
        ..LoopConfig::default()
    };
    if let Some(descriptors) = descriptor_limit() {
        config.bound_connections(descriptors_of_callers(descriptors, has_tls));
    }
    let loops = Loops::bind(config);
    let loops = loops
        .map_err(|error| Failure::Failed(format!("{error}; --listen takes another address")))?;
    let interrupt = Interrupt::listen();
    let stop = loops.stop_handle();
    let stopping = thread::Builder::new()
        .name("pelton-interrupt".into())
        .spawn(move || stop_at_signal(&interrupt, &stop));
    stopping.map_err(Failure::signals)?;
    note(format_args!(
        "pelton lab agent: listening on {}, to report what {} does; Ctrl-C ends it",
        loops.addresses().first().unwrap_or(&arguments.listen),
        subject.words()
    ));
    let folders = SystemFolders::default();
    let ended = loops.run(|_| {
        let handler = AgentHandler::new(folders.clone(), subject, token.clone());
        Box::new(handler)
    });
    ended.map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(Exit::of_signal())
}

/// How many files and sockets this process may have open; `None`: as many as it likes.
fn descriptor_limit() -> Option<usize> {
    // The loops raise it as far as they need.
    let limit = getrlimit(Resource::Nofile).maximum?;
    usize::try_from(limit).ok()
}

/// How many of these descriptors the sockets of callers may be: a TLS handshake that is not
/// finished has two.
fn descriptors_of_callers(descriptors: usize, has_tls: bool) -> usize {
    let rest = descriptors.saturating_sub(AGENT_OWN_DESCRIPTORS);
    match has_tls {
        true => rest / 2,
        false => rest,
    }
}

fn stop_at_signal(interrupt: &Interrupt, stop: &StopHandle) {
    while !interrupt.is_set() {
        thread::sleep(LOOK_EVERY);
    }
    stop.stop();
}

/// Refuses an address of which others on the network could read what the server does, unless that
/// is wanted.
fn check_listen(arguments: &AgentArguments, has_tls: bool) -> Result<(), Failure> {
    let listen = &arguments.listen;
    if is_on_this_machine(listen) {
        return Ok(());
    }
    if arguments.token_file.is_none() && !arguments.anonymous {
        return Err(Failure::Usage(format!(
            "--listen {listen}: whoever reaches this address could see what the server does; \
             --token-file FILE asks them for a token, --anonymous lets them, and without --listen \
             it is reached by `ssh -L`"
        )));
    }
    if arguments.token_file.is_some() && !has_tls {
        note(format_args!(
            "warning: without --listen-tls-cert whoever is between a caller and {listen} can read \
             the token"
        ));
    }
    Ok(())
}

/// The token that callers need; a file that is not there is made, with a new one.
fn token(arguments: &AgentArguments) -> Result<Option<Arc<Token>>, Failure> {
    const FLAG: &str = "--token-file";
    let Some(path) = &arguments.token_file else {
        return Ok(None);
    };
    if path.symlink_metadata().is_err() {
        let token = draw_token();
        let token =
            token.ok_or_else(|| Failure::Failed("the system gives no random bytes".into()))?;
        let file = TokenFile::create(FLAG, path)?;
        if let Err(failure) = file.write(&token.text()) {
            file.discard();
            return Err(failure);
        }
        return Ok(Some(Arc::new(token)));
    }
    let given = given_token((FLAG, Some(path)), TOKEN_VARIABLE)?;
    let token = given.and_then(|(text, _)| Token::parse(text.as_bytes()));
    // Without one everybody could watch.
    let none = || Failure::Usage(format!("{FLAG}: there is no token in {}", path.display()));
    token.map(|token| Some(Arc::new(token))).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_leave_the_agent_descriptors_to_read_with() {
        for (descriptors, has_tls, of_callers) in [
            (1_024, false, 1_024 - AGENT_OWN_DESCRIPTORS),
            (1_024, true, (1_024 - AGENT_OWN_DESCRIPTORS) / 2),
            (3, true, 0),
        ] {
            assert_eq!(descriptors_of_callers(descriptors, has_tls), of_callers);
        }
    }
}
