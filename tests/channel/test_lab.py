"""`pelton lab scenario channels` with the wheel."""

import json
import subprocess
import sys

from environment import clean_environment


def test_the_scenario_of_channels_has_the_channel_as_one_more_client(binary, tmp_path):
    # Without grpcio, whose runs take long.
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
        case "$*" in *"--module pelton_grpc"*) exec {sys.executable} "$@" ;; esac
        echo "ModuleNotFoundError: No module named 'grpc'" >&2
        exit 1
        """
    )
    python.chmod(0o755)
    environment = clean_environment()
    words = [binary, "lab", "scenario", "channels", "--quick", "--output", "json"]
    done = subprocess.run(
        [*words, "--python", python], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    runs = [run for run in report["runs"] if run["run"].startswith("pelton_grpc, 1 channel")]
    # On a machine with much else to do no call may end in a tenth of a second.
    idle = [one for one in report["not_run"] if one["run"].startswith("pelton_grpc")]
    assert len(runs) + len(idle) == 4 and all("none ended" in one["why"] for one in idle)
    for run in runs:
        assert run["client_figures"]["client"] == "pelton_grpc"
        assert run["client_figures"]["calls"] > 0 == run["client_figures"]["failures"]
    [claim] = [each for each in report["claims"] if "`pelton_grpc`" in each["claim"]]
    assert claim["verdict"] in ("reproduced", "not-reproduced") or idle
