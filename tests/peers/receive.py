"""Receives notifications as a Python program would: verifies each with Standard Webhooks, parses it with the CloudEvents
SDK, and prints the parsed event as a line of JSON. Arguments: port, secret."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks import Webhook


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers["content-length"]))
        try:
            Webhook(sys.argv[2]).verify(body, headers)
            event = from_http_event(HTTPMessage(headers=headers, body=body))
            read = {**event.get_attributes(), "data": event.get_data()}
            read["time"] = event.get_time().timestamp()
            code = 204
        except Exception as error:
            read, code = {"error": repr(error)}, 400
        print(json.dumps(read), flush=True)
        self.send_response(code)
        self.end_headers()


HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
