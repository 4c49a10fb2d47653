"""A relay that makes a server look far away: it holds every byte back, in both directions.

    far_away.py LISTEN-PORT SERVER-HOST:PORT MILLISECONDS

A round trip takes twice so long. It does not limit how much is under way: what HTTP/2 allows is
all that does.
"""

import asyncio
import sys


async def copy(reader, writer, seconds):
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 20):
        loop.call_later(seconds, writer.write, data)
    loop.call_later(seconds, writer.close)


async def main():
    port, server, milliseconds = sys.argv[1:]
    host, server_port = server.rsplit(":", 1)
    seconds = int(milliseconds) / 1000

    async def relay(reader, writer):
        server_reader, server_writer = await asyncio.open_connection(host, int(server_port))
        there = copy(reader, server_writer, seconds)
        back = copy(server_reader, writer, seconds)
        await asyncio.gather(there, back)

    async with await asyncio.start_server(relay, "127.0.0.1", int(port)) as listener:
        await listener.serve_forever()


asyncio.run(main())
