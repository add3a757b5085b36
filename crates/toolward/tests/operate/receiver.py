"""Receives OTLP over HTTP, decodes it with the official classes, and appends what it got to a file."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

out = open(sys.argv[1], "a", buffering=1)


def value(of):
    return getattr(of, of.WhichOneof("value")) if of.WhichOneof("value") else None


def attributes(of):
    return {one.key: value(one.value) for one in of}


def logs(body):
    request = ExportLogsServiceRequest.FromString(body)
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                yield {
                    "kind": "log",
                    "resource": attributes(resource.resource.attributes),
                    "time": record.time_unix_nano,
                    "severity": record.severity_number,
                    "body": value(record.body),
                    "attributes": attributes(record.attributes),
                    "trace": record.trace_id.hex(),
                    "event": record.event_name,
                }


def spans(body):
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "kind": "span",
                    "resource": attributes(resource.resource.attributes),
                    "name": span.name,
                    "span_kind": span.kind,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "status": span.status.code,
                    "attributes": attributes(span.attributes),
                    "links": [link.span_id.hex() for link in span.links],
                }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/x-protobuf", self.headers
        read, response = {
            "/v1/logs": (logs, ExportLogsServiceResponse()),
            "/v1/traces": (spans, ExportTraceServiceResponse()),
        }[self.path]
        for one in read(body):
            one["authorization"] = self.headers.get("Authorization")
            out.write(json.dumps(one) + "\n")
        answer = response.SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
