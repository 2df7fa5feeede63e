"""What stands between a worker of a real run and the workers' endpoint: it sees each post, and may change an answer."""

import http.server
import json
import os
import threading
import urllib.error
import urllib.request

from job import read

ANSWER_SECONDS = 1  # less than a worker waits, so that it is this program's word that the endpoint does not answer


class BetweenEndpoint:
    """Hands the posts of the worker in `slot` on to the endpoint. `change` is given each answer to a join that has a spec,
    and may change it. `posts` grows by (path, status) as posts are answered; 503 where the endpoint does not answer."""

    def __init__(self, job, slot, change=None):
        self.file = os.path.join(job.directory, f"endpoint-{slot}")
        self.change, self.posts = change, []
        between = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                between.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        job.set_slot(slot, f'echo "$MUSTER_ENDPOINT" > "{self.file}"\n'
                           f"export MUSTER_ENDPOINT=http://127.0.0.1:{self.server.server_address[1]}")

    def answer(self, post):
        body = post.rfile.read(int(post.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in post.headers.items()
                   if name.lower() not in ("host", "content-length", "connection")}
        request = urllib.request.Request(read(self.file).strip() + post.path, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        except OSError:
            status, text = 503, b"{}"
        if self.change and status == 200 and post.path.endswith("/join"):
            answer = json.loads(text)
            if answer.get("training"):
                self.change(answer)
            text = json.dumps(answer).encode()
        self.posts.append((post.path, status))
        post.send_response(status)
        post.send_header("Content-Type", "application/json")
        post.send_header("Content-Length", str(len(text)))
        post.end_headers()
        post.wfile.write(text)

    def asked_witness(self):
        """How often the worker has asked the witness and was answered, or told that there is no answer."""
        return sum(path.endswith("/witness") for path, _ in list(self.posts))

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
