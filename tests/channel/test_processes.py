"""What happens to calls when the interpreter ends, a signal comes, or the process forks, and
beside servers that are none."""

import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import grpc
import pelton_grpc
import pytest
from both import SECONDS, outcome
from scripts import PROLOGUE, finish, run, start


def test_the_slow_request_is_slow(server):
    with pelton_grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary("/pelton.v1.Echo/Unary")
        found = outcome(lambda: call(b"\x18\xb0\xea\x01", timeout=0.1), details=False)
        assert found["code"] is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("where", ["echo(SLOW)", "echo.future(SLOW).result()", "next(stream(s()))"])
def test_ctrl_c_ends_a_call_that_blocks(server, where):
    script = f"""
        # Ignored in what a shell has started in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def s():
            yield SLOW
            time.sleep(60)
        echo(b"")
        print("ready", flush=True)
        try:
            {where}
        except KeyboardInterrupt:
            print("interrupted", echo(b""))
    """
    process = start(script, server)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (0, "interrupted b''\n"), err
    assert time.monotonic() - begun < 20


def test_the_handler_of_a_signal_may_make_calls_while_a_call_blocks(server):
    script = """
        calls = []
        def handler(*_):
            calls.append(echo(b"\\x0a\\x01a"))
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.2)
        # delay_ms = 1000
        answer = echo(b"\\x18\\xe8\\x07")
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(answer, len(calls) > 1)
    """
    assert run(script, server)[0] == ["b'' True"]


def test_the_interpreter_ends_with_calls_that_run(server):
    script = """
        running = [echo.future(SLOW) for _ in range(20)]
        running[0].add_done_callback(lambda _: None)
        def block(call):
            try:
                call()
            except (ValueError, pelton_grpc.RpcError):
                pass
        def requests():
            yield SLOW
            time.sleep(60)
        for call in (lambda: echo(SLOW), lambda: next(stream(requests()))):
            for _ in range(10):
                threading.Thread(target=block, args=(call,), daemon=True).start()
        # Answers come while the interpreter ends, which takes a second.
        def busy():
            while True:
                block(lambda: echo(b"\\x18\\x32"))
        for _ in range(10):
            threading.Thread(target=busy, daemon=True).start()
        class Late:
            def __del__(self, sleep=time.sleep):
                sleep(1)
        late = Late()
        time.sleep(0.5)
        print("end")
    """
    for _ in range(3):
        begun = time.monotonic()
        out, err = run(script, server)
        assert out == ["end"] and not err
        assert time.monotonic() - begun < 20


def test_after_the_end_has_begun_calls_are_cancelled(server):
    script = """
        import atexit
        # Runs after that of the channels, which was registered later.
        def late():
            try:
                echo(b"")
            except (ValueError, pelton_grpc.RpcError) as error:
                print(type(error).__name__)
        from pelton_grpc import _lifetime
        atexit.unregister(_lifetime._exit)
        atexit.register(late)
        atexit.register(_lifetime._exit)
        other = pelton_grpc.insecure_channel(sys.argv[1])
        echo(b"")
    """
    assert run(script, server)[0] == ["ValueError"]


def test_the_end_ends_calls_of_channels_that_nobody_holds(server):
    script = """
        import atexit
        from pelton_grpc import _lifetime, _native
        ended = []
        # Runs after that of the channels, which was registered later.
        def late():
            print(sorted(ended), _native.calls_inside())
        atexit.unregister(_lifetime._exit)
        atexit.register(late)
        atexit.register(_lifetime._exit)
        def block(call):
            try:
                call()
            except pelton_grpc.RpcError as error:
                ended.append(error.code().name)
        def requests():
            yield SLOW
            time.sleep(60)
        other = pelton_grpc.insecure_channel(sys.argv[1])
        unary = other.unary_unary("/pelton.v1.Echo/Unary")
        both = other.stream_stream("/pelton.v1.Echo/Stream")
        calls = (lambda: unary(SLOW)), (lambda: next(both(requests()))), (lambda: echo(SLOW))
        for call in calls:
            threading.Thread(target=block, args=(call,), daemon=True).start()
        time.sleep(0.5)
        del other, unary, both, calls, call
    """
    out, err = run(script, server)
    assert out == ["['CANCELLED', 'CANCELLED', 'CANCELLED'] 0"] and not err


def test_the_child_of_a_fork_has_connections_of_its_own(server):
    script = """
        running = echo.future(SLOW)
        streaming = stream(iter([SLOW]))
        echo(b"")
        for _ in range(2):
            child = os.fork()
            if child == 0:
                assert echo(b"\\x0a\\x01c") == b"\\x0a\\x01c"
                assert echo.future(b"").result(20) == b""
                assert list(stream(iter([b"", b""]))) == [b"", b""]
                assert running.code() is pelton_grpc.StatusCode.CANCELLED, running.code()
                assert not running.cancel()
                try:
                    next(streaming)
                except pelton_grpc.RpcError as error:
                    assert error.code() is pelton_grpc.StatusCode.CANCELLED
                ended = threading.Event()
                echo.future(b"").add_done_callback(lambda _: ended.set())
                assert ended.wait(20)
                del running, streaming
                channel.close()
                sys.exit(0)
            _, status = os.waitpid(child, 0)
            print(status, echo(b"\\x0a\\x01p"), running.done(), streaming.done())
        running.cancel()
        streaming.cancel()
    """
    out, err = run(script, server)
    assert out == ["0 b'\\n\\x01p' False False"] * 2 and not err


def test_a_fork_beside_threads_that_call(server):
    script = """
        over = threading.Event()
        def work():
            while not over.is_set():
                echo(b"")
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                code = 0 if echo(b"a"[:0]) == b"" else 1
                os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        over.set()
        for thread in threads:
            thread.join()
        print("over")
    """
    assert run(script, server)[0] == ["over"]


@pytest.mark.parametrize("where", ["echo(LATE)", "echo.future(LATE).result()", "next(stream(s()))"])
def test_a_fork_in_the_handler_of_a_signal_while_a_call_blocks(server, where):
    script = f"""
        from pelton_grpc import _native
        # delay_ms = 1000
        LATE = b"\\x18\\xe8\\x07"
        def s():
            yield LATE
            time.sleep(3)
        children = []
        signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            answer = {where}
        except pelton_grpc.RpcError as error:
            answer = error.code()
        except pelton_grpc.FutureCancelledError:
            answer = pelton_grpc.StatusCode.CANCELLED
        if children[0] == 0:
            assert answer is pelton_grpc.StatusCode.CANCELLED, answer
            assert _native.calls_inside() == 0, _native.calls_inside()
            assert echo(b"") == b""
            os._exit(7)
        print(answer, os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
    """
    out, err = run(script, server)
    assert out == ["b'' 7"] and not err


def test_multiprocessing_and_executors(server):
    script = """
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing
        def work(number):
            return echo(b"\\x0a\\x01" + bytes([48 + number]))
        echo(b"")
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(2, mp_context=fork) as executor:
            print(sorted(executor.map(work, range(4)))[-1])
    """
    assert run(script, server)[0] == ["b'\\n\\x013'"]


def test_errors_can_be_pickled(server):
    import pickle

    with pelton_grpc.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary("/none.None/None")(b"", timeout=SECONDS)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.code() is grpc.StatusCode.UNIMPLEMENTED
    assert copy.details() == raised.value.details()


def test_without_grpcio_there_are_classes_of_the_same_names(server):
    script = """
        assert echo(b"") == b""
        try:
            channel.unary_unary("/none.None/None")(b"")
        except pelton_grpc.RpcError as error:
            print(error.code(), isinstance(error, pelton_grpc.Call))
        assert list(stream(iter([b""]))) == [b""]
    """
    without = "sys = __import__('sys'); sys.modules['grpc'] = None\n"
    command = [sys.executable, "-c"]
    text = PROLOGUE + textwrap.dedent(script)
    process = subprocess.Popen(
        [*command, without + text, server.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    code, out, err = finish(process)
    assert (code, out) == (0, "StatusCode.UNIMPLEMENTED True\n"), err


GARBAGE = {
    "closes": b"",
    "text": b"SSH-2.0-none\r\n" * 20,
    "http/1.1": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "zeros": bytes(100_000),
    "settings and then zeros": b"\0\0\0\4\0\0\0\0\0" + bytes(range(256)) * 100,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_server_of_garbage(name):
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while not over.is_set():
                try:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(GARBAGE[name])
                        if GARBAGE[name]:
                            connection.recv(100_000)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        allowed = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
        with pelton_grpc.insecure_channel(target) as channel:
            for _ in range(2):
                call = channel.unary_unary("/a.B/C")
                found = outcome(lambda: call(b"", timeout=3), details=False)
                assert found["code"] in allowed | {grpc.StatusCode.INTERNAL}
                stream = channel.unary_stream("/a.B/C")(b"", timeout=3)
                found = outcome(lambda: list(stream), details=False)
                assert found["code"] in allowed | {grpc.StatusCode.INTERNAL}
        over.set()
        with socket.create_connection(listener.getsockname()):
            pass


def test_a_server_that_says_nothing_is_left_at_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        with pelton_grpc.insecure_channel(target) as channel:
            found = outcome(lambda: channel.unary_unary("/a.B/C")(b"", timeout=0.3), details=False)
            assert found["code"] is grpc.StatusCode.DEADLINE_EXCEEDED


def test_nothing_is_left_of_calls_that_have_ended(server):
    script = """
        import gc, resource
        def rounds(count):
            for _ in range(count):
                echo(bytes([10, 100]) + bytes(100))
                echo.future(b"").result()
                f = echo.future(SLOW); f.cancel()
                echo.future(SLOW)
                list(stream(iter([b""])))
                try:
                    channel.unary_unary("/none.None/None")(b"")
                except pelton_grpc.RpcError:
                    pass
            gc.collect()
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * resource.getpagesize()
        rounds(500)
        before = rounds(500)
        print((rounds(3000) - before) // 1_000_000 < 8, len(gc.get_objects()) < 200_000)
        print(threading.active_count() < 5)
    """
    assert run(script, server)[0] == ["True True", "True"]


def test_nothing_is_left_of_a_thousand_channels(server):
    script = """
        import gc
        def here():
            gc.collect()
            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        def use(count):
            channels = [pelton_grpc.insecure_channel(sys.argv[1]) for _ in range(count)]
            for number, channel in enumerate(channels):
                call = channel.unary_unary("/pelton.v1.Echo/Unary").future(b"")
                ended = threading.Event()
                call.add_done_callback(lambda _: ended.set())
                assert call.result() == b"" and ended.wait(20)
                channel.subscribe(lambda _: None)
                # Half of them are closed, the others dropped.
                if number % 2:
                    channel.close()
        use(10)
        def settle(most):
            until = time.monotonic() + 20
            while any(now > bound for now, bound in zip(here(), most)):
                if time.monotonic() > until:
                    return here()
                time.sleep(0.05)
            return "as before"
        # This thread alone, and what an interpreter has open.
        print(settle((1, 10)))
        for _ in range(10):
            use(100)
        print(settle((1, 10)))
    """
    # The channel of the prologue is not used.
    assert run(script, server)[0] == ["as before", "as before"]
