"""An SQS that takes every batch at once and keeps nothing: ``sqs_stub.py``. Prints its port on 127.0.0.1."""

import asyncio
import json
import sys


class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.received = transport, b""

    def data_received(self, data):
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            head = self.received[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            if len(self.received) < end + 4 + length:
                return
            body, self.received = self.received[end + 4 : end + 4 + length], self.received[end + 4 + length :]
            self.transport.write(answer(json.loads(body)))


def answer(request):
    taken = [{"Id": entry["Id"], "MessageId": "m" * 36, "MD5OfMessageBody": "0" * 32} for entry in request.get("Entries", ())]
    body = json.dumps({"Successful": taken}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


asyncio.run(main())
