"""Bench: round trip of a typed message beside raw pyzmq asyncio, between two processes. JSON.

Both sides run on uvloop; ours decodes, checks and encodes at each end, raw sends the same bytes.
The two alternate in rounds, so that a drift of the machine hits both.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time

import uvloop
import zmq
import zmq.asyncio

sys.path.insert(0, ".")

from protocols.channel import ZmqInbox, ZmqOutbox
from protocols.codec import decode, encode
from protocols.messages import LeaseGrant

ROUNDS, TRIPS = 6, 1500
MESSAGE = LeaseGrant("pretrain", 7, 300, tuple((i * 100, i * 100 + 99, 24) for i in range(8)))


class Ours:
    """Inbox and outbox on a loop, as a node has them; awaits one message at a time."""

    def __init__(self, inbox: ZmqInbox, outbox: ZmqOutbox) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(inbox.fd, self._readable)
        self._waiting: asyncio.Future[None] | None = None
        self._got: list[object] = []

    def _readable(self) -> None:
        self._got += [decode(delivery.frames)[0] for delivery in self._inbox.drain(256)]
        if self._got and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self) -> object:
        if not self._got:
            self._waiting = self._loop.create_future()
            await self._waiting
        return self._got.pop(0)

    def send(self, message: LeaseGrant) -> None:
        self._outbox.send(encode(message))


async def _ours_echo(here: str, there: str) -> None:
    context = zmq.Context()
    side = Ours(ZmqInbox(context, here), ZmqOutbox(context, there, "bench", b"echo"))
    while True:
        message = await side.receive()
        assert isinstance(message, LeaseGrant)
        side.send(message)


async def _raw_echo(here: str, there: str) -> None:
    context = zmq.asyncio.Context()
    inbox, outbox = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    inbox.bind(here)
    outbox.connect(there)
    while True:
        frames = await inbox.recv_multipart()
        await outbox.send_multipart(frames[1:])


def _serve(kind: str, here: str, there: str) -> None:
    uvloop.run((_ours_echo if kind == "ours" else _raw_echo)(here, there))


async def _measure(base: str) -> dict[str, list[float]]:
    context, async_context = zmq.Context(), zmq.asyncio.Context()
    ours = Ours(
        ZmqInbox(context, f"{base}/ours-back"),
        ZmqOutbox(context, f"{base}/ours", "echo", b"bench"),
    )
    raw_in, raw_out = async_context.socket(zmq.ROUTER), async_context.socket(zmq.DEALER)
    raw_in.bind(f"{base}/raw-back")
    raw_out.connect(f"{base}/raw")
    body = [bytes(frame) for frame in encode(MESSAGE)]
    trips: dict[str, list[float]] = {"ours": [], "raw": []}
    for round_number in range(ROUNDS + 1):
        for kind in ("ours", "raw"):
            taken = []
            for _ in range(TRIPS):
                begun = time.perf_counter()
                if kind == "ours":
                    ours.send(MESSAGE)
                    await ours.receive()
                else:
                    await raw_out.send_multipart(body)
                    await raw_in.recv_multipart()
                taken.append((time.perf_counter() - begun) * 1e6)
            if round_number:  # the first is the warm-up
                trips[kind] += taken
    return trips


def main() -> None:
    """Print one JSON object."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        base = f"ipc://{folder}"
        echoes = [
            spawn.Process(target=_serve, args=(kind, f"{base}/{kind}", f"{base}/{kind}-back"))
            for kind in ("ours", "raw")
        ]
        for echo in echoes:
            echo.start()
        try:
            trips = uvloop.run(_measure(base))
        finally:
            for echo in echoes:
                echo.kill()
                echo.join()
    found = {
        kind: {
            "p50_us": round(statistics.median(taken), 1),
            "p99_us": round(sorted(taken)[len(taken) * 99 // 100], 1),
        }
        for kind, taken in trips.items()
    }
    ratio = found["ours"]["p50_us"] / found["raw"]["p50_us"]
    print(
        json.dumps(
            {
                "bench": "message round trip",
                "bytes": sum(map(len, encode(MESSAGE))),
                "trips": ROUNDS * TRIPS,
                **found,
                "ratio_p50": round(ratio, 3),
                "target": 1.3,
                "met": ratio <= 1.3,
            }
        )
    )


if __name__ == "__main__":
    main()
