"""Cases that are run with the channel of grpcio and with ours, and how an outcome is written down
so that two of them can be compared."""

import asyncio

import grpc
import pelton_grpc
import pelton_grpc.aio

# By name: what makes a channel without TLS.
INSECURE = {"grpcio": grpc.insecure_channel, "pelton": pelton_grpc.insecure_channel}

# The same for asyncio: modules.
MODULES = {"grpcio": grpc.aio, "pelton": pelton_grpc.aio}

# These only end what hangs.
SECONDS = 30


def pairs(metadata):
    """Metadata without what belongs to a connection, not to a call."""
    return sorted(tuple(pair) for pair in metadata or () if pair[0] != "date")


def failure(error, details=True):
    """What a caller can see of a call that has failed. `details`: they are the server's, and not
    chosen by the channel."""
    assert isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call)
    return {
        "code": error.code(),
        "details": error.details() if details else bool(error.details()),
        "initial": pairs(error.initial_metadata()),
        "trailing": pairs(error.trailing_metadata()),
    }


def outcome(call, details=True):
    """What a call returns, or how it fails."""
    try:
        return {"returned": call()}
    except grpc.RpcError as error:
        return failure(error, details)
    except (ValueError, TypeError) as error:
        return {"raised": type(error).__name__}


def of_call(call):
    """What a call that has ended says of itself."""
    return {
        "code": call.code(),
        "details": call.details(),
        "initial": pairs(call.initial_metadata()),
        "trailing": pairs(call.trailing_metadata()),
        "is_active": call.is_active(),
    }


def compare(case, address, **options):
    """Runs a case with each channel, and returns what both have found."""
    found = {}
    for name, insecure_channel in INSECURE.items():
        with insecure_channel(address, **options) as channel:
            found[name] = case(channel)
    assert found["pelton"] == found["grpcio"], found
    return found["pelton"]


def run_aio(case, module, address, **options):
    """What a case finds over a channel of grpc.aio or ours."""

    async def main():
        async with module.insecure_channel(address, **options) as channel:
            return await asyncio.wait_for(case(channel), 2 * SECONDS)

    return asyncio.run(main())


def compare_aio(case, address, **options):
    """Runs a case with each channel of asyncio, and returns what both have found."""
    found = {name: run_aio(case, module, address, **options) for name, module in MODULES.items()}
    assert found["pelton"] == found["grpcio"], found
    return found["pelton"]


async def end_of(waited, details=True):
    """What is raised or returned to whoever waits."""
    try:
        return "returned", await waited
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() if details else bool(error.details())
    except asyncio.CancelledError:
        return "cancelled"
    except Exception as error:
        return type(error)
