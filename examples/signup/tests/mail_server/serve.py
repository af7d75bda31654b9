"""A mail server whose behaviour the recipient's address asks for.

    serve.py FOLDER PORT

Each mail that it has accepted is a file in FOLDER before it says so.

never-…   there is no such mailbox
later-…   comes back later: the first attempt of each Message-ID gets 451
cut-…     accepts the mail, and the connection ends before its reply
lost-…    the connection ends before anything is kept, the first time
"""

import asyncio
import os
import sys
import uuid
from email import message_from_bytes

from aiosmtpd.smtp import SMTP


class Handler:
    def __init__(self, folder):
        self.folder = folder
        self.seen = set()

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("never-"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        address = envelope.rcpt_tos[0]
        message_id = message_from_bytes(envelope.content)["message-id"]
        first = message_id not in self.seen
        self.seen.add(message_id)
        if address.startswith("later-") and first:
            return "451 come back later"
        if address.startswith("lost-") and first:
            server.transport.abort()
            return "250 nobody hears this"
        self.keep(envelope.content)
        if address.startswith("cut-"):
            server.transport.abort()
        return "250 OK"

    def keep(self, mail):
        path = os.path.join(self.folder, uuid.uuid4().hex)
        with open(path, "wb") as file:
            file.write(mail)
        os.rename(path, path + ".eml")


async def main(folder, port):
    handler = Handler(folder)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(handler), "127.0.0.1", port)
    print("listens on 127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
