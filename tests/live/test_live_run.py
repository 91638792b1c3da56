"""A whole run as a user starts it: separate processes, real training, and what is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import msgpack
import pytest
import zmq
from harness import decoys, live_run, run_cli, shared_memory, small_topology

from protocols.codec import decode, encode
from protocols.control import Drained, Refused
from protocols.messages import PROTOCOL_VERSION

pytestmark = pytest.mark.live


def _talk(endpoint: str, frames: list[list[bytes]]) -> list[object]:
    """Send raw frames to the control socket as a stranger; the answers, in order."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    answers: list[object] = []
    try:
        for parts in frames:
            socket.send_multipart(parts)
            assert socket.poll(5000), f"no answer to {parts[0][:20]!r}"
            answers.append(decode(socket.recv_multipart())[0])
    finally:
        socket.close()
        context.term()
    return answers


def test_two_sites_train_one_model_and_leave_nothing(tmp_path: Path) -> None:
    topology = small_topology(tmp_path / "small.toml", ("north", "south"), 200_000)
    before = shared_memory()
    with decoys() as others, live_run(topology, tmp_path / "run") as run:
        run.wait_running()
        endpoint = f"ipc://{run.runtime()}/control"
        assert run.runtime().stat().st_mode & 0o777 == 0o700
        wrong_version = msgpack.packb([5, 99, 0, 0, 1, 2, "x"])
        missing_field = msgpack.packb([5, PROTOCOL_VERSION, 0, 0, 1])
        wrong_type = msgpack.packb([5, PROTOCOL_VERSION, 0, 0, "1", 2, "x"])
        answers = _talk(
            endpoint,
            [
                [b"\xff\x00garbage"],
                [b"x" * 100_000],
                [wrong_version],
                [missing_field],
                [wrong_type],
                [*encode(Drained("north.g1.mac", "a lie"))],
            ],
        )
        assert all(isinstance(answer, Refused) for answer in answers)
        codes = [answer.code for answer in answers if isinstance(answer, Refused)]
        assert codes == [
            "not-msgpack",
            "too-large",
            "wrong-version",
            "wrong-fields",
            "bad-field",
            "unknown-peer",
        ]
        assert run.finish() == 0, run.text()
        assert run.leftovers() == []
        assert all(process.poll() is None for process in others)
    assert shared_memory() - before == set()
    assert "refused a message on the control socket (wrong-version)" in run.text()

    summary = json.loads((run.run_dir / "summary.json").read_text())
    samples = summary["training"]["jobs"]["pretrain"]["samples"]
    assert samples["lost"] == 0
    assert samples["duplicated"] == 0
    assert samples["committed"] >= 4
    assert summary["run"]["outcome"]["status"] == "done"
    manifest = json.loads((run.run_dir / "manifest.json").read_text())
    assert manifest["messages"]["rejected"]["wrong-version"] == 1
    assert 0 < manifest["memory"]["pss_bytes"] < 2e9

    replayed = run_cli("replay", str(run.run_dir))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert replayed.stdout.count("same effects") == 10
