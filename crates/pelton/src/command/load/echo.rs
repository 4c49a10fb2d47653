//! A load of an echo service: that of brpc's examples, or that of SRPC's benchmark.

use api::brpc_echo::{self, EchoRequest, EchoResponse};
use api::srpc_benchmark::{self, EmptyPbMsg, FixLengthPbMsg};
use client::FramedProtocol;
use lab::{LoadPlan, Report, SameRequest};

use super::run::run;
use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// What messages consist of, as those of SRPC's benchmark do.
const FILLER: &str = "r";

/// Loads the echo service of the plan's protocol with messages of so many bytes.
pub(super) fn load_echo(
    bytes: usize,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let text = FILLER.repeat(bytes);
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    let path = match plan.framed {
        None | Some(FramedProtocol::BaiduStd) => {
            let message = Some(&*text);
            EchoRequest { message }.encode(&mut request);
            EchoResponse { message }.encode(&mut answer);
            brpc_echo::ECHO.path
        }
        Some(FramedProtocol::Srpc) => {
            let msg = text.as_bytes();
            FixLengthPbMsg { msg }.encode(&mut request);
            EmptyPbMsg {}.encode(&mut answer);
            srpc_benchmark::ECHO_PB.path
        }
    };
    let workload = SameRequest::new(format!("/{path}"), request).answered_by(answer);
    let outcome = run(plan, |_| workload.clone(), interrupt)?;
    Ok(Report::new(
        format!("{path}, {bytes} bytes"),
        plan,
        outcome,
        1,
    ))
}
